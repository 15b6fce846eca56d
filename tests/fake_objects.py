"""An API server that holds objects of any kind, as far as `kubectl delete`, `get` and `apply` go.

What is to be changed by `apply` is answered as if it were, and stays as it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Object = Mapping[str, Any]
VERBS = ["create", "delete", "get", "list", "patch"]
Key = tuple[str, str | None, str]
"""Kind, namespace if the kind has any, and name."""


def key(found: Object) -> Key:
    return found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"]


def plural(kind: str) -> str:
    lower = kind.lower()
    return (
        f"{lower[:-1]}ies"
        if lower.endswith("y")
        else f"{lower}es"
        if lower[-1] == "s"
        else f"{lower}s"
    )


class FakeObjects:
    """Stores objects; kinds are those of the objects that it was started with."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self.stored = {key(one): one for one in objects}
        self.kinds = {
            (one["apiVersion"], one["kind"]): "namespace" in one["metadata"] for one in objects
        }
        self.patches: dict[Key, Any] = {}
        """What was to be changed of each object."""
        store = self

        class Handler(_Handler):
            server_of = store

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def discovered(self, path: str) -> Mapping[str, Any] | None:
        """Return what kubectl learns of kinds at a path, None if it is no such path."""
        groups = {version.rpartition("/")[0]: version for version, _ in self.kinds}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            named = [
                {"name": group, "versions": [one], "preferredVersion": one}
                for group, version in groups.items()
                if group
                for one in [{"groupVersion": version, "version": version.rpartition("/")[2]}]
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        for version in {version for version, _ in self.kinds}:
            if path in {f"/api/{version}", f"/apis/{version}"}:
                resources = list(self._resources(version))
                return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        return None

    def _resources(self, wanted: str) -> Iterator[Mapping[str, Any]]:
        for (version, kind), namespaced in self.kinds.items():
            if version == wanted:
                names = {"name": plural(kind), "singularName": kind.lower(), "kind": kind}
                yield {
                    **names,
                    "namespaced": namespaced,
                    "verbs": ["create", "delete", "get", "list", "patch"],
                }

    def at(self, path: str) -> Key | None:
        """Return the object that a path is about, if it is stored."""
        for found in self.stored:
            kind, namespace, name = found
            within = f"/namespaces/{namespace}" if namespace else ""
            if path.endswith(f"{within}/{plural(kind)}/{name}") and bool(namespace) == (
                "/namespaces/" in path.removesuffix(f"/namespaces/{name}")
            ):
                return found
        return None


class _Handler(BaseHTTPRequestHandler):
    server_of: FakeObjects
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        found = self.server_of.at(path)
        known = self.server_of.discovered(path)
        self._answer(known or (self.server_of.stored[found] if found else None))

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = self.server_of.at(urlsplit(self.path).path)
        self._answer(self.server_of.stored.pop(found) if found else None)

    def do_PATCH(self) -> None:
        patch = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = self.server_of.at(urlsplit(self.path).path)
        changed = None
        if found:
            self.server_of.patches[found] = json.loads(patch)
            before = self.server_of.stored[found]
            changed = before | {"metadata": before["metadata"] | {"resourceVersion": "2"}}
        self._answer(changed)

    def _answer(self, body: Object | None) -> None:
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
        text = json.dumps(body or {**missing, "reason": "NotFound"}).encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
