"""The account of one job's GPU time, continued at each look. Pure; bounded state.

An account has a moment up to which all time belongs to some part. A look moves it to the end of the
newest complete step, or, if no step ends, to now as soon as the time can be classified. A response
that arrives late is evaluated by the next look, as records last longer than a pause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.executed import Executed, executed
from rankscope_analyzers.goodput.parts import Sums
from rankscope_analyzers.goodput.reference import Reference, Times
from rankscope_analyzers.goodput.split import Step, split
from rankscope_analyzers.steps.records import CLOCK, RecordError, numeric

CLOCKS_SECONDS = 0.2
"""Seconds by which a step may begin before the end of the one before, by the clocks of nodes."""

PATIENCE_SECONDS = 300.0
"""Seconds after which the available data must suffice: a reference of fewer steps, steps of fewer
ranks."""

LATE_SECONDS = 60.0
"""Seconds after which a step's missing ranks are no longer waited for: two polls of the watch."""

FIRST_STEP_SECONDS = 600.0
"""Seconds after which processes without any step are unobserved: nothing takes that long to
start."""

LONGEST_PAUSE_SECONDS = 1800.0
"""Longest gap between two attempts of a job that is counted as the job's time: after a longer one
it is unknown who had the GPUs in the meantime. Nor is it a recovery, unless something tells that it
is the same job: another one of that name may have begun."""

OWN_COUNTER = 2
"""If the first record of a run has at most this number, steps are counted per process, as the probe
does; larger numbers are counted per job."""


UNDER_WAY = 2.0
"""Usual steps within which the next one ends, although other pods of the job have no node."""

NOTHING_USUAL = Times(0.0, math.nan, math.nan, math.nan)
"""Of a job that made no step but the first ones of its processes: they are all start-up."""


@dataclass(frozen=True, slots=True)
class Within:
    """A known cause of delay with its start, end (Unix time) and part."""

    since: float
    until: float
    part: str


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a job at one look; moments are Unix times.

    Args:
        now: of the look.
        gpus: that the job holds; ranks, if GPUs are unknown.
        records: at least its new step records; None without any.
        started: start of the first of its living processes, None if unknown.
        ended: end of the last of its processes, None while one lives or if unknown.
        alive: True if a process of it lives, or a pod of it holds GPUs.
        hung_since: the end of its newest step if it hangs, else None.
        held: True if it holds GPUs while other pods of it have no node.
        findings: what holds it up.
        hang_seconds: time without a step after which it is called hung.
    """

    now: float
    gpus: int
    records: pd.DataFrame | None = None
    started: float | None = None
    ended: float | None = None
    alive: bool = True
    hung_since: float | None = None
    held: bool = False
    findings: Sequence[Within] = ()
    hang_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long a job made no steps, from the last one before to the first one after.

    Args:
        interruption: restart or hang; a hang that ended in a restart is one restart.
        seconds: without that first step itself.
    """

    interruption: str
    seconds: float


