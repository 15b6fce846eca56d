"""Grafana objects for Grafana 12 and newer, as subclasses of grafanalib's.

grafanalib 0.7.1 writes what Grafana 5 to 8 read: schema version 12, angular options, thresholds
with operators. The classes here keep its object model (Dashboard, panel ids, GridPos, JSON encoder)
and write their own JSON. Field names are those of @grafana/schema 13, which tests check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attr
from grafanalib import core

# Okabe and Ito's palette (jfly.uni-koeln.de/color), distinguishable with any colour vision.
GOOD, WARN, BAD, NEUTRAL = "#0072B2", "#E69F00", "#D55E00", "#808080"

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = Mapping[str, Any]
Steps = Sequence[tuple[float | None, str]]
PLAIN: Steps = ((None, GOOD),)
REDUCE_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}


@attr.s(kw_only=True)
class Target(core.Target):
    """A Prometheus query; `instant` for one value per series, as in tables and stats."""

    expr: str = attr.ib()
    legendFormat: str = attr.ib(default="")  # noqa: N815 - grafanalib's name
    refId: str = attr.ib(default="A")  # noqa: N815 - grafanalib's name
    format: str = attr.ib(default="time_series")
    instant: bool = attr.ib(default=False)

    def to_json_data(self) -> Json:
        """Return the query in the form of Grafana's Prometheus data source."""
        return {
            "datasource": DATA_SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": self.format,
            "instant": self.instant,
            "legendFormat": self.legendFormat or "__auto",
            "range": not self.instant,
            "refId": self.refId,
        }


@attr.s(kw_only=True)
class Panel(core.Panel):
    """A panel: its queries, the display of their values, and its position.

    Args:
        unit: Grafana's id of the values' unit.
        links: links of the panel, as title and address.
        steps: thresholds: lowest value and colour, ascending, the first without a value.
        missing: the text shown without data.
        width, height: in Grafana's units: 24 columns, rows of 30 pixels.
        mappings: texts and colours of single values.
        overrides: settings of single fields.
    """

    kind: ClassVar[str]
    title: str = attr.ib(default="")
    description: str = attr.ib(default="")
    targets: Sequence[Target] = attr.ib(factory=list)
    transformations: Sequence[Json] = attr.ib(factory=list)
    links: Sequence[tuple[str, str]] = attr.ib(factory=list)
    gridPos: core.GridPos | None = attr.ib(default=None)  # noqa: N815 - grafanalib's name
    unit: str = attr.ib(default="short")
    steps: Steps = attr.ib(default=PLAIN)
    missing: str = attr.ib(default="no data")
    width: int = attr.ib(default=12)
    height: int = attr.ib(default=8)
    minimum: float | None = attr.ib(default=None)
    maximum: float | None = attr.ib(default=None)
    decimals: int | None = attr.ib(default=None)
    mappings: Sequence[Json] = attr.ib(factory=list)
    overrides: Sequence[Json] = attr.ib(factory=list)

    def options(self) -> Json:
        """Return the options of this kind of panel."""
        return {}

    def custom(self) -> Json:
        """Return the field settings of this kind of panel."""
        return {}

    def settings(self) -> Sequence[Json]:
        """Return settings of single fields."""
        return self.overrides

    def color(self) -> Json:
        """Return how values get their colour."""
        return {"mode": "thresholds"}

    def words_of_values(self) -> Sequence[Json]:
        """Return texts and colours of single values."""
        return self.mappings

    def words(self) -> tuple[str, str]:
        """Return the description, and the text shown without data."""
        return self.description, self.missing

    def to_json_data(self) -> Json:
        """Return the panel."""
        return {
            "type": self.kind,
            "id": self.id,
            "title": self.title,
            "description": self.words()[0],
            "datasource": DATA_SOURCE,
            "gridPos": self.gridPos,
            "targets": self.targets,
            "transformations": self.transformations,
            "links": [_panel_link(title, url) for title, url in self.links],
            "fieldConfig": {"defaults": self._defaults(), "overrides": self.settings()},
            "options": self.options(),
        }

    def _defaults(self) -> Json:
        numbers = {"min": self.minimum, "max": self.maximum, "decimals": self.decimals}
        return {
            "unit": self.unit,
            "color": self.color(),
            "custom": self.custom(),
            "mappings": self.words_of_values(),
            "noValue": self.words()[1],
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": color} for value, color in self.steps],
            },
            **{name: value for name, value in numbers.items() if value is not None},
        }


