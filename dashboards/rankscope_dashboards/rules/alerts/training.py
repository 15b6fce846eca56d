"""Alerts about training steps: slow ranks, stalled jobs and throughput."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope_agent.contract.metrics import job_logs, reported, training, watch
from rankscope_agent.contract.model import Metric
from rankscope_dashboards.expressions import events
from rankscope_dashboards.expressions.joins import (
    SLOW_LABELS,
    named_before,
    slow,
    with_owner,
    worst_by_job,
)
from rankscope_dashboards.expressions.promql import LOG_POD, POD_JOB_RECORD, by, happened, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group
from rankscope_dashboards.rules.alerts.limits import limit

STRAGGLER_NAME = "RankscopeStraggler"
LOST = limit("lost_share")
SILENCE = limit("watch_silence")
TAIL = limit("step_tail")
LOW_UTILISATION, IDLE_UTILISATION = limit("low_utilisation"), limit("idle_utilisation")
DIVERGED = limit("loss_growth")

FEWEST_TURNS = 5
"""Evaluations in half an hour in which a rank is the slowest of its node: an odd step of another
rank does not take a slow one's name from its alert."""

LONG_STEP_SECONDS = 200
"""For jobs with longer steps ten minutes may pass without the end of one: they have an hour."""

PATIENT_SECONDS = 3600
"""Longer checkpoints, evaluations and compilations are taken for a hang."""

_STILL_FOR_AN_HOUR = (
    f"max_over_time({records.JOB_STEPS}[1h]) == 0"
    f" and on (cluster, job_id) {records.JOB_STEPS} offset 1h"
)
_BUSY_BESIDE = f"time() - min {by('job_id')} ({training.SPAN_BEGAN.name}) < {PATIENT_SECONDS}"
_STALLED = (
    f"(({records.JOB_STEPS} == 0) and on (cluster, job_id) ({records.JOB_ALIVE} > 0)"
    f" unless on (cluster, job_id) ({_BUSY_BESIDE}))\n"
    f"unless on (cluster, job_id) ({records.JOB_MEAN_STEP} > {LONG_STEP_SECONDS}"
    f" unless on (cluster, job_id) ({_STILL_FOR_AN_HOUR}))"
)
_WATCHED = (
    f"(group {by('job_id')} ({watch.JOB_UNOBSERVED.name}"
    f" and on (cluster, instance) changes({watch.WATCH_LAST.name}[{SILENCE}s]) > 0))"
)
"""Jobs that a watch judges. One that hangs, of several that share the jobs, goes on exporting what
it judged last; one whose clock is wrong still judges."""
_NODE = "on (cluster, node, job_id, pp_stage)"
_SLOW_RANK, _SLOW_NODE = (
    f"(1 - {records.STAGE_MEDIAN} / on (cluster, job_id, pp_stage) group_right ()"
    f" {slowest} > {limit('unwatched_lost_share')})"
    for slowest in (records.STAGE_WORST, records.STAGE_NODES)
)
_SLOW_TOGETHER = (
    f"({_SLOW_NODE} unless {_NODE} ({records.STAGE_WORST} == {_NODE} {records.STAGE_NODES}))"
)
"""Nodes whose ranks are slow together: they take turns as the slowest, so that none is named. Where
the median is that of the slowest rank, it is the only one."""
_STAGE = by("node", "job_id", "pp_stage")
_TURN = (
    f"(max_over_time({records.STAGE_WORST}[30m]) * (1 - {limit('unwatched_lost_share')})"
    f" > on (cluster, job_id, pp_stage) group_left () {records.STAGE_MEDIAN}"
    f" and count_over_time({records.STAGE_WORST}[30m]) >= {FEWEST_TURNS})"
)
_SLOW_IN_TURNS = f"(max {_STAGE} ({_SLOW_RANK}) and {_NODE} (count {_STAGE} {_TURN} > 1))"
"""Nodes of which some ranks are slow: an alert about one would begin anew with each turn."""
_UNNAMED = f"({_SLOW_TOGETHER} or {_SLOW_IN_TURNS})"
_UNWATCHED = (
    f"({_UNNAMED} or {_SLOW_RANK} unless {_NODE} {_UNNAMED}) unless on (cluster, job_id) {_WATCHED}"
)
_BEGUN_WATCHED = (
    f"({named_before(STRAGGLER_NAME, _SLOW_RANK, _SLOW_TOGETHER)}"
    f" unless on (cluster, job_id) {_WATCHED})"
)
# Losses that two frameworks print are compared each with its own.
_PRINTED = ("node", *job_logs.JOB_LOG_LOSS.labels)
_LOSS = worst(job_logs.JOB_LOG_LOSS.name, *_PRINTED)
_LOWEST_LOSS = f"min {by(*_PRINTED)} (min_over_time({job_logs.JOB_LOG_LOSS.name}[1h]))"
_LEVEL = reported.LOSS_LEVEL.name
_DIVERGED = worst(f"({_LEVEL} > {DIVERGED} * ({reported.LOSS_LOWEST.name} > 0))", "job_id")
_LOSS_GREW = worst(f"{_LOSS} > {DIVERGED} * ({_LOWEST_LOSS} > 0)", *LOG_POD)
_DIVERGED_IN_LOGS = f"({worst_by_job(_LOSS_GREW)} unless on (cluster, job_id) {_LEVEL})"
_NONFINITE = worst(happened(job_logs.JOB_LOG_NONFINITE_LOSSES, "15m"), *LOG_POD)
_STEPS = f"max {by('job_id')} ({records.JOB_LATENCY})"
_LATE = f"on (cluster, job_id) group_left () (0.95 * {_STEPS})"
# With all counts that reach a share set to one, the bucket that reaches it holds everything.
_BOUND = f"histogram_quantile(1e-6, {records.JOB_LATENCY} >= bool {_LATE})"
_BELOW = f"(max {by('job_id')} ({records.JOB_LATENCY} < {_LATE}) / {_STEPS})"
_MEAN = f"sum {by('job_id')} ({records.NODE_JOB_STEP_TIME}) / {_STEPS}"
_SURE = f"{TAIL} ^ 0.5"
_STEPS_ALIKE = (
    f"{_MEAN} > {_BOUND} * ({_BELOW} / {_SURE} + 1 - {_BELOW})"
    f" and {_MEAN} < {_BOUND} * ({_BELOW} + {_SURE} * (1 - {_BELOW}))"
)
"""Steps that take about as long as a bound of the histogram, some more and some less: quantiles,
which spread them over whole buckets, differ by more than twice. The mean tells: it is near the
bound, unless usual steps are far shorter or late ones far longer."""
# The mean lives on for an hour after the job has ended, when it no longer matters.
_BUSY_HOUR = f"avg_over_time({records.JOB_GPU}[1h])"
_DAY = f"avg_over_time({records.JOB_SAMPLES}[1d])"
_DAY_BEFORE = f"avg_over_time({records.JOB_SAMPLES}[1d] offset 1d)"