@dataclass(slots=True)
class Account:
    """One job's account.

    Args:
        until: Unix time up to which all time is in a part, NaN before the first moment.
        last_end: end of the newest step that was accounted for, NaN without any.
        last_number: its counter.
        attempt: its attempt.
        kept: steps kept so far, by the process's or the job's own count.
        saved: `kept` when the newest checkpoint began, -1 without any.
        replay: steps that the present run repeats.
        highest: largest counter that is kept, if counters are the job's.
        hung: True if the time since `last_end` was called a hang.
        restarts: of the job while it was watched.
        hangs: likewise, whether they passed or ended in a restart.
        seconds: GPU-seconds by part.
        recoveries: that ended at the newest look.
        awaited_start: True if the previous look had steps, but not the start of their processes.
        looked: Unix time of the newest look, NaN before the first one.
        away: True if a look since the newest step saw nothing of the job, or none was made for
            long.
    """

    until: float = math.nan
    last_end: float = math.nan
    last_number: int = -1
    attempt: int = -1
    kept: int = 0
    saved: int = -1
    replay: int = 0
    highest: int = -1
    hung: bool = False
    restarts: int = 0
    hangs: int = 0
    seconds: Sums = field(default_factory=parts.no_sums)
    reference: Reference = field(default_factory=Reference)
    recoveries: list[Recovery] = field(default_factory=list)
    awaited_start: bool = False
    looked: float = math.nan
    away: bool = False

    def look(self, look: Look) -> Mapping[str, float]:
        """Account for a look; return what it adds in GPU-seconds by part."""
        before, self.recoveries = dict(self.seconds), []
        self._note_presence(look)
        steps = self._new_steps(look)
        if math.isnan(self.last_end) and not any(before.values()):
            # The start of processes may become known later than their existence.
            self.until = float(np.fmin(self.until, _beginning(look, steps)))
        if steps is not None and len(steps):
            self._take_all(steps, look)
        if steps is None or not len(steps):
            self._without_steps(look)
        return {part: total - before[part] for part, total in self.seconds.items()}

    def as_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        moments = {"until": self.until, "last_end": self.last_end, "looked": self.looked}
        return {
            **{name: one if math.isfinite(one) else None for name, one in moments.items()},
            **{name: getattr(self, name) for name in _COUNTS},
            "hung": self.hung,
            "away": self.away,
            "seconds": {part: total for part, total in self.seconds.items() if total},
            "reference": self.reference.kept(),
        }

    def _note_presence(self, look: Look) -> None:
        """Record whether the job is there, or waits for nodes, at each look of a pause."""
        unwatched = look.now - self.looked > LONGEST_PAUSE_SECONDS
        self.away |= unwatched or not (look.alive or look.held)
        self.looked = look.now

    def _new_steps(self, look: Look) -> Executed | None:
        """Return the complete steps that are not yet accounted for; None without any."""
        if look.records is None or not len(look.records):
            return None
        starts = numeric(look.records[CLOCK]).astype(np.float64)
        after = -math.inf if math.isnan(self.last_end) else self.last_end - CLOCKS_SECONDS
        records = look.records[(starts >= after) & (starts <= look.now + CLOCKS_SECONDS)]
        try:
            found = executed(records, look.gpus) if len(records) else None
        except RecordError:
            return None
        if found is None:
            return None
        again = (found.number <= self.last_number) & (found.restarts == 0)
        again &= (found.attempt <= self.attempt) & (found.start < self.last_end)
        found = found.at(~again)
        return found.at(slice(0, _complete(found, look.now)))

    def _take_all(self, steps: Executed, look: Look) -> None:
        for run in np.unique(steps.restarts).tolist():
            self.reference.add(steps.at(steps.restarts == run))
        usual = self.reference.usual()
        waited = look.now - (self.until if math.isfinite(self.until) else look.now)
        pressing = look.ended is not None or look.hung_since is not None
        enough = self.reference.enough or waited > PATIENCE_SECONDS
        awaits = enough and self._awaits_start(steps, look)
        if usual is None and (pressing or steps.restarts[-1]):
            usual = NOTHING_USUAL
        if usual is None or not (pressing or (enough and not awaits)):
            self.awaited_start = awaits
            self.reference = Reference()  # none is taken yet, and all are seen again
            return
        for index in range(len(steps)):
            self._take(steps, index, usual, look)

    def _awaits_start(self, steps: Executed, look: Look) -> bool:
        """Return True if a first step arrived before the start of its process.

        Pages, which report processes, are read less often than steps; the next look has newer ones,
        so this waits for one look.
        """
        begun = bool(steps.first[0]) and look.now - steps.start[0] <= LATE_SECONDS
        unknown = math.isnan(self.last_end) and begun and look.started is None
        return unknown and not self.awaited_start

    def _take(self, steps: Executed, index: int, usual: Times, look: Look) -> None:
        number, attempt = int(steps.number[index]), int(steps.attempt[index])
        start, end = float(steps.start[index]), float(steps.end[index])
        lasted = end - start
        if math.isnan(self.last_end) or attempt > self.attempt >= 0 or number <= self.last_number:
            if steps.first[index] or math.isfinite(self.last_end):
                lasted = min(lasted, usual.step)
                self._begin_run(number, attempt, start, end, usual, look)
        elif number > self.last_number + 1 and start > self.until:
            self._pass(start, parts.UNOBSERVED, look)
        else:
            # A step begins where the one before ends: a gap between them is a clock that was set.
            self.until = max(self.until, start)
            if self.hung:
                self.recoveries.append(Recovery(parts.HANG, max(lasted - usual.step, 0.0)))
        self._add_step(steps, index, lasted, usual, look)
        self.kept += 0 if self._replays(number) else 1
        if steps.checkpoint[index] > 0:
            self.saved = self.kept - max(self.replay, 1)
        self.replay = max(self.replay - 1, 0)
        self.highest = max(self.highest, number)
        self.last_end, self.last_number, self.attempt = end, number, attempt
        self.until, self.hung, self.away = max(self.until, end), False, False

    def _begin_run(
        self, number: int, attempt: int, start: float, end: float, usual: Times, look: Look
    ) -> None:
        """Account for the time up to the first step of an attempt."""
        begins = max(start, end - usual.step)
        if not math.isfinite(self.last_end):
            self._pass(begins, parts.STARTUP, look)
            return
        self.restarts += 1
        short = begins - self.last_end <= LONGEST_PAUSE_SECONDS
        if short or self.hung or self._is_the_same_job(number, attempt):
            self.recoveries.append(Recovery(parts.RESTART, max(begins - self.last_end, 0.0)))
        if number <= OWN_COUNTER:
            # The first of them is in no record: it ends the start of the processes.
            self.replay = max(self.kept - self.saved - 1, 0) if self.saved >= 0 else 0
            self.highest = number - 1
        unseen = self.attempt >= 0 and attempt > self.attempt + 1
        started = look.started if look.started is not None and look.started < start else start
        if unseen:
            self._pass(started, parts.UNOBSERVED, look)
        self._pass(begins, parts.RESTART, look)

    def _is_the_same_job(self, number: int, attempt: int) -> bool:
        """Return True if a run after a long pause is not of another job of that name.

        Its launcher counts on, its own counter does, or it was there all the time.
        """
        return attempt > self.attempt >= 0 or number > OWN_COUNTER or not self.away

    def _replays(self, number: int) -> bool:
        return self.replay > 0 or number <= self.highest

    def _add_step(
        self, steps: Executed, index: int, lasted: float, usual: Times, look: Look
    ) -> None:
        end = float(steps.end[index])
        within = next((one.part for one in look.findings if one.since <= end <= one.until), "")
        found = split(
            Step(
                lasted=max(lasted, 0.0),
                checkpoint=float(steps.checkpoint[index]),
                evaluation=float(steps.evaluation[index]),
                data=float(steps.data[index]),
                own=float(steps.own[index]),
                usual_own=float(steps.usual_own[index]),
                sync=float(steps.sync[index]),
                within=within,
                replayed=self._replays(int(steps.number[index])),
                hang_seconds=0.0 if self.hung else look.hang_seconds,
            ),
            usual,
        )
        # What an earlier look called a hang, in the middle of the step, is in the account.
        over = sum(found.values()) - max(end - self.until, 0.0)
        for part in (parts.HANG, *parts.PARTS):
            taken = min(found[part], max(over, 0.0))
            found[part] -= taken
            over -= taken
        for part, seconds in found.items():
            self.seconds[part] += seconds * look.gpus

    def _without_steps(self, look: Look) -> None:
        """Classify the time up to now if no step ends, as soon as that is known."""
        if look.hung_since is not None:
            self.hangs += not self.hung
            self.hung = True
            self._pass(look.now, parts.HANG, look)
        elif look.held and not self._is_under_way(look):
            self._pass(look.now, parts.HELD, look)
        elif look.ended is not None and not look.alive:
            self._pass(look.ended, parts.HANG if self.hung else parts.IDLE, look)
        elif math.isnan(self.last_end) and (
            self.seconds[parts.UNOBSERVED] or look.now - self.until > FIRST_STEP_SECONDS
        ):
            self._pass(look.now, parts.UNOBSERVED, look)

    def _is_under_way(self, look: Look) -> bool:
        """Return True if a job makes steps that take longer than the time between two looks."""
        usual = self.reference.usual()
        if usual is None or look.ended is not None:
            return False
        return look.now - self.last_end <= UNDER_WAY * usual.step

    def _pass(self, until: float, part: str, look: Look) -> None:
        """Count the time up to a moment to a part."""
        seconds = until - self.until
        if seconds <= 0 or not math.isfinite(seconds):
            return
        if seconds > LONGEST_PAUSE_SECONDS and part in (parts.RESTART, parts.IDLE):
            self.until = until
            return
        self.seconds[part] += seconds * look.gpus
        self.until = until


