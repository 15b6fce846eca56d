"""Why a job failed or was preempted, from the words that its controller uses."""

from __future__ import annotations

from rankscope_agent.contract import pod_reasons
from rankscope_analyzers.workloads.conditions import Condition
from rankscope_analyzers.workloads.state import Cause

# The first row whose word occurs in "reason message", in lower case, wins. Reasons are those of
# k8s.io/api/batch/v1, jobset api/jobset/v1alpha2, kueue apis/kueue, kuberay ray.io/v1, trainer
# pkg/apis/trainer, training-operator pkg/core and mpi-operator pkg/controller.
_WORDS: tuple[tuple[str, Cause], ...] = (
    ("deadlineexceeded", "deadline"),
    ("specified deadline", "deadline"),
    ("podsreadytimeout", "queue_timeout"),
    ("timeoutexceeded", "deadline"),
    ("deactivated", "deactivated"),
    ("inactiveworkload", "deactivated"),
    ("preempt", "preempted"),
    ("nodefailure", "node"),
    ("nodelost", "node"),
    ("evicted", "evicted"),
    ("oomkilled", "oom"),
    ("out of memory", "oom"),
    ("notsupported", "config"),
    ("validationfailed", "config"),
    ("invalid", "config"),
    ("submissionfailed", "config"),
    ("backofflimit", "retries"),
    ("backoff limit", "retries"),
    ("maxrestarts", "retries"),
    ("maxfailedindexes", "retries"),
    ("failedindexes", "retries"),
    ("appfailed", "application"),
    ("podfailurepolicy", "application"),
    ("failedjobs", "application"),
)

VAGUE: frozenset[Cause] = frozenset(("", "unknown", "retries", "application"))
"""Causes of which pods may show more."""

_PODS: dict[str, Cause] = {
    pod_reasons.OOM_KILLED: "oom",
    pod_reasons.ERROR: "application",
    pod_reasons.EVICTED: "evicted",
    "Preempting": "preempted",
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "node",
    "DeletionByPodGC": "node",
    "TerminationByKubelet": "node",
    "EvictionByEvictionAPI": "evicted",
    "NodeShutdown": "node",
    "NodeLost": "node",
    "NodeAffinity": "node",
    "UnexpectedAdmissionError": "node",
    "DeadlineExceeded": "deadline",
    "ContainerCannotRun": "config",
    "StartError": "config",
    "RunContainerError": "config",
    **dict.fromkeys(pod_reasons.CREATION_FAULTS, "config"),
    **dict.fromkeys(pod_reasons.IMAGE_FAULTS, "image"),
}


def of_condition(condition: Condition | None) -> Cause:
    """Return the cause in a condition, "unknown" if it has none."""
    if condition is None:
        return "unknown"
    return of_words(condition.reason, condition.message)


def of_words(reason: str, message: str = "") -> Cause:
    """Return the cause in a reason and a message, "unknown" if they have none."""
    words = f"{reason} {message}".lower()
    return next((cause for word, cause in _WORDS if word in words), "unknown")


def of_pod(reason: str) -> Cause:
    """Return the cause behind the reason of a pod or container, "unknown" for others."""
    return _PODS.get(reason, "unknown")
