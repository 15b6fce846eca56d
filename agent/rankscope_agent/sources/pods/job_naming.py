"""The name of a pod's job: Kubernetes' name, or one that the pod chooses within its namespace."""

from __future__ import annotations

from rankscope_agent.contract.job_names import JobNameError, within
from rankscope_agent.sources.pods.launchers import ill_named, job_id
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.records import Pod

VARIABLE = "RANKSCOPE_JOB_ID"
"""The variable in a pod's specification that names its job."""


def job_of_pod(pod: Pod, member: Membership | None) -> str | None:
    """Return a pod's job; None if Kubernetes knows of none and the pod names none.

    A name that the user set in the pod's own variables takes precedence, if the pod may use it.
    """
    try:
        given = _stated_name(pod)
    except JobNameError:
        given = None
    return given or (job_id(pod, member) if member else None)


def refusal(pod: Pod) -> JobNameError | None:
    """Return the name of a pod that is rejected; None if all names are accepted."""
    try:
        _stated_name(pod)
    except JobNameError as error:
        return error
    odd = ill_named(pod)
    return JobNameError("form", odd) if odd else None


def _stated_name(pod: Pod) -> str | None:
    """Return the job that a pod's variables name; None if containers disagree or none names one.

    Raises:
        JobNameError: the pod may not use this name.
    """
    stated = {container.environment.get(VARIABLE, "") for container in pod.containers} - {""}
    return within(pod.namespace, stated.pop()) if len(stated) == 1 else None
