"""Alertmanager's configuration: routes, grouping, intervals and inhibition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope_analyzers.configuration.values import Configuration
from rankscope_dashboards.rules.alerts.alert import Scope
from rankscope_dashboards.rules.receivers import (
    DEADMAN,
    NETWORK,
    NOBODY,
    OWNER,
    PAGE,
    TICKET,
    of_project,
    receivers,
)
from rankscope_dashboards.rules.rule_files import HEADER, Links
from rankscope_dashboards.yaml_text import Value, dump


@dataclass(frozen=True, slots=True)
class Timing:
    """When a group of alerts is sent.

    Args:
        wait: for others of the group, at first.
        interval: between two notifications of a group that changes.
        repeat: of one that does not change.
    """

    wait: str
    interval: str
    repeat: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Cool-downs of all receivers.

    Together with each alert's `keep_firing_for` they make one notification of a condition that
    comes and goes; without them, a signal of 2 s on and 2 s off caused 16 in 32 s. Pages about
    single jobs wait until a failure of many, which is known a minute and two evaluations after the
    third, can mute them.
    """

    page: Timing = Timing("15s", "5m", "1h")
    page_of_job: Timing = Timing("2m", "5m", "1h")
    ticket: Timing = Timing("5m", "30m", "24h")
    deadman: Timing = Timing("0s", "1m", "5m")


GROUPED_BY: Mapping[Scope, tuple[str, ...]] = {
    "job": ("cluster", "job_id"),
    "node": ("cluster", "node"),
    "cluster": ("cluster",),
    "project": ("cluster", "project"),
}
"""One notification per job, node, cluster or project, whatever is wrong with it."""

OF_AGENTS = (
    "RankscopeAgentDown",
    "RankscopeCollectorFailing",
    "RankscopeInvalidSamples",
    "RankscopeJobNameRefused",
    "RankscopeSeriesBudgetExceeded",
)
"""Alerts about agents, grouped by name: an upgrade or a network policy may break all of them, which
is one ticket, and not one for each node of the cluster."""

NODE_GONE = (
    "RankscopeAgentDown",
    "RankscopeGpuLost",
    "RankscopeHostHardware",
    "RankscopeNodeReboot",
    "RankscopeXidFatal",
)
"""Alerts that explain whatever else is seen on that node."""

SEEN_ON_A_NODE = (
    "RankscopeAsymmetricRail",
    "RankscopeCollectorFailing",
    "RankscopeGpuClockLow",
    "RankscopeGpuDriverFault",
    "RankscopeGpuHardwareFault",
    "RankscopeHostStalls",
    "RankscopeLinkCongestion",
    "RankscopeLinkDown",
    "RankscopeLinkErrors",
    "RankscopeLinkRateLow",
    "RankscopeLinkRetransmission",
    "RankscopeMissingRank",
    "RankscopeNcclIbErrors",
    "RankscopeSocketFallback",
    "RankscopeStraggler",
    "RankscopeStragglerData",
)

OF_FAILING_JOBS = (
    "RankscopeCheckpointFailing",
    "RankscopeCrashLoop",
    "RankscopeGangPartial",
    "RankscopeHang",
    "RankscopeJobStalled",
    "RankscopeMissingRank",
    "RankscopeNcclCollectiveTimeout",
    "RankscopePodFailed",
    "RankscopeStraggler",
    "RankscopeStragglerData",
)

OF_PODS = ("RankscopeCrashLoop", "RankscopeJobPreempted")
AFTER_ITS_PODS = (
    "RankscopeElasticJobDegraded",
    "RankscopeGangPartial",
    "RankscopeMissingRank",
)
"""Alerts of a job whose pods repeatedly fail or are evicted, which they accompany. What fails after
a preemption is no alert as long as it follows from that; what fails later is news."""

STANDING = ("RankscopeHang", "RankscopeJobStalled")
"""A watch reports it after a minute; without one it takes a quarter of an hour."""

NOT_RUNNING = ("RankscopeCrashLoop", "RankscopeJobTakenAway")
"""Why a job stands. The notice of a preemption goes on for long after the job has been started
again, and would mute a hang of it."""

OF_STANDING_JOBS = (
    "RankscopeGpusIdle",
    "RankscopeLowGpuUtilisation",
    "RankscopeStepTailSlow",
    "RankscopeSyncShareHigh",
    "RankscopeThroughputDegraded24h",
)


def files(links: Links) -> Mapping[str, str]:
    """Return the configuration and its templates by name."""
    return {
        "alertmanager/alertmanager.yml": HEADER
        + dump(configuration(receivers(links.known), Timings(), links.known)),
        "alertmanager/templates/rankscope.tmpl": TEMPLATES,
    }


DEFAULT_MAIL = {"smtp_smarthost": "smtp.example.com:587", "smtp_from": "rankscope@example.com"}
"""An example to be replaced."""


