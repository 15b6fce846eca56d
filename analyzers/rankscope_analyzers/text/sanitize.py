"""Sanitize text from outside (names of jobs, nodes and devices).

Pods choose names. In a terminal an escape sequence could rewrite the screen and a direction mark
could reverse a name; in Markdown a name could become a link or half a table.
"""

from __future__ import annotations

import re

NAME_CHARACTERS = 253
"""Longest name of a Kubernetes object (RFC 1123 subdomain); what is longer is cut."""

SENTENCE_CHARACTERS = 2000
"""Far longer than any sentence of ours, so a long name cannot bloat the report."""

ANYWHERE = re.compile(r"([\\`*\[\]|~$#])")
"""Characters with a meaning anywhere in a line: escapes, code, emphasis, links, table cells, struck
text, and in some renderers formulas and references to issues (CommonMark 0.31, GFM 0.29)."""

OUTSIDE_A_WORD = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
"""An underscore emphasizes only at the edge of a word: names such as mlx5_0 stay readable."""

BARE_LINK = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""Without these, GFM makes no link of a bare address."""

LINE_START = re.compile(r"^(?:(?=[-+=])|(\d{1,9})(?=[.)](?: |$)))")
"""Characters that would turn the line that they begin into a list or an underlined title."""


def visible(text: str, most: int = SENTENCE_CHARACTERS) -> str:
    """Return text in which every character is visible: controls and direction marks as escapes.

    Args:
        text: any text.
        most: characters of it to keep.
    """
    kept = text if len(text) <= most else text[: most - 3] + "..."
    if kept.isprintable():
        return kept
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in kept
    )


def name(text: str) -> str:
    """Return a visible name of bounded length."""
    return visible(text, NAME_CHARACTERS)


def markdown(text: str) -> str:
    """Return a sentence that any Markdown renderer shows unchanged: no markup, links or HTML."""
    escaped = ANYWHERE.sub(r"\\\1", visible(text))
    for pattern in (OUTSIDE_A_WORD, BARE_LINK):
        escaped = pattern.sub(lambda found: f"\\{found[0]}", escaped)
    escaped = LINE_START.sub(r"\1\\", escaped)
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        escaped = escaped.replace(mark, entity)
    if escaped.startswith(" "):
        escaped = f"&#32;{escaped[1:]}"
    # Renderers look for addresses and mentions after they have resolved escapes.
    return escaped.replace("@", "@&#8203;")
