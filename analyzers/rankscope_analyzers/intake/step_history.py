"""Agents' step records across evaluations, so that each agent is queried only for new ones."""

from __future__ import annotations

import math
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from rankscope_agent.contract.model import STEP_COLUMNS
from rankscope_analyzers.intake import left_out
from rankscope_analyzers.intake.agent_saves import AgentSaves
from rankscope_analyzers.intake.agent_timeouts import AgentTimeouts
from rankscope_analyzers.intake.left_out import LeftOut
from rankscope_analyzers.intake.readable_rows import RowForm, separated
from rankscope_analyzers.intake.unread_counts import Unread

START = "t_start_unix_seconds"
SYNC = "sync_seconds"
AGENT = "agent"
"""Column with the agent of each record, as a number that `StepHistory` assigns."""

KNOWN = frozenset((*STEP_COLUMNS, "tokens"))
"""Columns that are read; agents of later versions may have more."""

OWNER = frozenset(("job_id", "rank"))
"""Columns without which a record's rank is unknown."""

REREAD_POLLS = 20
"""Polls after which an agent is queried for everything: a node's clock may have been set back, so
that its new records look old. Ten minutes at the watch's default interval."""

_Rank = tuple[Hashable, Hashable]
"""Job and number of a rank, as an agent gives them."""


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """An agent's response about its steps.

    Args:
        url: the agent's address.
        since: Unix time from which on these are all its records.
        columns: their names.
        rows: the records.
        left_out: ranks of which the agent has more since then that did not fit.
        unread: rows that could not be read.
    """

    url: str
    since: float
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    left_out: LeftOut = field(default_factory=dict)
    unread: Unread = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        """Return the values of a column, none if it is missing."""
        if name not in self.columns:
            return []
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def starts(self) -> Iterator[tuple[_Rank, float]]:
        """Yield job, rank and start of each record that has a start."""
        columns = (self.column(name) for name in ("job_id", "rank", START))
        for job, rank, start in zip(*columns, strict=False):
            if isinstance(start, int | float) and math.isfinite(start):
                yield (job, rank), float(start)


def step_answer(url: str, since: float, document: Mapping[str, Any]) -> StepAnswer:
    """Return an agent's response in the columns that are known here, without unreadable rows.

    Raises:
        ValueError: no row can be read; a column occurs twice; records lack their job or rank.
        KeyError: there are no columns or no rows.
        TypeError: these are of a wrong type.
    """
    names, rows = list(document["columns"]), document["rows"]
    if len(set(names)) < len(names):
        raise ValueError("a column occurs twice")
    if rows and not set(names) >= OWNER:
        raise ValueError(f"records lack {sorted(OWNER - set(names))}")
    known = [index for index, name in enumerate(names) if name in KNOWN]
    unread: Unread = {}
    if rows:
        form = RowForm(len(names), known, names.index("job_id"), names.index("rank"))
        rows, unread = separated(rows, form)
    columns = tuple(names[index] for index in known)
    return StepAnswer(url, since, columns, rows, left_out.read(document.get("left_out")), unread)


@dataclass(slots=True)
class _Agent:
    """The state of one agent.

    Args:
        number: that its records carry.
        polls: how often it answered, counted from an individual offset.
        newest: when the newest step of each of its ranks began.
        blind: True if its newest records lack sync time.
        left_out: ranks whose older records did not fit.
    """

    number: int
    polls: int
    blind: bool = False
    left_out: dict[tuple[str, int], float] = field(default_factory=dict)
    newest: dict[_Rank, float] = field(default_factory=dict)


