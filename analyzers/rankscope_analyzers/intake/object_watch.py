"""Follows one kind of object of the cluster: a list, then changes; reports what hides it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from rankscope_analyzers.intake.kubernetes_api import Answer, Api, NoAnswerError
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt

T = TypeVar("T")

PAGE = "100"
"""Objects of one page of a list: 100 pods of 10 kB are 1 MB of JSON, and 5 MB of memory that stays
with the process."""

WATCH_SECONDS = (45, 75)
"""Minimum and maximum length of one watch in seconds. Each ends soon, so that a dead connection is
noticed; the next one continues from the same version."""

SLACK_SECONDS = 10.0
"""This long after a watch should have ended, its connection is dead."""

LIST_SECONDS = 60.0
PAUSES = (1.0, 30.0)
"""Minimum and maximum seconds between two attempts after an error; each is twice the one before."""

REFUSED_SECONDS = 300.0
"""Seconds between two attempts for a kind that the cluster lacks, or that may not be read."""

OK, FORBIDDEN, NOT_FOUND, GONE = 200, 403, 404, 410

Condition = Literal["starting", "followed", "absent", "forbidden", "failing"]


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of object, and what is kept of each.

    Args:
        plural: its name in paths.
        group: of the API, empty for the core.
        versions: of the group, the newest first.
        read: returns uid and value of an object, None for those that are not kept.
        fields: selector of fields that objects must have, empty for all objects.
    """

    plural: str
    group: str
    versions: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], tuple[str, T] | None]
    fields: str = ""

    @property
    def chosen(self) -> dict[str, str]:
        """Return the query of lists and watches."""
        return {"fieldSelector": self.fields} if self.fields else {}

    @property
    def name(self) -> str:
        """Return its name in rules."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, version: str) -> str:
        """Return the path of the objects of all namespaces."""
        start = f"/apis/{self.group}" if self.group else "/api"
        return f"{start}/{version}/{self.plural}"


@dataclass(frozen=True, slots=True)
class Gone(Generic[T]):
    """An object that no longer exists.

    Args:
        value: the last known one.
        seen: True if its end was seen; otherwise it was missing from a later list.
    """

    value: T
    seen: bool


MOST_HELD = 20_000
"""Objects of one kind that are held, of 1 KiB each; further ones are left out."""

MOST_GONE = 8192
"""Ends that wait to be taken; the oldest are dropped on a watch that stands by."""


@dataclass
class Held(Generic[T]):
    """What is held of one kind, under one lock."""

    values: dict[str, T] = field(default_factory=dict)
    gone: list[Gone[T]] = field(default_factory=list)
    condition: Condition = "starting"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> tuple[dict[str, T], list[Gone[T]], Condition]:
        """Return the present objects, and those that disappeared since the last call."""
        with self.lock:
            gone, self.gone = self.gone, []
            return dict(self.values), gone, self.condition

    def put(self, uid: str, value: T) -> None:
        """Record an object's present state, unless there are too many."""
        with self.lock:
            if uid in self.values or len(self.values) < MOST_HELD:
                self.values[uid] = value

    def remove(self, uid: str, value: T) -> None:
        """Record the end of an object, and its last state."""
        with self.lock:
            self.values.pop(uid, None)
            self._ended([Gone(value, seen=True)])

    def replace(self, values: dict[str, T]) -> None:
        """Record all objects of a list."""
        with self.lock:
            missing = [Gone(one, False) for uid, one in self.values.items() if uid not in values]
            self.values = values
            self._ended(missing)
            self.condition = "followed"

    def become(self, condition: Condition) -> bool:
        """Record why nothing is known; return True if that is new.

        Objects that may no longer be read are forgotten, which does not mean that they ended.
        """
        with self.lock:
            new = self.condition != condition
            self.condition = condition
            if condition in {"absent", "forbidden"}:
                self.values = {}
            return new

    def _ended(self, gone: Sequence[Gone[T]]) -> None:
        self.gone = [*self.gone, *gone][-MOST_GONE:]


class StaleVersionError(Exception):
    """Changes since a version are no longer known: the list has to be read again."""


