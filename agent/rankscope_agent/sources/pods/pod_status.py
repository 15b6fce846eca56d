"""Why a pod does not run, from its status: waiting containers, failures, disruptions; pure.

Only words of closed vocabularies are kept (contract/pod_reasons.py). What ended because its pod was
deleted or disrupted has not failed: the kubelet ends containers with SIGTERM, then with SIGKILL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract import pod_reasons
from rankscope_agent.sources.pods.json_fields import (
    count_of,
    mapping_of,
    mappings_of,
    moment_of,
    text_of,
)

_WITH_INIT: Mapping[str, str] = {
    reason: pod_reasons.INIT + reason
    for reason in (
        *pod_reasons.WAITING.values(),
        *pod_reasons.TERMINATED.values(),
        pod_reasons.OTHER,
    )
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a container or a pod, or the disruption of a pod.

    Args:
        reason: a word of `contract.pod_reasons`.
        detail: the class of the exit code, or what disrupts the pod; empty if neither is known.
        unix_seconds: its time, by the writer's clock; 0 if unknown.
    """

    reason: str
    detail: str
    unix_seconds: float


def waiting_reason(status: Mapping[str, Any], *, init: bool) -> str:
    """Return why a container waits; empty if it does not wait or there is no reason."""
    reason = text_of(mapping_of(mapping_of(status.get("state")).get("waiting")).get("reason"))
    if not reason:
        return ""
    found = pod_reasons.WAITING.get(reason, pod_reasons.OTHER)
    return _WITH_INIT[found] if init and found not in pod_reasons.STARTING else found


def container_failure(status: Mapping[str, Any], *, init: bool, until: float) -> Failure | None:
    """Return a container's newest failure, of its current or its previous state.

    Args:
        status: of the container.
        init: whether it is an init container.
        until: Unix time from which an end is not a failure but the end of the pod; running out of
            memory is a failure all the same.
    """
    for key in ("state", "lastState"):
        ended = mapping_of(mapping_of(status.get(key)).get("terminated"))
        code = count_of(ended.get("exitCode"))
        reason = text_of(ended.get("reason"))
        at = moment_of(ended.get("finishedAt"))
        if not ended or (code == 0 and reason not in pod_reasons.TERMINATED):
            continue
        if at >= until and reason != pod_reasons.OOM_KILLED:
            continue
        found = pod_reasons.TERMINATED.get(reason, pod_reasons.OTHER)
        detail = pod_reasons.exit_class(code)
        return Failure(_WITH_INIT[found] if init else found, detail, at)
    return None


def pod_failure(status: Mapping[str, Any]) -> Failure | None:
    """Return why a pod failed as a whole; None if it did not, or if its containers did."""
    reason = text_of(status.get("reason"))
    if text_of(status.get("phase")) != "Failed" or not reason:
        return None
    named = pod_reasons.POD_FAILURES.get(reason)
    if named is None and reason.startswith(pod_reasons.OUT_OF):
        named = pod_reasons.OUT_OF_RESOURCE
    return Failure(named or pod_reasons.OTHER, "", _last_transition(status))


def disruption(status: Mapping[str, Any]) -> Failure | None:
    """Return what evicts a pod from its node; a kubelet that evicts it fails it as a whole."""
    for condition in mappings_of(status.get("conditions")):
        if condition.get("type") != pod_reasons.DISRUPTED or condition.get("status") != "True":
            continue
        who = text_of(condition.get("reason"))
        if who == "TerminationByKubelet" and text_of(status.get("reason")):
            return None
        detail = who if who in pod_reasons.DISRUPTIONS else pod_reasons.OTHER
        at = moment_of(condition.get("lastTransitionTime"))
        return Failure(pod_reasons.DISRUPTED, detail, at)
    return None


def _last_transition(status: Mapping[str, Any]) -> float:
    """Return when a pod's status last changed; 0 if none of its parts has a time."""
    conditions = mappings_of(status.get("conditions"))
    times = [moment_of(condition.get("lastTransitionTime")) for condition in conditions]
    for container in mappings_of(status.get("containerStatuses")):
        ended = mapping_of(mapping_of(container.get("state")).get("terminated"))
        times.append(moment_of(ended.get("finishedAt")))
    return max(times, default=0.0) or moment_of(status.get("startTime"))
