"""A pod's membership in a job, and parsers of the numbers that launchers leave on pods."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope_agent.contract.job_names import is_name
from rankscope_agent.sources.pods.records import Pod

MAX_RANKS = 1 << 20
"""Numbers above a million are no ranks, sizes or indices: the largest jobs have some ten thousand
processes."""

_NUMBER = re.compile(r"\d{1,7}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Membership:
    """A pod's place in a job; None and empty text stand for unknown.

    Args:
        job: the job's name within its namespace.
        kind: of the job, as Kubernetes spells it: PyTorchJob, JobSet, Job...
        role: what the launcher calls this kind of pod: master, worker, launcher, head...
        trains: processes in it are ranks; false for parameter servers, launchers and the like.
        index: of the pod among those of its role.
        node_rank: of the pod among all pods that train. It is the rank of a process only where
            each pod runs one.
        rank: of the pod's one process; None where it may run several.
        world_size: processes of the job; None where the pod does not tell.
        local_world_size: processes of the pod; None where it is decided at start ("auto").
        attempt: restarts of the whole job that the launcher counts on its pods.
        elastic: the number of pods may change while it runs.
        elastic_pods: the least and the most of them; None where they are fixed or not known.
        max_restarts: how often torchrun starts the job's processes again; None where it is not
            said on the pod.
        source: where the numbers were found: environment, label, or none.
        queue: the queue that admitted it.
        gang: the group that is scheduled together.
        parent: what made the job, such as a CronJob, as kind/name.
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
    """Read a rank, size or index; None where the text is absent or is no such number."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if value < MAX_RANKS else None


def variable(pod: Pod, name: str) -> str | None:
    """Return a variable of the pod's containers; None where they disagree or none has it.

    Launchers set theirs on the container that trains or on all; a sidecar without it is no
    contradiction.
    """
    values = {c.environment[name] for c in pod.containers if name in c.environment}
    return values.pop() if len(values) == 1 else None


def label(pod: Pod, *names: str) -> str:
    """Return the first label, or annotation, that the pod carries under one of the names.

    Annotations may hold anything, as may labels of an API server that does not check them: what
    could not be a name counts as absent.
    """
    for name in names:
        for held in (pod.labels, pod.annotations):
            found = held.get(name)
            if found and is_name(found):
                return found
    return ""