class Follower(Generic[T]):
    """Follows one kind of object in a separate thread, until it is closed.

    Args:
        api: of the cluster.
        resource: what to follow.
        say: called once with each sentence about what hides it.
    """

    def __init__(self, api: Api, resource: Resource[T], say: Callable[[str], None]) -> None:
        self.held: Held[T] = Held()
        self.resource = resource
        self._api = api
        self._say = say
        self._closing = threading.Event()
        self._version = resource.versions[0]

    def start(self) -> None:
        """Start to follow."""
        name = f"objects-{self.resource.plural}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        """Stop after the current event."""
        self._closing.set()

    def _run(self) -> None:
        pause = PAUSES[0]
        while not self._closing.is_set():
            began = time.monotonic()
            refused = attempt("source", self.resource.name, self._tried)
            if isinstance(refused, AnalysisError):
                self._fail(str(refused))
            elif refused is not None:
                self._refuse(refused)
                self._closing.wait(REFUSED_SECONDS)
                continue
            lasted = time.monotonic() - began > PAUSES[1]
            pause = PAUSES[0] if lasted else min(2 * pause, PAUSES[1])
            self._closing.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311

    def _tried(self) -> Answer | None:
        try:
            return self._follow()
        except NoAnswerError as error:
            self._fail(str(error))
            return None

    def _fail(self, why: str) -> None:
        if self.held.become("failing"):
            self._say(f"{self.resource.name}: {why}; what was known of them is kept")

    def _follow(self) -> Answer | None:
        """List and watch until the list has to be read again; return a refusal if there is one.

        Raises:
            NoAnswerError: there is no valid response.
        """
        refused = Answer(NOT_FOUND, {})
        for version in self.resource.versions:
            self._version = version
            listed = self._listed()
            if isinstance(listed, str):
                self._watch_from(listed)
                return None
            refused = listed
            if refused.status != NOT_FOUND:
                break
        if refused.status not in {FORBIDDEN, NOT_FOUND}:
            raise _unexpected(refused)
        return refused

    def _watch_from(self, version: str) -> None:
        """Watch until the list has to be read again."""
        with suppress(StaleVersionError):
            while not self._closing.is_set():
                version = self._watched(version)

    def _refuse(self, answer: Answer) -> None:
        name = self.resource.name
        if answer.status == NOT_FOUND:
            if self.held.become("absent"):
                self._say(f"the cluster has no {name}; nothing of this kind is looked for")
        elif self.held.become("forbidden"):
            group = f'"{self.resource.group}"'
            self._say(
                f"{name} may not be read: the ClusterRole lacks the rule apiGroups: [{group}],"
                f" resources: [{self.resource.plural}], verbs: [list, watch]"
            )

    def _listed(self) -> str | Answer:
        """Read the whole list page by page; return its version, or the refusal."""
        values: dict[str, T] = {}
        query = {"limit": PAGE, **self.resource.chosen}
        while True:
            answer = self._api.get(self.resource.path(self._version), query, LIST_SECONDS)
            if answer.status == GONE and "continue" in query:
                values, query = (
                    {},
                    {"limit": PAGE, **self.resource.chosen},
                )  # the list took longer than versions are kept
                self._closing.wait(PAUSES[0])
                if self._closing.is_set():
                    return answer
                continue
            if answer.status != OK:
                return answer
            values.update(islice(self._read_items(answer), MOST_HELD - len(values)))
            metadata = answer.body.get("metadata")
            metadata = metadata if isinstance(metadata, Mapping) else {}
            more = metadata.get("continue")
            if not (isinstance(more, str) and more):
                self.held.replace(values)
                return str(metadata.get("resourceVersion", ""))
            query = {"limit": PAGE, "continue": more, **self.resource.chosen}

    def _read_items(self, answer: Answer) -> Iterator[tuple[str, T]]:
        for item in answer.body.get("items") or ():
            found = self.resource.read(item) if isinstance(item, Mapping) else None
            if found is not None:
                yield found

    def _watched(self, version: str) -> str:
        """Follow one watch to its end; return the version that it reached.

        Raises:
            StaleVersionError: the version is too old.
            NoAnswerError: the connection breaks.
        """
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - watches should not end together
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(seconds), **self.resource.chosen}
        path = self.resource.path(self._version)
        began = time.monotonic()
        for answer in self._api.lines(path, query, seconds + SLACK_SECONDS):
            if answer.status == GONE:
                raise StaleVersionError
            if answer.status != OK:
                raise _unexpected(answer)
            version = self._noted(answer.body) or version
            if self._closing.is_set():
                break
        if time.monotonic() - began < PAUSES[0]:
            self._closing.wait(PAUSES[0])  # a server that ends watches at once is not flooded
        return version

    def _noted(self, event: Mapping[str, Any]) -> str:
        """Record an event; return the version of its object."""
        found = event.get("object")
        found = found if isinstance(found, Mapping) else {}
        kind = event.get("type")
        if kind == "ERROR":
            if found.get("code") == GONE:
                raise StaleVersionError
            raise NoAnswerError(f"the watch says {Answer(OK, found).message}")
        read = self.resource.read(found) if kind in {"ADDED", "MODIFIED", "DELETED"} else None
        if read is not None and kind == "DELETED":
            self.held.remove(*read)
        elif read is not None:
            self.held.put(*read)
        metadata = found.get("metadata")
        return str(metadata.get("resourceVersion", "")) if isinstance(metadata, Mapping) else ""


def _unexpected(answer: Answer) -> NoAnswerError:
    return NoAnswerError(f"the API server answers {answer.status}: {answer.message}")
