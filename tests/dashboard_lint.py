"""Faults of dashboards that Grafana would show or hide silently, one sentence each.

The rules are those of grafana/dashboard-linter except its template-job, template-instance,
target-job and target-instance (our series are told apart by cluster, job_id and node), and our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import promql_parser

Json = Mapping[str, Any]

BUILT_IN = {
    "__rate_interval",
    "__range",
    "__interval",
    "__from",
    "__to",
    "__data",
    "__value",
    "__all",
}
VARIABLE = re.compile(r"\$(?:\{(\w+)[^}]*\}|([A-Za-z_]\w*))")
TRANSFORMATIONS = {"filterFieldsByName", "organize", "merge"}
"""Those that panels use, all of @grafana/data's standard transformers."""

UNITS = {
    "bytes", "Bps", "celsius", "cps", "dateTimeFromNow", "hertz", "locale", "none", "ops",
    "percentunit", "s", "short", "string", "watt", "h",
}  # fmt: skip
"""Ids of @grafana/data's value formats that panels use."""

BOUNDED = {
    "le",
    "op",
    "reason",
    "domain",
    "resource",
    "transport",
    "gdr",
    "scope",
    "owned_by",
    "collector",
    "cause",
    "lease",
}
"""Labels with a vocabulary of a few words: a panel by them stays below 20 series. A cluster has one
lease for each installation of the watch."""

STAT_LETTERS = 12
"""Of a stat four columns wide, whose text shrinks until it fits."""

WINDOWS = {"10m", "1d"}
"""Fixed windows that say in the panel's description what they are for."""

COUNTER = re.compile(r"_total$|_(?:bucket|sum|count)$")
COUNTER_FUNCTIONS = {"rate", "increase", "irate", "changes", "resets"}


def parsed(expression: str) -> promql_parser.Expr:
    """Return the syntax tree of a query, Grafana's variables filled in."""
    filled = expression.replace("$__rate_interval", "4m").replace("$__range", "1h")
    return promql_parser.parse(VARIABLE.sub("x", filled))


