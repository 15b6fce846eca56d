"""`rankscope preflight FILE...`: do a job's manifests give it the fast path, before it runs?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rankscope_analyzers.command import InputError, add_output, print_json
from rankscope_analyzers.preflight import documents, jobs, report
from rankscope_analyzers.preflight.checks import CHECKS, results
from rankscope_analyzers.preflight.job import Settings
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.name_lists import listed

FAILURES: tuple[type[Exception], ...] = (InputError, documents.ManifestError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the manifests and what is known beside them."""
    parser.add_argument(
        "manifests",
        nargs="+",
        metavar="FILE",
        help="YAML or JSON files, or folders of them; - reads standard input",
    )
    parser.add_argument(
        "--namespace", default="default", help="of objects that name none (default: %(default)s)"
    )
    parser.add_argument(
        "--checkpoint-path", metavar="PATH", help="where the job writes checkpoints"
    )
    parser.add_argument(
        "--checkpoint-seconds", type=_seconds, metavar="SECONDS", help="what a checkpoint takes"
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="CHECK",
        choices=[check.id for check in CHECKS],
        help="leave a check out; may be given several times",
    )
    parser.add_argument("--strict", action="store_true", help="a warning fails, too")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit's XML as well")
    add_output(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, not {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Print each job's results; 0 passed, 2 failed, 3 could not be decided.

    Raises:
        ManifestError: a manifest cannot be read.
        InputError: there is no job, or the JUnit file cannot be written.
    """
    settings = Settings(options.checkpoint_path, options.checkpoint_seconds)
    found = jobs.of_documents(documents.read(options.manifests), options.namespace, settings)
    if not found.jobs:
        why = _passed_over(found.passed_over)
        raise InputError(f"no job in {listed(options.manifests)}; {why}")
    checked = [report.CheckedJob(one, list(results(one, options.skip))) for one in found.jobs]
    if options.junit:
        _write(Path(options.junit), report.junit(checked, strict=options.strict))
    if options.json:
        print_json(
            {
                "jobs": [one.as_object() for one in checked],
                "passed_over": [{"source": at, "kind": kind} for at, kind in found.passed_over],
            }
        )
    else:
        _show(checked, found.passed_over, no_color=options.no_color)
    return report.exit_code(checked, strict=options.strict)


def _show(
    checked: Sequence[report.CheckedJob], passed_over: Sequence[tuple[str, str]], *, no_color: bool
) -> None:
    console = open_console(no_color=no_color)
    for one in checked:
        console.print(report.table(one))
        console.print(report.summary(one), markup=False)
    if passed_over:
        console.print(f"Not checked: {_passed_over(passed_over)}.", style="yellow", markup=False)
    console.print("docs/preflight.md describes each check.", markup=False)


def _passed_over(passed_over: Sequence[tuple[str, str]]) -> str:
    if not passed_over:
        return "it is empty"
    return "no check knows " + listed([f"{kind} ({at})" for at, kind in passed_over])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
