"""A configuration written in the form of rankscope.yaml, with all defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope_analyzers.configuration.values import (
    GOODPUT,
    SUCCESS,
    TIME_TO_COMPLETE,
    TIME_TO_RECOVER,
    Configuration,
    Contact,
)


def as_object(known: Configuration) -> dict[str, Any]:
    """Return a configuration in the form of rankscope.yaml, with defaults."""
    found: dict[str, Any] = {"version": 1}
    if known.hang_after:
        found["hang_after"] = known.hang_after
    found["objectives"] = _objectives(known)
    found["thresholds"] = dict(known.thresholds)
    found["owners"] = _owners(known)
    if known.mail:
        found["mail"] = {"smarthost": known.mail.smarthost, "from": known.mail.sender}
    found["labels"] = {fact: list(labels) for fact, labels in known.labels.items()}
    found["fabric"] = {"ranges": list(known.fabric)}
    found["projects"] = _rows(known.projects, "namespace", "project")
    if known.currency:
        rows = [
            {"gpu": one.gpu, "project": one.project, "price": one.price} for one in known.prices
        ]
        gpu_hours = [_without_empty(row) for row in rows]
        found["prices"] = {"currency": known.currency, "gpu_hours": gpu_hours}
    found["budgets"] = _rows(known.budgets, "project", "month")
    found["paging_namespaces"] = list(known.paging_namespaces)
    if known.links:
        found["links"] = dict(known.links)
    return found


def _objectives(known: Configuration) -> list[dict[str, Any]]:
    """Return a row for each class with objectives."""
    columns: Mapping[str, Mapping[str, Any]] = {
        SUCCESS: known.objectives,
        GOODPUT: known.goodput,
        TIME_TO_COMPLETE: known.times_to_complete,
        TIME_TO_RECOVER: known.times_to_recover,
    }
    classes = dict.fromkeys(name for column in columns.values() for name in column)
    return [
        {"class": name, **{key: column[name] for key, column in columns.items() if name in column}}
        for name in classes
    ]


def _owners(known: Configuration) -> dict[str, Any]:
    found: dict[str, Any] = {role: _contact(one) for role, one in known.owners.items()}
    rows = [{"project": name, **_contact(one)} for name, one in known.project_owners.items()]
    return {**found, "projects": rows}


def _contact(one: Contact) -> dict[str, Any]:
    return _without_empty({"slack": one.slack, "email": one.email})


def _rows(cells: Mapping[str, Any], key: str, value: str) -> list[dict[str, Any]]:
    return [{key: one, value: cell} for one, cell in cells.items()]


def _without_empty(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: cell for key, cell in row.items() if cell != ""}
