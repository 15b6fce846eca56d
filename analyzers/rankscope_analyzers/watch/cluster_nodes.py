"""Reads and writes conditions of nodes through the Kubernetes client, and writes Events on them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.cluster import CURRENT, configured_client, impatient
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.node_conditions import PREFIX, Condition, Status
from rankscope_analyzers.watch.node_publisher import NodeGoneError, Published, PublishError

MANAGER = "rankscope-watch"
"""Field manager of what is applied: it owns its own conditions and nothing else of a node."""

REQUEST_SECONDS = 5.0
NODES_OF_A_PAGE = 100
"""A node has some 30 KB, most of it names of images."""

MOST_PAGES = 100
NOT_FOUND = 404
NAMESPACE_OF_NODES = "default"
"""The only namespace in which API servers accept Events about objects without a namespace."""

MOST_CHARACTERS = 300
MOST_OF_A_NAME = 200
"""Characters of a node's name at the start of its Events' names, of 253 in all."""

STATUSES: Mapping[object, Status] = {"True": "True", "False": "False"}


class ClusterNodes:
    """The nodes of the cluster.

    Raises:
        rankscope_analyzers.intake.cluster.ClusterError: the API server is not accessible.
    """

    def __init__(self) -> None:
        self._core, self._events = _apis()
        self._instance = socket.gethostname()[:128]

    def read(self) -> Mapping[str, Sequence[Published]]:
        """Return the conditions with our prefix, of each node that has any.

        Raises:
            PublishError: nodes cannot be listed.
        """
        found: dict[str, Sequence[Published]] = {}
        token = None
        for _ in range(MOST_PAGES):
            page = self._page(token)
            for item in page.get("items") or ():
                own = tuple(_own_conditions(item))
                if own:
                    found[str(item["metadata"]["name"])] = own
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                break
        return found

    def apply(self, node: str, conditions: Sequence[Published], now: float) -> None:
        """Set these conditions of a node by server-side apply, and remove all others of ours.

        Raises:
            NodeGoneError: there is no such node.
            PublishError: it cannot be written.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node},
            "status": {"conditions": [_as_json(one, now) for one in conditions]},
        }
        self._request(
            f"node {node} cannot be written",
            lambda: self._core.patch_node_status(
                node,
                body,
                field_manager=MANAGER,
                _content_type="application/apply-patch+yaml",
                _preload_content=False,
                _request_timeout=REQUEST_SECONDS,
            ),
        )

    def announce(self, node: str, condition: Condition, now: float) -> None:
        """Write an Event about a node.

        Raises:
            PublishError: it cannot be written.
        """
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": _event_name(node), "namespace": NAMESPACE_OF_NODES},
            "eventTime": _time(now, "microseconds"),
            "reportingController": "rankscope.dev/watch",
            "reportingInstance": self._instance,
            "action": "Diagnose",
            "reason": f"{PREFIX}{condition.reason}",
            # As kubelets do it, and as `kubectl describe node` searches for it.
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "note": condition.message,
            "type": "Warning" if condition.status == "True" else "Normal",
        }
        self._request(
            f"an Event about node {node} cannot be written",
            lambda: self._events.create_namespaced_event(
                NAMESPACE_OF_NODES, body, _preload_content=False, _request_timeout=REQUEST_SECONDS
            ),
        )

    def _page(self, token: str | None) -> Mapping[str, Any]:
        more = {"_continue": token} if token else {}
        answer = self._request(
            "nodes cannot be listed",
            lambda: self._core.list_node(
                limit=NODES_OF_A_PAGE,
                **more,
                _preload_content=False,
                _request_timeout=REQUEST_SECONDS,
            ),
        )
        try:
            found = untrusted_json.read(answer.data)
        except ValueError as error:
            raise PublishError(f"nodes cannot be listed: {error}") from None
        return found if isinstance(found, dict) else {}

    def _request(self, failure: str, request: Callable[[], Any]) -> Any:
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config.config_exception import ConfigException
        from urllib3.exceptions import HTTPError

        try:
            return request()
        except ApiException as error:
            reason = visible(f"{error.status} {error.reason}", MOST_CHARACTERS)
            kind = NodeGoneError if error.status == NOT_FOUND else PublishError
            raise kind(f"{failure}: {reason}") from None
        except (OSError, HTTPError, ValueError, ConfigException) as error:
            why = visible(str(error), MOST_CHARACTERS)
            raise PublishError(f"{failure}: the API server cannot be reached: {why}") from None


def _event_name(node: str) -> str:
    """Return the prefix of an Event's name; the suffix must fit, and no label may be empty."""
    return f"{node[:MOST_OF_A_NAME].rstrip('-.')}."


def _own_conditions(node: Mapping[str, Any]) -> Iterator[Published]:
    for one in (node.get("status") or {}).get("conditions") or ():
        kind, status = str(one.get("type")), one.get("status")
        if kind.startswith(PREFIX):
            reason, message = str(one.get("reason", "")), str(one.get("message", ""))
            condition = Condition(kind, STATUSES.get(status, "Unknown"), reason, message)
            yield Published(condition, _seconds(one.get("lastTransitionTime")))


def _as_json(one: Published, now: float) -> Mapping[str, str]:
    return {
        "type": one.condition.type,
        "status": one.condition.status,
        "reason": one.condition.reason,
        "message": one.condition.message,
        "lastHeartbeatTime": _time(now, "seconds"),
        "lastTransitionTime": _time(one.since, "seconds"),
    }


def _time(unix_seconds: float, precision: str) -> str:
    when = datetime.fromtimestamp(unix_seconds, timezone.utc).replace(tzinfo=None)
    return f"{when.isoformat(timespec=precision)}Z"


def _seconds(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _apis() -> tuple[Any, Any]:
    """Return the client's APIs of nodes and of Events.

    Raises:
        ClusterError: it is not installed, or finds no cluster.
    """
    client = configured_client("publishing takes", "to publish to", CURRENT)
    made = impatient(client)
    return client.CoreV1Api(made), client.EventsV1Api(made)
