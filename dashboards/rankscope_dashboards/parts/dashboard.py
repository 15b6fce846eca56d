"""A dashboard in the format of Grafana 12 and newer: rows, variables, annotations and layout."""

from __future__ import annotations

from collections.abc import Sequence

import attr
from grafanalib import core

from rankscope_dashboards.parts.panels import DATA_SOURCE, Json, Panel

SCHEMA_VERSION = 42
"""The last version of Grafana's first dashboard API; older servers that know 41 read it as well."""


@attr.s(kw_only=True)
class Row(core.RowPanel):
    """A heading over the panels that follow."""

    title: str = attr.ib()
    gridPos: core.GridPos = attr.ib()  # noqa: N815 - grafanalib's name

    def to_json_data(self) -> Json:
        """Return the heading."""
        return {
            "type": "row",
            "id": self.id,
            "title": self.title,
            "gridPos": self.gridPos,
            "collapsed": False,
            "panels": [],
        }


@attr.s(kw_only=True)
class Variable(core.Template):
    """A variable: the data source, or the values of a label of a series.

    With `includeAll` all values are one regular expression that also matches a missing label.
    Grafana escapes values for regular expressions only if there may be several: `multi` is for any
    variable that is matched with =~, and for links with all values of another dashboard.
    """

    name: str = attr.ib()
    query: str = attr.ib()
    label: str = attr.ib(default="")
    type: str = attr.ib(default="query")
    includeAll: bool = attr.ib(default=False)  # noqa: N815 - grafanalib's name
    multi: bool = attr.ib(default=False)

    def to_json_data(self) -> Json:
        """Return the variable; values are queried again when the time range changes."""
        common = {"name": self.name, "label": self.label, "hide": 0, "type": self.type}
        if self.type == "datasource":
            current = {"text": "default", "value": "default", "selected": False}
            rest = {"query": self.query, "current": current, "refresh": 1, "regex": ""}
            return {**common, **rest, "multi": False, "includeAll": False, "options": []}
        all_of_them = {"text": "All", "value": "$__all", "selected": True}
        return {
            **common,
            "datasource": DATA_SOURCE,
            "definition": self.query,
            "query": {"qryType": 1, "query": self.query, "refId": f"variable-{self.name}"},
            "includeAll": self.includeAll,
            **({"allValue": ".*", "current": all_of_them} if self.includeAll else {}),
            "multi": self.multi,
            "options": [],
            "refresh": 2,
            "regex": "",
            "sort": 3 if self.name == "rank" else 1,
        }


def annotation(name: str, expression: str, title: str, text: str, color: str) -> Json:
    """Return marks at the times, in milliseconds, that a query's values are."""
    return {
        "name": name,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "datasource": DATA_SOURCE,
        "expr": expression,
        "titleFormat": title,
        "textFormat": text,
        "useValueForTime": True,
        "step": "60s",
    }


@attr.s(kw_only=True)
class Dashboard(core.Dashboard):
    """A dashboard of rows and panels; `marks` are its annotations, `others` its links."""

    uid: str = attr.ib()
    title: str = attr.ib()
    description: str = attr.ib()
    panels: list[core.Panel] = attr.ib()
    links: Sequence[Json] = attr.ib(factory=list)
    refresh: str = attr.ib(default="1m")
    marks: Sequence[Json] = attr.ib(factory=list)
    variables: Sequence[Variable] = attr.ib(factory=list)
    since: str = attr.ib(default="now-1h")

    def to_json_data(self) -> Json:
        """Return the dashboard."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["rankscope"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": False,
            "graphTooltip": 1,
            "fiscalYearStartMonth": 0,
            "timezone": "utc",
            "time": {"from": self.since, "to": "now"},
            "timepicker": {},
            "refresh": self.refresh,
            "annotations": {"list": list(self.marks)},
            "links": self.links,
            "panels": self.panels,
            "templating": {"list": list(self.variables)},
        }


def arrange(sections: Sequence[tuple[str, Sequence[Panel]]]) -> list[core.Panel]:
    """Lay out panels below their headings, from left to right, in lines of 24 columns."""
    placed: list[core.Panel] = []
    y = 0
    for title, panels in sections:
        placed.append(Row(title=title, gridPos=core.GridPos(h=1, w=24, x=0, y=y)))
        y += 1
        x = line = 0
        for panel in panels:
            if x + panel.width > 24:
                x, y, line = 0, y + line, 0
            where = core.GridPos(h=panel.height, w=panel.width, x=x, y=y)
            placed.append(attr.evolve(panel, gridPos=where))
            x, line = x + panel.width, max(line, panel.height)
        y += line
    return placed
