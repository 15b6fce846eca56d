"""Where a follower continues after a restart of the agent, and what it knew, as values for JSON.

It is the agent's own file. A damaged one is left out as a whole, because positions in logs without
what was read up to there, or the reverse, would lose lines or count them twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.sources.nccl_log import state as nccl_state
from rankscope_agent.sources.nccl_log import step_state
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.streams import NO_POD, Position
from rankscope_agent.sources.pods.log_directories import PodIdentity
from rankscope_agent.sources.sealed_state import MALFORMED

Positions = dict[Path, tuple[Position, bool]]
"""Where each log continues, and whether it contains lines of NCCL."""


def to_json(positions: Positions, pods: Collection[PodLogs]) -> dict[str, Any]:
    """Return the positions in all logs, and the contents of those of each pod."""
    return {
        "version": nccl_state.VERSION,
        "logs": {
            str(path): [list(at.inode), at.offset, list(at.done), has_content]
            for path, (at, has_content) in positions.items()
        },
        "jobs": [_nccl(pod) for pod in pods if pod.has_content],
        "steps": [
            [_owner(pod), step_state.to_json(pod.steps)] for pod in pods if pod.steps.has_content
        ],
    }


def _nccl(pod: PodLogs) -> list[Any]:
    pod.sum_up()
    return [_owner(pod), pod.last_line, pod.last_warning, nccl_state.to_json(pod.facts)]


def _owner(pod: PodLogs) -> list[str]:
    return [pod.owner.namespace, pod.owner.name, pod.owner.uid]


def from_json(
    state: Mapping[str, Any], own: OwnLines | None
) -> tuple[Positions, dict[PodIdentity, PodLogs]]:
    """Return the positions and pods written by `to_json`.

    Args:
        state: what was written.
        own: the user's pattern for lines about steps.

    Raises:
        rankscope_agent.sources.nccl_log.state.StateError: it is not one of this version.
    """
    if state.get("version") != nccl_state.VERSION:
        raise nccl_state.StateError(f"version {state.get('version')!r}")
    positions: Positions = {}
    pods: dict[PodIdentity, PodLogs] = {}
    try:
        for path, (inode, offset, done, has_content) in state["logs"].items():
            position = Position((inode[0], inode[1]), offset, tuple(done))
            positions[Path(path)] = (position, bool(has_content))
        for owner, last_line, last_warning, facts in state["jobs"]:
            pod = PodLogs(PodIdentity(*owner), nccl_state.from_json(facts), own)
            pod.last_line, pod.last_warning = last_line, last_warning
            if pod.owner == NO_POD and last_line is not None:
                pod.date(last_line, last_warning)
            pods[pod.owner] = pod
        for values, steps in state.get("steps", ()):
            identity = PodIdentity(*values)
            pod = pods.setdefault(identity, PodLogs(identity, Facts(), own))
            pod.steps = step_state.from_json(steps, own)
    except MALFORMED as error:
        raise nccl_state.StateError(f"is damaged: {error!r}") from error
    return positions, pods
