"""The words for why pods wait, fail or are taken away: closed vocabularies, as they are labels.

They are those that `kubectl get pods` shows, so that people find them in Kubernetes' own manual;
`Init:` stands before what happens to an init container.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

INIT = "Init:"
OTHER = "other"

CRASH_LOOP = "CrashLoopBackOff"
IMAGE_PULL = "ImagePullBackOff"
CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"

IMAGE_FAULTS = (IMAGE_PULL, "InvalidImageName", "ErrImageNeverPull")
"""Waiting reasons of containers whose image does not come."""

CREATION_FAULTS = ("CreateContainerConfigError", "CreateContainerError")
"""Waiting reasons of containers that cannot be made: a secret, a config map or a volume is missing,
or the runtime does not take what the pod asks for."""

STARTING = (CREATING, INITIALIZING)
"""Waiting reasons of each pod that starts."""

WAITING: Mapping[str, str] = {
    **{reason: reason for reason in (CRASH_LOOP, *IMAGE_FAULTS, *CREATION_FAULTS, *STARTING)},
    # The kubelet alternates between the failed pull and the pause after it: one state for people.
    **dict.fromkeys(
        ("ErrImagePull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
        IMAGE_PULL,
    ),
    "RunContainerError": "RunContainerError",
}
"""Reasons of waiting containers (kubelet pkg/kubelet/kuberuntime and pkg/kubelet/images/types.go),
and what each of them is called here."""

OOM_KILLED, ERROR = "OOMKilled", "Error"

TERMINATED: Mapping[str, str] = {
    reason: reason
    for reason in (
        *(OOM_KILLED, ERROR, "ContainerCannotRun", "StartError", "DeadlineExceeded"),
        "ContainerStatusUnknown",
    )
}
"""Reasons of containers that ended with a failure."""

EVICTED = "Evicted"
DISRUPTED = "DisruptionTarget"

POD_FAILURES: Mapping[str, str] = {
    **{
        reason: reason
        for reason in (
            *(EVICTED, "Preempting", "NodeShutdown", "NodeLost", "NodeAffinity"),
            *("DeadlineExceeded", "UnexpectedAdmissionError", "TopologyAffinityError"),
        )
    },
    # What a kubelet that shuts its node down gracefully has written since Kubernetes 1.22.
    "Terminated": "NodeShutdown",
    "Shutdown": "NodeShutdown",
}
"""Reasons of pods that failed as a whole (kubelet pkg/kubelet/{eviction,lifecycle,nodeshutdown});
those that begin with OutOf name a resource that the node did not have."""

OUT_OF = "OutOf"
OUT_OF_RESOURCE = "OutOfResource"

PREEMPTIONS = (DISRUPTED, "Preempting")
"""Reasons of pods that were taken away for others: no fault of theirs."""

DISRUPTIONS = frozenset(
    (
        *("PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI"),
        *("DeletionByPodGC", "TerminationByKubelet"),
    )
)
"""Reasons of the condition DisruptionTarget (k8s.io/api/core/v1/types.go)."""

NO_FAULT = "completed"
NOT_EXECUTABLE, NOT_FOUND = 126, 127
SIGNALLED = 128
"""Shells and runtimes add the number of the signal that ended a process to it."""

_MAX_APPLICATION = 125
_CLASSES: Mapping[int, str] = {
    0: NO_FAULT,
    NOT_EXECUTABLE: "not_executable",
    NOT_FOUND: "not_found",
    **{
        SIGNALLED + number: number.name.lower()
        for number in (
            *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGINT),
            *(signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM),
        )
    },
}
_MAX_SIGNAL = 64


def exit_class(code: int) -> str:
    """Return what kind of end an exit code is: by a signal, by the application, by the runtime."""
    found = _CLASSES.get(code)
    if found:
        return found
    if SIGNALLED < code <= SIGNALLED + _MAX_SIGNAL:
        return "signal"
    return "application" if 0 < code <= _MAX_APPLICATION else OTHER


def with_init(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return reasons of containers, and the same of init containers."""
    chosen = tuple(reasons)
    return (*chosen, *(INIT + reason for reason in chosen))
