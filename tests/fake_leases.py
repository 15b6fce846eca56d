"""Leases of a fake API server: none replaces a version of one but the newest."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any


class Leases:
    """What is stored, by name; `hang_seconds` is how long each reading takes.

    A write that names a version is an update, one that names none a creation.
    """

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.hang_seconds = 0.0
        self.forbidden: set[str] = set()  # of "get", "create" and "update"
        self._turn = threading.Lock()

    def read(self, name: str) -> tuple[int, Mapping[str, Any]]:
        """Return status and answer."""
        time.sleep(self.hang_seconds)
        if "get" in self.forbidden:
            return self._refusal("get", name)
        with self._turn:
            lease = self.stored.get(name)
        return (200, lease) if lease else (404, {"kind": "Status", "code": 404})

    def _refusal(self, verb: str, name: str) -> tuple[int, Mapping[str, Any]]:
        said = (
            f'leases.coordination.k8s.io "{name}" is forbidden: User'
            f' "system:serviceaccount:rankscope:rankscope-watch" cannot {verb} resource "leases" in'
            ' API group "coordination.k8s.io" in the namespace "rankscope"'
        )
        return 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": said}

    def write(self, lease: dict[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Store a lease that is new, or of the version that is there."""
        name, known = lease["metadata"]["name"], lease["metadata"].get("resourceVersion")
        with self._turn:
            newest = self.stored.get(name)
            verb = "update" if known else "create"
            if verb in self.forbidden:
                return self._refusal(verb, name)
            if newest and known != newest["metadata"]["resourceVersion"]:
                return 409, {"kind": "Status", "code": 409, "reason": "Conflict"}
            self.version += 1
            lease["metadata"]["resourceVersion"] = str(self.version)
            lease["metadata"].setdefault("creationTimestamp", "2026-11-23T12:00:00Z")
            self.stored[name] = lease
            return 200, lease
