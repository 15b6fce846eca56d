"""Alerts about jobs whose pods do not run: failures, crash loops, images, secrets, preemptions.

A job has one of them for one fault: an alert mutes the alerts that it explains.
"""

from __future__ import annotations

from rankscope_agent.contract import pod_reasons
from rankscope_agent.contract.metrics import (
    cluster_jobs,
    job_logs,
    job_status,
)
from rankscope_dashboards.expressions.joins import with_owner
from rankscope_dashboards.expressions.promql import before, by, recent, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group
from rankscope_dashboards.rules.alerts.elastic import DEGRADED, GOES_ON, pods_in
from rankscope_dashboards.rules.alerts.preemptions import (
    AFTER_PREEMPTION,
    FAILED_SECONDS,
    FAILURES,
    PREEMPTIONS,
    TAKEN_AWAY,
    any_of,
)

LOOP_SEEN = "20m"
"""Longer than failures are news, so that the end of a crash loop does not count as a failure."""


def _waiting(*reasons: str) -> str:
    """Return how many pods of each job wait for a reason, of init containers or others."""
    chosen = any_of(pod_reasons.with_init(reasons))
    return f"sum {by('job_id')} ({records.JOB_WAITING}{{{chosen}}})"


_LOOP_REASONS = any_of(pod_reasons.with_init((pod_reasons.CRASH_LOOP,)))
_LOOPED = (
    f"group {by('job_id')} (max_over_time({records.JOB_WAITING}{{{_LOOP_REASONS}}}[{LOOP_SEEN}]))"
)
_NO_FAULT = "|".join(pod_reasons.STARTING)
_FAULTS = f'({records.JOB_WAITING}{{reason!~"{_NO_FAULT}"}} > 0)'
"""Pods that wait for something with its own alert."""


def _nodes_within(timestamps: str) -> str:
    """Return on how many nodes something recently happened to each job."""
    return f"count {by('job_id')} ({_lately(timestamps)})"


def _lately(timestamps: str) -> str:
    return recent(worst(timestamps, "node", "job_id"), FAILED_SECONDS)


FAILED_NOW = _nodes_within(FAILURES)
"""Jobs of which containers or pods failed within 15 minutes, and on how many nodes."""

_FAILING_BEFORE = recent(
    worst(before(FAILURES, f"{FAILED_SECONDS}s"), "node", "job_id"), 2 * FAILED_SECONDS
)
FAILED_ANEW = f"({FAILED_NOW} unless on (cluster, job_id) count {by('job_id')} ({_FAILING_BEFORE}))"
"""Those of which none failed in the 15 minutes before: what fails again and again since longer has
no cause in common with what fails now."""


_FAILED_OF_ITSELF = (
    f"count {by('job_id')} ({_lately(FAILURES)}"
    f" unless on (cluster, node, job_id) ({AFTER_PREEMPTION}))"
)
"""Likewise, without what follows from a preemption, which has an alert of its own."""


def _newest(more: str) -> str:
    """Return the newest failure of the job in words."""
    keys = "node, reason, detail"
    series = f"{job_status.JOB_LAST_FAILURE.name}{{cluster=%q,job_id=%q,{more}}}"
    return texts.known(
        f"topk(1, max by ({keys}) ({series}))",
        "Newest: {{ .Labels.reason }}{{ with .Labels.detail }} ({{ . }}){{ end }}"
        "{{ with .Labels.node }} on node {{ . }}{{ end }}.",
        *("cluster", "job_id"),
    )


_NEWEST_FAILURE = _newest(f'reason!~"{"|".join(pod_reasons.PREEMPTIONS)}"')
_NEWEST_PREEMPTION = _newest(any_of(pod_reasons.PREEMPTIONS))
_LOGGED = f'{job_logs.JOB_LOG_FAILURE.name}{{cluster=%q,job_id=%q,own="true"}}'
_FIRST_RANK = texts.known(
    f"bottomk(1, max by (node, cause, rank) ({_LOGGED}) > scalar(max({_LOGGED})) - 120)",
    "By its logs {{ with .Labels.rank }}rank {{ . }}{{ else }}a rank{{ end }}"
    "{{ with .Labels.node }} on node {{ . }}{{ end }} failed first: {{ .Labels.cause }}.",
    *("cluster", "job_id", "cluster", "job_id"),
)
"""Which rank failed first and why, of the newest attempt: shown only where logs contain it."""

