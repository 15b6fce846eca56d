"""Waits until the canary's slow rank is named, or states why it was not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rankscope_agent.contract.canary import SLOW_RANK, SYMPTOM
from rankscope_analyzers.canary.seen import Look, Seen, SilentError

Result = Literal["named", "missed", "unknown"]

EXIT_CODES: Mapping[Result, int] = {"named": 0, "missed": 2, "unknown": 3}
"""Exit codes of a gate."""

LOOK_SECONDS = 2.0
"""Between two looks: changes reach the watch's page within 5 s."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial.

    Args:
        result: named, missed, or unknown if there was no answer.
        reason: a sentence.
        seconds: from the start of the trial to its end.
    """

    result: Result
    reason: str
    seconds: float

    def as_object(self, job_id: str) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "job_id": job_id,
            "expected": {"symptom": SYMPTOM, "rank": SLOW_RANK},
            "result": self.result,
            "reason": self.reason,
            "seconds": round(self.seconds, 1),
        }


Observer = Callable[[Outcome], None]
"""Called after each look with its outcome."""


def wait(
    job_id: str,
    look: Look,
    began: float,
    patience: float,
    check: Callable[[], None],
    observe: Observer,
) -> Outcome:
    """Look repeatedly until the slow rank is named or patience ends.

    Args:
        job_id: of the canary.
        look: returns what is known of it.
        began: Unix time; observations of earlier steps belong to an earlier canary.
        patience: seconds from then on.
        check: called before each look; raises if waiting is pointless.
        observe: called after each look, for whoever waits.
    """
    while True:
        check()
        now = time.time()
        try:
            outcome = judged(look(job_id), began, now)
        except SilentError as error:
            outcome = Outcome("unknown", f"no answer: {error}", now - began)
        if outcome.result == "named" or now - began >= patience:
            return outcome
        observe(outcome)
        time.sleep(LOOK_SECONDS)


def judged(found: Seen, began: float, now: float) -> Outcome:
    """Return what is known as an outcome.

    Args:
        found: of the canary.
        began: Unix time since which steps count.
        now: Unix time.
    """
    recent = {key for key, at in found.named.items() if at >= began}
    passed = now - began
    if (SYMPTOM, SLOW_RANK) in recent:
        return Outcome("named", f"rank {SLOW_RANK} was named after {passed:.0f} s", passed)
    if recent:
        named = ", ".join(f"rank {rank} ({symptom})" for symptom, rank in sorted(recent))
        expected = f"rank {SLOW_RANK} ({SYMPTOM})"
        return Outcome("missed", f"the watch named {named} instead of {expected}", passed)
    return Outcome("missed", _unnamed(found, began, now), passed)


def _unnamed(found: Seen, began: float, now: float) -> str:
    if found.evaluated is None:
        return "no watch evaluates: see its /readyz and its log"
    if found.newest_step is None or found.newest_step < began:
        return (
            f"the watch evaluated {now - found.evaluated:.0f} s ago and has judged no step of the"
            " canary: did it train, does its node's agent see its ring (rankscope doctor), and"
            " does that agent answer the watch (rankscope_watch_agents)?"
        )
    return f"the watch judged steps until {now - found.newest_step:.0f} s ago and named no rank"
