"""Template fragments that several alerts share."""

from __future__ import annotations

from rankscope_agent.contract.metrics import pods, watch

GPU = "GPU {{ $labels.gpu }} ({{ $labels.uuid }}) of node {{ $labels.node }}"
PORT = "port {{ $labels.device }}/{{ $labels.port }} of node {{ $labels.node }}"
JOB = (
    "job {{ with $labels.job_id }}{{ . }}{{ else }}unknown{{ end }}"
    "{{ with $labels.pod_name }} (pod {{ . }}){{ end }}"
)
NODE = "node {{ $labels.node }}"
SHARE = "{{ $value | humanizePercentage }}"


def sentence(template: str) -> str:
    """Return a template whose first letter is a capital."""
    return template[:1].upper() + template[1:]


def number_of(noun: str, several: str = "") -> str:
    """Return the value with the noun that it counts, with a regular plural s if it is not one."""
    word = by_number(noun, several) if several else f"{noun}{by_number('', 's')}"
    return f"{{{{ $value }}}} {word}"


def by_number(one: str, several: str) -> str:
    """Return a word that depends on whether the value is one."""
    return f"{{{{ if eq $value 1.0 }}}}{one}{{{{ else }}}}{several}{{{{ end }}}}"


def known(query: str, text: str, *labels: str, by: str = "") -> str:
    """Return a text for each result of a query, and nothing without results.

    Args:
        query: PromQL with %q for the value of each of the labels; it is put in backquotes.
        text: a template, in which `.Labels` and `.Value` are those of the result.
        labels: the alert's, in the order of the query.
        by: the label that results are sorted by; Prometheus gives them in any order.
    """
    values = " ".join(f"$labels.{label}" for label in labels)
    order = f" | sortByLabel `{by}`" if by else ""
    return f"{{{{ range printf `{query}` {values} | query{order} }}}} {text}{{{{ end }}}}"


HOLDERS = known(
    f"max by (job_id, rank, pod_namespace, pod_name)"
    f" ({pods.GPU_ALLOCATION_INFO.name}{{cluster=%q,uuid=%q}})",
    "Held by {{ with .Labels.job_id }}job {{ . }}"
    "{{ else }}pod {{ .Labels.pod_namespace }}/{{ .Labels.pod_name }}{{ end }}"
    "{{ with .Labels.rank }}, rank {{ . }}{{ end }}.",
    *("cluster", "uuid"),
)
"""Which job and rank has the GPU, or which pod without a job: shown only if known."""

CULPRIT = (
    "{{ if $labels.rank }}rank {{ $labels.rank }}{{ with $labels.node }} on node {{ . }}{{ end }}"
    "{{ else if $labels.node }}node {{ $labels.node }}"
    "{{ else }}no rank in particular{{ end }}"
    "{{ with $labels.gpu }}, GPU {{ . }}{{ end }}"
    "{{ with $labels.uuid }} ({{ . }}){{ end }}"
    "{{ with $labels.device }}, {{ . }}{{ end }}"
)

LOST = known(
    f"sum({watch.LOST_GPU_SECONDS.name}{{cluster=%q,job_id=%q,cause=%q}}) / 3600",
    "It has cost {{ printf `%.3g` .Value }} GPU-hours so far.",
    *("cluster", "job_id", "kind"),
)
"""The cost of the finding: shown only if step times are known."""

LOST_BY_JOB = known(
    f"sum({watch.LOST_GPU_SECONDS.name}{{cluster=%q,job_id=%q}}) / 3600",
    "Lost so far: {{ printf `%.3g` .Value }} GPU-hours.",
    *("cluster", "job_id"),
)

CAUSE = known(
    f"topk(1, {watch.FINDING_LOST_FRACTION.name}{{cluster=%q,job_id=%q}}"
    " * on (job_id, kind) group_left (node, device, runbook) topk by (job_id, kind)"
    f" (1, {watch.FINDING_CULPRIT_INFO.name}{{cluster=%q,job_id=%q,symptom=%q}}))",
    "Cause: {{ .Labels.kind }}{{ with .Labels.device }} of {{ . }}{{ end }}"
    "{{ if not $labels.rank }}{{ with .Labels.node }} on node {{ . }}{{ end }}{{ end }}"
    ", see {{ .Labels.runbook }}.",
    *("cluster", "job_id", "cluster", "job_id", "symptom"),
)
"""The cause according to layers below the step times: shown only if a watch knows it."""

_FOR_A_SHELL = (
    "{{ if match `^[A-Za-z0-9._/:@%+-]+$` . }}{{ . }}"
    "{{ else }}'{{ reReplaceAll `'` `'\\''` . }}'{{ end }}"
)
"""Outside of Kubernetes the user who starts a job names it, and the name gets from a mail into a
shell."""

DIAGNOSE = (
    "{{ with $labels.job_id }} Run `rankscope diagnose --prometheus URL --job "
    + _FOR_A_SHELL
    + "`.{{ end }}"
)

FOUND = f"Finding {{{{ $labels.kind }}}}: {CULPRIT}.{LOST}{DIAGNOSE}"
"""The text of a finding of `rankscope watch`."""