def _held_up(
    name: str,
    symptom: str,
    what: str,
    why: str,
    evidence: str = "",
    labels: Sequence[str] = SLOW_LABELS,
) -> Alert:
    """Return an alert about what step times show; the description gives the cause."""
    return Alert(
        name=name,
        expression=with_owner(slow(symptom, LOST, labels)),
        hold="15m",
        keep="15m",
        why=why,
        severity="ticket",
        scope="job",
        summary=f"{what} {texts.JOB}: {{{{ $value | humanizePercentage }}}} of every step",
        description=f"Step times show {{{{ $labels.symptom }}}}: {texts.CULPRIT}. It costs"
        f" {texts.SHARE} of every step."
        + evidence
        + texts.LOST_BY_JOB
        + texts.CAUSE
        + texts.DIAGNOSE,
    )


_SLOWEST_CLIENT = texts.known(
    f"topk(1, {records.CLIENT_OPERATION}{{cluster=%q}} * on (cluster, node) group_left ()"
    f" group by (cluster, node) ({training.RANK_INFO.name}{{cluster=%q,job_id=%q}}))",
    "Of its nodes {{ .Labels.node }} waits longest for a file system:"
    " {{ .Value | humanizeDuration }} for an operation ({{ .Labels.operation }}) on"
    " {{ .Labels.type }} {{ .Labels.filesystem }}.",
    *("cluster", "cluster", "job_id"),
)
"""Client metrics of file systems on the job's nodes: shown only if there are any."""

_SLOWEST_NOW = (
    "{{ if and $labels.node (not $labels.rank) }}"
    + texts.known(
        f"topk(1, {records.STAGE_WORST}{{cluster=%q,job_id=%q,node=%q}})",
        "The slowest rank there is now {{ .Labels.rank }}.",
        *("cluster", "job_id", "node"),
    )
    + "{{ end }}"
)


def _in_log(metric: Metric, what: str) -> str:
    """Return a sentence that names the pod of the job in whose log a value is highest.

    Args:
        metric: what logs say.
        what: what is highest there.
    """
    logs = worst(f"{metric.name}{{cluster=%q}}", *LOG_POD)
    pods = f"{POD_JOB_RECORD}{{cluster=%q,job_id=%q}}"
    return texts.known(
        f"topk(1, {logs} * on (cluster, {', '.join(LOG_POD)}) group_left () {pods})",
        f"{what} in the log of pod {{{{ .Labels.pod_name }}}} on node {{{{ .Labels.node }}}}.",
        *("cluster", "cluster", "job_id"),
    )


