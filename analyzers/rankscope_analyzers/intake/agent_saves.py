"""When ranks saved checkpoints outside of steps, as agents report it: requested at each look.

A span that lasts is reported again when it has ended, so that an agent's newest response replaces
the one before it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlencode

from rankscope_agent.contract.fair_shares import allot
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import LARGE_AT_ONCE
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.steps import beside_steps
from rankscope_analyzers.steps.beside_steps import SAVING, BesideSteps

MOST_SAVES = 8192
"""Saves of one agent that are kept, the newest of each job: those of eight ranks, of which each
keeps 1,024 spans."""

MOST_ANSWER_BYTES = 96 << 20
"""Twelve times what eight ranks with 1,024 spans each take."""

SAVES_SECONDS = 15.0
"""For one response: eight files of 100 KiB are read for it, and all jobs wait to be judged."""

Saves = Sequence[tuple[str, BesideSteps]]
"""Saves of one agent's ranks, with their jobs."""

SavesOfJobs = Mapping[str, Sequence[tuple[str, BesideSteps]]]
"""Saves by job, with the addresses of the agents that report them."""


class AgentSaves:
    """What many agents reported last; several threads may query different agents."""

    def __init__(self) -> None:
        self._known: dict[str, Saves] = {}

    def keep(self, urls: Iterable[str]) -> None:
        """Forget all agents but these."""
        kept = set(urls)
        self._known = {url: known for url, known in self._known.items() if url in kept}

    def of_agent(self, agent: Agent, job_id: str | None, since_unix_seconds: float) -> Saves:
        """Query an agent; if it does not answer, what it reported last still holds.

        Args:
            agent: to query; older ones have no such page.
            job_id: the job, None for all.
            since_unix_seconds: only saves that began later.
        """
        wanted = {"since": f"{since_unix_seconds:.6f}", **({"job": job_id} if job_id else {})}
        path = f"/api/v1/spans?{urlencode(wanted)}"
        try:
            document = agent.json(path, MOST_ANSWER_BYTES, SAVES_SECONDS)
            self._known[agent.url] = tuple(_newest(list(beside_steps.read(document))))
        except (AgentError, ValueError, LookupError, TypeError):
            pass  # step records and pages are worth more
        known = self._known.get(agent.url, ())
        return [(job, save) for job, save in known if save.begin >= since_unix_seconds]

    def of_agents(
        self, agents: Sequence[Agent], since_unix_seconds: float
    ) -> tuple[SavesOfJobs, tuple[AnalysisError, ...], float]:
        """Query agents; return saves by job, errors, and the CPU time of all threads.

        Args:
            agents: to query.
            since_unix_seconds: only saves that began later.
        """
        with ThreadPoolExecutor(LARGE_AT_ONCE) as pool:
            found = list(pool.map(partial(self._timed, since_unix_seconds), agents))
        by_job: dict[str, list[tuple[str, BesideSteps]]] = defaultdict(list)
        for agent, (saves, _) in zip(agents, found, strict=True):
            for job, save in () if isinstance(saves, AnalysisError) else saves:
                by_job[job].append((agent.url, save))
        errors = tuple(one for one, _ in found if isinstance(one, AnalysisError))
        return by_job, errors, sum(seconds for _, seconds in found)

    def _timed(self, since: float, agent: Agent) -> tuple[Saves | AnalysisError, float]:
        began = time.thread_time()
        saves = attempt("source", agent.url, partial(self.of_agent, agent, None, since))
        return saves, time.thread_time() - began


def _newest(spans: Saves) -> Iterator[tuple[str, BesideSteps]]:
    """Yield the newest saves, of which each job has its share."""
    by_job: dict[str, list[BesideSteps]] = defaultdict(list)
    for job, span in spans:
        if span.kind in SAVING:
            by_job[job].append(span)
    shares = allot({job: len(saves) for job, saves in by_job.items()}, MOST_SAVES)
    for job, saves in by_job.items():
        saves.sort(key=lambda save: -save.begin)
        yield from ((job, save) for save in saves[: shares[job]])
