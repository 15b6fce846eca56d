"""`rankscope explain`: what logs in hand say, for whoever has no agent and no metrics."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rankscope_agent.nccl.facts import Facts
from rankscope_agent.nccl.framing import Unframer
from rankscope_agent.nccl.parser import NcclLog
from rankscope_agent.nccl.verdict import judge
from rankscope_analyzers import nccl_report
from rankscope_analyzers.command import add_output, print_json
from rankscope_analyzers.log_files import LogError, chunks
from rankscope_analyzers.nccl_findings import findings
from rankscope_analyzers.watchdog_suspects import suspects

FAILURES: tuple[type[Exception], ...] = (LogError,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of logs and their files."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, purpose in (
        ("nccl-log", "network, GPUDirect, initialisation and warnings, from NCCL_DEBUG=INFO logs"),
        ("watchdog-log", "who holds a collective up, from PyTorch's timeout messages"),
    ):
        command = kinds.add_parser(kind, help=purpose, description=purpose)
        command.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help="logs of one job, also .gz; - is standard input",
        )
        add_output(command)


def run(options: argparse.Namespace) -> int:
    """Print what the logs say.

    Raises:
        LogError: a file cannot be read.
    """
    facts = read(options.files)
    as_object, as_lines = KINDS[options.kind]
    if options.json:
        print_json(as_object(facts))
    else:
        sys.stdout.writelines(f"{line}\n" for line in as_lines(facts))
    return 0


def read(names: Iterable[str]) -> Facts:
    """Return the facts of a job's logs.

    Raises:
        LogError: a file cannot be read.
    """
    parser = NcclLog()
    # Facts hold no cycles, and looking for some takes two fifths of the time on a large job's log.
    gc.disable()
    try:
        for name in names:
            _read_one(name, parser)
    finally:
        gc.enable()
    parser.sum_up()
    return parser.facts


def _read_one(name: str, parser: NcclLog) -> None:
    framing = Unframer()
    for chunk in chunks(name):
        parser.feed(framing.feed(chunk))
    parser.feed(framing.finish())
    parser.facts.unparsed += framing.oversized


def _nccl_object(facts: Facts) -> Mapping[str, Any]:
    verdict = judge(facts)
    return nccl_report.as_object(facts, verdict, findings(facts, verdict))


def _nccl_lines(facts: Facts) -> Iterator[str]:
    verdict = judge(facts)
    return nccl_report.lines(facts, verdict, findings(facts, verdict))


def _watchdog_object(facts: Facts) -> Mapping[str, Any]:
    return nccl_report.suspects_object(facts, suspects(facts))


def _watchdog_lines(facts: Facts) -> Iterator[str]:
    return nccl_report.suspects_lines(facts, suspects(facts))


KINDS: Mapping[
    str, tuple[Callable[[Facts], Mapping[str, Any]], Callable[[Facts], Iterator[str]]]
] = {
    "nccl-log": (_nccl_object, _nccl_lines),
    "watchdog-log": (_watchdog_object, _watchdog_lines),
}
