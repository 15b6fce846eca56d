"""`rankscope`: the user's command; finds the chosen subcommand and runs it.

Only the chosen command's modules are imported, first its options, then what runs it: a usage error
must not cost what analysing traces needs. Exit codes: 0 if a verdict was produced, whatever it is;
1 for usage and input errors, and if none was possible because its data could not be read; 141 if
the output was closed before its end, as `| head` does.
`preflight`, `verify` and `canary` are gates: 2 if a check failed, 3 if one could not be decided.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from itertools import takewhile
from typing import cast

from rankscope_analyzers.arguments import examples, other_words
from rankscope_analyzers.command import Arguments, Command, Parser, UsageError, alike, print_json
from rankscope_analyzers.isolation import closed_output
from rankscope_analyzers.isolation.absent_package import absent
from rankscope_analyzers.text.sanitize import visible

PROGRAM = "rankscope"

COMMANDS: Mapping[str, tuple[str, str]] = {
    "diagnose": ("diagnose", "one verdict per job, from agents or traces"),
    "jobs": ("jobs", "all jobs in one table: state, step time, lost share and culprit"),
    "logs": ("logs", "merge the logs of all ranks of a job, or list its errors, earliest first"),
    "capture": (
        "capture",
        "save the evidence about a hung job to one file before you kill the job",
    ),
    "watch": ("watch", "diagnose continuously and export findings to Prometheus"),
    "canary": ("canary", "check end to end that the watch names the slow rank of a small test job"),
    "config": ("config", "check rankscope.yaml, the configuration of a cluster"),
    "record": ("record", "record a run: images, command, versions, placement, speed"),
    "diff": ("diff", "show what changed between two recorded runs"),
    "preflight": (
        "preflight",
        "check a job's manifests, pods and nodes for what would make it slow",
    ),
    "fabric-check": ("fabric_check", "measure the links between nodes and name the slow one"),
    "verify": (
        "verify",
        "check that a running job uses the fast network path and trains as expected",
    ),
    "doctor": ("doctor", "show why a job is not visible and how to fix it"),
    "explain": (
        "explain",
        "explain log files: jobs, NCCL, PyTorch timeouts, kernel; and checkpoints",
    ),
    "gpus": ("gpus", "find GPUs that run slower, hotter or on less power than their peers"),
    "xids": ("xids", "GPU errors as incidents, one per GPU and root cause, with failure rates"),
    "runbook": ("runbook", "print the runbook that a verdict or an alert names"),
    "demo": ("demo", "run a real training job with a slow rank and diagnose it"),
    "probe-path": ("probe_path", "print the directory to put on a trainer's PYTHONPATH"),
}
"""Every command: its module in `arguments` and in `commands`, and its purpose."""

FIRST_STEPS = """\
Rankscope reports which rank slows a training job down, and why. Try first:

  rankscope demo --tour                  real jobs on this machine: healthy, slow, hung
  rankscope diagnose --agent HOST:9877   jobs visible to an agent; --cluster in Kubernetes
  rankscope explain job-log FILE         which rank failed first, and why, from a log file
  rankscope doctor                       why a job is not visible

rankscope --help lists all commands, rankscope COMMAND --help the options of one.
"""
"""The output of `rankscope` without arguments."""

LASTING = "watch"
"""Commands that run for months and read no Parquet files: pyarrow, which pandas imports if it is
installed, would take 34 MiB for nothing."""

INTERRUPTED = 128 + signal.SIGINT
"""The code that shells give a program which Ctrl-C ended."""

LISTING = ("-h", "--help", "--version")
"""Options of `rankscope` itself that need no command's arguments."""

