"""The configuration as values: the content of rankscope.yaml, and defaults for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope_agent.contract.job_labels import DEFAULT_LABELS
from rankscope_analyzers.configuration import document
from rankscope_analyzers.configuration.document import ConfigurationError, Document
from rankscope_analyzers.configuration.schema import SCHEMA
from rankscope_analyzers.configuration.thresholds import DEFAULTS
from rankscope_analyzers.configuration.validation import problems

OBJECTIVES: Mapping[str, float] = {"production": 0.95, "": 0.85}
"""Share of the jobs of a class that should succeed, "" standing for all other classes. To be agreed
on: research jobs fail because of what their authors change, production jobs should not."""

GOODPUT_OBJECTIVES: Mapping[str, float] = {"production": 0.95, "": 0.9}
"""Share of the GPU time of a class that no fault should take: as much as the whole cluster may
lose, and twice that for experiments."""

TIMES_TO_COMPLETE: Mapping[str, str] = {"": "90d"}
"""Time within which 19 of 20 jobs of a class should succeed; no job of a class without one takes
that long."""

TIMES_TO_RECOVER: Mapping[str, str] = {"": "2h"}
"""Time within which 19 of 20 jobs of a class should make steps again after a restart or hang:
a job that was not seen for that long is another one of the same name."""

SUCCESS, GOODPUT, TIME_TO_COMPLETE = "success_ratio", "goodput", "time_to_complete"
TIME_TO_RECOVER = "time_to_recover"


@dataclass(frozen=True, slots=True)
class Price:
    """The price per hour of GPUs with `gpu` in the model's name, and of a project; "" for any."""

    price: float
    gpu: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class Contact:
    """The contact of an alert: a channel of Slack and an address, empty for none."""

    slack: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True)
class Mail:
    """How mail is sent: by which host and port, and from which address."""

    smarthost: str
    sender: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """A cluster's configuration.

    Args:
        hang_after: an age, empty if unset.
        objectives: shares of jobs that should succeed, by class; "" for all other classes.
        goodput: shares of GPU time that faults should leave, by class as well.
        times_to_complete: seconds in which 19 of 20 jobs should succeed, by class as well.
        times_to_recover: seconds in which 19 of 20 interrupted jobs should make steps again,
            likewise.
        thresholds: of alerts, all of them.
        owners: of pages (on_call) and tickets (platform, network), if set.
        project_owners: of tickets about a project's jobs.
        mail: None if unset.
        labels: of pods, by the fact that they give, the preferred one first.
        fabric: ranges of addresses of the networks for gradients.
        projects: by namespace.
        currency: of prices and budgets, empty without prices.
        prices: the first match counts.
        budgets: for 30 days, by project.
        paging_namespaces: namespaces whose production jobs may page.
        links: addresses of runbooks and grafana, if set.
    """

    hang_after: str = ""
    objectives: Mapping[str, float] = field(default_factory=lambda: dict(OBJECTIVES))
    goodput: Mapping[str, float] = field(default_factory=lambda: dict(GOODPUT_OBJECTIVES))
    times_to_complete: Mapping[str, str] = field(default_factory=lambda: dict(TIMES_TO_COMPLETE))
    times_to_recover: Mapping[str, str] = field(default_factory=lambda: dict(TIMES_TO_RECOVER))
    thresholds: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULTS))
    owners: Mapping[str, Contact] = field(default_factory=dict)
    project_owners: Mapping[str, Contact] = field(default_factory=dict)
    mail: Mail | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=lambda: dict(DEFAULT_LABELS))
    fabric: Sequence[str] = ()
    projects: Mapping[str, str] = field(default_factory=dict)
    currency: str = ""
    prices: Sequence[Price] = ()
    budgets: Mapping[str, float] = field(default_factory=dict)
    paging_namespaces: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)

    def project_of(self, job_id: str, labelled: str) -> str:
        """Return the project of a job: by the label of its pods, else by its namespace."""
        return labelled or self.projects.get(job_id.partition("/")[0], "")

    def namespaces_of(self, project: str) -> Sequence[str]:
        """Return the namespaces whose jobs belong to a project unless their pods name another."""
        return [namespace for namespace, one in self.projects.items() if one == project]

    def price(self, gpu: str, project: str) -> float | None:
        """Return the price of a GPU hour, None if no price matches."""
        for one in self.prices:
            if one.gpu.casefold() in gpu.casefold() and one.project in ("", project):
                return one.price
        return None

    def agent_flags(self) -> str:
        """Return the flag that makes agents use the same labels."""
        pairs = [f"{fact}={label}" for fact, labels in self.labels.items() for label in labels]
        return f"--kubernetes.job-labels={','.join(pairs)}"


def read(path: Path) -> Configuration:
    """Read rankscope.yaml.

    Raises:
        ConfigurationError: it cannot be read, or something in it is wrong; a line for each.
    """
    return of_document(document.read(path), str(path))


def of_document(found: Document, name: str) -> Configuration:
    """Return the configuration in a file.

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
    owners = dict(value.get("owners", {}))
    mail = value.get("mail")
    of_projects = owners.pop("projects", ())
    chosen = value.get("labels", {})
    return Configuration(
        hang_after=value.get("hang_after", ""),
        objectives={**OBJECTIVES, **_objectives(value, SUCCESS)},
        goodput={**GOODPUT_OBJECTIVES, **_objectives(value, GOODPUT)},
        times_to_complete={**TIMES_TO_COMPLETE, **_objectives(value, TIME_TO_COMPLETE)},
        times_to_recover={**TIMES_TO_RECOVER, **_objectives(value, TIME_TO_RECOVER)},
        thresholds={**DEFAULTS, **value.get("thresholds", {})},
        owners={role: Contact(**one) for role, one in owners.items()},
        project_owners={
            one["project"]: Contact(one.get("slack", ""), one.get("email", ""))
            for one in of_projects
        },
        mail=Mail(mail["smarthost"], mail["from"]) if mail else None,
        labels={fact: tuple(chosen.get(fact, usual)) for fact, usual in DEFAULT_LABELS.items()},
        fabric=tuple(value.get("fabric", {}).get("ranges", ())),
        projects={one["namespace"]: one["project"] for one in value.get("projects", ())},
        currency=prices.get("currency", ""),
        prices=tuple(Price(**one) for one in prices.get("gpu_hours", ())),
        budgets={one["project"]: float(one["month"]) for one in value.get("budgets", ())},
        paging_namespaces=tuple(value.get("paging_namespaces", ())),
        links=dict(value.get("links", {})),
    )


def _objectives(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {one["class"]: one[key] for one in value.get("objectives", ()) if key in one}


def schema_text() -> str:
    """Return the JSON Schema as in docs/rankscope.schema.json."""
    return json.dumps(SCHEMA, indent=2) + "\n"
