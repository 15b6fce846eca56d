"""A pod's membership in a job, and parsers of the numbers that launchers set on pods."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope_agent.contract.job_names import is_name
from rankscope_agent.sources.pods.records import Pod

MAX_RANKS = 1 << 20
"""Numbers above a million are not ranks, sizes or indices: the largest jobs have some ten thousand
processes."""

_NUMBER = re.compile(r"\d{1,7}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Membership:
    """A pod's membership in a job; None and empty text stand for unknown.

    Args:
        job: the job's name within its namespace.
        kind: kind of the job, as Kubernetes spells it: PyTorchJob, JobSet, Job...
        role: the launcher's name for this kind of pod: master, worker, launcher, head...
        trains: whether processes in it are ranks; false for parameter servers, launchers and the
            like.
        index: of the pod among those of its role.
        node_rank: of the pod among all training pods. It is the rank of a process only if each pod
            runs one.
        rank: of the pod's only process; None if it may run several.
        world_size: number of processes of the job; None if the pod does not show it.
        local_world_size: number of processes of the pod; None if it is decided at start ("auto").
        attempt: restarts of the whole job that the launcher counts on its pods.
        elastic: whether the number of pods may change while it runs.
        elastic_pods: their minimum and maximum; None if fixed or unknown.
        max_restarts: how often torchrun restarts the job's processes; None if not set on the pod.
        source: where the numbers were found: environment, label, or none.
        queue: the queue that admitted it.
        gang: the group that is scheduled together.
        parent: what created the job, such as a CronJob, as kind/name.
    """

    job: str
    kind: str
    role: str = ""
    trains: bool = True
    index: int | None = None
    node_rank: int | None = None
    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    attempt: int | None = None
    elastic: bool = False
    elastic_pods: tuple[int, int] | None = None
    max_restarts: int | None = None
    source: str = "none"
    queue: str = ""
    gang: str = ""
    parent: str = ""


def number(text: str | None) -> int | None:
    """Read a rank, size or index; return None if the text is absent or not such a number."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if value < MAX_RANKS else None


def variable(pod: Pod, name: str) -> str | None:
    """Return a variable of the pod's containers; None if they disagree or none has it.

    Launchers set theirs on the training container or on all; a sidecar without it does not
    contradict.
    """
    values = {c.environment[name] for c in pod.containers if name in c.environment}
    return values.pop() if len(values) == 1 else None


def label(pod: Pod, *names: str) -> str:
    """Return the first label or annotation that the pod has under one of the names.

    Annotations may contain anything, as may labels if the API server does not validate them: what
    is not a valid name counts as absent.
    """
    for name in names:
        for held in (pod.labels, pod.annotations):
            found = held.get(name)
            if found and is_name(found):
                return found
    return ""
