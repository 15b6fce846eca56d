"""What one object of the cluster says of a job, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

State = Literal[
    "pending", "queued", "suspended", "running", "restarting", "succeeded", "failed", "unknown"
]
STATES: tuple[State, ...] = get_args(State)
"""`queued`: a queue has not admitted it yet; `suspended`: somebody or a queue has stopped it;
`unknown`: its status says nothing that is known here."""

Outcome = Literal["", "succeeded", "failed", "cancelled", "unobserved"]
"""How a job ended, empty while it goes on. `cancelled`: it was deleted, or stopped by its owner;
`unobserved`: it went away while nothing was watching."""

Cause = Literal[
    "",
    "oom",
    "application",
    "evicted",
    "preempted",
    "node",
    "image",
    "config",
    "deadline",
    "retries",
    "queue_timeout",
    "deactivated",
    "terminated",
    "unknown",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Why it failed. `config`: a secret, a config map, a volume or the job itself is not as it must be;
`retries`: it failed too often, and nothing says why; `terminated`: a policy of its own ended it."""

ReplicaState = Literal["wanted", "active", "succeeded", "failed"]
REPLICA_STATES: tuple[ReplicaState, ...] = get_args(ReplicaState)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Pods of one role, such as worker; None where the kind does not say."""

    role: str
    wanted: int | None = None
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What the spec and the status of an object say, by the rules of its kind.

    Args:
        state: of the job.
        outcome: how it ended, empty while it goes on.
        cause: why it failed, empty otherwise.
        replicas: pods by role.
        started: Unix time at which it was first started, None if it was not or nothing says.
        ended: Unix time of its end.
        attempt: restarts of the whole job, None if its kind does not count them.
        elastic: least and most replicas of an elastic job.
        suspended: it has to stand still.
        queue: name of its queue, empty without one.
        gang: pods that must be scheduled together, None if none need be.
        interrupted: why a queue took its place away last: preempted, evicted and so on.
        interruptions: how often it was taken away and queued again.
    """

    state: State
    outcome: Outcome = ""
    cause: Cause = ""
    replicas: tuple[Replicas, ...] = ()
    started: float | None = None
    ended: float | None = None
    attempt: int | None = None
    elastic: tuple[int, int] | None = None
    suspended: bool = False
    queue: str = ""
    gang: int | None = None
    interrupted: Cause = ""
    interruptions: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of an object."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """An object of the cluster at one moment.

    Args:
        kind: as the cluster calls it.
        namespace: that it is in.
        name: within the namespace; jobs made anew may have the name of an earlier one.
        uid: which is never given again.
        created: Unix time.
        job_class: whose objectives count for it.
        owner: its controller, None if it has none.
        progress: what its status says.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    created: float | None
    job_class: str
    owner: Owner | None = None
    progress: Progress = field(default_factory=lambda: Progress("unknown"))

    @property
    def job_id(self) -> str:
        """The job's name everywhere else."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Whether it ended."""
        return bool(self.progress.outcome)
