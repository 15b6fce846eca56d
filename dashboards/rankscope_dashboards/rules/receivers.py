"""Alertmanager's receivers: the recipients of pages and tickets, and their channels.

Channels and addresses that rankscope.yaml does not name are examples to be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_analyzers.configuration.values import Configuration, Contact
from rankscope_dashboards.yaml_text import Value

PAGE, TICKET, OWNER, DEADMAN, NOBODY = "page", "ticket", "ticket-owner", "deadman", "nobody"
NETWORK = "ticket-network"

EXAMPLES: Mapping[str, Contact] = {
    "on_call": Contact(slack="#rankscope-pages"),
    "platform": Contact("#rankscope-tickets", "platform@example.com"),
    "network": Contact("#rankscope-network", "network@example.com"),
}

_TITLE = '{{ template "rankscope.title" . }}'
_TEXT = '{{ template "rankscope.text" . }}'
_SLACK_TITLE = '{{ template "rankscope.slack.title" . }}'
_SLACK_TEXT = '{{ template "rankscope.slack.text" . }}'
_TEAM_CHANNEL = (
    "{{ with .CommonLabels.team }}#rankscope-team-{{ . }}{{ else }}#rankscope-tickets{{ end }}"
)
_OWNER_ADDRESS = (
    "{{ with .CommonLabels.owner }}{{ . }}@example.com{{ else }}platform@example.com{{ end }}"
)


def _slack(channel: str) -> Value:
    return {
        "api_url_file": "/etc/alertmanager/secrets/slack_url",
        "channel": channel,
        "send_resolved": True,
        "title": _SLACK_TITLE,
        "fallback": _SLACK_TITLE,
        "title_link": "{{ .CommonAnnotations.runbook_url }}",
        "text": _SLACK_TEXT,
    }


def _email(to: str) -> Value:
    """Return a plain text mail: Alertmanager's default is a list of labels."""
    headers = {"Subject": _TITLE}
    return {"to": to, "send_resolved": True, "headers": headers, "html": "", "text": _TEXT}


def _reached(one: Contact) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if one.slack:
        found["slack_configs"] = [_slack(one.slack)]
    if one.email:
        found["email_configs"] = [_email(one.email)]
    return found


def of_project(project: str) -> str:
    """Return the name of the receiver of tickets about a project's jobs."""
    return f"ticket-project-{project}"


def receivers(known: Configuration) -> Mapping[str, Value]:
    """Return the definition of each receiver, by name; secrets stay in files.

    Args:
        known: contacts for alerts.
    """
    chosen = {**EXAMPLES, **known.owners}
    pager: Value = {
        "routing_key_file": "/etc/alertmanager/secrets/pagerduty_key",
        "severity": "critical",
        "description": _TITLE,
        "details": {"alerts": _TEXT},
    }
    return {
        PAGE: {"pagerduty_configs": [pager], **_reached(chosen["on_call"])},
        TICKET: _reached(chosen["platform"]),
        NETWORK: _reached(chosen["network"]),
        # A job's pods carry its owner's labels: team is a channel, owner an address. Whoever may
        # start a pod chooses both, so no team's channel has the name of another one.
        OWNER: {
            "slack_configs": [_slack(_TEAM_CHANNEL)],
            "email_configs": [_email(_OWNER_ADDRESS)],
        },
        DEADMAN: {
            "webhook_configs": [{"url": "https://deadman.example.com/ping", "send_resolved": False}]
        },
        NOBODY: {},
        **{of_project(name): _reached(one) for name, one in known.project_owners.items()},
    }
