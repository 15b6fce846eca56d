"""Alerts about whether a job would survive a failure now: its checkpoints and their storage."""

from __future__ import annotations

from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.metrics import job_logs, reported, training
from rankscope_dashboards.expressions import events
from rankscope_dashboards.expressions.free_space import full_within_a_day
from rankscope_dashboards.expressions.joins import with_owner
from rankscope_dashboards.expressions.promql import by, happened, worst
from rankscope_dashboards.rules import recording_rules as records
from rankscope_dashboards.rules.alerts import texts
from rankscope_dashboards.rules.alerts.alert import Alert, Group

LEAST_FREE = 0.05
"""Fraction of a file system: the rest is for checkpoints, each of which takes hours of writes."""

FALLING_FREE = 0.3
"""Fraction below which the trend is considered: above it nothing is full within a day except by a
flood."""

NEWS_SECONDS = 900
"""Older lines of a log are not news."""

_LOGGED = (
    f"(time() - {job_logs.JOB_LOG_FAILURE.name}"
    f'{{cause="{causes.CHECKPOINT_CORRUPT}"}} < {NEWS_SECONDS})'
)
_CORRUPT = f"({events.FAILED_LOADS} or on (cluster, job_id) count {by('job_id')} ({_LOGGED}))"
_AGE = f"(time() - {worst(training.CHECKPOINT_LAST_SUCCESS.name, 'job_id')})"
_OLD = (
    f"({_AGE} > on (cluster) group_left ()"
    f" max {by()} ({reported.CHECKPOINT_OBJECTIVE.name})"
    f" and on (cluster, job_id) ({records.JOB_ALIVE} > 0))"
)
_FREE = f"min {by('job_id')} ({reported.STORE_FREE.name} / {reported.STORE_SIZE.name})"
_FULL_TOMORROW = full_within_a_day(records.JOB_STORE_FREE, "job_id")
_VOLUME = f"{records.JOB_VOLUME_FILLING} < {FALLING_FREE}"
"""A volume of the job's pods that is full within a day; a full one may hold a data set. If the
probe reads the store of the checkpoints, others do not count: one may be a cache."""
_FILLING = (
    f"({_FREE} < {LEAST_FREE} or {_FREE} < {FALLING_FREE}"
    f" and on (cluster, job_id) ({_FULL_TOMORROW})"
    f"\nor on (cluster, job_id) ({_VOLUME} unless on (cluster, job_id) {_FREE}))"
)

CHECKPOINTS: tuple[Alert, ...] = (
    Alert(
        name="RankscopeCheckpointFailing",
        expression=with_owner(f"({events.FAILED_WRITES})"),
        hold="0s",
        keep="30m",
        why="Checkpoints come every ten minutes to an hour: half an hour combines those that fail"
        " one after another, and the ranks of one that fails.",
        severity="by_class",
        scope="job",
        summary=f"{texts.JOB} fails to write checkpoints",
        description=f"{texts.number_of('rank')} of {texts.JOB} failed to write a checkpoint within"
        " 30 minutes: writing raised, or the process ended in the middle. The steps since the last"
        " good one are lost if the job fails now." + texts.DIAGNOSE,
    ),
    Alert(
        name="RankscopeCheckpointCorrupt",
        expression=with_owner(_CORRUPT),
        hold="0s",
        keep="30m",
        why="A job tries to resume when it starts, and again after each restart: half an hour"
        " combines those attempts.",
        severity="by_class",
        scope="job",
        summary=f"{texts.JOB} cannot load a checkpoint",
        description=f"Ranks of {texts.JOB} failed to load a checkpoint that is there, or its log"
        " says that one is damaged: a restart may lose everything since an older one.",
    ),
    Alert(
        name="RankscopeCheckpointOverdue",
        expression=with_owner(_OLD),
        hold="5m",
        keep="15m",
        why="One checkpoint that takes its time is no reason: five minutes let it finish. The"
        " objective is set by the agent's `--training.checkpoint-objective`.",
        severity="by_class",
        scope="job",
        summary=f"{texts.JOB} has written no checkpoint for {{{{ $value | humanizeDuration }}}}",
        description=f"The newest checkpoint of {texts.JOB} is {{{{ $value | humanizeDuration }}}}"
        " old, more than the objective: that much is lost if the job fails now.",
    ),
    Alert(
        name="RankscopeCheckpointStoreFilling",
        expression=with_owner(_FILLING),
        hold="15m",
        keep="1h",
        why="Free space is read after each checkpoint, and old checkpoints are removed after new"
        " ones were written: 15 minutes let that happen. A data set that is copied once, and the"
        " checkpoints that a job keeps, are no trend: three times two hours must show it.",
        severity="ticket",
        scope="job",
        summary=f"The file system of {texts.JOB}'s checkpoints is nearly full",
        description="{{ $value | humanizePercentage }} of the file system to which"
        f" {texts.JOB} writes checkpoints, or of a volume of its pods, is free. That is less than a"
        " twentieth, or it has fallen for six hours at a pace at which it is full within a day.",
        needs="Without kube-state-metrics and the kubelets' metrics volumes of pods are not"
        " noticed, only the stores that the probe reads.",
        dashboard="rankscope-checkpoints",
        since="6h",
    ),
    Alert(
        name="RankscopeCheckpointOverwritten",
        expression=with_owner(worst(happened(reported.CHECKPOINT_SHARED, "1h"), "job_id")),
        hold="0s",
        keep="1h",
        why="It happens with each checkpoint of the script: an hour combines them.",
        severity="ticket",
        scope="job",
        summary=f"Several ranks of {texts.JOB} write the same checkpoint file",
        description=f"Ranks of {texts.JOB} wrote one checkpoint file at the same time or after the"
        " same step, within the last hour: the last of them decides what is in it, and a reader may"
        " find a mixture.",
    ),
    Alert(
        name="RankscopeLossJump",
        expression=with_owner(
            f"max {by('job_id')} ({reported.LOSS_LEVEL.name}"
            f" / ({reported.LOSS_BEFORE_RESTART.name} > 0)) > 1.5"
        ),
        hold="2m",
        keep="30m",
        why="The level is an average of twenty losses on both sides of the restart, and moves by a"
        " few per cent; optimizers without their state need longer than that to recover.",
        severity="ticket",
        scope="job",
        summary=f"The loss of {texts.JOB} is higher than before its restart",
        description=f"The loss of {texts.JOB} is {{{{ printf `%.2f` $value }}}} times what it was"
        " when its last process ended: it resumed from an older checkpoint, or without part of its"
        " state.",
        dashboard="rankscope-checkpoints",
        since="6h",
    ),
)

GROUPS: tuple[Group, ...] = (Group("rankscope-checkpoints", CHECKPOINTS),)
