"""The name of a pod's job: Kubernetes' name, or the one that the pod gives in its namespace."""

from __future__ import annotations

from rankscope_agent.contract.job_names import JobNameError, within
from rankscope_agent.sources.pods.launchers import ill_named, job_id
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.records import Pod

VARIABLE = "RANKSCOPE_JOB_ID"
"""Names the job of a pod, in the pod's specification."""


def job_of_pod(pod: Pod, member: Membership | None) -> str | None:
    """Name a pod's job; None where Kubernetes knows of none and the pod names none itself.

    A name that the user gave in the pod's own variables goes first, if the pod may have it.
    """
    try:
        given = _stated_name(pod)
    except JobNameError:
        given = None
    return given or (job_id(pod, member) if member else None)


def refusal(pod: Pod) -> JobNameError | None:
    """Return what of a pod's names is not believed, None if all is."""
    try:
        _stated_name(pod)
    except JobNameError as error:
        return error
    odd = ill_named(pod)
    return JobNameError("form", odd) if odd else None


def _stated_name(pod: Pod) -> str | None:
    """Return the job that a pod's variables name; None where containers disagree or none has it.

    Raises:
        JobNameError: the pod may not have this name.
    """
    stated = {container.environment.get(VARIABLE, "") for container in pod.containers} - {""}
    return within(pod.namespace, stated.pop()) if len(stated) == 1 else None
