"""Score rankscope and published methods on simulated jobs.

python -m benchmarks.straggler_suite FIRST COUNT [SUITE] [--path trace|running|both] [--timing ...]
python -m benchmarks.straggler_suite write DIR FIRST COUNT [SUITE]     writes traces and labels.json

Suites: usual (default), large (256 to 2,048 ranks), concurrent (two faults at a time), healthy.
The trace path scores every verdict on a trace, and published methods beside them. The running path
scores what a user sees of the same jobs while they run: the final verdict of
`rankscope diagnose --agent`. With both, `rankscope diagnose --trace` is scored like that as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.diagnosed import diagnose
from benchmarks.processes import end_on_terminate
from benchmarks.straggler_suite import final, job, plan, published, running, scorer

from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.trace_verdicts import as_object

KINDS = (*plan.SUBTYPES, None)
"""One job of each class in turn, then a healthy one."""

OURS = "rankscope"


SUITES: Mapping[str, Callable[[int, str | None], plan.Plan]] = {
    "usual": plan.draw,
    "large": lambda seed, kind: plan.draw(seed, kind, plan.LARGE_LAYOUTS),
    "concurrent": plan.draw_two,
    "healthy": lambda seed, _: plan.draw(seed, None),
}

TIMINGS = ("mixed", "kernel", "wall", "blocked")
"""How steps are timed: depending on each job's seed, or all in one way (`physics.run`)."""

MAXIMUM_WORLD = running.AGENTS * running.RINGS_OF_AN_AGENT
"""Ranks of the largest job on the running path: the agents there read no more rings. Larger ones
are left out of every path."""


def jobs(
    first: int, count: int, suite: str = "usual", timing: str = "mixed", largest: int = 1 << 20
) -> Iterator[job.Job]:
    """Yield the jobs of consecutive seeds, except those with more processes than `largest`."""
    for seed in range(first, first + count):
        drawn = SUITES[suite](seed, KINDS[seed % len(KINDS)])
        if drawn.world * (2 if drawn.restart else 1) <= largest:
            drawn = drawn if timing == "mixed" else replace(drawn, timing=timing)
            yield job.simulate(drawn)


