"""A run record: images, command, variables, versions, locations, speed; and how two runs differ.

One record is kept per attempt, so that "it was fast last week" can be answered by what has changed
since. Pure; `commands.record` fetches and writes, `commands.diff` reads and compares.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankscope_analyzers.text.name_lists import ranks_named

if TYPE_CHECKING:  # `rankscope diff` reads two files, and starts without pandas
    from rankscope_analyzers.fusion.job_report import JobReport

FORMAT = 1

SLOWER = 1.05
"""Ratio of median steps above which a run counts as slower; runs on different nodes differ by
less."""


MOST_PLACES = 8
"""Ranks whose places are listed: a run on other nodes has thousands that moved."""


class RecordFormatError(ValueError):
    """A file is not a run record; the argument is the reason."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What an agent knows of one rank.

    Args:
        image: of its container, by digest if known.
        versions: of software, by name.
    """

    rank: int
    node: str
    uuid: str
    pod: str
    attempt: int
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    versions: Mapping[str, str]


def record(job: JobReport, ranks: Sequence[RankFacts]) -> dict[str, Any]:
    """Return the record of a run, ready for JSON.

    Values that all ranks share occur once; others occur by value, with their ranks.
    """
    verdict = job.verdict
    return {
        "format": FORMAT,
        "job_id": job.job_id,
        "attempt": max((rank.attempt for rank in ranks), default=0),
        "made_unix_seconds": job.made_unix_seconds,
        "world_size": job.frame.world_size if job.frame else len(job.locations) or None,
        "median_step_seconds": verdict.median_step_seconds if verdict else None,
        "incidents": [incident.summary for incident in job.incidents],
        "unread": list(job.missing),
        "images": _by_value((rank.rank, rank.image) for rank in ranks),
        "command": _by_value((rank.rank, _joined(rank.command)) for rank in ranks),
        "environment": _by_name((rank.rank, rank.environment) for rank in ranks),
        "versions": _by_name((rank.rank, rank.versions) for rank in ranks),
        "ranks": [
            {
                "rank": location.rank,
                "node": location.node,
                "gpu": location.gpu,
                "gpu_uuid": location.uuid,
                "nics": list(location.nics),
                "pod": location.pod,
            }
            for _, location in sorted(job.locations.items())
        ],
    }


_OWN_RANK = re.compile(r"^(--(?:local[-_]?)?rank(?:=|$)|--node[-_]rank(?:=|$))")


def _joined(command: Sequence[str]) -> str:
    """Return a command as one text, without arguments that are a rank's own number."""
    return " ".join(part for part in command if not _OWN_RANK.match(part))


