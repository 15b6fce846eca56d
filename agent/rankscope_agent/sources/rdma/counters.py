"""The counters of one port or device: which files exist and can be read.

A file that cannot be read is not read again as long as the port exists, and a directory in which
nothing can be read is abandoned after two attempts: each failing read makes some drivers write a
line to the kernel log (mlx5: `ACCESS_REG(0x805) ... failed`), every second, for as long as one
reads.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.file_descriptors import EXHAUSTED
from rankscope_agent.sources.kernel_files import is_stale, names_in
from rankscope_agent.sources.rdma.counter_file import COUNTER_BYTES, CounterFile
from rankscope_agent.sources.rdma.names import LIFESPAN, Rule, own_name

log = logging.getLogger(__name__)

FAILURES_TO_GIVE_UP = 2
"""Failed reads in a directory without a successful one after which the rest is not tried: one may
be a bad file, two in a row are a function that may not query its adapter."""

MAX_FILES = 256
"""Counter files read of one directory: hfi1, which has the most, has about 200."""

MAX_SERIES = 96
"""Series of one port from its counters: mlx5 has up to 60, bnxt_re up to 90 if none is zero."""

GONE = (errno.ENODEV, errno.ENOENT, errno.ENXIO, errno.ENOTDIR)
"""The device or file has been removed: nothing failed, and nothing was written to the kernel
log."""

PASSING = (errno.EINTR, errno.EAGAIN, *EXHAUSTED)
"""Failures that say nothing about the file: it is read again the next time."""

RuleOf = Callable[[str], Rule | None]


@dataclass(frozen=True, slots=True)
class CounterFolder:
    """A directory of counter files.

    Args:
        path: its path.
        rule_of: returns the conversion of a file.
    """

    path: Path
    rule_of: RuleOf


class Counters:
    """The counters under one identity, all read back to back.

    The order matters: a driver answers a port's hardware counters from one query as long as they
    are read within its lifespan, 10 ms by default.

    Args:
        folders: directories of counters; if two count the same, the first one is used.
        identity: values of the labels for the device, or for device and port.
        everything: whether to export counters while they are zero.
        may_keep: returns whether one more descriptor may be kept.
    """

    def __init__(
        self,
        folders: Iterable[CounterFolder],
        identity: tuple[str, ...],
        *,
        everything: bool,
        may_keep: Callable[[], bool],
    ) -> None:
        self._folders = tuple(folders)
        self._identity = identity
        self._everything = everything
        self._may_keep = may_keep
        self._files: list[CounterFile] = []
        self._by_name: dict[str, CounterFile] = {}
        self._failed: set[Path] = set()
        self._stopped: set[Path] = set()
        self._listed: tuple[tuple[str, ...], ...] | None = None
        self._unlabelled = 0
        self.left_off = 0
        self.gone = False

    @property
    def unreadable(self) -> int:
        """Number of files that are no longer read because reading them or their kind failed."""
        return len(self._failed)

    @property
    def descriptors(self) -> int:
        """Number of descriptors kept."""
        return sum(file.descriptor is not None for file in self._files)

    def value(self, name: str) -> int | None:
        """Return the count in a file of that name; None if there is none."""
        file = self._by_name.get(name)
        return None if file is None else file.value

    def refresh(self) -> None:
        """Find files that have appeared, disappeared or been replaced since the last scan."""
        listed = tuple(self._list(folder) for folder in self._folders)
        kept = (file.descriptor for file in self._files if file.descriptor is not None)
        if listed == self._listed and not self.gone and not any(is_stale(fd) for fd in kept):
            return
        self._listed = listed
        self.gone = False
        self.close()
        self._keep(self._find(listed))

    def close(self) -> None:
        """Close all descriptors."""
        for file in self._files:
            file.close()

    def samples(self) -> list[Sample]:
        """Read all files and return their samples; one that cannot be read only costs itself."""
        failed = self._read()
        if failed:
            self._drop(failed)
        taken = [file.sample for file in self._files if file.sample is not None]
        if len(taken) > MAX_SERIES:
            usual_first = sorted(self._files, key=lambda file: not file.rule.always)
            taken = [file.sample for file in usual_first if file.sample is not None]
        self.left_off = self._unlabelled + max(0, len(taken) - MAX_SERIES)
        return taken[:MAX_SERIES]

    def saturated(self) -> list[Sample]:
        """Return the keys of counters at the end of their range."""
        return [file.saturated for file in self._files if file.saturated is not None]

    def _read(self) -> list[CounterFile]:
        """Read all files; return those that failed.

        This loop is most of the cost of a reading, so it contains `CounterFile.read` inline.
        """
        failed: list[CounterFile] = []
        pread = os.pread
        for file in self._files:
            try:
                descriptor = file.descriptor
                if descriptor is None:
                    file.read()
                elif (raw := pread(descriptor, COUNTER_BYTES, 0)) != file.raw:
                    file.take(raw)
            except OSError as error:  # noqa: PERF203 - each file fails alone
                self._note(file, error, failed)
        return failed

    def _keep(self, files: list[CounterFile]) -> None:
        self._files = files
        self._by_name = {file.path.name: file for file in reversed(files)}

    def _list(self, folder: CounterFolder) -> tuple[str, ...]:
        names, _ = names_in(folder.path, MAX_FILES)
        return tuple(name for name in names if name != LIFESPAN)

    def _find(self, listed: Iterable[tuple[str, ...]]) -> list[CounterFile]:
        found: list[CounterFile] = []
        claimed: set[tuple[str, tuple[str, ...]]] = set()
        self._unlabelled = 0
        for folder, names in zip(self._folders, listed, strict=True):
            for file in self._admit(folder, names):
                if file.key in claimed and (rule := own_name(file.path.name)):
                    file.close()
                    file = self._counter(file.path, rule)
                if file.key in claimed or (file.rule.derived and not self._everything):
                    file.close()  # nothing exports it
                else:
                    found.append(file)
                claimed.add(file.key)
        return found

    def _admit(self, folder: CounterFolder, names: Iterable[str]) -> Iterator[CounterFile]:
        """Yield the files of a directory that can be read; each is read once to find out."""
        succeeded, failures = False, 0
        for name in names:
            path = folder.path / name
            rule = folder.rule_of(name)
            self._unlabelled += rule is None
            if rule is None or path in self._failed:
                continue
            if folder.path in self._stopped:
                self._failed.add(path)
                continue
            file = self._counter(path, rule)
            try:
                file.read()
            except OSError as error:
                file.close()
                failures += self._blame(path, error)
            else:
                succeeded = True
                yield file
            if failures >= FAILURES_TO_GIVE_UP and not succeeded:
                self._stop(folder.path)

    def _counter(self, path: Path, rule: Rule) -> CounterFile:
        file = CounterFile(path, rule, self._identity, everything=self._everything)
        if self._may_keep():
            try:
                file.open()
            except OSError:  # reading it again would fail as well
                file.descriptor = None
        return file

    def _note(self, file: CounterFile, error: OSError, failed: list[CounterFile]) -> None:
        if error.errno in PASSING:
            return
        if error.errno in GONE:
            self.gone = True
            file.forget()
            return
        failed.append(file)

    def _drop(self, failed: list[CounterFile]) -> None:
        """Stop reading these files, and the whole directory if none of it could be read."""
        for file in failed:
            file.close()
            self._blame(file.path, None)
        for folder in {file.path.parent for file in failed}:
            inside = [file for file in self._files if file.path.parent == folder]
            if len(inside) >= FAILURES_TO_GIVE_UP and set(inside) <= set(failed):
                self._stop(folder)
        dropped = set(failed)
        self._keep([file for file in self._files if file not in dropped])

    def _blame(self, path: Path, error: OSError | None) -> bool:
        """Remember a file that failed; return False if it has merely disappeared."""
        if error is not None and error.errno in (*GONE, *PASSING):
            self.gone = self.gone or error.errno in GONE
            return False
        self._failed.add(path)
        log.debug("reading %s failed: %s; it is not read again", path, error)
        return True

    def _stop(self, folder: Path) -> None:
        if folder not in self._stopped:
            self._stopped.add(folder)
            log.warning("no file in %s can be read; none is read again", folder)
