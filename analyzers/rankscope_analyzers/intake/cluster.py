"""Finds the agents of a cluster through its API server, with the user's kubeconfig."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.address import AGENT_PORT
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.text.name_lists import listed, named

AGENT_SELECTOR = "app.kubernetes.io/name=rankscope-agent"

UNLABELLED = "nothing is labelled rankscope-agent"
NO_AGENT = f"there is no agent to ask: {UNLABELLED}"
"""What is said of a cluster without agents."""

TIMEOUT_SECONDS = 20.0

FORBIDDEN = 403
MOST_EVENTS = 2000
"""Events that are read: an error that keeps agents from starting is repeated every few minutes, on
each node."""


class ClusterError(Exception):
    """The cluster cannot be queried; the message says why."""


class ForbiddenError(ClusterError):
    """The user may not read this."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The cluster to query.

    Args:
        context: of the kubeconfig; empty for the current one.
        kubeconfig: the file; empty for the one that kubectl uses.
        instead: what the user can do without a cluster.
    """

    context: str = ""
    kubeconfig: str = ""
    instead: str = "give --agent URL"

    @property
    def chosen(self) -> bool:
        """Return True if the user named a cluster: then no other may replace it."""
        return bool(self.context or self.kubeconfig)


CURRENT = ClusterAccess()
"""The cluster that kubectl or this pod is configured for."""


class NodeAgents(dict[str, str]):
    """The address of each node's agent, by node.

    Args:
        doubts: sentences about nodes whose agent is unknown; they are left out.
    """

    def __init__(self, addresses: Mapping[str, str], doubts: Sequence[str] = ()) -> None:
        super().__init__(addresses)
        self.doubts = tuple(doubts)

    @property
    def nodes(self) -> Mapping[str, str]:
        """Return the node of each address."""
        return {url: node for node, url in self.items()}


def trusted_agents(
    namespace: str | None,
    entry: Entry,
    timeout_seconds: float = TIMEOUT_SECONDS,
    access: ClusterAccess = CURRENT,
) -> NodeAgents:
    """Return the address of each node's agent, by node, provided that they may see the credentials.

    Args:
        namespace: where to look, None for everywhere.
        entry: the credentials.
        timeout_seconds: for the API server's whole response.
        access: which cluster.

    Raises:
        ClusterError: any pod with that label would be shown a token; the API server is not
            accessible, or refuses.
    """
    if entry.shows and not namespace:
        raise ClusterError(
            "a token is shown to agents of one namespace only, because any pod may carry their"
            " label: give --namespace"
        )
    return agents_of_cluster(namespace, entry.scheme, timeout_seconds, access)


def agents_of_cluster(
    namespace: str | None = None,
    scheme: str = "http",
    timeout_seconds: float = TIMEOUT_SECONDS,
    access: ClusterAccess = CURRENT,
) -> NodeAgents:
    """Return the address of each node's agent, by node.

    Any pod may carry the agents' label. Of several on a node, those of one controller are an agent
    that is being replaced; if there are more controllers, none is trusted.

    Args:
        namespace: where to look, None for everywhere, which requires the right to list all pods.
        scheme: of the addresses.
        timeout_seconds: for the API server's whole response.
        access: which cluster.

    Raises:
        ClusterError: the API server is not accessible, or refuses.
    """
    by_node: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    placed: set[str] = set()
    for pod in agent_pods(namespace, timeout_seconds, access):
        node = str(pod.get("spec", {}).get("nodeName") or "")
        if node:
            placed.add(node)
            if pod.get("status", {}).get("podIP"):
                by_node[node].append(pod)
    known, doubts = {}, list(_without_address(placed - by_node.keys()))
    for node, several in sorted(by_node.items()):
        if len({_controller(pod) for pod in several}) > 1:
            names = listed(sorted(f"{_name(pod, 'namespace')}/{_name(pod)}" for pod in several))
            doubts.append(f"agents of node {node}: {names}; give --namespace, none is believed")
        else:
            known[node] = f"{scheme}://{_address(max(several, key=_replaces))}"
    return NodeAgents(known, doubts)


def _without_address(nodes: Set[str]) -> Iterator[str]:
    """Yield a sentence about nodes whose agent is starting, or was ended and not replaced."""
    if nodes:
        which = named(sorted(nodes), "the agent of node", "the agents of nodes")
        whose = "its pod has" if len(nodes) == 1 else "their pods have"
        yield f"{which} cannot be asked: {whose} no address"


def _name(pod: Mapping[str, Any], key: str = "name") -> str:
    return str(pod.get("metadata", {}).get(key, ""))


def _controller(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return the identity of a pod's controller, which is unique in its namespace."""
    owners = pod.get("metadata", {}).get("ownerReferences") or ()
    uids = [str(owner.get("uid")) for owner in owners if owner.get("controller")]
    return _name(pod, "namespace"), uids[0] if uids else _name(pod)