def configuration(
    receivers: Mapping[str, Value], timings: Timings, known: Configuration | None = None
) -> Value:
    """Return the whole configuration.

    Args:
        receivers: the definition of each receiver, by name.
        timings: cool-downs.
        known: contacts of projects, and how mail is sent.
    """
    known = known or Configuration()
    mail = known.mail
    return {
        "global": (
            {"smtp_smarthost": mail.smarthost, "smtp_from": mail.sender} if mail else DEFAULT_MAIL
        ),
        "templates": ["templates/*.tmpl"],
        "route": route(timings, known),
        "inhibit_rules": list(INHIBITION),
        "receivers": [
            {"name": name, **(what if isinstance(what, Mapping) else {})}
            for name, what in receivers.items()
        ],
    }


def route(timings: Timings, known: Configuration | None = None) -> Value:
    """Return the tree of routes.

    Args:
        timings: cool-downs.
        known: contacts of projects.
    """
    of_jobs = (OWNER, timings.ticket)
    projects = tuple(_projects(known or Configuration()))
    return {
        "receiver": TICKET,
        "group_by": ["cluster", "alertname"],
        **_times(timings.ticket),
        "routes": [
            {
                "matchers": ['alertname="RankscopeWatchdog"'],
                "receiver": DEADMAN,
                "group_by": ["cluster"],
                **_times(timings.deadman),
            },
            {"matchers": ['severity="none"'], "receiver": NOBODY},
            _severity("page", (PAGE, timings.page), (PAGE, timings.page_of_job)),
            _severity("ticket", (TICKET, timings.ticket), of_jobs, projects),
        ],
    }


def _projects(known: Configuration) -> Iterator[Value]:
    """Yield the routes to owners of projects: by the label of a job's pods, else by namespace."""
    for project in known.project_owners:
        receiver = of_project(project)
        named = f"project={json.dumps(project, ensure_ascii=False)}"
        yield {"matchers": [named], "receiver": receiver}
        namespaces = "|".join(known.namespaces_of(project))
        if namespaces:
            of_namespaces = ['project=""', f'job_id=~"({namespaces})/.+"']
            yield {"matchers": of_namespaces, "receiver": receiver}


def _severity(
    severity: str,
    of_all: tuple[str, Timing],
    of_jobs: tuple[str, Timing],
    projects: tuple[Value, ...] = (),
) -> Value:
    """Return a branch; alerts about jobs may have another receiver, and be sent later, than others.

    Args:
        severity: of the branch.
        of_all: receiver and cool-downs.
        of_jobs: the same for alerts about jobs.
        projects: routes to the owners of projects.
    """
    receiver, timing = of_all
    job_receiver, job_timing = of_jobs
    scopes: list[Value] = [
        # Alerts about pods without a known job have no job to be grouped by.
        {"matchers": ['scope="job"', 'job_id=""'], "group_by": list(GROUPED_BY["node"])}
    ]
    for scope, labels in GROUPED_BY.items():
        chosen = [f'scope="{scope}"']
        route: dict[str, Value] = {"matchers": list(chosen), "group_by": list(labels)}
        if scope == "job" and job_receiver != receiver:
            route["receiver"] = job_receiver
        if scope == "job" and job_timing != timing:
            route |= _times(job_timing)
        if scope == "node" and receiver == TICKET:
            whose = {"matchers": [*chosen, 'owned_by="network"'], "receiver": NETWORK}
            scopes.append(route | whose)
            ours = {"matchers": [*chosen, _named(OF_AGENTS)], "group_by": ["cluster", "alertname"]}
            scopes.append(dict(ours))
        if scope in {"job", "project"} and projects:
            route["routes"] = list(projects)
        scopes.append(route)
    return {
        "matchers": [f'severity="{severity}"'],
        "receiver": receiver,
        **_times(timing),
        "routes": scopes,
    }


def _times(timing: Timing) -> dict[str, Value]:
    return {
        "group_wait": timing.wait,
        "group_interval": timing.interval,
        "repeat_interval": timing.repeat,
    }


def _named(names: tuple[str, ...]) -> str:
    return f'alertname=~"{"|".join(names)}"'


def _inhibits(source: list[str], target: list[str], *equal: str) -> Value:
    """Return a rule; labels that must be equal must also be present.

    Alertmanager takes two absent labels for equal: without that a page about the whole cluster
    muted an unrelated ticket that had no job either.
    """
    there = [f'{label}=~".+"' for label in equal]
    return {
        "source_matchers": [*source, *there],
        "target_matchers": [*target, *there],
        "equal": ["cluster", *equal],
    }


