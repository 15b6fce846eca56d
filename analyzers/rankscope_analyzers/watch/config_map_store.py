"""Saves the state of a watch in a ConfigMap, so that the next leader continues with it.

Manifests create the ConfigMap, so that the right to get and update this one name is sufficient.
Each write is based on what was read, and states the term of the lease in which it was made. A watch
that takes over writes its term before it uses what it read: from then on any later write of its
predecessor is refused, however late that one finds out that it no longer leads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.kubernetes_api import Answer, Api, NoAnswerError
from rankscope_analyzers.watch.election import Term
from rankscope_analyzers.watch.store import (
    ChangedError,
    Kept,
    Part,
    StoreError,
    UnreachableError,
    lines,
    parsed,
    whole_one,
)

MOST_BYTES = 500 << 10
"""Bytes of the document: the API server accepts ConfigMaps of 1 MiB, and the previous one is kept,
too."""

KEY, BEFORE, TERM = "state", "before", "term"
REQUEST_SECONDS = 10.0
OK, NOT_FOUND, CONFLICT = 200, 404, 409


class ConfigMapStore:
    """Saves a document in a ConfigMap.

    Args:
        api: of the cluster.
        name: of the ConfigMap.
        namespace: that it is in.
        term: returns the term in which this watch leads, None if it does not lead; None if no lease
            decides who does.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        namespace: str,
        term: Callable[[], Term | None] | None = None,
    ) -> None:
        self._api = api
        self._term = term
        self._claimed: Term | None = None
        self._name = f"{namespace}/{name}"
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._found: Mapping[str, Any] | None = None

    def read(self) -> Kept | None:
        """Return what the ConfigMap holds, or the previous document if it is damaged.

        The result is None if nothing was ever saved there.

        Raises:
            UnreachableError: it cannot be read now, or another watch leads.
            StoreError: it does not hold such a document.
        """
        try:
            answer = self._api.get(self._path, {}, REQUEST_SECONDS)
        except NoAnswerError as error:
            raise UnreachableError(f"the ConfigMap {self._name} cannot be read: {error}") from None
        if answer.status != OK:
            raise UnreachableError(self._refused("read", answer))
        self._found = answer.body
        if self._term is not None:
            self._claim(self._term())
        return whole_one(lambda: self._document(KEY), lambda: self._document(BEFORE))

    def _claim(self, term: Term | None) -> None:
        """Write the term in which this watch leads, so that no earlier leader can write any more.

        Raises:
            UnreachableError: it does not lead, or that cannot be written.
        """
        written = _term_of(self._data.get(TERM))
        self._claimed = None
        if term is None:
            raise UnreachableError(
                f"the lease is not held, and {self._name} belongs to another watch"
            )
        if written is not None and term.is_before(written):
            raise UnreachableError(f"{self._name} is written by {written.holder}, which leads now")
        if written != term:
            try:
                self._put({**self._data, TERM: json.dumps(asdict(term))})
            except StoreError as error:
                raise UnreachableError(str(error)) from None
        self._claimed = term

    def write(self, parts: Iterable[Part], now: float) -> int:
        """Save some parts in the ConfigMap; return how many were left out.

        Raises:
            ChangedError: another watch has written it.
            StoreError: they cannot be saved, or it is unknown whether they were.
        """
        if self._found is None:
            raise ChangedError(f"the ConfigMap {self._name} was not read yet")
        if self._term is not None and (self._claimed is None or self._term() != self._claimed):
            self._found = None
            raise ChangedError(f"the lease changed hands since {self._name} was read")
        given = list(parts)
        written = list(lines(given, now, MOST_BYTES))
        data = {**self._data, KEY: b"".join(written).decode()}
        if self._is_whole(KEY):
            data[BEFORE] = self._data[KEY]
        self._put(data)
        return len(given) - (len(written) - 2)  # the first line and the last one are not parts

    @property
    def _data(self) -> Mapping[str, Any]:
        data = self._found.get("data") if self._found else None
        return data if isinstance(data, Mapping) else {}

    def _document(self, key: str) -> Kept | None:
        document = self._data.get(key)
        return parsed(document.encode()) if isinstance(document, str) and document else None

    def _is_whole(self, key: str) -> bool:
        try:
            kept = self._document(key)
        except StoreError:
            return False
        return kept is not None and not kept.problems

    def _put(self, data: Mapping[str, Any]) -> None:
        body = {**(self._found or {}), "data": data}
        try:
            answer = self._api.put(self._path, body, REQUEST_SECONDS)
        except NoAnswerError as error:
            # It may have been written; only reading it again can show.
            self._found = None
            raise ChangedError(f"the ConfigMap {self._name} cannot be written: {error}") from None
        if answer.status == CONFLICT:
            self._found = None
            raise ChangedError(f"the ConfigMap {self._name} was written by another watch")
        if answer.status != OK:
            raise StoreError(self._refused("updated", answer))
        self._found = answer.body

    def _refused(self, what: str, answer: Answer) -> str:
        why = f"{answer.status} {answer.message}".strip()
        if answer.status == NOT_FOUND:
            return f"the ConfigMap {self._name} does not exist: create it empty ({why})"
        return f"the ConfigMap {self._name} cannot be {what}: {why}"


def _term_of(text: Any) -> Term | None:
    """Return the term in the document, None if there is none or it is invalid."""
    try:
        found = untrusted_json.read(text)
        term = Term(str(found["holder"]), int(found["transitions"]), float(found["created"]))
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return term if math.isfinite(term.created) else None
