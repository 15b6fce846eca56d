"""Which of the followed agents answer, and which ranks are unseen because theirs does not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.canary import is_canary
from rankscope_analyzers.intake.followed_agent import FollowedAgent

SILENT_SECONDS = 60.0
"""An agent that is restarted, or replaced by a newer version, answers again within half of that."""


@dataclass(frozen=True, slots=True)
class StreamHealth:
    """The state of the followed agents.

    Args:
        answering: agents that answer.
        new: agents that have not answered yet, and were listed within the last minute.
        silent: agents that have not answered for over a minute.
        silent_ranks: ranks that ran when their agent last answered and that is now silent, by job;
            0 for jobs without any. Canaries are left out.
    """

    answering: int
    new: int
    silent: int
    silent_ranks: Mapping[str, int]


def of(
    agents: Mapping[str, FollowedAgent],
    late: Container[str],
    own: Callable[[str], bool],
    now: float,
) -> StreamHealth:
    """Return the state of agents.

    Args:
        agents: all that are followed, by address.
        late: addresses of those whose response has not arrived yet.
        own: returns True for jobs that this watch follows.
        now: monotonic time, in seconds.
    """
    states: Counter[str] = Counter()
    jobs: Counter[str] = Counter()
    for url, agent in agents.items():
        state = _state(agent, url in late, now)
        states[state] += 1
        for ring in agent.rings:
            if ring.rank.get("alive") and own(ring.job_id) and not is_canary(ring.job_id):
                jobs[ring.job_id] += state == "silent"
    return StreamHealth(states["answering"], states["new"], states["silent"], dict(jobs))


def _state(agent: FollowedAgent, late: bool, now: float) -> str:
    if now - agent.answered > SILENT_SECONDS and (late or agent.failure or not agent.known):
        return "silent"  # others have answered, and are not queried for a while
    return "answering" if agent.known else "new"