INHIBITION: tuple[Value, ...] = (
    # Those of the jobs that failed in it: one job's failing pods do not mute another's alerts.
    _inhibits(['alertname="RankscopeJobInCascade"'], [_named(OF_FAILING_JOBS)], "job_id"),
    _inhibits(['severity="page"', 'scope="job"'], ['severity="ticket"', 'scope="job"'], "job_id"),
    _inhibits([_named(OF_PODS)], [_named(AFTER_ITS_PODS)], "job_id"),
    _inhibits(['alertname="RankscopeCrashLoop"'], ['alertname="RankscopePodFailed"'], "job_id"),
    _inhibits([_named(NOT_RUNNING)], [_named(STANDING)], "job_id"),
    _inhibits([_named(STANDING)], [_named(OF_STANDING_JOBS)], "job_id"),
    _inhibits(['alertname="RankscopeHang"'], ['alertname="RankscopeJobStalled"'], "job_id"),
    # Only tickets: a production job that is hit still pages.
    _inhibits([_named(NODE_GONE)], ['severity="ticket"', _named(SEEN_ON_A_NODE)], "node"),
    _inhibits(['alertname="RankscopeNoAgents"'], ['alertname="RankscopeAgentDown"']),
    _inhibits(['alertname="RankscopeGoodputBurnFast"'], ['alertname="RankscopeGoodputBurnSlow"']),
    _inhibits(['alertname="RankscopeNodeMaintenance"'], ['scope="node"'], "node"),
    _inhibits(
        ['alertname="RankscopeNodeMaintenance"'], ['scope="job"', 'severity="ticket"'], "node"
    ),
)

_ANNOTATIONS = ("summary", "description", "runbook_url", "dashboard_url")

MOST_SHOWN = 10
"""Alerts of a notification that are told in full. Slack refuses a message with some 20 of them or
more, and Alertmanager does not shorten it (prometheus/alertmanager#2769): nobody would hear of a
fault of a whole rack."""


def _text(name: str, change: str = "") -> str:
    """Return a template with the alerts; `change` is applied to the values that it fills in."""
    filled = {one: f"{{{{ .Annotations.{one}{change} }}}}" for one in _ANNOTATIONS}
    about = (
        f"{filled['summary']}\n{filled['description']}\n"
        f"Runbook: {filled['runbook_url']}\nDashboard: {filled['dashboard_url']}\n"
    )
    shown = "".join(
        f"{{{{ range $number, $_ := .Alerts.{which} }}}}{{{{ if lt $number {MOST_SHOWN} -}}}}\n"
        f"{word}{about}{{{{ end }}}}{{{{ end -}}}}\n"
        for which, word in (("Firing", ""), ("Resolved", "Over: "))
    )
    more = " ".join(f"(gt (len .Alerts.{one}) {MOST_SHOWN})" for one in ("Firing", "Resolved"))
    return (
        f'{{{{ define "{name}" -}}}}\n{shown}{{{{ if or {more} -}}}}\n'
        f"These are the first {MOST_SHOWN} of each: {{{{ len .Alerts.Firing }}}} go on,"
        " {{ len .Alerts.Resolved }} are over.\n{{ end -}}\n{{ end }}\n"
    )


_FOR_SLACK = "".join(
    f' | reReplaceAll "{mark}" "{entity}"'
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
)
"""Characters that Slack requires to be escaped: a job named <!channel> would notify everybody."""

_NAMES = """\
{{ define "rankscope.names" -}}
{{ $before := "" }}{{ range . }}{{ with .Labels.alertname }}
{{- if ne . $before }}{{ if $before }},{{ end }} {{ . }}{{ end }}{{ $before = . }}
{{- end }}{{ end }}
{{- end }}
"""
"""Names of alerts, each once: Alertmanager sorts them."""


def _title(name: str, change: str = "") -> str:
    """Return a template of one line: how many, about what, which; `change` as for texts."""
    location_labels = (
        ("job_id", "job"),
        ("node", "node"),
        ("project", "project"),
        ("cluster", "in"),
    )
    about = "".join(
        f"{{{{- with .GroupLabels.{label} }}}} {word} {{{{ .{change} }}}}{{{{ end }}}}\n"
        for label, word in location_labels
    )
    return (
        f'{{{{ define "{name}" -}}}}\n'
        "[{{ .Status | toUpper }}"
        '{{ if eq .Status "firing" }} {{ .Alerts.Firing | len }}{{ end }}]\n'
        f"{about}"
        '{{- if .Alerts.Firing }}:{{ template "rankscope.names" .Alerts.Firing }}\n'
        '{{- else }}:{{ template "rankscope.names" .Alerts.Resolved }}{{ end }}\n'
        "{{- end }}\n"
    )


TEMPLATES = "\n".join(
    (
        _NAMES,
        _title("rankscope.title"),
        _text("rankscope.text"),
        _title("rankscope.slack.title", _FOR_SLACK),
        _text("rankscope.slack.text", _FOR_SLACK),
    )
)
