"""The files of a capture, made from what was read, the most important first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope_analyzers.captures.evidence import CaptureEvidence
from rankscope_analyzers.captures.one_job import of_job, page_of_job
from rankscope_analyzers.fusion import saved
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.reports import html, job_summary
from rankscope_analyzers.text.file_stem import file_stem
from rankscope_analyzers.text.sanitize import visible

DIAGNOSIS = "diagnosis"
"""Directory of the files from which `rankscope diagnose` derives the same verdict."""

NOTHING = CaptureEvidence()


def files(
    found: Gathered,
    report: JobReport,
    pages: Sequence[Page],
    made_unix_seconds: float,
    evidence: CaptureEvidence = NOTHING,
) -> Mapping[str, bytes]:
    """Return the content of a job's capture by name.

    Args:
        found: what was read.
        report: on the job, from that.
        pages: of agents, those of the first look before those of the second.
        made_unix_seconds: when the report was made.
        evidence: what else was read.

    Raises:
        OSError: there is no space for temporary files.
    """
    summary = f"{visible(job_summary.headline(report))}\n"
    made = {"summary.txt": summary.encode(), "summary.html": html.write([report]).encode()}
    with tempfile.TemporaryDirectory(prefix="rankscope-capture-") as name:
        folder = Path(name) / DIAGNOSIS
        saved.write(folder, of_job(found, report.job_id), made_unix_seconds)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                made[path.relative_to(name).as_posix()] = path.read_bytes()
    made |= evidence.files()
    nodes = {place.node for place in report.locations.values()}
    return made | dict(_pages([page for page in pages if page.node in nodes], report.job_id))


def _pages(pages: Sequence[Page], job_id: str) -> Iterator[tuple[str, bytes]]:
    seen: dict[str, int] = {}
    for page in pages:
        seen[page.node] = seen.get(page.node, 0) + 1
        if seen[page.node] <= 2:
            yield (
                f"pages/{seen[page.node]}-{file_stem(page.node)}.txt",
                page_of_job(page.text, job_id).encode(),
            )


def about(
    report: JobReport, version: str, evidence: CaptureEvidence = NOTHING
) -> Mapping[str, Any]:
    """Return the members of the manifest that describe the capture and what it lacks."""
    return {
        "rankscope_version": version,
        "job_id": report.job_id,
        "made_unix_seconds": report.made_unix_seconds,
        "headline": visible(job_summary.headline(report)),
        "sources": list(report.sources),
        "not_seen": list(report.unobserved),
        "not_read": list(evidence.not_read()),
    }
