"""PromQL building blocks of panels: selections by variables, the worst few, ranks of GPUs."""

from __future__ import annotations

from rankscope_agent.contract.metrics import gpus, training, watch
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.expressions.joins import one_of, with_culprit, with_rank_of_gpu
from rankscope_dashboards.expressions.promql import by, worst

CLUSTER = 'cluster=~"$cluster"'
JOB = f'{CLUSTER},job_id=~"$job_id"'
NODE = f'{CLUSTER},node=~"$node"'
PLACE = f'{JOB},node=~"$node"'
"""Series about ranks of a job, on the chosen nodes: Prometheus adds its target's node to them."""

RANK = f'{PLACE},rank=~"$rank"'

GPU_KEY = ("node", "gpu", "uuid")

FEW = 10
"""Lines that one can still distinguish in a panel."""

MANY = 20
"""The most that any panel draws."""

UNMEASURED = -1
"""Stands for a share that was not measured, and is less than any that was. NaN would do in
Prometheus, but VictoriaMetrics leaves out series whose value is NaN."""


def of(metric: Metric, chosen: str, more: str = "", part: str = "") -> str:
    """Return a selector of a metric: the variables' choices, and more matchers.

    Args:
        metric: of the series.
        chosen: one of CLUSTER, JOB, NODE, PLACE and RANK.
        more: further matchers.
        part: of a histogram: `_bucket`, `_sum` or `_count`.
    """
    return f"{metric.name}{part}{{{chosen}{',' if more else ''}{more}}}"


def rate(selector: str) -> str:
    """Return growth per second at each point of a panel."""
    return f"rate({selector}[$__rate_interval])"


def whole(function: str, selector: str) -> str:
    """Return a function over the panel's whole time range, the same at each of its points."""
    return f"{function}({selector}[$__range] @ end())"


def largest_rates(count: int, selector: str, *labels: str) -> str:
    """Return rates of the groups that grew most in the time range.

    A bare topk chooses again at each point, so that many more than `count` lines are drawn. Groups
    that are not chosen are dropped before the rest is summed, which is most of the work.
    """
    order = f"sum {by(*labels)} ({whole('rate', selector)})"
    chosen = f"on (cluster, {', '.join(labels)}) topk({count}, {order})"
    return f"sum {by(*labels)} ({rate(selector)} and {chosen})"


def largest(count: int, selector: str, *labels: str) -> str:
    """Return values of the groups whose value was largest in the time range."""
    order = worst(whole("max_over_time", selector), *labels)
    return worst(
        f"{selector} and on (cluster, {', '.join(labels)}) topk({count}, {order})", *labels
    )


def growth(selector: str) -> str:
    """Return the counts in the time range, where anything was counted."""
    return f"(increase({selector}[$__range]) > 0)"


def chosen_ranks(expression: str) -> str:
    """Keep the chosen ranks in results about all ranks of a job."""
    known = f"last_over_time({of(training.STEPS, RANK)}[$__range])"
    return f"({expression}) and on (cluster, job_id, rank) {known}"


def gpus_with(chosen: str, *metrics: Metric) -> str:
    """Return the GPUs for which any of these is not zero, each once."""
    each = (f"({worst(of(metric, chosen), *GPU_KEY)} > 0)" for metric in metrics)
    return f"({' or '.join(each)})"


def job_nodes(expression: str) -> str:
    """Keep results on nodes that ranks of the chosen job run on."""
    return f"({expression}) and on (cluster, node) group {by('node')} ({_placed()})"


def job_pods(expression: str) -> str:
    """Keep results on pods that ranks of the chosen job run in.

    If an agent does not know its ranks' pods, all pods of their nodes are kept.
    """
    pod = ("node", "pod_namespace", "pod_name")
    named = 'pod_name!=""'
    known = f"group {by(*pod)} ({_placed(named)})"
    of_pods = f"({expression}) and on (cluster, {', '.join(pod)}) {known}"
    of_nodes = f"({job_nodes(expression)}) unless on (cluster, node) {known}"
    return f"({of_pods} or ({of_nodes}))"


def _placed(more: str = "") -> str:
    """Return where the chosen ranks ran in the time range, including those that ended."""
    return whole("last_over_time", of(training.RANK_INFO, RANK, more))


def with_rank(expression: str) -> str:
    """Add `rank` to series of GPUs: by uuid if it is known, else by the rank's local number.

    Which rank has which GPU is looked up once for all points of a panel.
    """
    unknown = _placed('uuid=""')
    numbered = f'label_replace({unknown}, "gpu", "$1", "local_rank", "(.+)")'
    info = of(gpus.GPU_INFO, NODE)
    # The present number counts: it may have changed when another GPU was lost.
    present, earlier = (
        worst(one, *GPU_KEY) for one in (f"{info} @ end()", whole("last_over_time", info))
    )
    known = f"({present} or on (cluster, node, uuid) {earlier})"
    return with_rank_of_gpu(expression, _placed('uuid!=""'), numbered, known)


def stages() -> str:
    """Return the stage of each rank of the chosen jobs, always 1.

    For a while, two agents report a rank that was restarted on another node, and its process there
    may have ended before it knew its stage: the living one counts.
    """
    key = ("job_id", "rank")
    alive = worst(of(training.RANK_ALIVE, JOB), "node", *key)
    reported = f"{of(training.RANK_INFO, JOB)} * on (cluster, node, {', '.join(key)}) group_left ()"
    newest = one_of(worst(f"{reported} {alive}", *key, "pp_stage"), *key)
    return f"group {by(*key, 'pp_stage')} ({newest})"


def with_clusters(expression: str) -> str:
    """Add `clusters`: the cluster or, for series without that label, Grafana's word for all.

    Links use it, as a label that may be missing cannot be named in a link.
    """
    every = f'label_replace({expression}, "clusters", "All", "cluster", "")'
    return f'label_replace({every}, "clusters", "$1", "cluster", "(.+)")'


def findings(jobs: str) -> str:
    """Return the fraction of step time that active findings cost, with their culprits.

    If step times do not show the cost of a finding, its value is `UNMEASURED`.
    """
    lost = worst(of(watch.FINDING_LOST_FRACTION, jobs), "job_id", "kind")
    culprit_labels = ("job_id", "kind", "symptom", "rank", "node", "gpu", "device", "runbook")
    every = worst(of(watch.FINDING_CULPRIT_INFO, jobs), *culprit_labels)
    culprit = one_of(every, "job_id", "kind")
    page = f'label_replace({culprit}, "runbook", "$1", "runbook", "(?:.*/)?([^/]+)[.]md")'
    return (
        f"topk({MANY}, {with_culprit(lost, culprit_labels[2:], page)}"
        f" or ({page} unless on (cluster, job_id, kind) {lost}) * {UNMEASURED})"
    )
