"""Pieces of templates that several alerts need."""

from __future__ import annotations

from rankscope_agent.metrics import pods, watch

GPU = "GPU {{ $labels.gpu }} ({{ $labels.uuid }}) of node {{ $labels.node }}"
PORT = "port {{ $labels.device }}/{{ $labels.port }} of node {{ $labels.node }}"
JOB = (
    "job {{ with $labels.job_id }}{{ . }}{{ else }}unknown{{ end }}"
    "{{ with $labels.pod_name }} (pod {{ . }}){{ end }}"
)
NODE = "node {{ $labels.node }}"

HOLDERS = (
    "{{ range printf `max by (job_id, rank) (" + pods.GPU_ALLOCATION_INFO.name + "{uuid=%q})`"
    " $labels.uuid | query }} Held by job {{ .Labels.job_id }}"
    "{{ with .Labels.rank }}, rank {{ . }}{{ end }}.{{ end }}"
)
"""Which job and rank has the GPU: said only where it is known."""

CULPRIT = (
    "{{ with $labels.rank }}rank {{ . }}{{ end }}"
    "{{ with $labels.node }} on node {{ . }}{{ end }}"
    "{{ with $labels.gpu }}, GPU {{ . }}{{ end }}"
    "{{ with $labels.uuid }} ({{ . }}){{ end }}"
    "{{ with $labels.device }}, {{ . }}{{ end }}"
)

LOST = (
    "{{ range printf `sum(" + watch.LOST_GPU_SECONDS.name + "{job_id=%q,cause=%q}) / 3600`"
    " $labels.job_id $labels.kind | query }} {{ printf `%.3g` .Value }} GPU-hours so far.{{ end }}"
)
"""What the finding has cost: said only where step times tell."""

LOST_BY_JOB = (
    "{{ range printf `sum(" + watch.LOST_GPU_SECONDS.name + "{job_id=%q}) / 3600`"
    " $labels.job_id | query }} Lost so far: {{ printf `%.3g` .Value }} GPU-hours.{{ end }}"
)

CAUSE = (
    "{{ range printf `topk(1, " + watch.FINDING_LOST_FRACTION.name + "{job_id=%q}"
    " * on (job_id, kind) group_left (runbook)"
    " topk by (job_id, kind) (1, " + watch.FINDING_CULPRIT_INFO.name + "{job_id=%q,symptom=%q}))`"
    " $labels.job_id $labels.job_id $labels.symptom | query }}"
    " Cause: {{ .Labels.kind }}, see {{ .Labels.runbook }}.{{ end }}"
)
"""What layers below the step times say it comes from: said only where a watch knows."""

DIAGNOSE = (
    "{{ with $labels.job_id }} Ask `rankscope diagnose --prometheus URL --job {{ . }}`.{{ end }}"
)
