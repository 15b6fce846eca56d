"""Serialises the facts of step lines as JSON and reads them back: pure, the agent's own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.values import Progress


def to_json(log: StepLog) -> dict[str, Any]:
    """Return the contents of a pod's logs as values for JSON."""
    return {
        "frameworks": [[name, *astuple(known)] for name, known in log.facts.frameworks.items()],
        "refused": log.facts.refused,
        "votes": list(log.trainers.votes.items()),
        "lightning": log.trainers.lightning,
        "deepspeed": log.deepspeed.last,
    }


def from_json(state: Mapping[str, Any], own: OwnLines | None = None) -> StepLog:
    """Return a parser that continues from a state.

    Raises:
        KeyError: it is not a valid state; likewise TypeError and ValueError.
    """
    log = StepLog(own)
    log.facts.frameworks = {name: Progress(*values) for name, *values in state["frameworks"]}
    log.facts.refused = state["refused"]
    log.trainers.votes.update(dict(state["votes"]))
    log.trainers.lightning = state["lightning"]
    if state.get("deepspeed") is not None:  # states of earlier versions have none
        step, skipped, written = state["deepspeed"]
        log.deepspeed.last = (step, skipped, written)
    return log
