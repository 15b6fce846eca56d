"""Publishes conditions and Events of nodes; nothing else writes either. Off by default.

Each node's conditions are applied together when they change, and every five minutes so that readers
see that they are up to date. Nothing else of a node is written: no taint, no label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.watch.node_conditions import Condition, observed, problems, wanted

HEARTBEAT_SECONDS = 300.0
"""How often an unchanged problem is confirmed, as kubelets and the node problem detector do."""

MOST_WRITES = 20
"""Nodes written after one evaluation; the others wait for the next one, changes first."""

MOST_RETRIED = MOST_WRITES // 2
"""Of these, nodes that could not be written before: an admission policy may refuse some for good.
"""

MOST_EVENTS = 3 * MOST_WRITES
"""Events written after one evaluation: a node has three types of conditions."""

MOST_WAITING = 1000
"""Events that wait until they can be written; the oldest are dropped first."""

EVENT_SECONDS = 3600.0
"""How long an Event waits: API servers delete Events after an hour by default."""

MOST_SECONDS = 10.0
"""How long writing may take after one evaluation, a third of the time between two. One Event is
tried in any case."""

CONDITIONS, EVENTS = "conditions of nodes", "Events about nodes"

_Due = tuple[str, Mapping[str, Condition]]
"""A node, and the conditions that it should have."""


class PublishError(Exception):
    """The API server cannot be queried or refuses; the message contains its response."""


class NodeGoneError(PublishError):
    """There is no such node."""


@dataclass(frozen=True, slots=True)
class Published:
    """A condition as a node has it.

    Args:
        since: Unix time at which its status last changed.
    """

    condition: Condition
    since: float


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An Event that is to be written.

    Args:
        at: Unix time of what it is about.
        failure: why it could not be written, empty if it was not tried.
    """

    node: str
    condition: Condition
    at: float
    failure: str = ""


class NodeWriter(Protocol):
    """Reads and writes nodes. All methods raise PublishError."""

    def read(self) -> Mapping[str, Sequence[Published]]:
        """Return the conditions with our prefix, of each node that has any."""
        ...

    def apply(self, node: str, conditions: Sequence[Published], now: float) -> None:
        """Set these conditions of a node, and remove all others of ours."""
        ...

    def announce(self, node: str, condition: Condition, now: float) -> None:
        """Write an Event about a node."""
        ...


