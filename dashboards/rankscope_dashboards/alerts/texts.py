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

CAUSE_RUNBOOK = (
    "{{ range printf `topk(1, " + watch.FINDING_CULPRIT_INFO.name + "{job_id=%q,kind=%q})`"
    " $labels.job_id $labels.kind | query }} About the cause: {{ .Labels.runbook }}.{{ end }}"
)

DIAGNOSE = (
    "{{ with $labels.job_id }} Ask `rankscope diagnose --prometheus URL --job {{ . }}`.{{ end }}"
)
