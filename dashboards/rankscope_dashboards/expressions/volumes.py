"""PromQL over persistent volumes of jobs' pods, from kube-state-metrics and the kubelets.

The claims of a pod are in `kube_pod_spec_volumes_persistentvolumeclaims_info`, their free space in
`kubelet_volume_stats_*` (kubernetes.io/docs/reference/instrumentation/metrics).
"""

from __future__ import annotations

from rankscope_agent.contract.metrics import summary
from rankscope_dashboards.expressions.joins import one_of
from rankscope_dashboards.expressions.promql import by, worst

KUBE_CLAIMS = "kube_pod_spec_volumes_persistentvolumeclaims_info"
AVAILABLE = "kubelet_volume_stats_available_bytes"
CAPACITY = "kubelet_volume_stats_capacity_bytes"

CLAIM = ("namespace", "persistentvolumeclaim")
POD = ("pod_namespace", "pod_name")


def claims(jobs: str = "", clusters: str = "") -> str:
    """Return the claims of jobs' pods, by job, always 1.

    Args:
        jobs: matchers of the jobs, "" for all.
        clusters: matchers of the claims likewise.
    """
    known = f"{KUBE_CLAIMS}{{{clusters}}}" if clusters else KUBE_CLAIMS
    for ours, theirs in (("pod_namespace", "namespace"), ("pod_name", "pod")):
        known = f'label_replace({known}, "{ours}", "$1", "{theirs}", "(.+)")'
    pods = f"{summary.POD_JOB_INFO.name}{{{jobs}}}" if jobs else summary.POD_JOB_INFO.name
    of_pods = one_of(worst(pods, "job_id", *POD), *POD)
    joined = f"{known} * on (cluster, {', '.join(POD)}) group_left (job_id) {of_pods}"
    return worst(joined, "job_id", *CLAIM)


def of_jobs(volumes: str, jobs: str = "", clusters: str = "") -> str:
    """Return series of volumes by claim for each job that has them."""
    least = f"min {by(*CLAIM)} ({volumes})"
    return f"{claims(jobs, clusters)} * on (cluster, {', '.join(CLAIM)}) group_left () {least}"
