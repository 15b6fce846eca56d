"""Valid job names: `namespace/name` in Kubernetes, and the names that a job's own pods may use.

The owner of a pod chooses what its processes say. A job's name ends up in labels, mails and
commands that people copy, so it is limited to a few harmless characters, and a pod can only choose
it within its own namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Reason = Literal["namespace", "form", "owner", "unreadable"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a name is rejected: it belongs to another namespace, has characters or a length that no job
name has, belongs, outside of pods, to another user's job, or what the pod says of its job cannot be
read."""

MAX_NAME = 253
"""Maximum length of a name within its namespace: that of an object name in Kubernetes."""

MAX_JOB_ID = 320
"""Maximum length of a whole job_id: a namespace has at most 63. A ring's header reserves this
much."""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._/:@-]{{0,{MAX_NAME - 1}}}")
_JOB_ID = re.compile(rf"[A-Za-z0-9._/:@-]{{1,{MAX_JOB_ID}}}")

# What probes call a step of a SLURM job: its number, in a pod after the namespace, and the step's.
_SLURM_STEP = re.compile(r"((?:[^/]+/)?\d{1,10})\.\d{1,9}")

# What probes call a job without a name; the hash is that of its master address.
_UNNAMED = re.compile(r"local/[0-9a-f]{8}")


class JobNameError(ValueError):
    """A rejected name; `reason` is one of `REASONS`, the text says what was seen."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class PodJob:
    """The job of a pod and the pod's namespace, which is empty outside of pods."""

    job_id: str
    pod_namespace: str


def is_job_id(text: str) -> bool:
    """Return True if a text is a valid job_id, from whatever source."""
    return _JOB_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return True if a text is a valid name of a job, queue or the like in Kubernetes."""
    return _NAME.fullmatch(text) is not None


def namespace_of(job_id: str) -> str:
    """Return the namespace with which a job_id begins; empty if it has none."""
    namespace, slash, _ = job_id.partition("/")
    return namespace if slash else ""


def without_step(job_id: str) -> str:
    """Return the name of the SLURM job of which a job is a step; any other name as it is."""
    step = _SLURM_STEP.fullmatch(job_id)
    return step[1] if step else job_id


def within(namespace: str, stated: str) -> str:
    """Return the job_id, `namespace/name`, of a pod's job that calls itself `stated`.

    Args:
        namespace: the pod's, according to Kubernetes.
        stated: a name, optionally preceded by the namespace.

    Raises:
        JobNameError: the job is in another namespace, or the name is invalid.
    """
    own = f"{namespace}/"
    if "/" in stated and not stated.startswith(own) and not _UNNAMED.fullmatch(stated):
        shown = ascii(stated[:MAX_JOB_ID])
        raise JobNameError("namespace", f"job {shown} is not in the pod's namespace {namespace}")
    name = stated.removeprefix(own)
    if not is_name(name):
        shown = ascii(stated[:MAX_JOB_ID])
        raise JobNameError("form", f"{shown} is not a job name: {MAX_NAME} of {_NAME.pattern}")
    return own + name