def _by_value(pairs: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for rank, value in pairs:
        if value:
            found[value].append(rank)
    return {value: sorted(ranks) for value, ranks in found.items()}


def _by_name(
    pairs: Iterable[tuple[int, Mapping[str, str]]],
) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, values in pairs:
        for name, value in values.items():
            found[name][value].append(rank)
    return {
        name: {value: sorted(ranks) for value, ranks in values.items()}
        for name, values in sorted(found.items())
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two runs; a text is empty if a run lacks the value.

    Args:
        subject: speed, image, command, environment, version or place.
    """

    subject: str
    name: str
    before: str
    after: str


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return what differs between two records, the most explanatory difference first.

    Raises:
        RecordFormatError: one of them is not a record.
    """
    for found in (before, after):
        _check(found)
    return (
        *_of_values("image", before["images"], after["images"]),
        *_of_command(before["command"], after["command"]),
        *_of_names("version", before["versions"], after["versions"]),
        *_of_names("environment", before["environment"], after["environment"]),
        *_of_size(before, after),
        *_moved_ranks(before["ranks"], after["ranks"]),
    )


def speed(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return the ratio of the later run's step to the earlier one's, None if a run has none."""
    steps = [found.get("median_step_seconds") for found in (before, after)]
    known = [float(s) for s in steps if isinstance(s, int | float) and s > 0]
    return known[1] / known[0] if len(known) == 2 else None


def _check(found: Mapping[str, Any]) -> None:
    if found.get("format") != FORMAT:
        raise RecordFormatError(f"format is {found.get('format')!r}, expected {FORMAT}")
    for name, kind in (
        *((name, dict) for name in ("images", "command", "environment", "versions")),
        ("ranks", list),
    ):
        if not isinstance(found.get(name), kind):
            raise RecordFormatError(f"{name} is not {'an object' if kind is dict else 'list'}")


def _of_values(
    subject: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    if set(before) != set(after):
        yield Difference(subject, "", _sentence(before), _sentence(after))


def _of_command(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the arguments that differ; commands of several forms are compared as a whole."""
    if len(before) != 1 or len(after) != 1:
        yield from _of_values("command", before, after)
        return
    (first,), (second,) = before, after
    old, new = _arguments(first), _arguments(second)
    gone, come = (Counter(one) - Counter(other) for one, other in ((old, new), (new, old)))
    if gone or come:
        yield Difference("command", "", " ".join(gone.elements()), " ".join(come.elements()))


def _arguments(command: str) -> Sequence[str]:
    """Return the words of a command, options together with the words that follow them.

    A value says nothing without its option: two options may exchange theirs.
    """
    found: list[str] = []
    for word in command.split():
        last = found[-1] if found else ""
        if last.startswith("-") and "=" not in last and not word.startswith("-"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _of_names(
    subject: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name, {}), after.get(name, {})
        if set(old) != set(new):
            yield Difference(subject, name, _sentence(old), _sentence(new))


def _sentence(values: Mapping[str, Any]) -> str:
    """Return values as text; of several with their ranks."""
    if len(values) < 2:
        return next(iter(values), "")
    return ", ".join(f"{value} ({_whose(ranks)})" for value, ranks in sorted(values.items()))


def _whose(ranks: object) -> str:
    """Return the ranks that a record lists, as text; the list may hold anything."""
    listed = ranks if isinstance(ranks, list) else []
    return ranks_named(rank for rank in listed if isinstance(rank, int))


def _of_size(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    old, new = before.get("world_size"), after.get("world_size")
    if old != new:
        yield Difference("place", "ranks", str(old or ""), str(new or ""))


def _moved_ranks(before: Sequence[Any], after: Sequence[Any]) -> Iterator[Difference]:
    old, new = _nodes(before), _nodes(after)
    left, come = sorted(old - new), sorted(new - old)
    if left or come:
        yield Difference("place", "nodes", ", ".join(left), ", ".join(come))
        return
    gpus = [{one["gpu_uuid"] for one in _places(locations)} for locations in (before, after)]
    if gpus[0] != gpus[1]:
        lost, got = sorted(gpus[0] - gpus[1]), sorted(gpus[1] - gpus[0])
        yield Difference("place", "GPUs", ", ".join(lost), ", ".join(got))
    else:
        yield from _of_places("ranks", ("node", "gpu_uuid"), before, after)
    yield from _of_places("NICs", ("nics",), before, after)


def _of_places(
    name: str, parts: Sequence[str], before: Sequence[Any], after: Sequence[Any]
) -> Iterator[Difference]:
    """Yield the ranks of both runs that have changed a part of their place, the first few."""
    old, new = (
        {one["rank"]: tuple(one[part] for part in parts) for one in _places(locations)}
        for locations in (before, after)
    )
    moved = [rank for rank in sorted(old.keys() & new.keys()) if old[rank] != new[rank]]
    if moved:
        yield Difference("place", name, _listed(moved, old), _listed(moved, new))


def _listed(ranks: Sequence[int], places: Mapping[int, Sequence[str]]) -> str:
    """Return where some ranks were, such as "rank 0: gpu-1 GPU-5"."""
    shown = [
        f"rank {rank}: {' '.join(filter(None, places[rank])) or 'unknown'}"
        for rank in ranks[:MOST_PLACES]
    ]
    more = len(ranks) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _places(locations: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the locations of ranks with texts for all parts; a record may hold anything."""
    for one in locations:
        if isinstance(one, dict) and isinstance(one.get("rank"), int):
            nics = one.get("nics")
            yield {
                "rank": one["rank"],
                "node": str(one.get("node") or ""),
                "gpu_uuid": str(one.get("gpu_uuid") or ""),
                "nics": " ".join(map(str, nics)) if isinstance(nics, list) else "",
            }


def unread(found: Mapping[str, Any]) -> Sequence[str]:
    """Return what could not be read when a record was made; older records do not say."""
    stated = found.get("unread")
    return [str(one) for one in stated] if isinstance(stated, list) else []


def _nodes(locations: Sequence[Any]) -> set[str]:
    return {str(location.get("node")) for location in locations if isinstance(location, dict)}
