"""Notices of a node that end or harm the jobs on it: not ready, under pressure, about to go.

Sources: k8s.io/api/core/v1 (taints, NodeConditionType) and Kubernetes' node lifecycle conditions
(1.37, alpha); aws-node-termination-handler pkg/node/node.go (taints) and pkg/observability
(reasons); karpenter-provider-aws pkg/controllers/interruption/events; cluster-autoscaler
utils/taints; GKE's taint and label of nodes that cannot be migrated live; AKS' release notes of
2024 (its taint was renamed), node problem detector and scheduled events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rankscope_agent.contract import job_names
from rankscope_analyzers.workloads.fields import Fields, flag, moment, objects, text, within

Notice = Literal[
    "not_ready",
    "memory_pressure",
    "disk_pressure",
    "pid_pressure",
    "network_unavailable",
    "spot_interruption",
    "rebalance",
    "maintenance",
    "scale_down",
    "shutdown",
    "cordoned",
]
NOTICES: tuple[Notice, ...] = get_args(Notice)
"""`spot_interruption`: the cloud reclaims the machine within minutes; `rebalance`: it may soon;
`scale_down`: an autoscaler removes the node."""

# The key of a taint, with or without a value after "=".
_TAINTS: Mapping[str, Notice] = {
    "node.kubernetes.io/not-ready": "not_ready",
    "node.kubernetes.io/unreachable": "not_ready",
    "node.kubernetes.io/memory-pressure": "memory_pressure",
    "node.kubernetes.io/disk-pressure": "disk_pressure",
    "node.kubernetes.io/pid-pressure": "pid_pressure",
    "node.kubernetes.io/network-unavailable": "network_unavailable",
    "node.kubernetes.io/out-of-service": "shutdown",
    "node.cloudprovider.kubernetes.io/shutdown": "shutdown",
    "aws-node-termination-handler/spot-itn": "spot_interruption",
    "aws-node-termination-handler/rebalance-recommendation": "rebalance",
    "aws-node-termination-handler/scheduled-maintenance": "maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination": "scale_down",
    "remediator.kubernetes.azure.com/unschedulable": "maintenance",
    "remediator.aks.microsoft.com/unschedulable": "maintenance",
    "karpenter.sh/disrupted": "scale_down",
    "karpenter.sh/disruption": "scale_down",
    "ToBeDeletedByClusterAutoscaler": "scale_down",
}

# GKE puts it on nodes that go, whether the machine is reclaimed or its host is maintained.
_GKE_LEAVING = "cloud.google.com/impending-node-termination"
_GKE_SPOT = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
_GKE_MAINTENANCE = ("cloud.google.com/active-node-maintenance", "ONGOING")

_AZURE_PLAN = "VMEventScheduled"

_CONDITIONS: Mapping[str, Notice] = {
    "MemoryPressure": "memory_pressure",
    "DiskPressure": "disk_pressure",
    "PIDPressure": "pid_pressure",
    "NetworkUnavailable": "network_unavailable",
    _AZURE_PLAN: "maintenance",
    "PreemptScheduled": "spot_interruption",
    "TerminateScheduled": "spot_interruption",
    "RebootScheduled": "maintenance",
    "RedeployScheduled": "maintenance",
    "FreezeScheduled": "maintenance",
    "MaintenancePlanned": "maintenance",
    "MaintenanceInProgress": "maintenance",
    "GracefulNodeShutdownInProgress": "shutdown",
}

# Azure has one condition for all planned events, whose reason or message gives the type: "Preempt
# Scheduled: Mon, 02 Mar 2026 19:01:45 GMT".
_PLANNED: tuple[tuple[str, Notice], ...] = (
    ("preempt", "spot_interruption"),
    ("terminate", "spot_interruption"),
)

# Events about nodes, by reason: notices that the node itself does not have.
EVENTS: Mapping[str, Notice] = {
    "SpotInterruption": "spot_interruption",
    "SpotInterrupted": "spot_interruption",
    "InstanceSpotInterrupted": "spot_interruption",
    "PreemptScheduled": "spot_interruption",
    "TerminateScheduled": "spot_interruption",
    "RebalanceRecommendation": "rebalance",
    "SpotRebalanceRecommendation": "rebalance",
    "InstanceSpotRebalanceRecommendation": "rebalance",
    "ScheduledEvent": "maintenance",
    "InstanceUnhealthy": "maintenance",
    "RebootScheduled": "maintenance",
    "RedeployScheduled": "maintenance",
    "FreezeScheduled": "maintenance",
    "InstanceTerminating": "scale_down",
    "InstanceStopping": "scale_down",
    "ASGLifecycle": "scale_down",
    "SQSTermination": "scale_down",
    "StateChange": "shutdown",
    "DisruptionTerminating": "scale_down",
    "ScaleDown": "scale_down",
}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node at one moment.

    Args:
        name: of the node.
        uid: differs if a node is created again under the same name.
        notices: Unix time since when each holds, None if unknown.
    """

    name: str
    uid: str
    notices: Mapping[Notice, float | None]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about a node: its name, the notice and the Unix time of the last one."""

    node: str
    notice: Notice
    at: float | None


def read(found: Fields) -> tuple[str, NodeFacts] | None:
    """Return uid and value of a node, None if it cannot be identified."""
    metadata = within(found, "metadata")
    name, uid = text(metadata, "name"), text(metadata, "uid")
    if not (uid and job_names.is_name(name)):
        return None
    notices: dict[Notice, float | None] = {}
    labels = within(metadata, "labels")
    statements = (*_tainted(within(found, "spec"), labels), *_held(within(found, "status")))
    for notice, since in statements:
        notices.setdefault(notice, since)
        if notices[notice] is None:
            notices[notice] = since
    return uid, NodeFacts(name, uid, notices)


def with_events(nodes: Iterable[NodeFacts], events: Iterable[NodeEvent]) -> tuple[NodeFacts, ...]:
    """Return nodes with notices from Events; a node's own notices take precedence."""
    by_node: dict[str, dict[Notice, float | None]] = {}
    for one in events:
        by_node.setdefault(one.node, {})[one.notice] = one.at
    return tuple(
        replace(one, notices={**by_node[one.name], **one.notices}) if one.name in by_node else one
        for one in nodes
    )