_WAITS_FOR = texts.known(
    f'sum by (reason) ({records.JOB_WAITING}{{cluster=%q,job_id=%q,reason!~"{_NO_FAULT}"}} > 0)',
    "{{ .Value }} in {{ .Labels.reason }}.",
    *("cluster", "job_id"),
)
_PENDING_FOR = texts.known(
    f"max by (reason) ({cluster_jobs.JOB_PENDING.name}{{cluster=%q,job_id=%q}})",
    "By the cluster it waits for: {{ .Labels.reason }}.",
    *("cluster", "job_id"),
)
_QUOTA = texts.known(
    f"group by (quota) ({cluster_jobs.JOB_QUOTA_INFO.name}{{cluster=%q,job_id=%q}})",
    "Its quota is {{ .Labels.quota }}.",
    *("cluster", "job_id"),
)
_FOR_QUOTA = f'{cluster_jobs.JOB_PENDING.name}{{reason="quota"}}'
DAY_SECONDS = 86_400
# Agents see no pods that have no node; the watch does, with --cluster-jobs.
_WITHOUT_NODES = (
    f"({worst(cluster_jobs.JOB_UNSCHEDULED_PODS.name, 'job_id')}"
    f" and on (cluster, job_id) ({worst(cluster_jobs.JOB_WAITING_GPUS.name, 'job_id')} > 0))"
)


_WITHOUT_ANY_NODE = (
    f"({worst(cluster_jobs.JOB_UNSCHEDULED_PODS.name, 'job_id')} > 0)"
    f" unless on (cluster, job_id) ({worst(cluster_jobs.JOB_HELD_GPUS.name, 'job_id')} > 0)"
    f' unless on (cluster, job_id) {cluster_jobs.JOB_PENDING.name}{{reason="quota"}}'
)
"""Pods of jobs that have no node for any pod, although their queue has admitted them."""

WAITING_FOR_NODES = (
    f"({_WITHOUT_NODES} or {_WITHOUT_ANY_NODE}"
    f" unless on (cluster, job_id) ({pods_in('Running')} > 0)"
    f" unless on (cluster, job_id) {_FAULTS})"
)
"""Pods without a node of jobs that have an alert about them."""

WAITING: tuple[Alert, ...] = (
    Alert(
        name="RankscopeJobRequeued",
        expression=with_owner(
            f"({worst(cluster_jobs.JOB_INTERRUPTIONS.name, 'job_id')}"
            f" - min {by('job_id')} (min_over_time({cluster_jobs.JOB_INTERRUPTIONS.name}[6h]))"
            " >= 3)"
        ),
        hold="0s",
        keep="30m",
        why="A job that is preempted once or twice a day makes progress; three times within six"
        " hours it loses what it trains between two checkpoints.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} is evicted and queued again repeatedly",
        description=f"The queue of {texts.JOB} has evicted it {{{{ $value }}}} times within six"
        " hours, and queued it again." + _QUOTA,
        since="6h",
    ),
    Alert(
        name="RankscopeQuotaWait",
        expression=with_owner(f"({worst(_FOR_QUOTA, 'job_id')} > {DAY_SECONDS})"),
        hold="0s",
        keep="10m",
        why="Queues of a busy cluster are hours long; after a day its owner should know.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} has waited for its quota for a day",
        description=f"{texts.JOB} has been waiting for {{{{ $value | humanizeDuration }}}} for"
        " its queue to admit it." + _QUOTA,
    ),
)