@attr.s(kw_only=True)
class TimeSeries(Panel):
    """Lines over time.

    Args:
        stacked: True if areas are filled, one above another.
        several: True if there may be more lines than fit into a legend of one line.
        at_least: minimum of the axis' upper end, so that a line at zero appears low.
    """

    kind = "timeseries"
    stacked: bool = attr.ib(default=False)
    several: bool = attr.ib(default=False)
    at_least: float | None = attr.ib(default=None)

    def color(self) -> Json:
        """Return Grafana's palette, by name, so that a job has its colour in every panel."""
        return {"mode": "palette-classic-by-name"}

    def custom(self) -> Json:
        """Return how lines are drawn: no line over a gap, thresholds as lines."""
        return {
            "drawStyle": "line",
            "lineWidth": 1 if self.stacked else 2,
            "fillOpacity": 60 if self.stacked else 0,
            "showPoints": "auto",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if self.stacked else "none"},
            "thresholdsStyle": {"mode": "dashed" if len(self.steps) > 1 else "off"},
            **({} if self.at_least is None else {"axisSoftMax": self.at_least}),
        }

    def options(self) -> Json:
        """Return a legend and one tooltip of all lines.

        Next to the lines there is space for ten names, below them for three.
        """
        return {
            "legend": {
                "calcs": ["lastNotNull"],
                "displayMode": "table" if self.several else "list",
                "placement": "right" if self.several else "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }


@attr.s(kw_only=True)
class Stat(Panel):
    """One number per series, coloured by threshold.

    Args:
        briefly: two or three words in place of a missing number; more would be too small to read,
            so the full text is in the description.
        letters: height of the number in pixels; 0 for as high as the panel allows.
    """

    kind = "stat"
    briefly: str = attr.ib()
    letters: int = attr.ib(default=0)
    width: int = attr.ib(default=4)
    height: int = attr.ib(default=4)

    def words_of_values(self) -> Sequence[Json]:
        """Return what is missing, in grey."""
        return [*self.mappings, _in_grey(self.briefly)]

    def words(self) -> tuple[str, str]:
        """Return the description with the full text of what is missing, and the short text."""
        return f"{self.description} Without a number: {self.missing}.", self.briefly

    def options(self) -> Json:
        """Return the newest value, large."""
        return {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": REDUCE_LAST,
            "percentChangeColorMode": "standard",
            "showPercentChange": False,
            "textMode": "auto",
            "wideLayout": True,
            **({"text": {"valueSize": self.letters}} if self.letters else {}),
        }


@attr.s(kw_only=True)
class BarGauge(Panel):
    """One bar per series, the newest values."""

    kind = "bargauge"

    def words_of_values(self) -> Sequence[Json]:
        """Return what is missing, in grey."""
        return [*self.mappings, _in_grey(self.missing)]

    def options(self) -> Json:
        """Return horizontal bars followed by the value."""
        return {
            "displayMode": "basic",
            "legend": {
                "calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False
            },
            "maxVizHeight": 24,
            "minVizHeight": 12,
            "minVizWidth": 8,
            "namePlacement": "left",
            "orientation": "horizontal",
            "reduceOptions": REDUCE_LAST,
            "showUnfilled": True,
            # Left to itself, Grafana fills the panel with one bar and cuts its name off.
            "sizing": "manual",
            "text": {"titleSize": 12, "valueSize": 12},
            "valueMode": "color",
        }  # fmt: skip


@attr.s(kw_only=True)
class Table(Panel):
    """Rows of labels and values. Its queries must be instant and in table format.

    Args:
        largest_first: the column by which rows are ordered, by its name in the table.
        widths: of columns in pixels, by their names in the table; the others share the rest.
    """

    kind = "table"
    largest_first: str = attr.ib(default="")
    widths: Mapping[str, int] = attr.ib(factory=dict)

    def settings(self) -> list[Json]:
        """Return overrides: a missing label is an empty cell, not the text of an empty table."""
        label = {"matcher": {"id": "byType", "options": "string"}}
        absent = {**label, "properties": [{"id": "noValue", "value": "-"}]}
        widths = (
            {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "custom.width", "value": width}],
            }
            for name, width in self.widths.items()
        )
        return [absent, *widths, *self.overrides]

    def custom(self) -> Json:
        """Return plain cells that may be narrow: Grafana's 150 pixels push columns out of sight."""
        return {
            "align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "minWidth": 40
        }  # fmt: skip

    def options(self) -> Json:
        """Return a table with headers."""
        order = [{"displayName": self.largest_first, "desc": True}] if self.largest_first else []
        return {"cellHeight": "sm", "frameIndex": 0, "showHeader": True, "sortBy": order}


@attr.s(kw_only=True)
class StateTimeline(Panel):
    """A band per series whose colour is its state."""

    kind = "state-timeline"

    def custom(self) -> Json:
        """Return solid bands."""
        return {"fillOpacity": 80, "lineWidth": 0}

    def options(self) -> Json:
        """Return bands without numbers, states in the legend."""
        return {
            "alignValue": "left",
            "legend": {
                "calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True
            },
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "never",
            "tooltip": {"mode": "single", "sort": "none"},
        }  # fmt: skip


@attr.s(kw_only=True)
class Heatmap(Panel):
    """The buckets of a histogram over time: the darker, the more; `unit` is that of the bounds."""

    kind = "heatmap"

    def custom(self) -> Json:
        """Return a linear scale: bounds are given by the buckets."""
        return {"scaleDistribution": {"type": "linear"}}

    def options(self) -> Json:
        """Return cells in shades whose order is visible without colour."""
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "mode": "scheme",
                "scheme": "Blues",
                "fill": "blue",
                "steps": 64,
                "exponent": 0.5,
                "reverse": False,
                "scale": "exponential",
            },
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "exemplars": {"color": BAD},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "unit": self.unit, "reverse": False},
        }


def _in_grey(missing: str) -> Json:
    """Return the text of a missing value in grey: in the first step's it would look good."""
    result = {"text": missing, "color": NEUTRAL, "index": 0}
    return {"type": "special", "options": {"match": "null", "result": result}}


def targets(*queries: tuple[str, str]) -> list[Target]:
    """Return queries over time from expressions and legends."""
    return [
        Target(expr=expression, legendFormat=legend, refId=chr(ord("A") + index))
        for index, (expression, legend) in enumerate(queries)
    ]


def now(*queries: tuple[str, str]) -> list[Target]:
    """Return queries for one value per series."""
    return [attr.evolve(target, instant=True) for target in targets(*queries)]


def rows(*expressions: str) -> list[Target]:
    """Return queries for a table."""
    queries = now(*((expression, "") for expression in expressions))
    return [attr.evolve(target, format="table") for target in queries]


def link(title: str, url: str) -> Json:
    """Return a link that opens in a new tab."""
    return {"title": title, "url": url, "targetBlank": True}


def _panel_link(title: str, url: str) -> Json:
    return {
        **link(title, url),
        "type": "link",
        "icon": "external link",
        "tooltip": title,
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
    }