def event(found: Fields) -> tuple[str, NodeEvent] | None:
    """Return uid and value of an Event about a node that is a notice, None for others."""
    uid = text(within(found, "metadata"), "uid")
    about = within(found, "involvedObject")
    reason = text(found, "reason")
    notice = _planned(found) if reason == _AZURE_PLAN else EVENTS.get(reason)
    name = text(about, "name")
    if not uid or notice is None or text(about, "kind") != "Node" or not job_names.is_name(name):
        return None
    times = [moment(found, key) for key in ("lastTimestamp", "eventTime", "firstTimestamp")]
    return uid, NodeEvent(name, notice, next((at for at in times if at is not None), None))


def _tainted(spec: Fields, labels: Fields) -> Iterator[tuple[Notice, float | None]]:
    spot = any(text(labels, key) == "true" for key in _GKE_SPOT)
    leaving: Notice = "spot_interruption" if spot else "maintenance"
    for one in objects(spec, "taints"):
        key = text(one, "key")
        notice = leaving if key == _GKE_LEAVING else _TAINTS.get(key)
        if notice is not None:
            yield notice, moment(one, "timeAdded")
    label, ongoing = _GKE_MAINTENANCE
    if text(labels, label) == ongoing:
        yield "maintenance", None
    if flag(spec, "unschedulable"):
        yield "cordoned", None


def _held(status: Fields) -> Iterator[tuple[Notice, float | None]]:
    for one in objects(status, "conditions"):
        kind, holds = text(one, "type"), one.get("status") == "True"
        since = moment(one, "lastTransitionTime")
        if kind == "Ready" and not holds:
            yield "not_ready", since
        elif holds and kind in _CONDITIONS:
            yield _planned(one) if kind == _AZURE_PLAN else _CONDITIONS[kind], since


def _planned(found: Fields) -> Notice:
    """Return Azure's planned event, from a node's condition or its Event."""
    words = f"{text(found, 'reason')} {text(found, 'message')}".lower()
    return next((notice for word, notice in _PLANNED if word in words), "maintenance")
