"""Alerts about the cluster as a whole and about Rankscope itself."""

from __future__ import annotations

from rankscope_agent.contract.metrics import agent, pods, training, watch
from rankscope_dashboards.expressions.promql import by, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group
from rankscope_dashboards.rules.alerts.job_status import FAILED_ANEW, FAILED_NOW, WAITING_FOR_NODES
from rankscope_dashboards.rules.alerts.limits import limit
from rankscope_dashboards.rules.alerts.lost_time import BURNS

ERRORS_WITHIN = "15m"
"""Thirty evaluations at the default interval: an alert that ends before anyone looks at the job
that it names is useless."""

_RAISED_FOR = texts.known(
    f"topk(5, max by (job_id) ({watch.JOB_ANALYSIS_ERRORS.name}{{cluster=%q}}) > 0)",
    "Job {{ .Labels.job_id }} is affected.",
    "cluster",
)

AGENT_MEMORY = "1h"
"""How long a missing agent is reported if kube-state-metrics does not know its node."""

_GPU_RESOURCES = 'resource=~"nvidia_com_(gpu|mig_).*"'
"""Whole, shared (nvidia.com/gpu.shared) and split GPUs, in kube-state-metrics' spelling."""

_GPU_NODES = f"kube_node_status_allocatable{{{_GPU_RESOURCES}}} > 0"
_WAS_THERE = f"last_over_time({agent.BUILD_INFO.name}[{AGENT_MEMORY}])"
_STILL_THERE = (
    f"{_WAS_THERE} and on (cluster, node) kube_node_info"
    f" or {_WAS_THERE} unless on (cluster) kube_node_info"
)
"""Nodes that had an agent, without those that are known to have left the cluster since."""

_HAD_AGENTS = worst(f"last_over_time({records.CLUSTER_AGENTS}[1d])")
"""How many agents a cluster had when it was last seen: of a cluster that sends nothing any more,
kube-state-metrics is silent as well, and after an hour no node of it is missed."""

_NEED_KUBERNETES = "Silent without kube-state-metrics."
_MAINTENANCE = (
    "max by (cluster, node) (kube_node_spec_unschedulable) == 1\n"
    'or max by (cluster, node) (kube_node_annotations{annotation_rankscope_io_maintenance="true"})'
    " == 1"
)


_BY_SHARD = '{{{{ if and $labels.shards (ne $labels.shards "1") }}}}{}{{{{ end }}}}'
_ONE_OF_THEM = _BY_SHARD.format(" (shard {{ $labels.shard }} of {{ $labels.shards }})")
_FOR_ITS_JOBS = _BY_SHARD.format(" for the jobs of that shard")
"""Watches that do not share the jobs are shard 0 of 1, and older ones have no number."""


def _evaluated(*labels: str) -> str:
    """Return when the newest evaluation of a day took place."""
    return f"max {by(*labels)} (last_over_time({watch.WATCH_LAST.name}[1d]))"


_LAGS = (
    f"(time() - {_evaluated('shard', 'shards')}) > {limit('watch_silence')}\n"
    f"and on (cluster, shards) ({_evaluated('shards')} == on (cluster) group_left ()"
    f" {_evaluated()})"
)
_READS_NOTHING = (
    f"(time() - {worst(watch.WATCH_UNREAD_SINCE.name, 'shard', 'shards')})"
    f" > {limit('watch_silence')}\nunless on (cluster, shard, shards)"
    f" (time() - {_evaluated('shard', 'shards')}) <= {limit('watch_silence')}"
)
"""A watch that is there and has read nothing for a day, or never: someone wants it."""

# An agent knows what it lost, but not what the previous one had: a driver that does not start when
# the node boots. That is only queried for sources whose loss is a fault of the node.
_HARDWARE = f'{agent.COLLECTOR_SUCCESS.name}{{collector=~"nvml|rdma"}}'
_GPUS_BY_DCGM = f'{agent.COLLECTOR_SUCCESS.name}{{collector="dcgm"}} == 1'
"""Agents configured to read GPUs from a dcgm-exporter no longer read them themselves."""

_UNSCHEDULED = (
    "kube_pod_status_unschedulable == 1 and on (cluster, namespace, pod)"
    f" kube_pod_container_resource_requests{{{_GPU_RESOURCES}}}"
)