_AS_STRAGGLER = "As with stragglers: 15 minutes are longer than any warm-up."

STRAGGLER = Alert(
    name=STRAGGLER_NAME,
    expression=with_owner(
        f"({slow('gpu_compute', LOST)}\nor on (cluster, job_id) {_BEGUN_WATCHED}"
        f"\nor on (cluster, job_id) ({_UNWATCHED}))"
    ),
    hold="15m",
    keep="15m",
    why="Ranks are slow for minutes while they compile, fill caches or write checkpoints; a"
    " straggler that lasts 15 minutes lasts all day.",
    severity="ticket",
    scope="job",
    summary=f"A rank holds up {texts.JOB}: {{{{ $value | humanizePercentage }}}} of every step",
    description=f"Its peers wait for {texts.CULPRIT}, which computes longer than they do:"
    f" {texts.SHARE} of every step."
    + _SLOWEST_NOW
    + texts.LOST_BY_JOB
    + texts.CAUSE
    + texts.DIAGNOSE,
)

HELD_UP: tuple[Alert, ...] = (
    STRAGGLER,
    _held_up("RankscopeStragglerData", "data_loader", "A rank's input holds up", _AS_STRAGGLER),
    _held_up(
        "RankscopeSlowNetworkGroup", "network_link", "A slow exchange holds up", _AS_STRAGGLER
    ),
    _held_up(
        "RankscopeGlobalSlowdown",
        "global_slowdown",
        "All ranks are slower than before in",
        "The job is compared with its own past; evaluation phases last minutes.",
        labels=("symptom",),  # a rank would be the cause's
    ),
    _held_up(
        "RankscopeUnevenWork",
        "partition_imbalance",
        "Work is spread unevenly over",
        "Sequence lengths average out within 15 minutes, if at all.",
    ),
    _held_up(
        "RankscopeSlowStorage",
        "storage_checkpoint",
        "Slow checkpoints hold up",
        "A checkpoint takes minutes; 15 minutes span several of them, or a very slow one.",
        _SLOWEST_CLIENT,
    ),
    _held_up(
        "RankscopeHostStalls",
        "host_transient",
        "Stalls of a host, or waits for a CPU, hold up",
        "Stalls and neighbours come and go: the watch shows how much they cost overall.",
    ),
)

STANDING: tuple[Alert, ...] = (
    Alert(
        name="RankscopeHang",
        expression=with_owner(slow("hang", LOST)),
        hold="0s",
        keep="5m",
        why="The watch has waited for a minute without a step already, or for longer where steps or"
        " pauses of the job are long (`--hang-after`). A look that fails does not end the alert.",
        severity="by_class",
        scope="job",
        summary=f"{texts.sentence(texts.JOB)} hangs: no rank finishes a step",
        description=f"The processes of {texts.JOB} are alive but make no steps. The others wait for"
        f" {texts.CULPRIT}." + texts.LOST_BY_JOB + texts.CAUSE + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeJobStalled",
        expression=with_owner(_STALLED),
        hold="5m",
        keep="15m",
        why="No rank made a step within the ten minutes of the recording rule (within an hour"
        " if the mean step is longer than 200 s); five more minutes let what the probe does not"
        " mark finish. A checkpoint, an evaluation or compiling that it marks has an hour. The"
        " job has made its first step, or there would be no series. A job that resumes and"
        " stalls again is noticed after ten minutes, which this covers.",
        severity="by_class",
        scope="job",
        summary=f"{texts.JOB} makes no steps",
        description=f"No rank of {texts.JOB} has finished a step for 15 minutes or more,"
        " although its processes are alive: a hang, a checkpoint that does not finish, or an"
        " evaluation." + texts.DIAGNOSE,
    ),
)

