"""Follows the step records of many agents: each look requests those that no earlier one got.

Agents that send columns are queried by cursor, ring by ring; older ones, which send JSON, from the
time of their newest record on. Records about ranks that are not the agent's own are left out.
"""

from __future__ import annotations

import json
import math
import operator
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

import numpy as np

from rankscope_agent.contract import step_blocks as form
from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.job_names import is_job_id
from rankscope_agent.contract.shards import PARAMETER, WHOLE, Shard
from rankscope_analyzers.intake import step_columns, step_json, stream_health
from rankscope_analyzers.intake.agent_client import AgentError, StatusError
from rankscope_analyzers.intake.agent_connections import (
    BUSY,
    AgentConnections,
    Answer,
    Answers,
    Question,
)
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.followed_agent import FollowedAgent, Route
from rankscope_analyzers.intake.job_ownership import Source, claims_of, notes, refused
from rankscope_analyzers.intake.step_columns import StepColumns
from rankscope_analyzers.intake.step_history import START, SYNC, StepAnswer, step_answer
from rankscope_analyzers.intake.step_windows import StepWindows
from rankscope_analyzers.intake.stream_health import StreamHealth
from rankscope_analyzers.intake.unread_counts import Unread
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt

NEWCOMERS = 128
"""Agents that are queried for the first time at one look: each sends all the time that is kept, one
or two megabytes, and all of a fleet would take gigabytes at once."""

MOST_ANSWER_BYTES = 96 << 20
"""Bytes of half a million rows of columns."""

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 60.0
"""Seconds after which an agent that cannot be reached is queried again, longer each time."""

ROWS_PER_SECOND, MANY_ROWS = 4000.0, 20_000
"""Records per second of one agent: as many as eight ranks write with steps of 2 ms, and those of
five seconds. After more it is queried later: pods that write faster keep it busy with responses,
and its pages wait."""

JSON_TYPE = "application/json"
BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class StreamLook:
    """The result of one look.

    Args:
        answered: agents that answered, to this request or an earlier one.
        errors: of agents whose responses made something raise.
    """

    answered: int
    errors: tuple[AnalysisError, ...]


