"""The state of a job according to one object of the cluster, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

State = Literal[
    "pending", "queued", "suspended", "running", "restarting", "succeeded", "failed", "unknown"
]
STATES: tuple[State, ...] = get_args(State)
"""`queued`: a queue has not admitted it yet; `suspended`: a user or a queue has stopped it;
`unknown`: its status holds nothing that is known here."""

Outcome = Literal["", "succeeded", "failed", "cancelled", "unobserved"]
"""How a job ended, empty while it is active. `cancelled`: it was deleted, or stopped by its owner;
`unobserved`: it disappeared while nothing was watching."""

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
"""Why it failed. `config`: a secret, a config map, a volume or the job itself is invalid;
`retries`: it failed too often, for no stated reason; `terminated`: its own policy ended it."""

ReplicaState = Literal["wanted", "active", "succeeded", "failed"]
REPLICA_STATES: tuple[ReplicaState, ...] = get_args(ReplicaState)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Pods of one role, such as worker; None if the kind does not count them."""

    role: str
    wanted: int | None = None
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The content of an object's spec and status, by the rules of its kind.

    Args:
        state: of the job.
        outcome: how it ended, empty while it is active.
        cause: why it failed, empty otherwise.
        replicas: pods by role.
        started: Unix time at which it was first started, None if it was not or if unknown.
        ended: Unix time of its end.
        attempt: restarts of the whole job, None if its kind does not count them.
        elastic: minimum and maximum replicas of an elastic job.
        suspended: True if it is to be suspended.
        queue: name of its queue, empty without one.
        gang: pods that must be scheduled together, None if none need be.
        interrupted: why a queue last evicted it: preempted, evicted and so on.
        interruptions: how often it was evicted and queued again, None where no queue counts it.
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
    interruptions: int | None = None


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
        kind: its name in the API.
        namespace: that it is in.
        name: within the namespace; a job that is created again may have the name of an earlier one.
        uid: unique over time.
        created: Unix time.
        job_class: class of objectives that apply to it.
        owner: its controller, None if it has none.
        progress: from its status.
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
        """Return the job's name in all series."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Return True if it ended."""
        return bool(self.progress.outcome)
