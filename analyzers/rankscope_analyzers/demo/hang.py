"""A real job on this machine that hangs as one rank never enters a collective, and the report."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo.faults import FAULTS
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.reports import job_json, terminal
from rankscope_analyzers.stragglers.diagnosis import diagnose_each

WAIT_SECONDS = 300.0
"""Seconds. The job hangs within half a minute on two cores, and later on busy ones."""

HANG_AFTER_SECONDS = 5.0
"""Seconds; a minute would do as well, but the user is waiting."""

LOOK_SECONDS = 2.0

JOB = "demo/hang"


def run(rank: int, console: Console) -> JobReport:
    """Run the job until it is called hung; end it and return the report on it.

    Args:
        rank: the rank that hangs.
        console: where progress is shown.

    Raises:
        rankscope_analyzers.demo.run.DemoError: PyTorch is missing, the rank does not exist, or the
            job did not hang.
    """
    demo.require(rank)
    console.print(f"Training on this machine: {demo.RANKS} gloo ranks, of which rank {rank} never")
    console.print("enters a collective after some steps.")
    console.print("Nothing is downloaded; it only listens on loopback.")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-demo-")))
        url = stack.enter_context(demo.agent(folder))
        job = stack.enter_context(demo.training(folder, "hang", rank))
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if job.poll() is not None:
                break
            time.sleep(LOOK_SECONDS)
            if report := _hung(url):
                return report
        raise demo.DemoError(f"the job did not hang: {demo.last_lines(folder / 'job.log')}")


def _hung(url: str) -> JobReport | None:
    """Return the report on the job if it is called hung."""
    found = gather.of_agents([url], JOB, 0.0, hang_after_seconds=HANG_AFTER_SECONDS)
    timing = diagnose_each(job for job in found.jobs if job.job_id == JOB)
    now = time.time()
    made = job_reports.reports(timing, found.evidence, now, hang_after_seconds=HANG_AFTER_SECONDS)
    standing = (one for one in made if one.job_id == JOB and one.incidents)
    return next((one for one in standing if one.incidents[0].stands), None)


def as_object(report: JobReport, rank: int) -> dict[str, Any]:
    """Return the outcome as JSON: what was injected, and the verdict."""
    document = job_json.as_object(report)
    return {
        "injected": {"class": FAULTS["hang"], "rank": rank},
        "verdict": document["verdict"],
        "naive": document["naive"],
    }


def show(console: Console, report: JobReport, rank: int) -> None:
    """Print the report."""
    terminal.show(console, [report])
    console.print(f"\nInjected: rank {rank} never enters a collective.")