class StepHistory:
    """Records of many agents, and which of these were late."""

    def __init__(self) -> None:
        self.timeouts = AgentTimeouts()
        self.saves = AgentSaves()
        self._agents: dict[str, _Agent] = {}
        self._records = pd.DataFrame()
        self._numbers = 0

    def since(self, url: str, ranks: Iterable[Mapping[str, Any]], oldest: float) -> float:
        """Return from when on an agent's records are to be read again.

        Args:
            url: the agent's address.
            ranks: its present report on its ranks.
            oldest: Unix time of the oldest records that are wanted.
        """
        agent = self._agents.get(url)
        if agent is None or agent.polls % REREAD_POLLS == 0 or not agent.newest:
            return oldest
        alive = [(rank.get("job_id"), rank.get("rank")) for rank in ranks if rank.get("alive")]
        if not all(rank in agent.newest for rank in alive):
            return oldest  # how long a rank has existed without a record is unknown
        of_alive = (agent.newest[rank] for rank in alive)
        return max(oldest, min(of_alive, default=max(agent.newest.values())))

    def knows(self, url: str) -> bool:
        """Return True if an agent has answered before."""
        return url in self._agents

    def newest(self, url: str) -> Mapping[_Rank, float]:
        """Return when the newest step of each rank (job and number) of an agent began."""
        agent = self._agents.get(url)
        return agent.newest if agent else {}

    def lacks_sync(self, url: str) -> bool:
        """Return True if the records that an agent sent last lack the time in sync."""
        agent = self._agents.get(url)
        return agent is not None and agent.blind

    def left_out(self, url: str, oldest: float) -> LeftOut:
        """Return the ranks of an agent whose records since a moment are incomplete here."""
        agent = self._agents.get(url)
        known = agent.left_out if agent else {}
        return {rank: until for rank, until in known.items() if until >= oldest}

    def add(self, answers: Sequence[StepAnswer], oldest: float) -> pd.DataFrame:
        """Replace earlier records with what agents now report for the same time.

        Args:
            answers: one of each agent that answered.
            oldest: Unix time of the oldest records that are wanted.

        Returns:
            The records of these agents; those of the others are kept for when they answer again.
        """
        agent_numbers = np.array(
            [self._agent_number(answer, oldest) for answer in answers], dtype=np.int64
        )
        since = np.full(self._numbers, np.inf)
        since[agent_numbers] = [answer.since for answer in answers]
        kept = self._records
        if len(kept):
            starts, agents = kept[START].to_numpy(np.float64), kept[AGENT].to_numpy(np.int64)
            kept = kept[(starts >= oldest) & (starts < since[agents])]
        new = (
            table[~(table[START] < since[table[AGENT]])]
            for table in _tables(answers, agent_numbers)
        )
        parts = [part for part in (kept, *new) if len(part)]
        self._records = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        if not len(self._records) or len(agent_numbers) == len(self._agents):
            return self._records
        return self._records[self._records[AGENT].isin(agent_numbers)]

    def keep(self, urls: Iterable[str]) -> None:
        """Forget the records of all agents but these."""
        kept = set(urls)
        self.saves.keep(kept)
        if gone := [agent.number for url, agent in self._agents.items() if url not in kept]:
            self._agents = {url: one for url, one in self._agents.items() if url in kept}
            if len(self._records):
                self._records = self._records[~self._records[AGENT].isin(gone)]

    def _agent_number(self, answer: StepAnswer, oldest: float) -> int:
        """Record when an agent's steps began; return its number."""
        agent = self._agents.get(answer.url)
        if agent is None:
            # Complete reads of agents are staggered: not all of them at one look.
            turn = zlib.crc32(answer.url.encode()) % REREAD_POLLS
            agent = self._agents[answer.url] = _Agent(self._numbers, turn)
            self._numbers += 1
        agent.polls += 1
        if answer.since <= oldest:
            agent.newest, agent.left_out = {}, {}
        agent.left_out.update(answer.left_out)
        if answer.rows:
            agent.blind = None in answer.column(SYNC)
        for rank, start in answer.starts():
            agent.newest[rank] = max(start, agent.newest.get(rank, start))
        return agent.number


def lacks_sync(records: pd.DataFrame) -> bool:
    """Return True if any record lacks the time its rank was in sync, although others have it."""
    return SYNC in records.columns and bool(records[SYNC].isna().any())


def table(answers: Sequence[StepAnswer]) -> pd.DataFrame:
    """Return the records of some responses as one table, without columns if there are none."""
    parts = [part for part in _tables(answers, range(len(answers))) if len(part)]
    return pd.concat(parts, ignore_index=True).drop(columns=AGENT) if parts else pd.DataFrame()


def _tables(answers: Sequence[StepAnswer], numbers: Iterable[int]) -> Iterator[pd.DataFrame]:
    """Yield the records of agents with the same columns as one table."""
    alike: dict[tuple[str, ...], list[tuple[StepAnswer, int]]] = {}
    for answer, number in zip(answers, numbers, strict=True):
        alike.setdefault(answer.columns, []).append((answer, number))
    for columns, several in alike.items():
        rows = list(chain.from_iterable(answer.rows for answer, _ in several))
        table = pd.DataFrame(rows, columns=list(columns))
        if START in columns:
            table[START] = pd.to_numeric(table[START], errors="coerce").astype(np.float64)
        else:
            table[START] = np.nan
        counts = [len(answer.rows) for answer, _ in several]
        table[AGENT] = np.repeat([number for _, number in several], counts)
        yield table
