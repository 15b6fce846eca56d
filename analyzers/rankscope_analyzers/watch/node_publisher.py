"""Publishes conditions and Events of nodes; nothing else writes either. Off by default.

Each node's conditions are applied together when they change, and every five minutes so that readers
see that they are up to date. Nothing else of a node is written: no taint, no label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.watch.node_conditions import Condition, observed, problems, wanted

HEARTBEAT_SECONDS = 300.0
"""How often an unchanged problem is confirmed, as kubelets and the node problem detector do."""

MOST_WRITES = 20
"""Nodes written after one evaluation; the others wait for the next one, changes first."""

MOST_SECONDS = 10.0
"""How long writing may take after one evaluation, a third of the time between two."""


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
        self._failure = ""

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
            self._publish(reports, now)
        except PublishError as error:
            self._note(str(error))
        else:
            self._note("")

    def _publish(self, reports: Sequence[JobReport], now: float) -> None:
        known = self._known
        if known is None:
            read = self._writer.read()
            known = {node: {one.condition.type: one for one in own} for node, own in read.items()}
            self._known = known
        until = self._timer() + MOST_SECONDS
        for node, after in self._due(known, reports)[:MOST_WRITES]:
            if self._timer() >= until:
                return
            self._write(known, node, after, now)

    def _due(
        self, known: Mapping[str, Mapping[str, Published]], reports: Sequence[JobReport]
    ) -> list[tuple[str, Mapping[str, Condition]]]:
        """Return the nodes to write, those that changed first, then those written longest ago."""
        found, seen = problems(reports), observed(reports)
        changed, old = [], []
        for node in sorted({*known, *found}):
            before = {kind: one.condition for kind, one in known.get(node, {}).items()}
            after = wanted(before, found.get(node, {}), seen=node in seen)
            if before != after:
                changed.append((node, after))
            elif self._timer() - self._written.get(node, float("-inf")) >= HEARTBEAT_SECONDS:
                old.append((node, after))
        old.sort(key=lambda item: self._written.get(item[0], float("-inf")))
        return [*changed, *old]

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
        for condition in _news(before, after.values()):
            self._writer.announce(node, condition, now)

    def _note(self, failure: str) -> None:
        before, self._failure = self._failure, failure
        if failure and failure != before:
            self._log(f"conditions of nodes are not published: {failure}")
        elif before and not failure:
            self._log("conditions of nodes are published again")


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
