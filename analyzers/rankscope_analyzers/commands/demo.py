"""`rankscope demo`: a real training run with a slow rank, diagnosed; or a tour of several."""

from __future__ import annotations

import argparse

from rankscope_analyzers.arguments.demo import DEFAULT_FAULT
from rankscope_analyzers.command import InputError, print_json
from rankscope_analyzers.commands import demo_tour, gpus
from rankscope_analyzers.demo import hang
from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo import stack as demo_stack
from rankscope_analyzers.demo.probe_folder import ProbeMissingError
from rankscope_analyzers.demo.termination import interrupting
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.steps.records import RecordError
from rankscope_analyzers.text.console import open_console

FAILURES: tuple[type[Exception], ...] = (
    demo.DemoError,
    ProbeMissingError,
    SourceError,
    RecordError,
    *gpus.FAILURES,
)


def run(options: argparse.Namespace) -> int:
    """Run the demo and print its outcome.

    Raises:
        rankscope_analyzers.demo.run.DemoError: the training run did not complete.
        InputError: options exclude each other.
    """
    if options.tour and options.fault is not None:
        raise InputError("--tour shows all faults: leave out --fault, or leave out --tour")
    if options.seconds is not None and not options.stack:
        raise InputError("--seconds needs --stack: other demos end by themselves")
    options.fault = options.fault or DEFAULT_FAULT
    if options.tour and options.json:
        raise InputError("--tour only prints text: leave out --json, or choose one --fault")
    with interrupting():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    console = open_console(no_color=options.no_color, stderr=options.json)
    if options.tour:
        demo_tour.run(options.rank, console)
        return 0
    if options.stack:
        demo_stack.run(options.fault, options.rank, options.seconds, console)
        return 0
    if options.fault == "hang":
        report = hang.run(options.rank, console)
        if options.json:
            print_json(hang.as_object(report, options.rank))
        else:
            hang.show(console, report, options.rank)
        return 0
    outcome = demo.run(options.fault, options.rank, console)
    if options.json:
        print_json(demo.as_object(outcome))
    else:
        demo.show(console, outcome)
    return 0
