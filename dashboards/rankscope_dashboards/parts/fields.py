"""Field settings of panels: colours by name, texts for values, table columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope_dashboards.parts.panels import Json

# Okabe and Ito's palette (jfly.uni-koeln.de/color), distinguishable with any colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


LINES = ("solid", "dash", "dot")
"""Beyond the palette, colours repeat with other lines."""

PATTERNS = {"dash": [16, 4, 3, 4], "dot": [0, 8]}
"""Pixels drawn and left out, unlike the plain dashes of thresholds."""

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def colored(names: Sequence[str]) -> list[Json]:
    """Return overrides that make series of these names distinguishable for everyone."""
    return [override(name, _look(index)) for index, name in enumerate(names)]


def _look(number: int) -> Json:
    """Return the colour and the line of a number; there are eighteen combinations."""
    again, color = divmod(number % (len(PALETTE) * len(LINES)), len(PALETTE))
    line = line_style(LINES[again]) if again else {}
    return {"color": {"mode": "fixed", "fixedColor": PALETTE[color]}, **line}


def line_style(fill: str) -> Json:
    """Return the setting of a line that is not solid."""
    return {"custom.lineStyle": {"fill": fill, "dash": PATTERNS[fill]}}


def numbered(before: str, after: str = "") -> list[Json]:
    """Return overrides that give a line its colour by the last digit of a number in its name.

    A rank has the same colour in all panels, and ten consecutive ones can be distinguished.

    Args:
        before: text before the number, as a regular expression.
        after: text after it.
    """
    return [matching(f"{before}\\d*{digit}(?!\\d){after}", _look(digit)) for digit in range(10)]


def lettered() -> list[Json]:
    """Return overrides that give a line its look by the last letter of the first word of its name.

    So a job or pod looks the same in all panels, and numbered ones can be distinguished; Grafana's
    own palette is not distinguishable with all kinds of colour vision.
    """
    count = len(PALETTE) * len(LINES)
    alike = (LETTERS[index::count] for index in range(count))
    words = [f"^\\S*[{letters}{letters.upper()}](?= |$)" for letters in alike]
    return [matching(word, _look(index)) for index, word in enumerate(words)]


def matching(pattern: str, properties: Json) -> Json:
    """Return settings of fields whose name matches a regular expression."""
    return _settings({"id": "byRegexp", "options": f"/{pattern}/"}, properties)


def override(name: str, properties: Json) -> Json:
    """Return settings of the field with a name."""
    return _settings({"id": "byName", "options": name}, properties)


def _settings(matcher: Json, properties: Json) -> Json:
    return {
        "matcher": matcher,
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
    """Return the transformation that keeps these columns of a table, in order, with new names."""
    order = {name: index for index, name in enumerate(names)}
    return [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(names)}}},
        {
            "id": "organize",
            "options": {"indexByName": order, "renameByName": dict(names), "excludeByName": {}},
        },
    ]