QUALITY: tuple[Alert, ...] = (
    Alert(
        name="RankscopeThroughputDegraded24h",
        expression=with_owner(
            f"(1 - {_DAY} / ({_DAY_BEFORE} > 0) > {limit('throughput_loss')})"
            f" and on (cluster, job_id) {records.JOB_SAMPLES}"
            f" unless on (cluster, job_id) ({records.JOB_ALIVE} == 0)"
        ),
        hold="1h",
        keep="2h",
        why="Daily means change slowly; another hour makes no difference.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} is {{{{ $value | humanizePercentage }}}} slower than the day before",
        description=f"{texts.JOB} processed {{{{ $value | humanizePercentage }}}} fewer samples per"
        " second in the last 24 hours than in the 24 hours before.",
        dashboard="rankscope-debug",
        since="2d",
    ),
    Alert(
        name="RankscopeStepTailSlow",
        expression=with_owner(
            f"({records.quantile('p95')} / {records.quantile('p50')} > {TAIL}\n"
            f"unless on (cluster, job_id) ({_STEPS_ALIKE}))"
        ),
        hold="30m",
        keep="30m",
        why="One checkpoint in a five-minute window is not a tail.",
        severity="ticket",
        scope="job",
        summary=f"One step in twenty of {texts.JOB} takes over {TAIL} times as long as usual",
        description=f"The 95th percentile of {texts.JOB}'s steps is {{{{ $value | humanize }}}}"
        " times the median.",
        dashboard="rankscope-debug",
        since="3h",
    ),
    Alert(
        name="RankscopeSyncShareHigh",
        expression=with_owner(f"({records.JOB_SYNC_SHARE} > {limit('sync_share')})"),
        hold="30m",
        keep="30m",
        why="Phases with small batches last minutes.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} spends {{{{ $value | humanizePercentage }}}} of its time in"
        " collectives",
        description=f"Ranks of {texts.JOB} wait {{{{ $value | humanizePercentage }}}} of their step"
        " time in collectives: for a straggler, or for the network.",
        dashboard="rankscope-debug",
        since="3h",
    ),
    Alert(
        name="RankscopeLowGpuUtilisation",
        expression=with_owner(
            f"({_BUSY_HOUR} < {LOW_UTILISATION} and {_BUSY_HOUR} >= {IDLE_UTILISATION}"
            f" and {records.JOB_GPU})"
        ),
        hold="30m",
        keep="30m",
        why="The hourly mean already includes start-up and evaluation.",
        severity="ticket",
        scope="job",
        summary=f"GPUs of {texts.JOB} are busy {{{{ $value | humanizePercentage }}}} of the time",
        description=f"GPUs of {texts.JOB} ran kernels for {{{{ $value | humanizePercentage }}}} of"
        " the last hour.",
        since="3h",
    ),
    Alert(
        name="RankscopeGpusIdle",
        expression=with_owner(f"({_BUSY_HOUR} < {IDLE_UTILISATION} and {records.JOB_GPU})"),
        hold="30m",
        keep="30m",
        why="The mean of an hour, plus half an hour for a user to return to an interactive"
        " session.",
        severity="ticket",
        scope="job",
        summary=f"{texts.JOB} holds GPUs but does not use them",
        description=f"GPUs of {texts.JOB} ran kernels for {{{{ $value | humanizePercentage }}}} of"
        " the last hour: the job hangs, has ended, or was forgotten.",
        since="3h",
    ),
    Alert(
        name="RankscopeNonFiniteLoss",
        expression=with_owner(
            f"({events.NONFINITE_LOSSES}\nor on (cluster, job_id) {worst_by_job(_NONFINITE)})"
        ),
        hold="1m",
        keep="30m",
        why="Steps skipped by a gradient scaler come in bursts within half an hour. Within a minute"
        " it is recorded what probes report, and which job a pod is of.",
        severity="ticket",
        scope="job",
        summary=f"The loss of {texts.JOB} is infinite or NaN",
        description=f"{texts.JOB} has a loss that is infinite or NaN"
        "{{ with $labels.node }}, printed on node {{ . }}{{ end }}:"
        " everything it computes from here on is worthless unless the framework skips the step."
        + _in_log(job_logs.JOB_LOG_NONFINITE_LOSSES, "Most such losses are"),
    ),
    Alert(
        name="RankscopeLossDiverging",
        expression=with_owner(f"({_DIVERGED}\nor on (cluster, job_id) {_DIVERGED_IN_LOGS})"),
        hold="15m",
        keep="30m",
        why="Spikes of single batches last seconds; after 15 minutes at twice the lowest"
        " loss, training has gone the wrong way.",
        severity="ticket",
        scope="job",
        summary=f"The loss of {texts.JOB} diverges",
        description=f"The loss of {texts.JOB} is {{{{ printf `%.4g` $value }}}}, more than"
        f" {DIVERGED} times its lowest value: since the process began, or within an hour if only"
        " the job's log shows it." + _in_log(job_logs.JOB_LOG_LOSS, "The highest is"),
        dashboard="rankscope-checkpoints",
        since="3h",
    ),
)

GROUPS: tuple[Group, ...] = (
    Group("rankscope-stragglers", HELD_UP),
    Group("rankscope-jobs", STANDING),
    Group("rankscope-quality", QUALITY, interval="1m"),
)