_UNSCHEDULED_PODS = (
    f"count {by('pod_namespace')}"
    f' (label_replace({_UNSCHEDULED}, "pod_namespace", "$1", "namespace", "(.+)"))'
)
_OF_JOBS = (
    f"sum {by('pod_namespace')}"
    f' (label_replace({WAITING_FOR_NODES}, "pod_namespace", "$1", "job_id", "([^/]+)/.*"))'
)
"""Pods without a node that the watch knows, and whose jobs have an alert about them."""


def _namespaces(jobs: str) -> str:
    """Count the namespaces of jobs: the part of a job's name before the slash."""
    named = f'label_replace({jobs}, "job_namespace", "$1", "job_id", "([^/]+)/.*")'
    return f"count {by()} (count {by('job_namespace')} ({named}))"


_ONE_OF_SEVERAL = (
    f"({_namespaces(FAILED_ANEW)} == 1"
    f" and on (cluster) {_namespaces(f'({records.JOB_PODS} or {FAILED_NOW})')} > 1)"
)
"""All failures are of one namespace, and there are others: its own affair, which must not mute
alerts about others' jobs."""

# If no job runs any longer there is no share to compute.
_BEGINS = (
    f"(count {by()} ({FAILED_ANEW}) >= {limit('cascade_jobs')})\n"
    f"unless on (cluster) (count {by()} ({FAILED_ANEW}) <= {limit('cascade_share')} *"
    f' count {by()} ({records.JOB_PODS}{{phase="Running"}} > 0))\n'
    f"unless on (cluster) {_ONE_OF_SEVERAL}"
)
_FAIL_ON = (
    f"({FAILED_NOW} and on (cluster, job_id)"
    ' ALERTS{alertname="RankscopeJobInCascade",alertstate="firing"})'
)
"""Jobs of a cascade that go on failing: otherwise, each of them would have alerts of its own while
what they share is still broken."""

CASCADE = Alert(
    name="RankscopeJobFailureCascade",
    expression=f"{_BEGINS}\nor count {by()} ({_FAIL_ON}) >= {limit('cascade_jobs')}",
    hold="1m",
    keep="15m",
    why="The 15-minute window collects failures with one cause; a minute gives all agents"
    " time to report. Jobs that have failed repeatedly for longer do not count. While as many jobs"
    " of it fail again and again, it goes on.",
    severity="page",
    scope="cluster",
    summary="{{ $value }} jobs failed within 15 minutes",
    description="Pods of {{ $value }} jobs failed within 15 minutes: first look for what they"
    " share (switch, storage, image, driver).",
)

IN_CASCADE = Alert(
    name="RankscopeJobInCascade",
    expression=f"({FAILED_ANEW} or on (cluster, job_id) {_FAIL_ON})\n"
    f"and on (cluster) ({CASCADE.expression})",
    hold="1m",
    keep="15m",
    why="As long as the cascade: it mutes the alerts of the jobs that failed in it, and of no"
    " other.",
    severity="none",
    scope="job",
    summary="Job {{ $labels.job_id }} failed together with others",
    description="Pods of job {{ $labels.job_id }} failed on {{ $value }}"
    " {{ if eq $value 1.0 }}node{{ else }}nodes{{ end }} within 15 minutes, as did those of other"
    " jobs.",
)

WAITING = Alert(
    name="RankscopeGpuPodsUnscheduled",
    # Pods of the namespace that no job's alert is about are left.
    expression=f"({_UNSCHEDULED_PODS} - on (cluster, pod_namespace) {_OF_JOBS}) > 0\n"
    f"or {_UNSCHEDULED_PODS} unless on (cluster, pod_namespace) {_OF_JOBS}",
    hold="30m",
    keep="10m",
    why="On a well-used cluster jobs start and end within half an hour; adding a node takes less.",
    severity="ticket",
    scope="cluster",
    summary=f"{texts.number_of('pod')} of namespace {{{{ $labels.pod_namespace }}}}"
    " cannot be scheduled on a node with GPUs",
    description=f"{texts.number_of('pod')} of namespace {{{{ $labels.pod_namespace }}}}"
    f" {texts.by_number('requests', 'request')} GPUs, and the scheduler has found no node for half"
    " an hour: GPUs are taken, cordoned or lost, or no node meets the request. No agent knows such"
    " pods yet, and no job's alert is about them.",
    needs=_NEED_KUBERNETES,
)

