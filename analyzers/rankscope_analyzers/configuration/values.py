"""The configuration as values: what rankscope.yaml says, and defaults for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope_analyzers.configuration import document
from rankscope_analyzers.configuration.document import ConfigurationError, Document
from rankscope_analyzers.configuration.schema import SCHEMA
from rankscope_analyzers.configuration.validation import problems

OBJECTIVES: Mapping[str, float] = {"production": 0.95, "": 0.85}
"""Which share of the jobs of a class should succeed, "" standing for all other classes. They are to
be agreed on: research jobs fail by what their authors change, production jobs should not."""


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of a GPU costs: one with `gpu` in its model's name, of a project; "" for any."""

    price: float
    gpu: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a cluster's configuration says.

    Args:
        hang_after: an age, empty where it is not said.
        objectives: shares of jobs that should succeed, by class; "" for all other classes.
        projects: by namespace.
        currency: of prices and budgets, empty without prices.
        prices: the first one that fits counts.
        budgets: of 30 days, by project.
        paging_namespaces: whose production jobs may page.
        links: addresses of runbooks and grafana, where they are said.
    """

    hang_after: str = ""
    objectives: Mapping[str, float] = field(default_factory=lambda: dict(OBJECTIVES))
    projects: Mapping[str, str] = field(default_factory=dict)
    currency: str = ""
    prices: Sequence[Price] = ()
    budgets: Mapping[str, float] = field(default_factory=dict)
    paging_namespaces: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)

    def project_of(self, job_id: str, labelled: str) -> str:
        """Return whose a job is: by the label of its pods, else by its namespace."""
        return labelled or self.projects.get(job_id.partition("/")[0], "")

    def price(self, gpu: str, project: str) -> float | None:
        """Return what an hour of a GPU costs, None where no price fits."""
        for one in self.prices:
            if one.gpu.casefold() in gpu.casefold() and one.project in ("", project):
                return one.price
        return None


def read(path: Path) -> Configuration:
    """Read rankscope.yaml.

    Raises:
        ConfigurationError: it cannot be read, or something in it is wrong; a line for each.
    """
    return of_document(document.read(path), str(path))


def of_document(found: Document, name: str) -> Configuration:
    """Return what a file says.

    Raises:
        ConfigurationError: something in it is wrong; a line for each.
    """
    wrong = problems(found, SCHEMA)
    if not wrong:
        return _configuration(found.value)
    raise ConfigurationError(
        "\n".join(
            f"{name}:{one.place}: {f'{one.name}: ' if one.name else ''}{one.what}" for one in wrong
        )
    )


def _configuration(value: Mapping[str, Any]) -> Configuration:
    prices = value.get("prices", {})
    chosen = {one["class"]: float(one["success_ratio"]) for one in value.get("objectives", ())}
    return Configuration(
        hang_after=value.get("hang_after", ""),
        objectives={**OBJECTIVES, **chosen},
        projects={one["namespace"]: one["project"] for one in value.get("projects", ())},
        currency=prices.get("currency", ""),
        prices=tuple(Price(**one) for one in prices.get("gpu_hours", ())),
        budgets={one["project"]: float(one["month"]) for one in value.get("budgets", ())},
        paging_namespaces=tuple(value.get("paging_namespaces", ())),
        links=dict(value.get("links", {})),
    )


def as_object(known: Configuration) -> dict[str, Any]:
    """Return a configuration as rankscope.yaml has it, with defaults."""
    found: dict[str, Any] = {"version": 1}
    if known.hang_after:
        found["hang_after"] = known.hang_after
    found["objectives"] = [
        {"class": name, "success_ratio": ratio} for name, ratio in known.objectives.items()
    ]
    found["projects"] = [
        {"namespace": name, "project": project} for name, project in known.projects.items()
    ]
    if known.currency:
        rows = [
            {"gpu": one.gpu, "project": one.project, "price": one.price} for one in known.prices
        ]
        rows = [{key: cell for key, cell in row.items() if cell != ""} for row in rows]
        found["prices"] = {"currency": known.currency, "gpu_hours": rows}
    found["budgets"] = [
        {"project": name, "month": amount} for name, amount in known.budgets.items()
    ]
    found["paging_namespaces"] = list(known.paging_namespaces)
    if known.links:
        found["links"] = dict(known.links)
    return found


def schema_text() -> str:
    """Return the JSON Schema as docs/rankscope.schema.json has it."""
    return json.dumps(SCHEMA, indent=2) + "\n"
