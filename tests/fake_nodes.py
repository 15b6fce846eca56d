"""An API server as far as nodes and Events go: pages, server-side apply, and the shipped policy."""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from admission import denials
from policies import first

WATCH = {"username": "system:serviceaccount:rankscope:rankscope-watch"}
POLICY = first("components", "admission-policy", "policy.yaml")["spec"]
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "is posting"}
MOST_NOTE = 1024


class FakeNodes:
    """Nodes that are ready.

    `status` is what every request is answered with, if it is not 0; `refused` has the same for
    requests that a part of their line names, such as "POST" or "nodes/gpu-07/".
    """

    def __init__(self, *names: str) -> None:
        self.nodes = {name: fresh(name) for name in names}
        self.owned: dict[str, set[str]] = {}
        self.events: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.denied: list[str] = []
        self.status = 0
        self.refused: dict[str, int] = {}
        server = self

        class Handler(_Handler):
            api = server

        self._http = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def conditions(self, name: str) -> dict[str, dict[str, Any]]:
        return {one["type"]: one for one in self.nodes[name]["status"]["conditions"]}

    def applied(self, name: str, status: dict[str, Any]) -> dict[str, Any] | None:
        """Apply what a field manager states: its items by type, without those it states no more."""
        before = self.nodes[name]
        after = copy.deepcopy(before)
        stated = {one["type"]: one for one in status["conditions"]}
        dropped = self.owned.get(name, set()) - stated.keys()
        kept = {one["type"]: one for one in after["status"]["conditions"]}
        after["status"]["conditions"] = [*({**kept, **stated}[t] for t in {**kept, **stated})]
        after["status"]["conditions"] = [
            one for one in after["status"]["conditions"] if one["type"] not in dropped
        ]
        self.denied += denials(POLICY, before, after, WATCH, "nodes/status")
        if self.denied:
            return None
        self.nodes[name], self.owned[name] = after, set(stated)
        return after


def fresh(name: str) -> dict[str, Any]:
    status = {"conditions": [dict(READY)], "addresses": [{"type": "InternalIP", "address": "10.0"}]}
    return {"metadata": {"name": name, "labels": {"zone": "a"}}, "spec": {}, "status": status}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up; what the test finds wrong it finds in `denied`."""


class _Handler(BaseHTTPRequestHandler):
    api: FakeNodes
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        names = sorted(self.api.nodes)
        more = {"continue": str(start + limit)} if start + limit < len(names) else {}
        items = [self.api.nodes[name] for name in names[start : start + limit]]
        self._answer(200, {"kind": "NodeList", "metadata": more, "items": items})

    def do_PATCH(self) -> None:
        body = self._body()
        if self._is_refused():
            return self._answer(200, {})
        parts = urlsplit(self.path)
        name = parts.path.split("/")[4]
        assert parts.path == f"/api/v1/nodes/{name}/status"
        assert self.headers["Content-Type"] == "application/apply-patch+yaml"
        assert parse_qs(parts.query) == {"fieldManager": ["rankscope-watch"]}
        assert body["metadata"] == {"name": name}
        assert body.keys() == {"apiVersion", "kind", "metadata", "status"}
        if name not in self.api.nodes:
            return self._answer(404, {"kind": "Status", "code": 404})
        found = self.api.applied(name, body["status"])
        return self._answer(200 if found else 422, found or {"kind": "Status", "code": 422})

    def do_POST(self) -> None:
        event = self._body()
        assert urlsplit(self.path).path == "/apis/events.k8s.io/v1/namespaces/default/events"
        assert len(event["note"]) <= MOST_NOTE
        if self._is_refused():
            return self._answer(201, {})
        self.api.events.append(event)
        return self._answer(201, event)

    def _is_refused(self) -> int:
        """Return what this request is refused with, 0 if it is not."""
        line = f"{self.command} {self.path}"
        found = [status for part, status in self.api.refused.items() if part in line]
        return self.api.status or next(iter(found), 0)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, code: int, body: Any) -> None:
        self.api.asked.append(f"{self.command} {urlsplit(self.path).path}")
        code = self._is_refused() or code
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
