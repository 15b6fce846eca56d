"""Why agents do not start: what Kubernetes says of their DaemonSet and pods, and what mends it.

An agent that runs says itself what it misses; one that is not let run cannot. Pure: from events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankscope_analyzers.text.inert_text import visible

AGENT = "rankscope-agent"
"""The name of the DaemonSet, and what its pods' names begin with."""

MOST_SENTENCES = 8
"""Of a thousand nodes that lack the same thing, one speaks for all; there are few other things."""

MOST_CHARACTERS = 200

MENDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"violates PodSecurity"),
        "the namespace lacks the label pod-security.kubernetes.io/enforce=privileged: base sets it",
    ),
    (
        re.compile(r"insufficient quota to match these scopes"),
        "pods of class system-node-critical take a ResourceQuota that speaks of it: base has one",
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
"""What Kubernetes says, and which part of daemonset/ it is about; the first that fits counts."""


def reasons(events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence for each thing that keeps agents from starting, the commonest first."""
    count: dict[str, int] = {}
    for message, mend in _understood(events):
        sentence = f"{visible(message, MOST_CHARACTERS)} ({mend})"
        known = next((one for one in count if one.endswith(f"({mend})")), sentence)
        count[known] = count.get(known, 0) + 1
    return tuple(sorted(count, key=lambda one: -count[one]))[:MOST_SENTENCES]


def _understood(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for event in events:
        about, message = event.get("involvedObject"), event.get("message")
        if not isinstance(about, dict) or not isinstance(message, str):
            continue
        if str(about.get("name", "")).startswith(AGENT):
            mend = next((mend for pattern, mend in MENDS if pattern.search(message)), None)
            if mend is not None:
                yield message, mend
