"""The last lines of each rank in the logs that an agent may read, with secrets redacted.

A container's log holds the lines of all its ranks: launchers put the rank before each line, and
lines without one are kept together.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.log_text.prefixes import split
from rankscope_agent.contract.printable import printable
from rankscope_agent.contract.private_keys import key_lines
from rankscope_agent.contract.redaction import HIDDEN, redacted
from rankscope_agent.sources.nccl_log.segments import LogRejectedError, open_log
from rankscope_agent.sources.nccl_log.streams import (
    LogLocation,
    pattern_logs,
    pod_logs,
    written_ns,
)

KEPT_LINES = 200
"""Lines of each rank in each log."""

MAX_READ_BYTES = 2 << 20
"""Bytes read from the end of one log: 200 lines of 8 ranks are some 300 kB."""

MAX_LOGS = 64
"""Logs of a job, those written last: outside of pods, earlier jobs have left theirs as well."""

MAX_LINE = 2048
"""Characters kept of a line."""

MAX_RANKS = 256
"""Ranks distinguished in one log; the lines of further ones are kept with those without a rank."""


class LogTails:
    """Finds the logs of jobs on a node and reads their ends.

    Args:
        pods: the kubelet's directory of container logs.
        patterns: patterns of further logs, whose jobs are unknown.
    """

    def __init__(self, pods: Path, patterns: Collection[Path]) -> None:
        self._pods = pods
        self._patterns = patterns

    def of(self, pod_uids: Collection[str], *, outside: bool) -> list[dict[str, Any]]:
        """Return the ends of the logs of some pods.

        Args:
            pod_uids: the job's pods on this node.
            outside: whether to include logs outside of pods, because only this job runs there.
        """
        found = list(self._locations(pod_uids, outside=outside))
        newest = sorted(found, key=lambda one: -written_ns(one.path))[:MAX_LOGS]
        return [_tail(one) for one in found if one in newest]

    def _locations(self, pod_uids: Collection[str], *, outside: bool) -> Iterator[LogLocation]:
        with suppress(OSError):  # no kubelet here
            yield from (one for one in pod_logs(self._pods) if one.owner.uid in pod_uids)
        for pattern in self._patterns if outside else ():
            yield from pattern_logs(pattern)


def _tail(location: LogLocation) -> dict[str, Any]:
    owner = location.owner
    about = {
        "pod": f"{owner.namespace}/{owner.name}" if owner.name else "",
        "log": "/".join(location.path.parts[-2:]),
    }
    try:
        return about | {"lines": last_lines(_end_of(location.path)), "not_read": ""}
    except (OSError, LogRejectedError) as error:
        return about | {"lines": [], "not_read": str(error)[:100]}


def _end_of(path: Path) -> bytes:
    """Return the end of a log, from the beginning of a line.

    Raises:
        OSError: it is gone or cannot be read.
        LogRejectedError: it is not a regular file.
    """
    descriptor = open_log(path)
    try:
        size = os.fstat(descriptor).st_size
        begin = max(0, size - MAX_READ_BYTES)
        data = os.pread(descriptor, MAX_READ_BYTES, begin)
    finally:
        os.close(descriptor)
    return data.partition(b"\n")[2] if begin else data


def last_lines(data: bytes, kept: int = KEPT_LINES) -> list[str]:
    """Return the last lines of each rank in the end of a log, in their order, redacted."""
    framing = Unframer()
    plain = (framing.feed(data) + framing.finish()).split(b"\n")
    keys = key_lines(plain)
    lines: dict[int | None, deque[tuple[int, str]]] = defaultdict(lambda: deque(maxlen=kept))
    for number, raw in enumerate(plain):
        if raw.strip():
            prefix, _ = split(raw)
            rank = prefix.rank if prefix.rank in lines or len(lines) < MAX_RANKS else None
            lines[rank].append((number, HIDDEN if number in keys else _shown(raw)))
    return [text for _, text in sorted(one for of_rank in lines.values() for one in of_rank)]


def _shown(raw: bytes) -> str:
    text = redacted(raw[: 4 * MAX_LINE].decode("utf-8", "replace").rstrip("\r"))
    return printable(text[:MAX_LINE])