STANDING: tuple[Alert, ...] = (
    Alert(
        name="RankscopePodFailed",
        expression=with_owner(
            f"({_FAILED_OF_ITSELF}) unless on (cluster, job_id) {_LOOPED}"
            f"\nunless on (cluster, job_id) {GOES_ON}"
        ),
        hold="1m",
        keep="30m",
        why="A container that fails again at once is in a crash loop within a minute, which has an"
        " alert of its own. Restarts with back-off take minutes; half an hour combines them into"
        " one notification. What fails within a quarter of an hour after pods were taken away, and"
        " before the job was started again, follows from that.",
        severity="by_class",
        scope="job",
        summary=f"Pods of {texts.JOB} failed",
        description=f"Pods of {texts.JOB} failed on {texts.number_of('node')} within 15 minutes."
        + _NEWEST_FAILURE
        + _FIRST_RANK
        + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeCrashLoop",
        expression=with_owner(f"({_waiting(pod_reasons.CRASH_LOOP)} > 0)"),
        hold="0s",
        keep="15m",
        why="Kubernetes has started a container again and it failed again. The agent counts a pod"
        " as in a crash loop until its containers have run for ten minutes.",
        severity="by_class",
        scope="job",
        summary=f"Containers of {texts.JOB} fail again and again",
        description=f"{texts.number_of('pod')} of {texts.JOB} {texts.by_number('is', 'are')} in a"
        " crash loop: Kubernetes starts a container again, and it fails again."
        + _NEWEST_FAILURE
        + _FIRST_RANK
        + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeImagePullFailing",
        expression=with_owner(f"({_waiting(*pod_reasons.IMAGE_FAULTS)} > 0)"),
        hold="2m",
        keep="10m",
        why="A registry that is busy answers at the second or third request, within two minutes.",
        severity="by_class",
        scope="job",
        summary=f"Nodes cannot pull an image of {texts.JOB}",
        description=f"{texts.number_of('pod')} of {texts.JOB} {texts.by_number('waits', 'wait')}"
        " for an image that cannot be pulled:" + _WAITS_FOR,
    ),
    Alert(
        name="RankscopeContainerNotCreated",
        expression=with_owner(f"({_waiting(*pod_reasons.CREATION_FAULTS)} > 0)"),
        hold="1m",
        keep="10m",
        why="A secret or config map that is made together with the job may come a moment later.",
        severity="by_class",
        scope="job",
        summary=f"Containers of {texts.JOB} cannot be created",
        description=f"{texts.number_of('pod')} of {texts.JOB} {texts.by_number('has', 'have')} a"
        " container that cannot be created, usually because a secret or config map is missing:"
        + _WAITS_FOR,
    ),
    Alert(
        name="RankscopeJobPreempted",
        expression=with_owner(f"({_nodes_within(PREEMPTIONS)})"),
        hold="0s",
        keep="30m",
        why="Pods of one job are taken away within minutes of each other; half an hour combines"
        " them into one notification.",
        severity="by_class",
        scope="job",
        summary=f"Pods of {texts.JOB} were taken away",
        description=f"Pods of {texts.JOB} were taken away from {texts.number_of('node')} within 15"
        " minutes, for others or because the node is drained: no fault of the job."
        + _NEWEST_PREEMPTION,
    ),
    Alert(
        name="RankscopeJobPending",
        expression=with_owner(
            f"(({pods_in('Pending')} > 0 or {_WITHOUT_ANY_NODE})"
            f" unless on (cluster, job_id) ({pods_in('Running')} > 0)"
            f" unless on (cluster, job_id) {_FAULTS})"
        ),
        hold="30m",
        keep="10m",
        why="Images of tens of gigabytes take up to half an hour on a cold node.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} does not start",
        description=f"{texts.number_of('pod')} of {texts.JOB} {texts.by_number('is', 'are')}"
        " pending and none runs: they lack a node, volumes or devices, or pull a large image."
        + _PENDING_FOR,
    ),
    Alert(
        name="RankscopeGangPartial",
        expression=with_owner(
            f"(({pods_in('Pending')} > 0) and on (cluster, job_id) ({pods_in('Running')} > 0)"
            f" unless on (cluster, job_id) {_FAULTS}\nor {_WITHOUT_NODES})"
        ),
        hold="15m",
        keep="10m",
        why="The last node of a gang pulls its image while the others wait; after 15 minutes"
        " of idle GPUs it is worth a look.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} waits for some of its pods",
        description=f"{texts.number_of('pod')} of {texts.JOB} {texts.by_number('is', 'are')}"
        " pending while others run and hold their GPUs.",
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-job-status", (*STANDING, DEGRADED, TAKEN_AWAY, *WAITING)),
)
