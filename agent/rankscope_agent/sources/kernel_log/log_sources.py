"""The sources of a node's kernel log: the device, the system call, journald's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rankscope_agent.sources.kernel_log.journal import JournalSource
from rankscope_agent.sources.kernel_log.kmsg import KmsgSource, open_kmsg
from rankscope_agent.sources.kernel_log.records import Batch
from rankscope_agent.sources.kernel_log.syslog_call import SyslogCallSource


class Source(Protocol):
    """One source of the kernel's log."""

    @property
    def name(self) -> str:
        """Return its name on the page."""
        ...

    def read(self, cursor: Mapping[str, int]) -> Batch:
        """Return what is new since a cursor; an empty cursor stands for the whole log."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


Opener = Callable[[], Source]
"""Opens a source; raises OSError if access is denied."""


def openers(kmsg: Path, system_logs: Path, boot: Callable[[], str]) -> Sequence[Opener]:
    """Return the sources of the kernel's log, the best one first.

    Args:
        kmsg: the kernel's log device.
        system_logs: the node's logs, with journald's directory.
        boot: returns the running kernel's boot id.
    """
    return (
        lambda: KmsgSource(open_kmsg(kmsg)),
        SyslogCallSource,
        lambda: JournalSource(system_logs / "journal", boot()),
    )