def judge(made: job.Job) -> dict[str, list[dict[str, Any]]]:
    """Return every method's verdicts on a job."""
    found = feed.detect(FrameTable(made.records), layout(made.meta, 0)).incidents
    matrix = published.matrix(made.records, made.meta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # ranks that never report
        others = {
            name: published.verdicts(matrix, method) for name, method in published.METHODS.items()
        }
    return {OURS: [as_object(incident) for incident in found], **others}


def compare(made: Iterator[job.Job]) -> dict[str, scorer.Tally]:
    """Run every method on the traces of jobs."""
    labels: dict[str, Any] = {}
    reported: dict[str, dict[str, Any]] = {}
    for one in made:
        name = one.meta["job"]
        labels[name] = one.labels
        for method, verdicts in judge(one).items():
            reported.setdefault(method, {})[name] = {"verdicts": verdicts}
    return {
        method: scorer.tally({"jobs": labels}, {"jobs": verdicts})
        for method, verdicts in reported.items()
    }


def report(tallies: dict[str, scorer.Tally]) -> str:
    """Return the scores as Markdown tables: all methods, then our classes and confusions."""
    rows = {method: scorer.scores(tally) for method, tally in tallies.items()}
    return "\n".join([*_table("method", rows), "", *_classes(tallies[OURS])])


def _table(title: str, rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = list(next(iter(rows.values())))
    lines = [f"| {title} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, values in rows.items():
        shown = " | ".join(f"{value:.3g}" for value in values.values())
        lines.append(f"| {row} | {shown} |")
    return lines


def _classes(counted: scorer.Tally) -> list[str]:
    lines = ["| class | F1 | answered (times) |", "|---|---|---|"]
    table = scorer.confusion(counted)
    for kind, score in [*scorer.class_scores(counted).items(), ("none", float("nan"))]:
        answers = [f"{reported} {n}" for (true, reported), n in table.most_common() if true == kind]
        shown = "" if kind == "none" else f"{score:.3f}"
        lines.append(f"| {kind} | {shown} | {', '.join(answers)} |")
    return lines


def run_jobs(made: Iterator[job.Job], since: str, extended: bool = True) -> final.Outcome:
    """Return the final verdicts on jobs as running ones."""
    outcome = final.Outcome()
    for answer in running.answers((running.running(one, extended) for one in made), since):
        one = answer.job
        outcome.add(one.name, one.labels, answer.reported, one.shift, answer.problem)
    return outcome


def run_traces(made: Iterator[job.Job]) -> final.Outcome:
    """Return the final verdicts on the same jobs, read as traces."""
    outcome = final.Outcome()
    for one in made:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / one.meta["job"]
            _write_trace(one, trace)
            reported, problem = diagnose([f"--trace={trace}"])
        answer = None if reported is None else reported.get(one.meta["job"])
        outcome.add(one.meta["job"], one.labels, answer, problem=problem)
    return outcome


def report_final(outcomes: Mapping[str, final.Outcome]) -> str:
    """Return the scores of final verdicts by path, then classes and what was wrong in each."""
    lines = _table("path", {path: final.scores(outcome) for path, outcome in outcomes.items()})
    for path, outcome in outcomes.items():
        lines += ["", f"{path}:", "", *_classes(outcome.tally()), ""]
        lines += [f"- {line}" for line in final.wrong(outcome)]
    return "\n".join(lines)


def write(folder: Path, first: int, count: int, suite: str = "usual") -> None:
    """Write the jobs of consecutive seeds as traces with their labels."""
    labels = {}
    for made in jobs(first, count, suite):
        _write_trace(made, folder / made.meta["job"])
        labels[made.meta["job"]] = made.labels
    text = json.dumps({"format_version": 1, "jobs": labels}, indent=1)
    (folder / "labels.json").write_text(text, "utf-8")


def _write_trace(made: job.Job, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.json").write_text(json.dumps(made.meta, indent=1), "utf-8")
    made.records.to_parquet(directory / "records.parquet", index=False)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line selects."""
    options = _options(arguments)
    suite = options.words.pop() if options.words[-1] in SUITES else "usual"
    if options.words[0] == "write" and len(options.words) == 4:
        _, folder, first, count = options.words
        write(Path(folder), int(first), int(count), suite)
    elif len(options.words) == 2:
        _score(options, suite)
    else:
        sys.stderr.write(__doc__ or "")
        return 1
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.straggler_suite", description=__doc__)
    parser.add_argument("words", nargs="+", metavar="FIRST COUNT [SUITE]")
    parser.add_argument("--path", choices=("trace", "running", "both"), default="trace")
    parser.add_argument("--timing", choices=TIMINGS, default="mixed")
    parser.add_argument(
        "--probe", choices=("new", "old"), default="new", help="old: the rest of a step is compute"
    )
    parser.add_argument("--since", default="1h", help="for diagnose --agent; as its own default")
    return parser.parse_args(arguments)


def _score(options: argparse.Namespace, suite: str) -> None:
    first, count = map(int, options.words)
    largest = 1 << 20 if options.path == "trace" else MAXIMUM_WORLD

    def again() -> Iterator[job.Job]:
        return jobs(first, count, suite, options.timing, largest)

    if options.path != "running":
        sys.stdout.write(report(compare(again())) + "\n\n")
    if options.path != "trace":
        outcomes = {"running": run_jobs(again(), options.since, options.probe == "new")}
        if options.path == "both":
            outcomes["trace"] = run_traces(again())
        sys.stdout.write(report_final(outcomes) + "\n")


if __name__ == "__main__":
    end_on_terminate()
    sys.exit(main(sys.argv[1:]))