def nodes(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield each node of a tree with the names of the functions and operators above it."""
    yield tree, path
    name = type(tree).__name__
    if name == "Call":
        below, children = (*path, tree.func.name), list(tree.args)
    elif name == "AggregateExpr":
        below, children = (*path, tree.op), [tree.expr]
    elif name == "BinaryExpr":
        below, children = path, [tree.lhs, tree.rhs]
    elif name in {"ParenExpr", "UnaryExpr", "SubqueryExpr"}:
        below, children = path, [tree.expr]
    elif name == "MatrixSelector":
        below, children = path, [tree.vector_selector]
    else:
        return
    for child in children:
        yield from nodes(child, below)


def panels_of(dashboard: Json) -> list[Json]:
    """Return the panels without headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def lint(dashboard: Json, known: Sequence[str]) -> Iterator[str]:
    """Yield faults.

    Args:
        dashboard: parsed JSON.
        known: uids of all dashboards.
    """
    yield from _templating(dashboard)
    yield from _layout(dashboard)
    yield from _links(dashboard, known)
    for panel in panels_of(dashboard):
        for fault in (*_words(panel), *_fields(panel), *_targets(panel)):
            yield f"{panel['title']}: {fault}"


def _templating(dashboard: Json) -> Iterator[str]:
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    if variables.get("datasource", {}).get("query") != "prometheus":
        yield "no variable of the Prometheus data source"
    if dashboard["editable"]:
        yield "can be edited, although it is generated"
    for name, variable in variables.items():
        if variable["type"] == "query":
            if variable["refresh"] != 2:
                yield f"${name} is not asked for anew when the time range changes"
            if variable["includeAll"] and variable["allValue"] != ".*":
                yield f"${name}: All leaves out series without the label"
            if not variable["multi"]:
                # Grafana would leave a name such as a+b as it is: a regular expression.
                yield f"${name} is not escaped, nor can it take All from another dashboard"
            selector = variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
            parsed(selector)
    shown = str([dashboard["panels"], dashboard["annotations"], dashboard["templating"]])
    used = {first or second for first, second in VARIABLE.findall(shown)} - BUILT_IN
    yield from (f"${name} is used and not defined" for name in sorted(used - set(variables)))
    yield from (f"${name} is defined and not used" for name in sorted(set(variables) - used))


def _layout(dashboard: Json) -> Iterator[str]:
    identities = [panel["id"] for panel in dashboard["panels"]]
    if len(set(identities)) < len(identities):
        yield "panel ids are not unique"
    boxes = [(panel["title"], panel["gridPos"]) for panel in dashboard["panels"]]
    for title, box in boxes:
        if box["x"] + box["w"] > 24:
            yield f"{title}: reaches beyond the last column"
        if box["w"] < 4:
            yield f"{title}: unreadable at 1280 pixels"
    for (title, one), (other_title, other) in combinations(boxes, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        if not apart and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]:
            yield f"{title} overlaps {other_title}"


def _links(dashboard: Json, known: Sequence[str]) -> Iterator[str]:
    for uid in re.findall(r"/d/([\w-]+)", str(dashboard)):
        if uid not in known:
            yield f"links to {uid}, which does not exist"
    for link in dashboard["links"]:
        if not (link["keepTime"] and link["includeVars"]):
            yield f"the link {link['title']} loses time or variables"


def _words(panel: Json) -> Iterator[str]:
    if not panel["title"]:
        yield "no title"
    if len(panel["description"]) < 40:
        yield "no description that says how to read it"
    if panel["fieldConfig"]["defaults"].get("noValue", "no data") == "no data":
        yield "does not say what is missing when there is no data"
    said = panel["fieldConfig"]["defaults"].get("noValue", "")
    if re.match(r"(?:all|every|nothing)\b", said) and " or " not in said:
        yield "takes series that are missing for good news"
    if panel["type"] == "stat" and len(panel["fieldConfig"]["defaults"]["noValue"]) > STAT_LETTERS:
        yield "says what is missing in letters too small to read"


def _fields(panel: Json) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["unit"] not in UNITS:
        yield f"unknown unit {defaults['unit']}"
    if panel["type"] == "table" and defaults["unit"] not in {"string", "short"}:
        # Grafana formats numbers in texts, too: GPU 5 would become a time or a length.
        yield f"labels that are numbers are shown as {defaults['unit']}"
    values = [step["value"] for step in defaults["thresholds"]["steps"]]
    if values[0] is not None or values[1:] != sorted(values[1:]):
        yield "thresholds do not ascend"
    for transformation in panel["transformations"]:
        if transformation["id"] not in TRANSFORMATIONS:
            yield f"unknown transformation {transformation['id']}"


def _targets(panel: Json) -> Iterator[str]:
    if not panel["targets"]:
        yield "asks nothing"
    if panel["datasource"]["uid"] != "${datasource}":
        yield "does not use the data source's variable"
    if len({target["refId"] for target in panel["targets"]}) < len(panel["targets"]):
        yield "refIds are not unique"
    for target in panel["targets"]:
        yield from _query(panel, target)


def _query(panel: Json, target: Json) -> Iterator[str]:
    expression = target["expr"]
    try:
        tree = parsed(expression)
    except ValueError as error:
        yield f"{error}: {expression}"
        return
    if panel["type"] in {"table", "stat", "bargauge"} and not target["instant"]:
        yield f"asks for a range and shows one value: {expression}"
    fixed = re.search(r"(?:rate|increase)\([^()]*\[(\d\w+)", expression)
    if fixed and fixed[1] not in WINDOWS:
        yield f"a fixed window: {expression}"
    if not target["instant"] and not _few(tree):
        yield f"may draw more than 20 series: {expression}"
    yield from _choices(tree, target["instant"], expression)
    for node, path in nodes(tree):
        yield from _selector(node, path, expression)


def _selector(node: Any, path: tuple[str, ...], expression: str) -> Iterator[str]:
    name = type(node).__name__
    if name == "VectorSelector":
        labels = {matcher.name for matcher in node.matchers.matchers}
        if "cluster" not in labels:
            yield f"{node.name} is not told apart by cluster: {expression}"
        counts = COUNTER.search(node.name or "")
        if {"rate", "increase", "irate"} & set(path) and not counts:
            yield f"the gauge {node.name} is taken for a counter: {expression}"
        bare = counts and not COUNTER_FUNCTIONS & set(path)
        if bare and "last_over_time" not in path:
            yield f"the counter {node.name} is shown as it is: {expression}"


def _choices(tree: Any, instant: bool, expression: str) -> Iterator[str]:
    for node, _ in nodes(tree):
        if type(node).__name__ == "AggregateExpr" and str(node.op) in {"topk", "bottomk"}:
            if node.param.val > 20:
                yield f"chooses more than 20: {expression}"
            # Chosen anew at each point, many more series are drawn over time.
            anew = "@ end()" not in node.expr.prettify()
            if node.modifier is None and anew and not instant:
                yield f"chooses anew at each point: {expression}"


def _few(tree: Any) -> bool:
    """Tell whether an expression gives at most some 20 series, whatever the fleet."""
    name = type(tree).__name__
    if name in {"ParenExpr", "UnaryExpr"}:
        return _few(tree.expr)
    if name == "NumberLiteral":
        return True
    if name == "Call":
        return all(_few(argument) for argument in tree.args)
    if name == "AggregateExpr":
        if tree.modifier is None:
            return True  # one value, or the few that topk chooses
        if _few(tree.expr):
            return True  # no more groups than there are series
        by = str(tree.modifier.type).endswith("By") and str(tree.op) not in {"topk", "bottomk"}
        return by and set(tree.modifier.labels) - {"cluster"} <= BOUNDED
    if name == "BinaryExpr":
        if str(tree.op) == "or":
            return _few(tree.lhs) and _few(tree.rhs)
        return _few(tree.lhs) or _few(tree.rhs)
    return False