def _beginning(look: Look, steps: Executed | None) -> float:
    """Return when a job's time begins: at its start if that was seen, else at its first step."""
    if steps is None or not len(steps):
        started = look.now if look.started is None else look.started
        return max(started, look.now - FIRST_STEP_SECONDS)
    first = float(steps.start[0])
    if steps.first[0] and look.started is not None and look.started < first:
        return max(look.started, first - FIRST_STEP_SECONDS)
    return first


def _complete(steps: Executed, now: float) -> int:
    """Return how many steps all ranks have reported, or had the time to report."""
    if not len(steps):
        return 0
    lacking = steps.ranks < steps.ranks.max()
    done = np.flatnonzero(~lacking | (steps.end < now - LATE_SECONDS))
    return int(done[-1]) + 1 if len(done) else 0


def restored(kept: Any) -> Account:
    """Return an account from its saved form.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: it is not one.
    """
    seconds = parts.added([parts.sums_of(kept["seconds"])])
    found = Account(
        until=_moment(kept["until"]),
        last_end=_moment(kept["last_end"]),
        hung=bool(kept["hung"]),
        looked=_moment(kept.get("looked")),
        away=bool(kept.get("away", True)),
        seconds=seconds,
        reference=Reference.of(kept["reference"]),
    )
    for name in _COUNTS:
        setattr(found, name, int(kept.get(name, 0)))
    return found


def _moment(kept: Any) -> float:
    return math.nan if kept is None else float(kept)


_COUNTS = ("last_number", "attempt", "kept", "saved", "replay", "highest", "restarts", "hangs")
