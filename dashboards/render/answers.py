"""What Prometheus answers to every query of a dashboard, as Grafana would ask it."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

PATIENCE_SECONDS = 120.0
"""Prometheus' own limit for a query."""

POINTS = 600
"""Grafana asks for a point per pixel of a panel's width: half of 1280 pixels, less its frame."""

MARK_STEP_SECONDS = 60
"""The step that the dashboards' marks have."""

LABEL_VALUES = re.compile(r"label_values\((.*), *(\w+)\)")


class AnswerError(Exception):
    """Prometheus refused a query or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time range in Unix seconds, and how often Prometheus scraped in it."""

    start: float
    end: float
    scrape: float

    @property
    def step(self) -> int:
        """Seconds between points, never less than between scrapes."""
        return max(1, math.ceil(max((self.end - self.start) / POINTS, self.scrape)))

    def windows(self) -> dict[str, str]:
        """Return Grafana's own variables: a rate covers at least four scrapes."""
        rate = max(self.step + self.scrape, 4 * self.scrape)
        return {
            "__range": f"{self.end - self.start:.0f}s",
            "__rate_interval": f"{math.ceil(rate)}s",
            "__interval": f"{self.step}s",
        }


@dataclass(frozen=True, slots=True)
class Source:
    """A Prometheus server."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """Return what the server answers.

        Raises:
            AnswerError: it refuses or cannot be reached.
        """
        url = f"{self.url.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - the user's own server
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AnswerError(f"{parameters}: {error.read().decode()}") from None
        except OSError as error:
            raise AnswerError(f"{self.url}: {error}") from None

    def ask(self, query: str, span: Span, instant: bool, step: int) -> Any:
        """Return the series of a query: at the end of a span, or at all of its points."""
        if instant:
            return self.get("query", query=query, time=f"{span.end}")["result"]
        # Grafana starts at multiples of the step, so that points stay where they are.
        start, end = span.start // step * step, span.end // step * step
        return self.get("query_range", query=query, start=f"{start}", end=f"{end}", step=f"{step}")[
            "result"
        ]


def filled(expression: str, values: Mapping[str, str]) -> str:
    """Return a query with variables filled in."""
    return re.sub(r"\$(\w+)", lambda match: values.get(match[1], match[0]), expression)


def choices(
    source: Source, variables: Iterable[Json], chosen: Mapping[str, str], preferred: str
) -> dict[str, str]:
    """Return the value of each variable: what was chosen, all of them, or the first one.

    A variable that nothing offers a value for stays empty, as it does in Grafana.

    Args:
        source: the server.
        variables: of the dashboard.
        chosen: values by variable.
        preferred: what is taken instead of the first one where it is offered.
    """
    values = dict(chosen)
    for variable in variables:
        name = variable["name"]
        if variable["type"] != "query" or name in values:
            continue
        if variable["includeAll"]:
            values[name] = variable["allValue"]
            continue
        found = LABEL_VALUES.fullmatch(variable["query"]["query"])
        if found is None:
            raise AnswerError(f"${name} asks {variable['query']['query']}, not for label values")
        selector, label = found.groups()
        offered = source.get(f"label/{label}/values", **{"match[]": filled(selector, values)})
        values[name] = preferred if preferred in offered else next(iter(offered), "")
    return values


def answers(source: Source, model: Json, span: Span, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the answers to a dashboard's queries by panel, and its marks.

    Args:
        source: the server.
        model: the dashboard.
        span: the time range.
        values: of the dashboard's variables.
    """
    windows = {**values, **span.windows()}
    panels = {
        panel["id"]: [
            source.ask(filled(target["expr"], windows), span, target["instant"], span.step)
            for target in panel["targets"]
        ]
        for panel in model["panels"]
        if panel["type"] != "row"
    }
    marks = [
        {
            "name": mark["name"],
            "color": mark["iconColor"],
            "times": _times(
                source.ask(filled(mark["expr"], windows), span, False, MARK_STEP_SECONDS)
            ),
        }
        for mark in model["annotations"]["list"]
    ]
    return {
        "from": span.start * 1000,
        "to": span.end * 1000,
        "step": span.step * 1000,
        "variables": values,
        "answers": panels,
        "marks": marks,
    }


def _times(series: Iterable[Json]) -> list[float]:
    """Return the times, in milliseconds, that values of marks are."""
    return sorted({float(value) for one in series for _, value in one["values"]})
