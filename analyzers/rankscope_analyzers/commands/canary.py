"""`rankscope canary`: whether the watch names the known slow rank of a small job."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rankscope_agent.contract import canary
from rankscope_analyzers.canary import seen, trial
from rankscope_analyzers.command import InputError, age_seconds, print_json, print_progress
from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo.probe_folder import ProbeMissingError
from rankscope_analyzers.demo.termination import interrupting
from rankscope_analyzers.intake.credentials import CredentialsError, entry_of
from rankscope_analyzers.text.sanitize import visible

FAILURES: tuple[type[Exception], ...] = (
    InputError,
    CredentialsError,
    demo.DemoError,
    ProbeMissingError,
)


STEPS = 1500
"""Steps: a minute and a half at some 60 ms each; the trial ends as soon as the rank is named."""

SECONDS = re.compile(r"\d+ s\b")

Check = Callable[[], None]


def run(options: argparse.Namespace) -> int:
    """Wait for the slow rank to be named; print what happened.

    Returns:
        0 if it was named, 2 if it was not, 3 if no answer.

    Raises:
        InputError: an option cannot be used.
        rankscope_analyzers.demo.run.DemoError: the job cannot run here.
    """
    job_id = options.job or f"{os.environ.get('POD_NAMESPACE') or 'local'}/{canary.NAME}"
    if not canary.is_canary(job_id):
        raise InputError(f"--job {job_id} would count as a real job: use {canary.NAME}")
    patience = age_seconds(options.patience, "--patience")
    entry = entry_of(options)
    if options.prometheus:
        look = seen.in_prometheus(options.prometheus, entry)
    else:
        look = seen.on_pages(options.watch, entry)
    began = time.time()
    waited_for = f"up to {options.patience} for rank {canary.SLOW_RANK} to be named"
    print_progress(f"{job_id}: waiting {waited_for}.")
    with interrupting(), _training(options.train, job_id) as check:
        outcome = trial.wait(job_id, look, began, patience, check, _so_far())
    if options.json:
        print_json(outcome.as_object(job_id))
    else:
        sys.stdout.write(f"{job_id}: {outcome.result}: {visible(outcome.reason)}\n")
    return trial.EXIT_CODES[outcome.result]


def _so_far() -> trial.Observer:
    """Return what says why the rank is not named yet, whenever that has changed."""
    last = ""

    def tell(outcome: trial.Outcome) -> None:
        nonlocal last
        why = SECONDS.sub("", outcome.reason)  # the ages in it change at every look
        if why != last:
            print_progress(f"After {outcome.seconds:.0f} s: {outcome.reason}")
        last = why

    return tell


@contextmanager
def _training(rings: Path | None, job_id: str) -> Iterator[Check]:
    """Train until the block ends; yield a function that raises DemoError if the job failed."""
    if rings is None:
        yield lambda: None
        return
    demo.require(canary.SLOW_RANK)
    with tempfile.TemporaryDirectory(prefix="rankscope-canary-") as name:
        folder = Path(name)
        job = demo.training(
            folder, "slow-compute", canary.SLOW_RANK, STEPS, job_id, rings.resolve()
        )
        with job as process:

            def check() -> None:
                if process.poll():
                    last = demo.last_lines(folder / "job.log")
                    raise demo.DemoError(f"the job ended with {process.returncode}: {last}")

            yield check
