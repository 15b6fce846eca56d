"""`rankscope`: the user's command; finds the chosen subcommand and runs it.

Only the chosen command's module is imported: explaining a log must not cost what analysing traces
needs. Exit codes: 0 when a verdict was produced, whatever it says; 1 for usage and input errors,
and where none was possible because what it takes could not be read. `preflight`, `verify` and
`canary` are gates: 2 when a check failed, 3 when one could not be decided.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import cast

from rankscope_analyzers.command import Command, Parser
from rankscope_analyzers.commands import examples
from rankscope_analyzers.isolation.absent_package import absent
from rankscope_analyzers.text.sanitize import visible

PROGRAM = "rankscope"

COMMANDS: Mapping[str, tuple[str, str]] = {
    "diagnose": ("diagnose", "one verdict per job, from agents or traces"),
    "jobs": ("jobs", "all jobs in a table: state, step time, what is lost and to whom"),
    "logs": ("logs", "the logs of all ranks of a job in one, or its errors, the earliest first"),
    "capture": ("capture", "keep what is known of a job now in one file, before it is ended"),
    "watch": ("watch", "diagnose again and again, and export findings to Prometheus"),
    "canary": ("canary", "whether the watch names the known slow rank of a small job"),
    "config": ("config", "check rankscope.yaml, the cluster's one configuration"),
    "record": ("record", "keep what a run is: images, command, versions, places, speed"),
    "diff": ("diff", "what changed from one recorded run to another"),
    "preflight": ("preflight", "what keeps a job off the fast path, from its manifests"),
    "fabric-check": ("fabric_check", "measure the links between nodes, and name the slow one"),
    "verify": ("verify", "whether a job that runs takes the fast path and trains as it should"),
    "doctor": ("doctor", "why a job is not seen, and what it takes to see it"),
    "explain": (
        "explain",
        "what a log in hand says: NCCL's, PyTorch's timeouts, the kernel's",
    ),
    "gpus": ("gpus", "GPUs that run slower, hotter or on less power than their peers"),
    "xids": ("xids", "what went wrong with GPUs: one incident per GPU and root, and rates"),
    "demo": ("demo", "a real training run with a slow rank, diagnosed"),
    "probe-path": ("probe_path", "print the folder to put on a trainer's PYTHONPATH"),
}
"""Every command: the module of `commands` that has it, and what it is for."""

FIRST_STEPS = """\
Rankscope says which rank holds a training job back, and why. Try first:

  rankscope demo --tour                  real jobs on this machine: healthy, slow, hung
  rankscope diagnose --agent HOST:9877   the jobs that an agent sees; --cluster in Kubernetes
  rankscope explain job-log FILE         a log in hand: which rank failed first, and why
  rankscope doctor                       why a job is not seen

rankscope --help lists all commands, rankscope COMMAND --help the flags of one.
"""
"""What `rankscope` alone prints."""

LASTING = "watch"
"""Runs for months and reads no Parquet files: pyarrow, which pandas imports where it is installed,
would take 34 MiB for nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        sys.stdout.write(FIRST_STEPS)
        return 0
    chosen = given[0] if given[0] in COMMANDS else None
    with absent("pyarrow") if chosen == LASTING else nullcontext():
        commands = {name: _load(name) for name in COMMANDS if chosen in {None, name}}
    options = _parser(commands, chosen).parse_args(given)
    command = commands[options.command]
    try:
        return command.run(options)
    except command.FAILURES as error:
        sys.stderr.write(visible(f"{PROGRAM} {options.command}: {error}") + "\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _load(name: str) -> Command:
    module, _ = COMMANDS[name]
    return cast("Command", import_module(f"rankscope_analyzers.commands.{module}"))


def _parser(commands: Mapping[str, Command], chosen: str | None) -> argparse.ArgumentParser:
    """Make the parser; without a chosen command it is the one that lists them all."""
    parser = Parser(PROGRAM, description="Say which rank holds a training job back, and why.")
    if chosen is None:
        _add_own_options(parser)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        command.add_arguments(
            subparsers.add_parser(
                name,
                help=COMMANDS[name][1],
                description=COMMANDS[name][1],
                epilog=examples.epilog(name),
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    return parser


def _add_own_options(parser: argparse.ArgumentParser) -> None:
    """Add what `rankscope` itself answers, with the libraries that only this needs."""
    version = import_module("importlib.metadata").version(PROGRAM)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {version}")
    import_module("shtab").add_argument_to(parser, "--print-completion")
