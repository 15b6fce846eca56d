"""Settings of single fields of panels: colours by name, words for values, columns of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope_dashboards.panels import Json

# Okabe and Ito's palette (jfly.uni-koeln.de/color): told apart with any colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def colored(names: Sequence[str]) -> list[Json]:
    """Return overrides that give series of these names colours that all can tell apart."""
    return [
        override(name, {"color": {"mode": "fixed", "fixedColor": PALETTE[index % len(PALETTE)]}})
        for index, name in enumerate(names)
    ]


DASHED = {"fill": "dash", "dash": [10, 6]}


def numbered(before: str, after: str = "") -> list[Json]:
    """Return overrides that give a line its colour by the last digit of a number in its name.

    A rank has the same colour in all panels, and ten in a row can be told apart: beyond the
    palette lines are dashed.

    Args:
        before: what stands before the number, as a regular expression.
        after: what stands behind it.
    """
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/{before}\\d*{digit}(?!\\d){after}/"},
            "properties": [
                {"id": "color", "value": {"mode": "fixed", "fixedColor": color}},
                *([{"id": "custom.lineStyle", "value": DASHED}] if dashed else []),
            ],
        }
        for digit in range(10)
        for dashed, color in [(digit >= len(PALETTE), PALETTE[digit % len(PALETTE)])]
    ]


def override(name: str, properties: Json) -> Json:
    """Return settings of the field of a name."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def texts(values: Mapping[int, tuple[str, str]]) -> list[Json]:
    """Return the mapping of values to words and colours."""
    options = {
        str(value): {"index": index, "text": text, "color": color}
        for index, (value, (text, color)) in enumerate(values.items())
    }
    return [{"type": "value", "options": options}]


def columns(names: Mapping[str, str]) -> list[Json]:
    """Return the transformation that keeps these columns of a table, in order, under new names."""
    order = {name: index for index, name in enumerate(names)}
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(names)}}},
        {
            "id": "organize",
            "options": {"indexByName": order, "renameByName": dict(names), "excludeByName": {}},
        },
    ]
