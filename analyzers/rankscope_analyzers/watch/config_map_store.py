"""Keeps the state of a watch in a ConfigMap, so that the watch that leads next goes on with it.

The ConfigMap is there beforehand, as manifests make it, so that a right to get and update this one
name is enough. Each write is based on what was read: of two watches that both believe to lead, the
second one finds that out, and reads anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rankscope_analyzers.intake.kubernetes_api import Answer, Api, NoAnswerError
from rankscope_analyzers.watch.store import (
    ChangedError,
    Kept,
    Part,
    StoreError,
    UnreachableError,
    lines,
    parsed,
)

MOST_BYTES = 900 << 10
"""Of the document: the API server takes ConfigMaps of 1 MiB, names and labels included."""

KEY = "state"
REQUEST_SECONDS = 10.0
OK, NOT_FOUND, CONFLICT = 200, 404, 409


class ConfigMapStore:
    """Keeps a document in a ConfigMap.

    Args:
        api: of the cluster.
        name: of the ConfigMap.
        namespace: that it is in.
    """

    def __init__(self, api: Api, name: str, namespace: str) -> None:
        self._api = api
        self._name = f"{namespace}/{name}"
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._found: Mapping[str, Any] | None = None

    def read(self) -> Kept | None:
        """Return what the ConfigMap holds, None if nothing was ever kept there.

        Raises:
            UnreachableError: it cannot be read now.
            StoreError: what it holds is no such document.
        """
        try:
            answer = self._api.get(self._path, {}, REQUEST_SECONDS)
        except NoAnswerError as error:
            raise UnreachableError(f"the ConfigMap {self._name} cannot be read: {error}") from None
        if answer.status != OK:
            raise UnreachableError(self._refused("read", answer))
        self._found = answer.body
        data = answer.body.get("data")
        document = data.get(KEY) if isinstance(data, Mapping) else None
        return parsed(document.encode()) if isinstance(document, str) and document else None

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Keep some parts in the ConfigMap; return how many found no room.

        Raises:
            ChangedError: another watch has written it.
            StoreError: they cannot be kept, or it is unknown whether they were.
        """
        if self._found is None:
            raise ChangedError(f"the ConfigMap {self._name} was not read yet")
        given = list(parts)
        written = list(lines(given, now, MOST_BYTES))
        body = {**self._found, "data": {KEY: b"".join(written).decode()}}
        try:
            answer = self._api.put(self._path, body, REQUEST_SECONDS)
        except NoAnswerError as error:
            # It may have been written: only what is read anew tells.
            self._found = None
            raise ChangedError(f"the ConfigMap {self._name} cannot be written: {error}") from None
        if answer.status == CONFLICT:
            self._found = None
            raise ChangedError(f"the ConfigMap {self._name} was written by another watch")
        if answer.status != OK:
            raise StoreError(self._refused("updated", answer))
        self._found = answer.body
        return len(given) - (len(written) - 2)  # the first line and the last one are no parts

    def _refused(self, what: str, answer: Answer) -> str:
        why = f"{answer.status} {answer.message}".strip()
        if answer.status == NOT_FOUND:
            return f"the ConfigMap {self._name} is not there: create it, empty ({why})"
        return f"the ConfigMap {self._name} cannot be {what}: {why}"
