"""The state of every checkpoint of a directory, and the last good one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rankscope_analyzers.checkpoints import completion, contents, names, parts, shard_names
from rankscope_analyzers.checkpoints.checkpoint import Checkpoint, State
from rankscope_analyzers.checkpoints.contents import Contents
from rankscope_analyzers.checkpoints.effort import Effort
from rankscope_analyzers.checkpoints.grouping import Group
from rankscope_analyzers.checkpoints.pointers import Pointer
from rankscope_analyzers.checkpoints.problems import DAMAGE, PARTIAL, UNKNOWN, Problem

WRITING_SECONDS = 600.0
"""How long after the last change an unfinished save may still be going on."""

Usual = Mapping[tuple[str, str], Sequence[tuple[int, ...]]]


def judge(
    root: Path,
    groups: Iterable[Group],
    pointers: Sequence[Pointer],
    effort: Effort,
    now: float,
    writers: Mapping[str, frozenset[int]],
    extra: Mapping[str | None, Sequence[Problem]],
) -> list[Checkpoint]:
    """Return the checkpoints, the latest first.

    Args:
        root: the directory that is examined.
        groups: the files of each.
        pointers: what names the latest.
        effort: what may be read.
        now: Unix seconds.
        writers: processes that have files open for writing, by their paths.
        extra: problems known from elsewhere, such as a list of checksums, by checkpoint.
    """
    ordered = sorted(groups, key=lambda group: group.modified, reverse=True)
    usual = _usual(ordered)
    judged = []
    for group in ordered:
        held = contents.read(root, group, effort)
        held.problems += extra.get(group.name, ())
        held.problems += completion.missing_shards(group, held, _usual_of(group, usual))
        held.problems += _fewer_ranks(group, usual)
        held.problems += _several_writers(group, writers)
        judged.append(_checkpoint(group, held, pointers, now, writers))
    return sorted(judged, key=_place, reverse=True)


def last_good(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """Return the latest that is whole and holds a model, or else the latest that is whole."""
    whole = [one for one in checkpoints if one.state == "complete"]
    return next((one for one in whole if "model" in one.parts), whole[0] if whole else None)


def _place(checkpoint: Checkpoint) -> tuple[float, int]:
    """Sort key: time, then step where times are in the same second (a copy that kept none)."""
    step = checkpoint.step[0] if checkpoint.step else -1
    return float(int(checkpoint.group.modified)), step


def _checkpoint(
    group: Group,
    held: Contents,
    pointers: Sequence[Pointer],
    now: float,
    writers: Mapping[str, frozenset[int]],
) -> Checkpoint:
    named = names.step_of(group.name.rpartition("/")[2] or group.base)
    step = (named.number, named.unit) if named else None
    if named is None or named.unit == "epoch":
        step = held.step() or step
    held_parts = parts.of_files(group.files) | held.parts()
    if step is not None:
        held_parts.add("step")
    return Checkpoint(
        group=group,
        state=_state(group, held, pointers, now, writers),
        problems=tuple(dict.fromkeys(held.problems)),
        step=step,
        parts=frozenset(held_parts),
        foreign=held.foreign(),
        has_checksums=held.has_checksums,
    )


def _state(
    group: Group,
    held: Contents,
    pointers: Sequence[Pointer],
    now: float,
    writers: Mapping[str, frozenset[int]],
) -> State:
    kinds = {problem.kind for problem in held.problems}
    written = any(file.path in writers for file in group.files.values())
    if written and kinds & DAMAGE:
        return "being_written"
    if not completion.is_completed(group, held, pointers):
        if written or now - group.modified < WRITING_SECONDS:
            return "being_written"
        return "damaged" if kinds & (DAMAGE - PARTIAL) else "interrupted"
    if kinds & DAMAGE:
        return "damaged"
    return "unverified" if kinds & UNKNOWN else "complete"


def _several_writers(group: Group, writers: Mapping[str, frozenset[int]]) -> Iterable[Problem]:
    for file in group.files.values():
        pids = writers.get(file.path, frozenset())
        if len(pids) > 1:
            listed = ", ".join(map(str, sorted(pids)[:8]))
            detail = f"is written by {len(pids)} processes at once ({listed})"
            yield Problem("several_writers", file.path, detail)


def _usual(groups: Iterable[Group]) -> Usual:
    """Return how many ranks the checkpoints of a run have, by directory and pattern."""
    counts: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    for group in groups:
        for pattern, family in shard_names.families(group.files).items():
            counts[_family_key(group, pattern)].append(family.counts)
    return counts


def _usual_of(group: Group, usual: Usual) -> Mapping[str, tuple[int, ...]]:
    """Return how many ranks a checkpoint should have, if the run's other checkpoints show it.

    A single one with fewer has lost shards; two or more with fewer come from a smaller job.
    """
    expected = {}
    for pattern, family in shard_names.families(group.files).items():
        counts = usual[_family_key(group, pattern)]
        most = max(counts)
        if counts.count(family.counts) == 1 and counts.count(most) > 1:
            expected[completion.names_without_step(pattern)] = most
    return expected


def _fewer_ranks(group: Group, usual: Usual) -> Iterable[Problem]:
    """Yield that the newer of two checkpoints has fewer ranks: lost shards, or a smaller job."""
    for pattern, family in shard_names.families(group.files).items():
        counts = usual[_family_key(group, pattern)]
        if len(counts) == 2 and family.counts == counts[0] < counts[1]:
            has, before = math.prod(counts[0]), math.prod(counts[1])
            detail = (
                f"has files of {has} ranks, and the checkpoint before it of {before}: it is whole"
                " only if the job has become smaller"
            )
            yield Problem("fewer_ranks", group.name or group.base or ".", detail)


def _family_key(group: Group, pattern: str) -> tuple[str, str]:
    parent = group.base.rpartition("/")[0] if group.name == group.base else group.base
    return parent, completion.names_without_step(pattern)
