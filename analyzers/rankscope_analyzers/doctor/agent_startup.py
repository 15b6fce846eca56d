"""Why agents do not start: what Kubernetes reports about their DaemonSet and pods, and remedies.

A running agent reports itself what it lacks; one that cannot start cannot. Pure: from events and
pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rankscope_analyzers.text.name_lists import named
from rankscope_analyzers.text.sanitize import visible

AGENT = "rankscope-agent"
"""The name of the DaemonSet, and the prefix of its pods' names."""

MOST_SENTENCES = 8
"""Reasons shown: of a thousand nodes that lack the same thing, one represents all; there are few
others."""

MOST_CHARACTERS = 200

REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"violates PodSecurity"),
        "the namespace lacks the label pod-security.kubernetes.io/enforce=privileged: base sets it",
    ),
    (
        re.compile(r"unable to validate against any security context constraint"),
        "OpenShift admits agents by component openshift",
    ),
    (
        re.compile(r"insufficient quota to match these scopes"),
        "this cluster lets a priority class be used only where a ResourceQuota of the namespace"
        " speaks of it: ask its administrators for one that names rankscope-agent.NAMESPACE",
    ),
    (
        re.compile(r"no PriorityClass with name"),
        "base has it; another namespace than rankscope takes transformers: daemonset/installation",
    ),
    (
        re.compile(r"hostPath type check failed: /var/lib/kubelet/pods"),
        "component probe takes that directory; the kubelet of this platform may have another",
    ),
    (
        re.compile(r"hostPath type check failed: /var/log is"),
        "component journal takes that directory",
    ),
    (re.compile(r"hostPath type check failed"), "base takes that directory of the node"),
    (
        re.compile(r'secret "rankscope-api-token" not found'),
        "base takes it: kubectl -n NAMESPACE create secret generic rankscope-api-token"
        " --from-literal=token=$(openssl rand -hex 32)",
    ),
    (
        re.compile(r'secret "rankscope-agent-tls" not found'),
        "component tls takes it, with tls.crt, tls.key and ca.crt",
    ),
    (
        re.compile(r"RuntimeClass \"nvidia\" not found|runtimeclass.*\"nvidia\" not found"),
        "component nvml takes it; nvml-default-runtime and dcgm do without",
    ),
    (
        re.compile(r"[Ff]ailed to pull image"),
        "say where images are in an overlay of your own, with images: of kustomize",
    ),
)
"""What Kubernetes reports, and the part of daemonset/ that it is about; the first match counts."""


NO_RESOURCES = re.compile(r"Insufficient [\w./-]{1,64}|Too many pods")
"""In "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s)
[NodeAffinity]", what the one node lacks (kubernetes pkg/scheduler, noderesources)."""

FREE_RESOURCES = (
    "nothing is ended to make room for an agent; it starts when something ends there, or lower what"
    " pods of that node request"
)


STALE_SECONDS = 1200.0
"""Maximum age of an event in seconds: the DaemonSet's controller and the kubelet retry after a
quarter of an hour at the latest (kubernetes pkg/controller/daemon, 1,000 s), and report it."""


def reasons(
    events: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]], now: float
) -> tuple[str, ...]:
    """Return a sentence for each thing that keeps agents from starting, the most common first.

    Args:
        events: warnings.
        pods: of agents, in their present state: what kept one that runs, or is gone, is repaired.
        now: Unix time.
    """
    count: dict[str, int] = {}
    for message, remedy in _recognized([one for one in events if _still_applies(one, pods, now)]):
        sentence = f"{visible(message, MOST_CHARACTERS)} ({remedy})"
        known = next((one for one in count if one.endswith(f"({remedy})")), sentence)
        count[known] = count.get(known, 0) + 1
    return tuple(sorted(count, key=lambda one: -count[one]))[:MOST_SENTENCES]


def _still_applies(event: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], now: float) -> bool:
    """Return True if the cause of an event may still be present."""
    seen = _last_seen(event)
    if seen is not None and now - seen > STALE_SECONDS:
        return False
    about = _mapping(event.get("involvedObject"))
    if about.get("kind") != "Pod":
        return True
    phases = {
        _mapping(pod.get("metadata")).get("name"): _mapping(pod.get("status")).get("phase")
        for pod in pods
    }
    return phases.get(about.get("name"), "gone") not in {"Running", "gone"}


def _last_seen(event: Mapping[str, Any]) -> float | None:
    """Return when an event last occurred, None if unknown; older APIs have it in another field."""
    series = _mapping(event.get("series")).get("lastObservedTime")
    for text in (series, event.get("lastTimestamp"), event.get("eventTime")):
        if isinstance(text, str):
            try:
                return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
            except (ValueError, OverflowError):
                continue
    return None


def waiting(pods: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence for each reason why agents' pods are not scheduled to their nodes.

    Args:
        pods: of agents, as the API server lists them.
    """
    nodes: dict[str, list[str]] = {}
    for pod in pods:
        why = _unplaced(pod)
        if why is not None:
            nodes.setdefault(why, []).append(_meant_for(pod))
    sentences = [
        f"{named(sorted(at), 'the agent of node', 'the agents of nodes')}"
        f" {'is' if len(at) == 1 else 'are'} Pending: {why}"
        for why, at in sorted(nodes.items(), key=lambda item: -len(item[1]))
    ]
    return tuple(sentences[:MOST_SENTENCES])


def _unplaced(pod: Mapping[str, Any]) -> str | None:
    """Return why the scheduler does not place a pod, None if it has."""
    status = _mapping(pod.get("status"))
    for condition in _rows(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            lacks = sorted(set(NO_RESOURCES.findall(str(condition.get("message")))))
            if lacks:
                return f"{', '.join(lacks)}: {FREE_RESOURCES}"
            return visible(str(condition.get("message")), MOST_CHARACTERS)
    return None


def _meant_for(pod: Mapping[str, Any]) -> str:
    """Return the node that the DaemonSet made a pod for, which its affinity names."""
    affinity = _mapping(_mapping(_mapping(pod.get("spec")).get("affinity")).get("nodeAffinity"))
    required = _mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in _rows(required.get("nodeSelectorTerms")):
        for field in _rows(term.get("matchFields")):
            values = field.get("values")
            if field.get("key") == "metadata.name" and isinstance(values, list) and values:
                return visible(str(values[0]), MOST_CHARACTERS)
    return "unknown"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> Sequence[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _recognized(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for event in events:
        about, message = event.get("involvedObject"), event.get("message")
        if not isinstance(about, dict) or not isinstance(message, str):
            continue
        if str(about.get("name", "")).startswith(AGENT):
            remedy = next((remedy for pattern, remedy in REMEDIES if pattern.search(message)), None)
            if remedy is not None:
                yield message, remedy