OWN: tuple[Alert, ...] = (
    Alert(
        name="RankscopeAgentDown",
        expression=worst(
            f"({_GPU_NODES} or {_STILL_THERE})\nunless on (cluster, node) {agent.BUILD_INFO.name}",
            "node",
        ),
        hold="10m",
        keep="10m",
        why="Rollouts of the agent and reboots of the node take minutes.",
        severity="ticket",
        scope="node",
        summary=f"No agent answers on {texts.NODE}",
        description=f"{texts.NODE} has GPUs or had an agent within the last hour, but no agent"
        " answers: nothing else is known about it. Nodes that never had an agent are known from"
        " kube-state-metrics only.",
        needs="Without kube-state-metrics only nodes whose agent answered within the last"
        " hour are noticed, including nodes that were removed.",
    ),
    Alert(
        name="RankscopeNoAgents",
        expression=f"{_HAD_AGENTS} unless on (cluster) {agent.BUILD_INFO.name}",
        hold="10m",
        keep="10m",
        why="As for a single agent. A cluster that has had none for a day is assumed not to want"
        " any.",
        severity="ticket",
        scope="cluster",
        summary="No agent answers in the whole cluster",
        description="Prometheus had {{ $value }} agents, and now has none: alerts on what agents"
        " export cannot fire, whatever is wrong. Scraping, the network or the installation is at"
        " fault, rather than the nodes.",
    ),
    Alert(
        name="RankscopeCollectorFailing",
        expression=worst(agent.COLLECTOR_FAILING.name, "node", "collector")
        + "\nor "
        + worst(
            f"{_HARDWARE} == 0 and on (cluster, node, collector) ({_HARDWARE} offset 6h == 1)"
            f" unless on (cluster, node) ({_GPUS_BY_DCGM})",
            *("node", "collector"),
        ),
        hold="15m",
        keep="15m",
        why="Sources restart within minutes. A collector that never had its source on this"
        " node does not count as failing.",
        severity="ticket",
        scope="node",
        summary=f"Collector {{{{ $labels.collector }}}} on {texts.NODE} is failing",
        description=f"Collector {{{{ $labels.collector }}}} on {texts.NODE} fails with an error, or"
        " worked within the last six hours and has lost its source: its series are absent, and"
        " alerts on them cannot fire.",
    ),
    Alert(
        name="RankscopeSeriesBudgetExceeded",
        expression=worst(f"{agent.PAGE_SERIES_DROPPED.name} > 0", "node"),
        hold="15m",
        keep="15m",
        why="Two jobs that overlap on a node exceed the limit for some minutes.",
        severity="ticket",
        scope="node",
        summary=f"The agent of {texts.NODE} drops series from its page",
        description=f"The agent of {texts.NODE} has {{{{ $value }}}} series more than its limit:"
        " some of its metrics are missing, and alerts on them cannot fire.",
    ),
    Alert(
        name="RankscopeInvalidSamples",
        expression=worst(f"{agent.INVALID_SAMPLES.name} > 0", "node", "collector"),
        hold="15m",
        keep="15m",
        why="A pod with an odd name may be gone within minutes.",
        severity="ticket",
        scope="node",
        summary=f"Collector {{{{ $labels.collector }}}} on {texts.NODE} has samples that no page"
        " can carry",
        description=f"{texts.number_of('sample')} of collector {{{{ $labels.collector }}}} on"
        f" {texts.NODE} {texts.by_number('is', 'are')} malformed or repeated and left off the"
        " page. What they would show is missing; all other series are there.",
    ),
    Alert(
        name="RankscopeJobNameRefused",
        expression=worst(f"{pods.JOB_NAMES_REJECTED.name} > 0", "node", "reason")
        + "\nor "
        + worst(f'{training.RINGS_REJECTED.name}{{reason="identity"}} > 0', "node", "reason"),
        hold="5m",
        keep="15m",
        why="A corrected pod disappears from the series within minutes.",
        severity="ticket",
        scope="node",
        summary=f"{texts.number_of('name')} or {texts.by_number('ring', 'rings')} of pods on"
        f" {texts.NODE} {texts.by_number('is', 'are')} rejected",
        description=f"On {texts.NODE} pods claim a job of another namespace or of another pod, or"
        " give their job an invalid name, or one that cannot be read (reason"
        " {{ $labels.reason }}). What they report about that job is ignored, and the job is not"
        " affected. The agent's log names the pods.",
    ),
    Alert(
        name="RankscopeWatchLagging",
        expression=f"{_LAGS}\nor {_READS_NOTHING}",
        hold="5m",
        keep="10m",
        why="A watch that moves to another node is back within minutes. A cluster that has"
        " had none for a day is assumed not to want one; one that is there and can read nothing"
        " is reported for as long as it is. Of watches that share the jobs each must"
        " evaluate, as many as the newest evaluation is one of: their number may have changed.",
        severity="ticket",
        scope="cluster",
        summary="rankscope watch does not judge jobs",
        description=f"For {{{{ $value | humanizeDuration }}}} no evaluation{_ONE_OF_THEM} has read"
        " any data. Alerts on findings, such as stragglers, cannot fire"
        f"{_FOR_ITS_JOBS} until it is back.",
    ),
    Alert(
        name="RankscopeWatchLeaseUnreadable",
        expression=f"count {by('lease')} ({watch.WATCH_LEASE_UP.name} == 0)",
        hold="5m",
        keep="10m",
        why="An API server that is being replaced answers again within minutes.",
        severity="ticket",
        scope="cluster",
        summary=f"{texts.number_of('watch', 'watches')} cannot read or renew the lease"
        " {{ $labels.lease }}",
        description=f"{texts.number_of('watch', 'watches')} cannot read or renew the lease"
        " {{ $labels.lease }}, which decides which of several evaluates. A standby does not know"
        " whether any watch evaluates; the one that evaluates continues with the agents that it"
        " knows. /readyz and the log show the API server's answer.",
    ),
    Alert(
        name="RankscopeWatchesOverlap",
        expression=f"sum {by('lease')} ({watch.WATCH_LEADING.name}) > 1",
        hold="2m",
        keep="5m",
        why="A watch that lost the lease stops when it next reads it, seconds later, and its"
        " last scrape is half a minute old.",
        severity="ticket",
        scope="cluster",
        summary="{{ $value }} watches evaluate under the lease {{ $labels.lease }}",
        description="{{ $value }} watches evaluate at once under the lease"
        " {{ $labels.lease }}; all but one of them cannot reach the API server. Until they can,"
        " findings appear more than"
        " once, and lost GPU time is counted more than once.",
    ),
    Alert(
        name="RankscopeAnalysisErrors",
        expression=f"sum {by('part')}"
        f" (increase({watch.WATCH_ANALYSIS_ERRORS.name}[{ERRORS_WITHIN}])) > 0",
        hold="0s",
        keep="1h",
        why="Even one error is too many, and data that cause an error once cause it again at"
        " the next evaluation.",
        severity="ticket",
        scope="cluster",
        summary="rankscope watch fails on data that it reads (part {{ $labels.part }})",
        description="Reading or judging raised an exception {{ $value | humanize }} times within 15"
        " minutes (part {{ $labels.part }}). The jobs concerned have no verdict; other jobs are not"
        f" affected.{_RAISED_FOR}",
    ),
    Alert(
        name="RankscopeNodeMaintenance",
        expression=_MAINTENANCE,
        hold="0s",
        keep="0s",
        why="Sends no notification: it mutes other alerts of the node while it fires.",
        severity="none",
        scope="node",
        summary=f"{texts.NODE} is cordoned or in maintenance",
        description=f"{texts.NODE} is cordoned, or annotated rankscope.io/maintenance=true: its"
        " alerts are muted.",
        needs=_NEED_KUBERNETES,
    ),
    Alert(
        name="RankscopeWatchdog",
        expression="vector(1)",
        hold="0s",
        keep="0s",
        why="It always fires: its receiver raises the alarm when it stops.",
        severity="none",
        scope="cluster",
        summary="Alerting works",
        description="This alert always fires. When it stops, Prometheus, Alertmanager or the"
        " path between them is broken.",
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-cascade", (CASCADE, IN_CASCADE)),
    Group("rankscope-cluster", (*BURNS, WAITING), interval="1m"),
    Group("rankscope-own", OWN),
)
