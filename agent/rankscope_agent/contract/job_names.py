"""Valid job names: `namespace/name` in Kubernetes, and the names that a job's own pods may use.

A pod's owner chooses what its processes say. A job's name ends up in labels, mails and
commands that people copy, so that it has a few harmless characters, and a pod chooses it within its
own namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Reason = Literal["namespace", "form", "owner"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a name is refused: it is in another namespace, has characters or a length that no job's name
has, or outside of pods it is another user's job."""

MAX_NAME = 253
"""Characters of a name within its namespace: the longest name of an object in Kubernetes."""

MAX_JOB_ID = 320
"""Characters of a whole job_id: a namespace has 63 at most. A ring's header has as much room."""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._/:@-]{{0,{MAX_NAME - 1}}}")
_JOB_ID = re.compile(rf"[A-Za-z0-9._/:@-]{{1,{MAX_JOB_ID}}}")

# What probes call a job without a name; the hash is of where its ranks meet.
_UNNAMED = re.compile(r"local/[0-9a-f]{8}")


class JobNameError(ValueError):
    """A name is refused; `reason` is one of `REASONS`, the text says what was seen."""

    def __init__(self, reason: Reason, seen: str) -> None:
        super().__init__(seen)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class PodJob:
    """The job of a pod, and the pod's namespace; the latter is empty outside of pods."""

    job_id: str
    pod_namespace: str


def is_job_id(text: str) -> bool:
    """Return True if a text may be a job_id, of whatever origin."""
    return _JOB_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return True if a text may be the name of a job, queue or the like in Kubernetes."""
    return _NAME.fullmatch(text) is not None


def namespace_of(job_id: str) -> str:
    """Return the namespace that a job_id begins with; empty where it has no parts."""
    namespace, slash, _ = job_id.partition("/")
    return namespace if slash else ""


def within(namespace: str, stated: str) -> str:
    """Return the job_id of a pod's job that calls itself `stated`: `namespace/name`.

    Args:
        namespace: the pod's, as Kubernetes has it.
        stated: a name, which may have the namespace before it.

    Raises:
        JobNameError: it is the name of a job in another namespace, or no name.
    """
    own = f"{namespace}/"
    if "/" in stated and not stated.startswith(own) and not _UNNAMED.fullmatch(stated):
        shown = ascii(stated[:MAX_JOB_ID])
        raise JobNameError("namespace", f"job {shown} is not in the pod's namespace {namespace}")
    name = stated.removeprefix(own)
    if not is_name(name):
        shown = ascii(stated[:MAX_JOB_ID])
        raise JobNameError("form", f"{shown} is no name of a job: {MAX_NAME} of {_NAME.pattern}")
    return own + name
