"""A Kubernetes API server as far as pods, leases and job objects go, with its real manners.

Resource versions count up over all objects; lists at version 0 ignore limits; watches send what
changed after a version, answer 410 inside the stream for versions that are forgotten, send
bookmarks whose pod has null containers, and report a pod that leaves the selector as DELETED.
Failures are switched on by attributes.
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_leases import Leases


@dataclass
class Faults:
    """What goes wrong; numbers count down."""

    status: int = 0  # answer every request with this
    retry_after: str = ""
    cut_mid_line: int = 0  # break the connection in the middle of an event
    silent: bool = False  # keep watches open and say nothing, not even bookmarks
    end_at_once: bool = False  # end watches as soon as they are open
    garbage: bytes = b""  # send this instead of JSON
    token: str = ""  # refuse others with 401


@dataclass
class Store:
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[tuple[int, str, dict[str, Any], dict[str, Any] | None]] = field(default_factory=list)
    version: int = 500
    oldest: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def log_change(self, kind: str, one: dict[str, Any], before: Any, key: str) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self.pods[key]
        else:
            self.pods[key] = one
        self.log.append((self.version, kind, one, before))
        self.changed.notify_all()

    def put(self, one: Mapping[str, Any]) -> None:
        with self.changed:
            key = f"{one['metadata']['namespace']}/{one['metadata']['name']}"
            before = self.pods.get(key)
            kind = "MODIFIED" if before else "ADDED"
            self.log_change(kind, copy.deepcopy(dict(one)), before, key)

    def delete(self, namespace: str, name: str) -> None:
        with self.changed:
            key = f"{namespace}/{name}"
            self.log_change("DELETED", copy.deepcopy(self.pods[key]), self.pods[key], key)

    def forget_history(self) -> None:
        """Compact: older versions are gone, as after a restart."""
        with self.changed:
            self.version += 100
            self.oldest = self.version
            self.log.clear()


class FakeApiServer:
    def __init__(self, bookmark_seconds: float = 60.0, tls: ssl.SSLContext | None = None) -> None:
        self._scheme = "http" if tls is None else "https"
        self.faults = Faults()
        self.store = Store()
        self.collections: dict[str, Store] = {}  # of other kinds, by path: what is not there is 404
        self.forbidden: set[str] = set()  # paths
        self.config_maps: dict[str, dict[str, Any]] = {}  # by path
        self.leases = Leases()
        self.bookmark_seconds = bookmark_seconds
        self.requests: list[tuple[float, str, Mapping[str, str]]] = []
        self.closing = False
        self.logs: dict[
            tuple[str, str, str, bool], bytes
        ] = {}  # namespace, pod, container, previous
        self.events: list[dict[str, Any]] | None = []  # None: forbidden
        server = self

        class Handler(_Handler):
            api = server

        self._http = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self.closing = True
        for store in (self.store, *self.collections.values()):
            with store.changed:
                store.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def put(self, pod: Mapping[str, Any]) -> None:
        self.store.put(pod)

    def delete(self, namespace: str, name: str) -> None:
        self.store.delete(namespace, name)

    def forget_history(self) -> None:
        self.store.forget_history()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    api: FakeApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.api.requests.append((time.monotonic(), parts.path, query))
        try:
            self._answer(parts.path.rstrip("/"), query)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_POST(self) -> None:
        lease = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.api.faults.status:
            return self._status(self.api.faults.status, "made to fail")
        return self._json(*self.api.leases.write(lease))

    def do_PUT(self) -> None:
        if self.path in self.api.config_maps and not self.api.faults.status:
            return self._replace_config_map(self.path)
        return self.do_POST()

    def _replace_config_map(self, path: str) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        had = self.api.config_maps[path]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != had:
            return self._status(409, "the object has been modified")
        body["metadata"]["resourceVersion"] = str(int(had) + 1)
        self.api.config_maps[path] = body
        return self._json(200, body)

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        faults = self.api.faults
        if faults.status:
            return self._status(faults.status, "made to fail")
        scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
        if faults.token and (scheme.lower(), shown) != ("bearer", faults.token):
            return self._status(401, "Unauthorized")
        if faults.garbage:
            return self._send(200, faults.garbage)
        if path in DISCOVERY:
            return self._json(200, DISCOVERY[path])
        if path in {*self.api.forbidden, *self.api.config_maps, *self.api.collections}:
            return self._objects(path, query)
        return self._builtin(path, query)

    def _builtin(self, path: str, query: Mapping[str, str]) -> None:
        parts = path.split("/")
        if "leases" in parts:
            return self._json(*self.api.leases.read(parts[-1]))
        if parts[-1] == "events":
            return self._events()
        if parts[:3] != ["", "api", "v1"] or "pods" not in parts:
            return self._status(404, "the server could not find the requested resource")
        namespace = parts[4] if parts[3] == "namespaces" else None
        if query.get("watch") in {"true", "1"}:
            return self._watch(self.api.store, namespace, query)
        if parts[-1] != "pods":
            return self._one(f"{namespace}", parts[parts.index("pods") + 1 :], query)
        return self._list(self.api.store, namespace, query)

    def _objects(self, path: str, query: Mapping[str, str]) -> None:
        if path in self.api.forbidden:
            return self._status(403, "is forbidden")
        if path in self.api.config_maps:
            return self._json(200, self.api.config_maps[path])
        store = self.api.collections[path]
        if query.get("watch") in {"true", "1"}:
            return self._watch(store, None, query)
        return self._list(store, None, query)

    def _events(self) -> None:
        if self.api.events is None:
            return self._status(403, "events is forbidden")
        return self._json(200, {"kind": "EventList", "apiVersion": "v1", "items": self.api.events})

    def _one(self, namespace: str, path: list[str], query: Mapping[str, str]) -> None:
        if path[1:] == ["log"]:
            return self._log(namespace, path[0], query)
        pod = self.api.store.pods.get(f"{namespace}/{path[0]}")
        if pod is None:
            return self._status(404, f'pods "{namespace}/{path[0]}" not found')
        return self._json(200, {"kind": "Pod", "apiVersion": "v1", **pod})

    def _log(self, namespace: str, pod: str, query: Mapping[str, str]) -> None:
        previous = query.get("previous", "").lower() == "true"
        text = self.api.logs.get((namespace, pod, query.get("container", ""), previous))
        if text is None:
            return self._status(404, "previous terminated container not found")
        return self._send(200, text)

    def _list(self, store: Store, namespace: str | None, query: Mapping[str, str]) -> None:
        wanted = query.get("resourceVersion", "")
        if wanted.isdigit() and int(wanted) > store.version:
            return self._status(504, f"Too large resource version: {wanted}")
        with store.changed:
            found = [pod for pod in store.pods.values() if _selected(pod, namespace, query)]
            version = store.version
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        limit = int(query.get("limit", "0"))
        start = int(query.get("continue", "0"))
        if limit and wanted != "0":  # version 0 is served from the cache, whole
            if len(found) > start + limit:
                metadata["continue"] = str(start + limit)
            found = found[start : start + limit]
        kind = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata}
        return self._json(200, {**kind, "items": found})

    def _watch(self, store: Store, namespace: str | None, query: Mapping[str, str]) -> None:
        faults = self.api.faults
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        version = int(query.get("resourceVersion") or "0")
        if version < store.oldest:
            message = f"too old resource version: {version} ({store.version})"
            status = _status_object(410, message, "Expired")
            return self._line({"type": "ERROR", "object": status})
        end = time.monotonic() + float(query.get("timeoutSeconds", "300"))
        next_bookmark = time.monotonic() + self.api.bookmark_seconds
        while not self._over(end):
            with store.changed:
                news = [entry for entry in store.log if entry[0] > version]
                if not news:
                    store.changed.wait(min(0.05, self.api.bookmark_seconds))
            if faults.silent:
                continue
            for number, kind, pod, before in news:
                version = number
                self._event(kind, pod, before, namespace, query)
            if query.get("allowWatchBookmarks") == "true" and time.monotonic() >= next_bookmark:
                next_bookmark = time.monotonic() + self.api.bookmark_seconds
                bare = {"metadata": {"resourceVersion": str(store.version)}}
                empty = {"spec": {"containers": None}, "status": {}}
                mark = {"kind": "Pod", "apiVersion": "v1", **bare, **empty}
                self._line({"type": "BOOKMARK", "object": mark})
        return None

    def _over(self, end: float) -> bool:
        faults = self.api.faults
        broken = faults.end_at_once or faults.status
        return time.monotonic() >= end or self.api.closing or bool(broken)

    def _event(
        self,
        kind: str,
        pod: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        namespace: str | None,
        query: Mapping[str, str],
    ) -> None:
        is_in = kind != "DELETED" and _selected(pod, namespace, query)
        was_in = before is not None and _selected(before, namespace, query)
        if not (is_in or was_in):
            return
        seen = "DELETED" if not is_in else "MODIFIED" if was_in else "ADDED"
        self._line({"type": seen, "object": {"kind": "Pod", "apiVersion": "v1", **pod}})

    def _line(self, event: Mapping[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        if self.api.faults.cut_mid_line:
            self.api.faults.cut_mid_line -= 1
            self.wfile.write(line[: len(line) // 2])
            raise BrokenPipeError
        self.wfile.write(line)
        self.wfile.flush()

    def _status(self, code: int, message: str) -> None:
        return self._json(code, _status_object(code, message, ""))

    def _json(self, code: int, body: Mapping[str, Any]) -> None:
        return self._send(code, json.dumps(body).encode())

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.api.faults.retry_after:
            self.send_header("Retry-After", self.api.faults.retry_after)
        self.end_headers()
        self.wfile.write(body)


def _selected(pod: Mapping[str, Any], namespace: str | None, query: Mapping[str, str]) -> bool:
    if namespace not in {None, pod["metadata"]["namespace"]}:
        return False
    fields = dict(part.split("=", 1) for part in query.get("fieldSelector", "").split(",") if part)
    node = fields.get("spec.nodeName")
    name = fields.get("metadata.name")
    labels = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
    return (
        node in {None, pod["spec"].get("nodeName")}
        and name in {None, pod["metadata"]["name"]}
        and all(pod["metadata"].get("labels", {}).get(k) == v for k, v in labels.items())
    )


def _status_object(code: int, message: str, reason: str) -> Mapping[str, Any]:
    fields = {"metadata": {}, "status": "Failure", "message": message, "reason": reason}
    return {"kind": "Status", "apiVersion": "v1", **fields, "code": code}


_VERBS = ["delete", "get", "list", "patch", "watch"]
DISCOVERY: Mapping[str, Mapping[str, Any]] = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": _VERBS,
                "shortNames": ["po"],
            }
        ],
    },
}
