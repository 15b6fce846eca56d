"""Score rankscope and published methods on simulated jobs.

python -m benchmarks.straggler_suite FIRST COUNT [SUITE]     prints the tables of docs
python -m benchmarks.straggler_suite write DIR FIRST COUNT [SUITE]     writes traces and labels.json

Suites: usual (default), large (256 to 2,048 ranks), concurrent (two faults at a time).
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.straggler_suite import job, plan, published, scorer

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
}


def jobs(first: int, count: int, suite: str = "usual") -> Iterator[job.Job]:
    """Yield the jobs of consecutive seeds."""
    for seed in range(first, first + count):
        yield job.simulate(SUITES[suite](seed, KINDS[seed % len(KINDS)]))


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


def compare(first: int, count: int, suite: str = "usual") -> dict[str, scorer.Tally]:
    """Run every method on the jobs of consecutive seeds."""
    labels: dict[str, Any] = {}
    said: dict[str, dict[str, Any]] = {}
    for made in jobs(first, count, suite):
        name = made.meta["job"]
        labels[name] = made.labels
        for method, verdicts in judge(made).items():
            said.setdefault(method, {})[name] = {"verdicts": verdicts}
    return {
        method: scorer.tally({"jobs": labels}, {"jobs": verdicts})
        for method, verdicts in said.items()
    }


def report(tallies: dict[str, scorer.Tally]) -> str:
    """Return the scores as Markdown tables: all methods, then our classes and confusions."""
    names = list(scorer.scores(tallies[OURS]))
    lines = ["| method | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for method, tally in tallies.items():
        values = scorer.scores(tally).values()
        lines.append(f"| {method} | " + " | ".join(f"{value:.3g}" for value in values) + " |")
    lines += ["", "| class | F1 | answered (times) |", "|---|---|---|"]
    table = scorer.confusion(tallies[OURS])
    for kind, score in [*scorer.class_scores(tallies[OURS]).items(), ("none", float("nan"))]:
        answers = [f"{said} {n}" for (true, said), n in table.most_common() if true == kind]
        shown = "" if kind == "none" else f"{score:.3f}"
        lines.append(f"| {kind} | {shown} | {', '.join(answers)} |")
    return "\n".join(lines)


def write(folder: Path, first: int, count: int, suite: str = "usual") -> None:
    """Write the jobs of consecutive seeds as traces beside their labels."""
    labels = {}
    for made in jobs(first, count, suite):
        place = folder / made.meta["job"]
        place.mkdir(parents=True, exist_ok=True)
        (place / "meta.json").write_text(json.dumps(made.meta, indent=1), "utf-8")
        made.records.to_parquet(place / "records.parquet", index=False)
        labels[made.meta["job"]] = made.labels
    text = json.dumps({"format_version": 1, "jobs": labels}, indent=1)
    (folder / "labels.json").write_text(text, "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says."""
    suite = arguments[-1] if arguments and arguments[-1] in SUITES else "usual"
    words = [word for word in arguments if word != suite]
    if words[:1] == ["write"] and len(words) == 4:
        write(Path(words[1]), int(words[2]), int(words[3]), suite)
    elif len(words) == 2:
        sys.stdout.write(report(compare(int(words[0]), int(words[1]), suite)) + "\n")
    else:
        sys.stderr.write(__doc__ or "")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