class StepStream:
    """Follows agents; used by one thread.

    Args:
        entry: credentials.
        seconds: how long records are kept, and how far back an agent is queried at first.
        cautious: True if an agent that falls silent is not queried again before `renew`: its
            address may by now be that of any pod, which could use the credentials that it is sent.
        shard: of the jobs that are followed.

    Attributes:
        records: number of step records that were added to jobs.
    """

    def __init__(
        self, entry: Entry, seconds: float, *, cautious: bool = False, shard: Shard = WHOLE
    ) -> None:
        self._cautious = cautious
        self._shard = shard
        self.windows = StepWindows(seconds)
        self.connections = AgentConnections(entry)
        self.starts: dict[str, list[StepAnswer]] = {}
        self.agents: dict[str, FollowedAgent] = {}
        self.placed: Mapping[str, str] = {}
        self.notes: Mapping[str, Sequence[str]] = {}
        self._refused: frozenset[Source] = frozenset()
        self._claims_changed = False
        self._seconds = seconds
        self.records = 0

    def look(self, urls: Sequence[str], now: float, wait_seconds: float) -> StreamLook:
        """Query all agents for what is new.

        Args:
            urls: of all agents; others are forgotten.
            now: Unix time.
            wait_seconds: for those that usually answer in time.

        Raises:
            CredentialsError: a file of credentials cannot be used.
        """
        self._keep(urls)
        # Agents that answered since the last look are queried again at this one, not at the next.
        late, errors = self._read_answers(self.connections.collect(), now)
        questions = dict(self._questions(now - self._seconds))
        punctual, more = self._read_answers(self.connections.ask(questions, wait_seconds), now)
        self.windows.trim(now)
        return StreamLook(len(late | punctual), (*errors, *more))

    def _read_answers(
        self, answers: Mapping[str, Answers], now: float
    ) -> tuple[frozenset[str], Sequence[AnalysisError]]:
        """Read agents' responses; return which could be read, and errors."""
        found = {
            url: attempt("source", url, partial(self._read, url, given, now))
            for url, given in answers.items()
            if url in self.agents
        }
        columns = {url: one for url, one in found.items() if isinstance(one, StepColumns)}
        self._refuse()
        errors = [one for one in found.values() if isinstance(one, AnalysisError)]
        for url, one in columns.items():
            error = attempt("source", url, partial(self._take, url, one, now))
            errors += [error] if isinstance(error, AnalysisError) else []
        return frozenset(columns), errors

    @property
    def health(self) -> StreamHealth:
        """Return which agents answer, and how many ranks of each job cannot be seen."""
        late = self.connections.asked
        return stream_health.of(self.agents, late, self._shard.has, time.monotonic())

    @property
    def failures(self) -> Sequence[str]:
        """Return a sentence for each agent that does not answer now."""
        late = self.connections.asked
        return [
            agent.failure or f"agent {url} does not answer in time"
            for url, agent in self.agents.items()
            if agent.failure or (url in late and not agent.known)
        ]

    @property
    def unread(self) -> Sequence[tuple[str, Unread]]:
        """Return agents of which rows could not be read while records are kept, and how many."""
        oldest = time.monotonic() - self._seconds
        agents = self.agents.items()
        return [(url, one.unread) for url, one in agents if one.unread and one.unread_at >= oldest]

    def renew(self) -> None:
        """Record that the addresses of agents were just listed."""
        for agent in self.agents.values():
            if agent.retry == math.inf:
                agent.retry = -math.inf

    def has(self, url: str, answer: Mapping[str, Any]) -> bool:
        """Return True if an agent's record is about a rank that is not trusted."""
        return (url, str(answer.get("job_id")), str(answer.get("rank"))) in self._refused

    @property
    def has_newcomers(self) -> bool:
        """Return True if agents wait to be queried for the first time."""
        asked = self.connections.asked
        return any(
            not one.known and not one.failures and url not in asked
            for url, one in self.agents.items()
        )

    def _keep(self, urls: Sequence[str]) -> None:
        if self.agents.keys() != set(urls):
            self.connections.keep(urls)
            self._claims_changed = True
            self.agents = {url: self.agents.get(url) or FollowedAgent() for url in urls}

    def _questions(self, oldest: float) -> Iterator[tuple[str, Sequence[Question]]]:
        now = time.monotonic()
        asked = self.connections.asked
        awaited = self.connections.awaited  # those that hang take no other's place
        room = NEWCOMERS - sum(url in self.agents and not self.agents[url].known for url in awaited)
        for url, agent in self.agents.items():
            if url in asked or agent.retry > now:
                continue
            if agent.known:
                yield url, _of_known(agent, oldest, self._only(agent))
            elif room > 0 or agent.failures:
                room -= 1
                yield url, _of_newcomer(oldest, self._only(agent))

    def _only(self, agent: FollowedAgent) -> Mapping[str, str]:
        """Return the parameter that selects the jobs of this shard, for agents that know it."""
        sharded = self._shard.total > 1 and agent.knows_shards
        return {PARAMETER: str(self._shard)} if sharded else {}

    def _read(self, url: str, given: Answers, now: float) -> StepColumns | None:
        """Read the records that an agent sent; return None if it sent none that can be read."""
        agent = self.agents[url]
        try:
            columns, more = self._columns(url, agent, given, now)
        except (AgentError, ValueError, KeyError, TypeError) as error:
            if self._only(agent) and isinstance(error, StatusError) and error.status == BAD_REQUEST:
                agent.knows_shards = False  # it is older, and is queried for all jobs
                return None
            _note_failure(agent, url, error)
            if self._cautious:
                agent.retry = math.inf
            return None
        agent.failure, agent.failures, agent.retry = "", 0, -math.inf
        agent.answered = time.monotonic()
        if len(columns) > MANY_ROWS:
            agent.retry = time.monotonic() + len(columns) / ROWS_PER_SECOND
        if not agent.known:
            self._introduce(url, more)
        if columns.rings is not agent.rings:
            self._claims_changed = True
        agent.take(columns, now - self._seconds, now)
        return columns

    def _columns(
        self, url: str, agent: FollowedAgent, given: Answers, now: float
    ) -> tuple[StepColumns, Answers]:
        first, *more = given
        if isinstance(first, AgentError):
            raise first
        if first.content_type == form.MEDIA_TYPE:
            agent.in_blocks = True if agent.known else agent.in_blocks
            return step_columns.parsed(first.body, agent.head), more
        ranks: Sequence[Mapping[str, Any]] = ()
        if agent.in_blocks is False:
            ranks = step_json.ranks_of(_json(first))
            first, *more = more or [AgentError(f"agent {url} reports no steps")]
            if isinstance(first, AgentError):
                raise first
        answer = step_answer(url, agent.since(now - self._seconds), _json(first))
        return step_json.columns_of(answer, ranks or [ring.rank for ring in agent.rings]), more

    def _introduce(self, url: str, more: Answers) -> None:
        """Read what an agent sends once: first records of its ranks."""
        for answer in more[:1]:
            if isinstance(answer, Answer):
                # Older agents have no such page, and the newest records matter more.
                with suppress(ValueError, KeyError, TypeError, LookupError):
                    self._take_start(url, _json(answer))

    def _take_start(self, url: str, document: Mapping[str, Any]) -> None:
        answer = step_answer(url, 0.0, document)
        for job in filter(self._shard.has, set(answer.column("job_id"))):
            at = answer.columns.index("job_id")
            rows = [row for row in answer.rows if row[at] == job]
            others = [one for one in self.starts.get(job, ()) if one.url != url]
            self.starts[job] = [*others, StepAnswer(url, 0.0, answer.columns, rows)]

    def _refuse(self) -> None:
        """Find the ranks that claim a job which is not theirs, if any rank is new."""
        if not self._claims_changed:
            return
        self._claims_changed = False
        claims = {
            one
            for url, agent in self.agents.items()
            for one in claims_of(url, (ring.rank for ring in agent.rings))
        }
        foreign = refused(claims)
        keys = frozenset(one.key for one in foreign)
        self._refused = self._refused if keys == self._refused else keys
        self.notes = notes(foreign, {one.job_id for one in claims.difference(foreign)})

    def _take(self, url: str, columns: StepColumns, now: float) -> None:
        """Add an agent's records to those of their jobs, and move its cursors."""
        agent = self.agents[url]
        if len(columns):
            sync = columns.numbers.get(SYNC)
            agent.blind = sync is None or bool(np.isnan(sync).any())
            self._take_records(url, agent, columns, now)
        numbers = {ring.name: 0 for ring in agent.rings}
        numbered = zip(columns.rings, columns.next_numbers, strict=True)
        read = {ring.name: number for ring, number in numbered}
        agent.cursors = {**numbers, **read, **columns.unread_next}
        agent.newest = {name: agent.newest[name] for name in agent.cursors if name in agent.newest}

    def _take_records(
        self, url: str, agent: FollowedAgent, columns: StepColumns, now: float
    ) -> None:
        starts = columns.numbers[START]
        newest = np.array([agent.newest.get(ring.name, -np.inf) for ring in columns.rings])
        # A cursor repeats no record, and times of a node whose clock was set back come again.
        numbered = np.array([columns.in_blocks and not ring.whole for ring in columns.rings])
        new = numbered[columns.ring] | ~(starts <= newest[columns.ring])
        for route in self._routes(url, agent, columns):
            chosen = route.inside[columns.ring] & new
            if not chosen.any():
                continue
            window = self.windows.of(route.job_id)
            if route.window is not window:
                route.lead_to(window, columns, self.placed.get(url))
            table = {name: one[chosen] for name, one in columns.numbers.items()}
            timing = np.nan_to_num(table[form.TIMING_INDEX], nan=-1.0).astype(np.int64)
            place = np.where((timing >= 0) & (timing < len(route.timings) - 1), timing, -1)
            table[form.TIMING_INDEX] = route.timings[place]
            window.add(now, route.writers[columns.ring[chosen]], table)
            self.records += int(np.count_nonzero(chosen))
        known = np.isfinite(starts)
        np.maximum.at(newest, columns.ring[known], starts[known])
        for ring, start in zip(columns.rings, newest.tolist(), strict=True):
            if start > -math.inf:
                agent.newest[ring.name] = start

    def _routes(self, url: str, agent: FollowedAgent, columns: StepColumns) -> Sequence[Route]:
        """Return where the records of an agent's rings go: to jobs that are trusted."""
        of = (columns.rings, self._refused)
        if agent.routed is not None and all(map(operator.is_, agent.routed, of)):
            return agent.routes
        jobs: dict[str, list[int]] = {}
        for index, ring in enumerate(columns.rings):
            key = (url, ring.job_id, str(ring.rank["rank"]))
            believed = is_job_id(ring.job_id) and key not in self._refused
            if believed and self._shard.has(ring.job_id):
                jobs.setdefault(ring.job_id, []).append(index)
        agent.routed = of
        agent.routes = [Route.of(job, rings, len(columns.rings)) for job, rings in jobs.items()]
        return agent.routes


