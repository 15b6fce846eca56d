"""A checkpoint and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankscope_analyzers.checkpoints.grouping import Group
from rankscope_analyzers.checkpoints.parts import NEEDED
from rankscope_analyzers.checkpoints.problems import Problem

State = Literal["complete", "being_written", "interrupted", "damaged", "unverified"]

MEANINGS: dict[State, str] = {
    "complete": "whole, as far as its format shows",
    "being_written": "not complete, and a file changed within 10 minutes or a process writes it",
    "interrupted": "not complete, and no longer being written",
    "damaged": "complete once, and cannot be loaded as it was saved",
    "unverified": "not read, so that nothing is known of it",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint.

    Args:
        group: its files.
        state: whether it can be loaded.
        problems: why not, and what else is wrong with it.
        step: the progress of training, with its unit; None if unknown.
        parts: what it holds.
        foreign: classes that its pickles name and that are not known here.
        has_checksums: whether changed bytes in it can be detected with `--deep`.
    """

    group: Group
    state: State
    problems: tuple[Problem, ...]
    step: tuple[int, str] | None
    parts: frozenset[str]
    foreign: tuple[str, ...]
    has_checksums: bool

    @property
    def name(self) -> str:
        """Return its path, relative to the directory that was examined."""
        return self.group.name or "."

    @property
    def lacks(self) -> tuple[str, ...]:
        """Return what a run would need and it does not hold."""
        return tuple(part for part in NEEDED if part not in self.parts)
