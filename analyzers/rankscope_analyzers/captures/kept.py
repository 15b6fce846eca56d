"""Captures of hung jobs that the watch makes automatically, within a quota."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

from rankscope_analyzers.captures import archive, contents
from rankscope_analyzers.captures.evidence import CaptureEvidence, EvidenceReader
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake import agent_evidence, job_objects
from rankscope_analyzers.intake.cluster import ClusterAccess
from rankscope_analyzers.text.file_stem import file_stem

PAUSE_SECONDS = 3600.0
"""Between two captures of one job: a second one of the same hang adds nothing."""

MAX_KEPT = 64
MAX_KEPT_BYTES = 2 << 30
"""Bytes beyond which the oldest captures of the directory are deleted: a week of hangs."""

ENDING = ".capture.tar.gz"


def captures_of(options: argparse.Namespace, access: ClusterAccess | None) -> HangCaptures | None:
    """Return the object that keeps captures, None if they are not to be kept."""
    return (
        HangCaptures(options.captures, version("rankscope"), access) if options.captures else None
    )


class HangCaptures:
    """The captures in a directory, which is created with the first one.

    Args:
        directory: used for captures only.
        version: of this program.
        access: to the cluster whose objects are captured too, None without one.
    """

    def __init__(self, directory: Path, version: str, access: ClusterAccess | None = None) -> None:
        self._access = access
        self._directory = directory
        self._version = version
        self._made: dict[str, float] = {}

    def keep(
        self,
        found: Gathered,
        reports: Iterable[JobReport],
        now: float,
        log: Callable[[str], None],
    ) -> None:
        """Write the captures that are due and log them; a full disk costs captures only."""
        try:
            for path in self.take(found, reports, now):
                log(f"captured what is known of a job that hangs: {path}")
        except OSError as error:
            log(f"a capture cannot be written: {error}")

    def take(self, found: Gathered, reports: Iterable[JobReport], now: float) -> list[Path]:
        """Write a capture of each hung job, once an hour; return the new files.

        Raises:
            OSError: one cannot be written.
        """
        written = []
        for report in reports:
            if any(one.stands for one in report.incidents) and self._due(report.job_id, now):
                self._made[report.job_id] = now
                written.append(self._write(found, report, now))
        self._prune()
        return written

    def _due(self, job_id: str, now: float) -> bool:
        made = self._made.get(job_id)
        return made is None or not 0 <= now - made < PAUSE_SECONDS

    def _write(self, found: Gathered, report: JobReport, now: float) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        name = f"{moment}-{file_stem(report.job_id)}{ENDING}"
        pages = found.poll.pages if found.poll else ()
        evidence = self._evidence(found, report)
        files = contents.files(found, report, pages, now, evidence)
        about = contents.about(report, self._version, evidence)
        archive.write(self._directory / name, files, about)
        return self._directory / name

    def _evidence(self, found: Gathered, report: JobReport) -> CaptureEvidence:
        """Query the agents of the job's nodes, and the cluster, for what they know of it now."""
        nodes = {place.node for place in report.locations.values()}
        known = found.poll.agents if found.poll else {}
        agents = [agent for node, agent in known.items() if node in nodes]
        reader = EvidenceReader(agents, report.job_id)
        reader.first()
        parts = reader.rest()
        objects = None
        if self._access is not None and "/" in report.job_id:
            objects = job_objects.read(report.job_id, self._access)
        return CaptureEvidence(parts, agent_evidence.kept(agents, report.job_id), objects)

    def _prune(self) -> None:
        """Delete the oldest captures beyond the quota; names begin with their time."""
        newest = sorted(self._directory.glob(f"*{ENDING}"), reverse=True)
        room = MAX_KEPT_BYTES
        for count, path in enumerate(newest):
            room -= path.stat().st_size
            if count >= MAX_KEPT or (room < 0 and count > 0):
                path.unlink()