def _of_newcomer(oldest: float, only: Mapping[str, str]) -> Sequence[Question]:
    since = urlencode({"since": f"{oldest:.6f}", **only}, safe="/")
    steps = Question(f"/api/v1/steps?{since}", _ACCEPT, MOST_ANSWER_BYTES)
    return (
        steps,
        Question(f"/api/v1/step_starts?{since}", most_bytes=MOST_ANSWER_BYTES),
    )


_ACCEPT = f"{form.MEDIA_TYPE}, {JSON_TYPE};q=0.5"


def _of_known(agent: FollowedAgent, oldest: float, only: Mapping[str, str]) -> Sequence[Question]:
    if agent.in_blocks:
        after = form.cursors_text(agent.cursors)
        wanted = urlencode({"since": f"{oldest:.6f}", "after": after, **only}, safe="/:,")
        return (Question(f"/api/v1/steps?{wanted}", _ACCEPT, MOST_ANSWER_BYTES),)
    path = f"/api/v1/steps?since={agent.since(oldest):.6f}"
    return Question("/api/v1/ranks"), Question(path, _ACCEPT, MOST_ANSWER_BYTES)


def _note_failure(agent: FollowedAgent, url: str, error: Exception) -> None:
    agent.failures += 1
    agent.failure = (
        str(error)
        if isinstance(error, AgentError)
        else f"{url} does not answer like a rankscope agent: {error!r}"
    )
    if isinstance(error, StatusError):
        if error.status == BUSY:
            agent.failures -= 1
            return
        agent.in_blocks = None if agent.in_blocks else agent.in_blocks  # older than it was before
    # Agents of a rack that failed at once are not all queried again at once.
    turn = 1.0 + zlib.crc32(url.encode()) % 100 / 200
    wait = min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(agent.failures - 1, 5))
    agent.retry = time.monotonic() + (wait * turn if agent.failures > 1 else 0.0)


def _json(answer: Answer) -> dict[str, Any]:
    document = untrusted_json.read(answer.body)
    if not isinstance(document, dict):
        raise ValueError(f"{json.dumps(document)[:80]} is not an object")
    return document
