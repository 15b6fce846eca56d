"""`rankscope explain`: explains log files, checkpoints and datasets without an agent or metrics.

Only the chosen kind's module is imported: a large job's NCCL log must not wait for what kernel
logs need.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from rankscope_analyzers.arguments.explain import CHECKPOINT, DATASET, KINDS
from rankscope_analyzers.command import InputError, print_json
from rankscope_analyzers.intake.log_files import LogError
from rankscope_analyzers.text.plain_lines import write_lines

FAILURES: tuple[type[Exception], ...] = (LogError, InputError)


DAY_SECONDS = 86400.0


class Explanation(Protocol):
    """The content of logs, checkpoints or datasets, ready to be shown."""

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        ...

    def lines(self) -> Iterator[str]:
        """Yield lines for people."""
        ...


def run(options: argparse.Namespace) -> int:
    """Print the explanation.

    Raises:
        LogError: a file cannot be read.
        InputError: a directory cannot be listed, or a rate is invalid.
    """
    explain = {CHECKPOINT: _of_checkpoints, DATASET: _of_dataset}.get(options.kind, _of_logs)
    explanation = explain(options)
    if options.json:
        print_json(explanation.as_object())
    else:
        write_lines(explanation.lines())
    return 1 if options.kind == CHECKPOINT and not explanation.as_object()["checkpoints"] else 0


def _of_logs(options: argparse.Namespace) -> Explanation:
    _, module, name = KINDS[options.kind]
    explain = getattr(import_module(f"rankscope_analyzers.logs.{module}"), name)
    return cast("Explanation", explain(options.files))


def _of_checkpoints(options: argparse.Namespace) -> Explanation:
    checkpoints = import_module("rankscope_analyzers.checkpoints.explanation")
    given = (options.write_seconds, options.failures_per_day)
    if any(rate is not None and not 0 < rate < 1e9 for rate in given) or given.count(None) == 1:
        raise InputError("--write-seconds and --failures-per-day go together, both above 0")
    rates = None
    if options.write_seconds is not None:
        rates = checkpoints.Rates(options.write_seconds, DAY_SECONDS / options.failures_per_day)
    try:
        digests = _digests(options.checksums)
        return cast(
            "Explanation",
            checkpoints.explain(options.directory, deep=options.deep, digests=digests, rates=rates),
        )
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None


def _of_dataset(options: argparse.Namespace) -> Explanation:
    datasets = import_module("rankscope_analyzers.datasets.explanation")
    file = options.manifest
    root = options.root or file.parent
    try:
        return cast(
            "Explanation", datasets.explain(file, root, names=options.read, deep=options.deep)
        )
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None


def _digests(file: Path | None) -> Mapping[str, str] | None:
    """Return a list of checksums, None for no list."""
    if file is None:
        return None
    digest_list = import_module("rankscope_analyzers.checkpoints.digest_list")
    try:
        return cast("Mapping[str, str]", digest_list.read(file.read_text(errors="replace")))
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
