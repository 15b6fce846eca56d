"""`rankscope`: the command that people type. It parses, calls one command and prints.

Exit codes: 0 when a verdict was produced, whatever it says; 1 for usage and input errors.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import shtab
from rich.console import Console

from rankscope_analyzers import demo, report, sources
from rankscope_analyzers.diagnosis import diagnose
from rankscope_analyzers.frames import RecordError
from rankscope_analyzers.probe_folder import ProbeMissingError, probe_folder

PROGRAM = "rankscope"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class InputError(Exception):
    """The command was called wrongly; the message says what was seen and what to do."""


FAILURES = (InputError, sources.SourceError, RecordError, demo.DemoError, ProbeMissingError)


class _Parser(argparse.ArgumentParser):
    """argparse with one sentence and exit code 1 for a usage error."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return COMMANDS[options.command](options)
    except FAILURES as error:
        sys.stderr.write(f"{PROGRAM} {options.command}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(PROGRAM, description="Say which rank holds a training job back, and why.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {version(PROGRAM)}")
    shtab.add_argument_to(parser, "--print-completion")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_diagnose(commands)
    _add_demo(commands)
    commands.add_parser("probe-path", help="print the folder to put on a trainer's PYTHONPATH")
    return parser


def _add_diagnose(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("diagnose", help="one verdict per job, from agents or traces")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--agent", action="append", metavar="URL", help="an agent; repeatable")
    traces = where.add_argument(
        "--trace", nargs="+", action="extend", type=Path, metavar="DIR", help="trace directories"
    )
    traces.complete = shtab.DIRECTORY
    parser.add_argument("--job", metavar="ID", help="only this job")
    parser.add_argument(
        "--since",
        default="1h",
        metavar="AGE",
        help="how far back to ask agents (default %(default)s)",
    )
    _add_output(parser)


def _add_demo(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("demo", help="a real training run with a slow rank, diagnosed")
    parser.add_argument("--fault", choices=sorted(demo.FAULTS), default="slow-compute")
    parser.add_argument("--rank", type=int, default=2, help="the slow rank (default %(default)s)")
    _add_output(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-color", action="store_true", help="plain text, as with NO_COLOR=1")


def _diagnose(options: argparse.Namespace) -> int:
    jobs = [job for job in _records(options) if options.job in {None, job.job_id}]
    if not jobs:
        raise InputError(f"there is no job {options.job!r} in what was read")
    verdicts = diagnose(jobs)
    if options.json:
        _print_json({verdict.job_id: report.as_object(verdict) for verdict in verdicts})
    else:
        report.show(_console(options), verdicts)
    return 0


def _records(options: argparse.Namespace) -> tuple[sources.JobRecords, ...]:
    if options.trace:
        return sources.from_traces(options.trace)
    since = time.time() - _seconds(options.since)
    return sources.from_agents(options.agent, options.job, since)


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", age)
    if not match:
        raise InputError(f"--since takes an age such as 30m or 2h, not {age!r}")
    return float(match[1]) * SECONDS[match[2]]


def _demo(options: argparse.Namespace) -> int:
    console = Console(stderr=True, no_color=options.no_color) if options.json else _console(options)
    outcome = demo.run(options.fault, options.rank, console)
    if options.json:
        _print_json(demo.as_object(outcome))
    else:
        demo.show(console, outcome)
    return 0


def _probe_path(_options: argparse.Namespace) -> int:
    sys.stdout.write(f"{probe_folder()}\n")
    return 0


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "diagnose": _diagnose,
    "demo": _demo,
    "probe-path": _probe_path,
}


def _console(options: argparse.Namespace) -> Console:
    return Console(no_color=options.no_color, highlight=False)


def _print_json(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")