COMPLETION = "--print-completion"
"""The other option of `rankscope` itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _accept_any_text()
    try:
        return closed_output.run(lambda: _run(given))
    except KeyboardInterrupt:  # also while modules are imported, which takes seconds
        return INTERRUPTED


def _run(given: Sequence[str]) -> int:
    if not given:
        sys.stdout.write(FIRST_STEPS)
        return 0
    try:
        options = _options(given)
    except UsageError as error:
        if "--json" in takewhile(lambda one: one != "--", given):
            _print_failure_as_json(error.sentence)
        raise
    with absent("pyarrow") if options.command == LASTING else nullcontext():
        command = _load(options.command)
    try:
        return command.run(options)
    except command.FAILURES as error:
        _print_failure(options, error)
        return 1


def _options(given: Sequence[str]) -> argparse.Namespace:
    """Return the command and its options.

    Raises:
        UsageError: there is no such command or option, or it has a value that it cannot have.
    """
    chosen = given[0] if given[0] in COMMANDS else None
    if chosen is None and not given[0].startswith("-"):
        Parser(PROGRAM).error(f"there is no command {given[0]!r}{_meant(given[0])}")
    if chosen is None and not any(
        one.startswith(_name(given[0])) for one in (*LISTING, COMPLETION)
    ):
        Parser(PROGRAM).error(
            f"there is no option {given[0]} without a command: give COMMAND first"
        )
    declared = {name: _arguments(name) for name in _needed(given[0])}
    options, unknown = _parser(declared, chosen).parse_known_args(given)
    if unknown:
        Parser(f"{PROGRAM} {options.command}").error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _name(option: str) -> str:
    return option.partition("=")[0]


def _meant(word: str) -> str:
    """Return a question for the command that the user may want, empty if none looks like it."""
    name = other_words.instead_of(word)
    if not name:
        return alike(word, COMMANDS)
    purpose = f": {COMMANDS[name][1]}" if name in COMMANDS else ""
    return f" (did you mean {name}{purpose}?)"


def _print_failure(options: argparse.Namespace, error: Exception) -> None:
    """Say why there is no result, also to the program that reads the JSON, if there is one."""
    sys.stderr.write(visible(f"{PROGRAM} {options.command}: {error}") + "\n")
    if getattr(options, "json", False):
        _print_failure_as_json(str(error))


def _print_failure_as_json(sentence: str) -> None:
    if closed_output.is_unused():
        print_json({"error": sentence})


def _accept_any_text() -> None:
    """Print "?" for characters that the encoding of the terminal lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


def _needed(first: str) -> Iterable[str]:
    """Return the commands whose arguments the parser needs: all only for completions."""
    if first in COMMANDS:
        return (first,)
    return COMMANDS if first.startswith("-") and first not in LISTING else ()


def _arguments(name: str) -> Arguments:
    module, _ = COMMANDS[name]
    return cast("Arguments", import_module(f"rankscope_analyzers.arguments.{module}"))


def _load(name: str) -> Command:
    module, _ = COMMANDS[name]
    return cast("Command", import_module(f"rankscope_analyzers.commands.{module}"))


def _parser(declared: Mapping[str, Arguments], chosen: str | None) -> argparse.ArgumentParser:
    """Build the parser; without a chosen command it is the one that lists them all.

    Args:
        declared: the arguments of commands to include.
        chosen: the only command that it knows, if any.
    """
    parser = Parser(PROGRAM, description="Report which rank slows a training job down, and why.")
    if chosen is None:
        _add_own_options(parser)
    # Without `prog`, argparse formats the usage to find it, and imports compression for that.
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog=PROGRAM
    )
    for name in COMMANDS if chosen is None else (chosen,):
        subparser = subparsers.add_parser(
            name,
            help=COMMANDS[name][1],
            description=COMMANDS[name][1],
            epilog=examples.epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in declared:
            declared[name].add_arguments(subparser)
    return parser


def _add_own_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `rankscope` itself, with the libraries that only these need."""
    version = import_module("importlib.metadata").version(PROGRAM)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {version}")
    import_module("shtab").add_argument_to(parser, COMPLETION)
