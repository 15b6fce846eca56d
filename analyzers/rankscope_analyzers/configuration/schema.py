"""What may stand in rankscope.yaml: its JSON Schema, from which everything else is made.

Only these keywords are used: `validation` knows no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

MOST_PRICE = 1000
"""Of a GPU and hour, in any currency: a hundred times what the dearest one costs."""

MOST_BUDGET = 10**12


def _objects(description: str, most: int, required: tuple[str, ...], parts: Schema) -> Schema:
    one = {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": parts,
    }
    return {"type": "array", "description": description, "maxItems": most, "items": one}


SCHEMA: Schema = {
    "$schema": ADDRESS,
    "title": "rankscope.yaml",
    "description": "One configuration for a cluster: read by rankscope watch and the rules.",
    "type": "object",
    "additionalProperties": False,
    "required": ["version"],
    "properties": {
        "version": {"type": "integer", "enum": [1], "description": "Of this format."},
        "hang_after": {
            **AGE,
            "description": "Least time without a step after which the watch calls a job hung;"
            " --hang-after wins.",
        },
        "objectives": _objects(
            'Which share of a class\'s jobs should succeed; the class "" stands for all others.',
            16,
            ("class", "success_ratio"),
            {
                "class": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]{0,63}$"},
                "success_ratio": {"type": "number", "minimum": 0.01, "maximum": 0.9999},
            },
        ),
        "projects": _objects(
            "Whose the jobs of a namespace are where their pods have no such label.",
            1000,
            ("namespace", "project"),
            {"namespace": CLUSTER_NAME, "project": NAME},
        ),
        "prices": {
            "type": "object",
            "description": "What a GPU costs; the first row that fits a job's GPU and project.",
            "additionalProperties": False,
            "required": ["currency", "gpu_hours"],
            "properties": {
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
        },
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
        "links": {
            "type": "object",
            "description": "Where runbooks and dashboards are served.",
            "additionalProperties": False,
            "required": [],
            "properties": {"runbooks": URL, "grafana": URL},
        },
    },
}