class NodePublisher:
    """Keeps conditions of nodes in line with findings.

    Args:
        writer: reads and writes nodes.
        log: called with a sentence when publishing begins to fail, and when it works again.
        timer: returns monotonic seconds.
    """

    def __init__(
        self,
        writer: NodeWriter,
        log: Callable[[str], None],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._log = log
        self._timer = timer
        self._known: dict[str, dict[str, Published]] | None = None
        self._written: dict[str, float] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._waiting: list[_Waiting] = []
        self._failures: dict[str, str] = {}

    def forget(self) -> None:
        """Read the nodes' conditions again before the next write: another watch may write."""
        self._known = None

    def publish(self, reports: Sequence[JobReport], now: float) -> None:
        """Write what has changed; failures are logged and retried the next time.

        Args:
            reports: of the newest evaluation.
            now: Unix time of the evaluation.
        """
        try:
            known = self._read()
        except PublishError as error:
            self._note(CONDITIONS, str(error))
            return
        until = self._timer() + MOST_SECONDS
        self._write_due(known, reports, now, until)
        # The first in order, which stays the same while other nodes are tried: it is logged once.
        self._note(CONDITIONS, min((why for _, why in self._failed.values()), default=""))
        self._announce(now, until)

    def _read(self) -> dict[str, dict[str, Published]]:
        if self._known is None:
            read = self._writer.read()
            self._known = {
                node: {one.condition.type: one for one in own} for node, own in read.items()
            }
        return self._known

    def _write_due(
        self,
        known: dict[str, dict[str, Published]],
        reports: Sequence[JobReport],
        now: float,
        until: float,
    ) -> None:
        """Write nodes until a moment; one that cannot be written keeps no other from it."""
        due = self._due(known, reports)
        self._failed = {node: self._failed[node] for node, _ in due if node in self._failed}
        for node, after in _limited(due, self._failed):
            if self._timer() >= until:
                return
            try:
                self._write(known, node, after, now)
            except PublishError as error:
                self._failed[node] = self._timer(), str(error)
            else:
                self._failed.pop(node, None)

    def _due(
        self, known: Mapping[str, Mapping[str, Published]], reports: Sequence[JobReport]
    ) -> list[_Due]:
        """Return the nodes to write, those that changed first, then those written longest ago."""
        found, seen = problems(reports), observed(reports)
        changed: list[_Due] = []
        again: list[_Due] = []
        old: list[_Due] = []
        for node in sorted({*known, *found}):
            before = {kind: one.condition for kind, one in known.get(node, {}).items()}
            after = wanted(before, found.get(node, {}), seen=node in seen)
            beats = self._timer() - self._written.get(node, float("-inf")) >= HEARTBEAT_SECONDS
            if before == after and not beats:
                continue
            which = again if node in self._failed else changed if before != after else old
            which.append((node, after))
        again.sort(key=lambda item: self._failed[item[0]])
        old.sort(key=lambda item: self._written.get(item[0], float("-inf")))
        return [*changed, *again, *old]

    def _write(
        self,
        known: dict[str, dict[str, Published]],
        node: str,
        after: Mapping[str, Condition],
        now: float,
    ) -> None:
        before = known.get(node, {})
        made = {kind: _published(before.get(kind), one, now) for kind, one in after.items()}
        try:
            self._writer.apply(node, tuple(made.values()), now)
        except NodeGoneError:
            known.pop(node, None)
            self._written.pop(node, None)
            return
        known[node] = made
        self._written[node] = self._timer()
        self._waiting += [_Waiting(node, one, now) for one in _news(before, after.values())]

    def _announce(self, now: float, until: float) -> None:
        """Write the Events that wait until a moment; those that are refused wait further."""
        waiting = [one for one in self._waiting if now - one.at < EVENT_SECONDS][-MOST_WAITING:]
        if left := len(self._waiting) - len(waiting):
            self._log(f"{EVENTS} could not be published in time and are left out: {left}")
        again, tried = [], 0
        for one in waiting[:MOST_EVENTS]:
            if tried and self._timer() >= until:
                break
            tried += 1
            try:
                self._writer.announce(one.node, one.condition, one.at)
            except PublishError as error:
                again.append(replace(one, failure=str(error)))
        self._waiting = [*waiting[tried:], *again]
        if tried:
            failures = filter(None, (one.failure for one in self._waiting))
            self._note(EVENTS, min(failures, default=""))

    def _note(self, what: str, failure: str) -> None:
        before, self._failures[what] = self._failures.get(what, ""), failure
        if failure and failure != before:
            self._log(f"{what} are not published: {failure}")
        elif before and not failure:
            self._log(f"{what} are published again")


def _limited(due: Iterable[_Due], failed: Iterable[str]) -> Sequence[_Due]:
    """Return as many nodes as may be written after one evaluation.

    Args:
        due: the most important ones first.
        failed: the nodes that could not be written before.
    """
    before, found, retried = frozenset(failed), [], 0
    for item in due:
        retried += item[0] in before
        if item[0] not in before or retried <= MOST_RETRIED:
            found.append(item)
    return found[:MOST_WRITES]


def _published(before: Published | None, condition: Condition, now: float) -> Published:
    stays = before is not None and before.condition.status == condition.status
    return Published(condition, before.since if before is not None and stays else now)


def _news(before: Mapping[str, Published], after: Iterable[Condition]) -> Iterable[Condition]:
    """Yield problems that began or have another reason, and those that are over."""
    for condition in after:
        known = before.get(condition.type)
        was = known.condition if known else None
        if condition.status == "True":
            if was is None or (was.status, was.reason) != ("True", condition.reason):
                yield condition
        elif condition.status == "False" and was is not None and was.status != "False":
            yield condition