def _replaces(pod: Mapping[str, Any]) -> tuple[bool, bool, str]:
    """Sort key of the pods of one controller on a node: the last one is the one that stays."""
    metadata, conditions = pod.get("metadata", {}), pod.get("status", {}).get("conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return not metadata.get("deletionTimestamp"), ready, str(metadata.get("creationTimestamp", ""))


def agent_pods(
    namespace: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    access: ClusterAccess = CURRENT,
) -> Sequence[Mapping[str, Any]]:
    """Return the agents' pods as JSON, including those that do not run.

    Args:
        namespace: where to look, None for everywhere, which requires the right to list all pods.
        timeout_seconds: for the API server's whole response.
        access: which cluster.

    Raises:
        ClusterError: the API server is not accessible, or refuses.
    """
    return _pods(namespace, access, timeout_seconds, label_selector=AGENT_SELECTOR)


def pods_of(namespace: str, access: ClusterAccess = CURRENT) -> Sequence[Mapping[str, Any]]:
    """Return all pods of a namespace as JSON.

    Raises:
        ClusterError: the API server is not accessible, or refuses.
    """
    return _pods(namespace, access)


def placed_pod(wanted: str, access: ClusterAccess = CURRENT) -> Mapping[str, Any] | None:
    """Return a pod (name or namespace/name) that is on a node; None if there is none.

    Raises:
        ClusterError: the API server is not accessible, or refuses.
    """
    namespace, _, name = wanted.rpartition("/")
    try:
        found = _pods(namespace or None, access, field_selector=f"metadata.name={name}")
    except ForbiddenError as error:
        if namespace:
            raise
        raise ForbiddenError(f"{error}: name the pod as NAMESPACE/{name}") from None
    for pod in found:
        if namespace in {"", pod["metadata"]["namespace"]} and pod["spec"].get("nodeName"):
            return dict(pod)
    return None


def _address(pod: Mapping[str, Any]) -> str:
    """Return host:port of an agent's pod: the port named metrics or web, else the default."""
    ports = [port for c in pod["spec"].get("containers") or () for port in c.get("ports") or ()]
    named = [p["containerPort"] for p in ports if p.get("name") in {"metrics", "web", "http"}]
    host = str(pod["status"]["podIP"])
    return f"{f'[{host}]' if ':' in host else host}:{named[0] if named else AGENT_PORT}"


def warnings(namespace: str | None, access: ClusterAccess = CURRENT) -> Sequence[Mapping[str, Any]]:
    """Return the warning events of a namespace or of all; none if they are hidden.

    Raises:
        ClusterError: the API server is not accessible.
    """
    method = "list_namespaced_event" if namespace else "list_event_for_all_namespaces"
    try:
        return _items(
            method,
            namespace,
            access,
            TIMEOUT_SECONDS,
            field_selector="type=Warning",
            limit=MOST_EVENTS,
        )
    except ForbiddenError:
        return ()


def _pods(
    namespace: str | None,
    access: ClusterAccess,
    timeout_seconds: float = TIMEOUT_SECONDS,
    **selectors: str,
) -> list[Any]:
    method = "list_namespaced_pod" if namespace else "list_pod_for_all_namespaces"
    return _items(method, namespace, access, timeout_seconds, **selectors)


def configure(config: Any, access: ClusterAccess = CURRENT) -> None:
    """Load the user's kubeconfig, or within a pod its service account if nothing was chosen.

    The client's own choice between the two prints to standard output, which may be JSON.

    Raises:
        kubernetes.config.ConfigException: there is neither.
    """
    try:
        config.load_kube_config(access.kubeconfig or None, access.context or None)
    except config.ConfigException:
        if access.chosen or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise
        config.load_incluster_config()


def impatient(client: Any) -> Any:
    """Return a client that sends a request once, with one deadline: its `_request_timeout`.

    Three retries would make a minute of each timeout, and a server that sends a byte at a time
    would never reach it.

    Args:
        client: the module, once it is configured.
    """
    from rankscope_analyzers.intake.cluster_deadlines import bound

    settings = client.Configuration.get_default_copy()
    settings.retries = False
    made = client.ApiClient(settings)
    bound(made)
    return made


def configured_client(use: str, purpose: str, access: ClusterAccess, instead: str = "") -> Any:
    """Return Kubernetes' client, a module, once it is configured.

    Args:
        use: what needs it, as the beginning of a sentence: `a lease needs`.
        purpose: what a missing cluster prevents: `to ask for a lease`.
        access: which cluster.
        instead: what the user can do without it, as the end of a sentence.

    Raises:
        ClusterError: the client is not installed, or finds no cluster.
    """
    try:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
    except ImportError:
        raise ClusterError(
            f"{use} the kubernetes package: pip install 'kubernetes>=37,<38'"
            + (f", or {instead}" if instead else "")
        ) from None
    try:
        configure(config, access)
    except (ConfigException, OSError, ValueError) as error:
        more = f"; {instead}" if instead else ""
        why = str(error).rstrip(".")
        raise ClusterError(f"no cluster {purpose}: {why}{more}") from None
    return client


def core_api(access: ClusterAccess = CURRENT) -> Any:
    """Return Kubernetes' core API of a cluster, as the user may use it.

    Raises:
        ClusterError: the client is not installed, or finds no cluster.
    """
    client = configured_client("asking a cluster takes", "to ask", access, access.instead)
    return client.CoreV1Api(impatient(client))


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Convert errors of Kubernetes' client to messages.

    Args:
        what: the request, as `verb list of pods in namespace team`.

    Raises:
        ClusterError: the API server does not answer, or refuses.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        kind = ForbiddenError if error.status == FORBIDDEN else ClusterError
        raise kind(f"the API server answers {error.status} ({error.reason}) to {what}") from None
    except (OSError, HTTPError, ValueError) as error:
        raise ClusterError(f"the API server cannot be reached: {error}") from None


def _items(
    method: str,
    namespace: str | None,
    access: ClusterAccess,
    timeout_seconds: float,
    **more: str | int,
) -> list[Any]:
    """Call a method of the client that lists, and return the items as JSON."""
    api = core_api(access)
    where = (namespace,) if namespace else ()
    kind = "events" if "event" in method else "pods"
    scope = f"namespace {namespace}" if namespace else "all namespaces"
    with refused(f"verb list of {kind} in {scope}"):
        # Raw JSON: the typed models refuse pods that lack required fields.
        answer = getattr(api, method)(
            *where, **more, _preload_content=False, _request_timeout=timeout_seconds
        )
        items = untrusted_json.read(answer.data).get("items")
    return [item for item in items or () if isinstance(item, dict)]
