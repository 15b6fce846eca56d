"""`rankscope explain`: what logs in hand say, for whoever has no agent and no metrics."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from rankscope_agent.nccl.facts import Facts
from rankscope_agent.nccl.framing import Unframer
from rankscope_agent.nccl.parser import NcclLog
from rankscope_agent.nccl.verdict import judge
from rankscope_analyzers import nccl_report
from rankscope_analyzers.command import add_output, print_json
from rankscope_analyzers.failure_report import JobLogExplanation
from rankscope_analyzers.kernel_report import KernelLogExplanation
from rankscope_analyzers.log_files import LogError, chunks
from rankscope_analyzers.nccl_findings import findings
from rankscope_analyzers.watchdog_suspects import suspects

FAILURES: tuple[type[Exception], ...] = (LogError,)


class Explanation(Protocol):
    """What logs say, ready to be shown."""

    def as_object(self) -> Mapping[str, Any]:
        """Return it as JSON-ready values."""
        ...

    def lines(self) -> Iterator[str]:
        """Yield it for a person."""
        ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of logs and their files."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, (purpose, _) in KINDS.items():
        command = kinds.add_parser(kind, help=purpose, description=purpose)
        command.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help="logs of one job (kernel-log: of one node), also .gz; - is standard input",
        )
        add_output(command)


def run(options: argparse.Namespace) -> int:
    """Print what the logs say.

    Raises:
        LogError: a file cannot be read.
    """
    _, explain = KINDS[options.kind]
    explanation = explain(options.files)
    if options.json:
        print_json(explanation.as_object())
    else:
        sys.stdout.writelines(f"{line}\n" for line in explanation.lines())
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


class NcclExplanation:
    """What NCCL says in a job's logs."""

    def __init__(self, files: Sequence[str]) -> None:
        self._facts = read(files)
        self._verdict = judge(self._facts)
        self._findings = findings(self._facts, self._verdict)

    def as_object(self) -> Mapping[str, Any]:
        """Return it as JSON-ready values."""
        return nccl_report.as_object(self._facts, self._verdict, self._findings)

    def lines(self) -> Iterator[str]:
        """Yield it for a person."""
        return nccl_report.lines(self._facts, self._verdict, self._findings)


class WatchdogExplanation:
    """What PyTorch's watchdogs say in a job's logs."""

    def __init__(self, files: Sequence[str]) -> None:
        self._facts = read(files)
        self._suspects = suspects(self._facts)

    def as_object(self) -> Mapping[str, Any]:
        """Return it as JSON-ready values."""
        return nccl_report.suspects_object(self._facts, self._suspects)

    def lines(self) -> Iterator[str]:
        """Yield it for a person."""
        return nccl_report.suspects_lines(self._facts, self._suspects)


KINDS: Mapping[str, tuple[str, Callable[[Sequence[str]], Explanation]]] = {
    "nccl-log": (
        "network, GPUDirect, initialisation and warnings, from NCCL_DEBUG=INFO logs",
        NcclExplanation,
    ),
    "watchdog-log": (
        "who holds a collective up, from PyTorch's timeout messages",
        WatchdogExplanation,
    ),
    "job-log": (
        "which rank of a failed attempt failed first, and why, from any logs of the job",
        JobLogExplanation,
    ),
    "kernel-log": (
        "one cause and one action for what a node's kernel reports, from dmesg or the journal",
        KernelLogExplanation,
    ),
}
"""Every kind of log: what it tells, and who reads its files."""
