"""The JSON Schema of rankscope.yaml, from which everything else is derived.

Only these keywords are used: `validation` knows no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope_agent.contract.job_labels import FACTS
from rankscope_analyzers.configuration.thresholds import THRESHOLDS, Threshold

Schema = Mapping[str, Any]

ADDRESS = "https://json-schema.org/draft/2020-12/schema"

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
CLUSTER_NAME: Schema = {
    "type": "string",
    "pattern": r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "description": "A namespace.",
}
AGE: Schema = {"type": "string", "pattern": r"^[1-9][0-9]{0,5}[smhd]$"}
URL: Schema = {"type": "string", "pattern": r"^https?://[^\s\"'{}]+$", "maxLength": 2000}

RATIO: Schema = {"type": "number", "minimum": 0.01, "maximum": 0.9999}
# Alertmanager fills in templates in channels and addresses: no braces.
EMAIL: Schema = {"type": "string", "pattern": r"^[^\s@{}]+@[^\s@{},]+$", "maxLength": 254}
CHANNEL: Schema = {"type": "string", "pattern": r"^[#@]?[A-Za-z0-9._-]{1,80}$"}
HOST_PORT: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9.-]{1,253}:[0-9]{1,5}$"}
LABEL: Schema = {
    "type": "string",
    "pattern": r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
    "description": "The name of a label of pods.",
}
IP_RANGE: Schema = {
    "type": "string",
    "pattern": r"^[0-9a-fA-F:.]{2,45}/[0-9]{1,3}$",
    "format": "ip-network",
    "description": "A range of addresses as 10.64.0.0/12 or fd00:64::/32.",
}

MOST_PRICE = 1000
"""Per GPU and hour, in any currency: a hundred times the price of the most expensive one."""

MOST_BUDGET = 10**12


def _objects(
    description: str, most: int, required: tuple[str, ...], parts: Schema, least: int = 0
) -> Schema:
    one = _object("", parts, required, least)
    return {"type": "array", "description": description, "maxItems": most, "items": one}


def _object(
    description: str, parts: Schema, required: tuple[str, ...] = (), least: int = 0
) -> Schema:
    described = {"description": description} if description else {}
    return {
        "type": "object",
        **described,
        **({"minProperties": least} if least else {}),
        "additionalProperties": False,
        "required": list(required),
        "properties": parts,
    }


def _threshold(one: Threshold) -> Schema:
    return {
        "type": "number",
        "minimum": one.least,
        "maximum": one.most,
        "default": one.default,
        "description": one.meaning,
    }


_CONTACT: Schema = {"slack": CHANNEL, "email": EMAIL}

SCHEMA: Schema = {
    "$schema": ADDRESS,
    "title": "rankscope.yaml",
    "description": "One configuration for a cluster: read by rankscope watch, rankscope preflight,"
    " the rules and Alertmanager's routes.",
    "type": "object",
    "additionalProperties": False,
    "required": ["version"],
    "properties": {
        "version": {"type": "integer", "enum": [1], "description": "Version of this format."},
        "hang_after": {
            **AGE,
            "description": "Minimum time without a step before the watch counts a job as hung;"
            " --hang-after wins.",
        },
        "objectives": _objects(
            "What is expected of the jobs of a class: the share that succeeds, the share of their"
            " GPU time that no fault takes, the time within which 19 of 20 successful jobs"
            " complete, and the time within which 19 of 20 interrupted jobs make steps again;"
            ' the class "" stands for all others.',
            16,
            ("class",),
            {
                "class": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]{0,63}$"},
                "success_ratio": RATIO,
                "goodput": RATIO,
                "time_to_complete": AGE,
                "time_to_recover": AGE,
            },
        ),
        "thresholds": _object(
            "When alerts fire; see docs/alert_reference.md.",
            {name: _threshold(one) for name, one in THRESHOLDS.items()},
        ),
        "owners": _object(
            "Who gets alerts: a Slack channel, an address, or both.",
            {
                "on_call": _object("Pages.", _CONTACT, least=1),
                "platform": _object("Tickets about nodes and the cluster.", _CONTACT, least=1),
                "network": _object("Tickets about links and adapters.", _CONTACT, least=1),
                "projects": _objects(
                    "Tickets about the jobs of a project; for other projects, pods' labels decide.",
                    200,
                    ("project",),
                    {"project": NAME, **_CONTACT},
                    least=2,
                ),
            },
        ),
        "mail": _object(
            "How Alertmanager sends mail.",
            {"smarthost": HOST_PORT, "from": EMAIL},
            ("smarthost", "from"),
        ),
        "labels": _object(
            "Labels of pods with a job's project, class, owner and team; the first that a pod"
            " has counts. They replace the usual ones.",
            {
                fact: {
                    "type": "array",
                    "maxItems": 8,
                    "items": LABEL,
                    "description": f"Its {fact}.",
                }
                for fact in FACTS
            },
        ),
        "fabric": _object(
            "The networks that gradients should take.",
            {
                "ranges": {
                    "type": "array",
                    "description": "Addresses of its interfaces, those in pods as well.",
                    "maxItems": 64,
                    "items": IP_RANGE,
                },
            },
        ),
        "projects": _objects(
            "The project of a namespace's jobs whose pods have no such label.",
            1000,
            ("namespace", "project"),
            {"namespace": CLUSTER_NAME, "project": NAME},
        ),
        "prices": _object(
            "What a GPU costs; the first row that fits a job's GPU and project.",
            {
                "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
                "gpu_hours": _objects(
                    "A part of the model's name, as in H100, and a project; each may be left out.",
                    200,
                    ("price",),
                    {
                        "gpu": NAME,
                        "project": NAME,
                        "price": {"type": "number", "minimum": 0, "maximum": MOST_PRICE},
                    },
                ),
            },
            ("currency", "gpu_hours"),
        ),
        "budgets": _objects(
            "What a project may spend in 30 days, in the currency of the prices.",
            64,
            ("project", "month"),
            {
                "project": NAME,
                "month": {"type": "number", "minimum": 0.01, "maximum": MOST_BUDGET},
            },
        ),
        "paging_namespaces": {
            "type": "array",
            "description": "Namespaces whose jobs of the class production may page.",
            "maxItems": 1000,
            "items": CLUSTER_NAME,
        },
        "links": _object(
            "Where runbooks and dashboards are served.", {"runbooks": URL, "grafana": URL}
        ),
    },
}
