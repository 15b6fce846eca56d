"""Variables, annotations and columns that several dashboards share."""

from __future__ import annotations

from rankscope_agent.contract.metrics import agent, gpus, kernel_log, pods, training, watch
from rankscope_dashboards.expressions.promql import worst
from rankscope_dashboards.expressions.queries import (
    CLUSTER,
    JOB,
    NODE,
    PLACE,
    UNMEASURED,
    job_nodes,
    of,
)
from rankscope_dashboards.parts import links
from rankscope_dashboards.parts.dashboard import Variable, annotation
from rankscope_dashboards.parts.fields import override
from rankscope_dashboards.parts.panels import BAD, GOOD, NEUTRAL, WARN, Json, Target, link, targets
from rankscope_dashboards.rules.recording_rules import QUANTILES

# kube-state-metrics' names, as its documentation lists them.
KUBE_RESTARTS = "kube_pod_container_status_restarts_total"
KUBE_NODE_CONDITION = "kube_node_status_condition"

NO_WATCH = "no findings: nothing is wrong, or no watch is scraped that reads any data"
NO_AGENT = "no series: Prometheus does not scrape rankscope-agent here"
NO_STEPS = "no steps: no job with the probe in this time range"
NO_GPUS = "no GPU series: agents have no GPU source, or Prometheus does not scrape them"
NO_NCCL = "no NCCL log: set NCCL_DEBUG=INFO in the job"
NO_RDMA = "no RDMA port on these nodes, or Prometheus does not scrape their agents"
NO_RAILS = "no RDMA port, no agent is scraped, or the port nearest to a GPU is unknown"


def quantiles(buckets: str) -> list[Target]:
    """Return the queries of the usual quantiles of a histogram's buckets."""
    return targets(
        *((f"histogram_quantile({value}, {buckets})", name) for name, value in QUANTILES.items())
    )


def data_source() -> Variable:
    """Return the variable of the Prometheus to query."""
    return Variable(name="datasource", label="Data source", query="prometheus", type="datasource")


def cluster() -> Variable:
    """Return the variable of clusters; all of them includes data without that label."""
    query = f"label_values({agent.BUILD_INFO.name}, cluster)"
    return Variable(name="cluster", label="Cluster", query=query, includeAll=True, multi=True)


def job_id(every: bool) -> Variable:
    """Return the variable of jobs: all of them at first, or the first one."""
    query = f"label_values({of(training.RANK_ALIVE, CLUSTER)}, job_id)"
    return Variable(name="job_id", label="Job", query=query, includeAll=every, multi=True)


def node(jobs: bool) -> Variable:
    """Return the variable of nodes: those of the chosen job, or all."""
    metric = of(training.RANK_INFO, JOB) if jobs else of(agent.BUILD_INFO, CLUSTER)
    query = f"label_values({metric}, node)"
    return Variable(name="node", label="Node", query=query, includeAll=True, multi=True)


def rank() -> Variable:
    """Return the variable of the chosen job's ranks on the chosen nodes."""
    query = f"label_values({of(training.RANK_ALIVE, PLACE)}, rank)"
    return Variable(name="rank", label="Rank", query=query, includeAll=True, multi=True)


def of_a_job() -> list[Variable]:
    """Return the variables of a dashboard of one job."""
    return [data_source(), cluster(), job_id(every=False), node(jobs=True), rank()]


def xids() -> str:
    """Return when Xids of the chosen nodes last occurred: by the kernel log, else by the driver."""
    driver = worst(of(gpus.GPU_XID_TIMESTAMP, NODE), "node", "gpu", "uuid", "xid")
    logged = worst(of(kernel_log.XID_LAST, NODE), "node", "gpu", "uuid", "xid", "action")
    return f"({logged} or on (cluster, node, gpu, xid) {driver})"


def marks(seen: str) -> list[Json]:
    """Return marks of Xids, and of the beginning and end of the chosen jobs' incidents.

    Args:
        seen: the result of `xids`, or a part of it.
    """
    xid = worst(seen, "node", "gpu", "xid")
    since = worst(of(watch.FINDING_SINCE, JOB), "job_id", "kind")
    over = worst(of(watch.FINDING_RECOVERED, JOB), "job_id", "kind")
    return [
        annotation("Xids", f"{xid} * 1000", "Xid {{xid}}", "GPU {{gpu}} of {{node}}", BAD),
        annotation("Incidents", f"{since} * 1000", "{{kind}}", "job {{job_id}}", WARN),
        annotation("Recoveries", f"{over} * 1000", "{{kind}} is over", "job {{job_id}}", GOOD),
    ]


CLUSTER_COLUMN = {"cluster": "cluster"}
"""Absent if series lack that label."""

JOB_COLUMNS = {**CLUSTER_COLUMN, "clusters": "clusters", "job_id": "job_id"}
"""`clusters` is only for links, see `with_clusters`."""

HIDDEN = {"hideFrom": {"viz": True, "legend": True, "tooltip": True}}


def restarts(of_pods: str = "") -> Json:
    """Return marks of container restarts.

    Args:
        of_pods: series with pod_namespace and pod_name of those that count; empty for all.
    """
    restarted = f"{KUBE_RESTARTS}{{{CLUSTER}}}"
    # Compared with the previous point: seen once each, however rarely it is scraped or queried.
    restarted = f"({restarted} > {restarted} offset $__interval)"
    if of_pods:
        known = f'label_replace({of_pods}, "namespace", "$1", "pod_namespace", "(.+)")'
        known = f'label_replace({known}, "pod", "$1", "pod_name", "(.+)")'
        restarted = f"{restarted} and on (cluster, namespace, pod) {known}"
    times = f"timestamp({restarted}) * 1000"
    return annotation("Restarts", times, "Container restart", "{{namespace}}/{{pod}}", WARN)


def marks_of_a_job() -> list[Json]:
    """Return marks of Xids of its nodes, of its incidents and of restarts of its containers."""
    return [*marks(job_nodes(xids())), restarts(of(pods.GPU_ALLOCATION_INFO, JOB))]


FINDING_COLUMNS = {
    "kind": "cause",
    "symptom": "step times show",
    "rank": "rank",
    "node": "node",
    "gpu": "GPU",
    "device": "device",
    "Value": "step time lost",
    "runbook": "runbook",
}

FINDING_WIDTHS = {"rank": 60, "GPU": 50, "device": 80, "step time lost": 135, "runbook": 240}
"""Pixels, so that names of nodes and causes fit at a width of 1280."""


def to_debug() -> list[Json]:
    """Return the link from a job's name to its debug dashboard, and hide its columns."""
    title, url = links.TO_DEBUG
    return [
        override("job_id", {"links": [link(title, url)]}),
        override("clusters", {f"custom.{name}": value for name, value in HIDDEN.items()}),
    ]


def finding_fields(runbooks: str) -> list[Json]:
    """Return units, words and links of the table of findings."""
    to_runbook = {"title": "${__value.raw}", "url": f"{runbooks}/${{__value.raw}}.md"}
    unknown = {str(UNMEASURED): {"text": "not measured", "color": NEUTRAL, "index": 0}}
    return [
        override(
            "step time lost",
            {
                "unit": "percentunit",
                "custom.cellOptions": {"type": "color-text"},
                "mappings": [{"type": "value", "options": unknown}],
            },
        ),
        override("runbook", {"links": [{**to_runbook, "targetBlank": True}]}),
    ]
