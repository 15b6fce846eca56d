"""Text from outside, such as names of jobs, nodes and devices, made harmless for whoever reads it.

Pods choose names. In a terminal an escape sequence could rewrite the screen, a direction mark could
turn a name round, in Markdown a name could become a link or half a table.
"""

from __future__ import annotations

import re

NAME_CHARACTERS = 253
"""Longest name of a Kubernetes object (RFC 1123 subdomain); what is longer is cut."""

SENTENCE_CHARACTERS = 2000
"""Far beyond any sentence of ours; a name that swells one cannot swell the report."""

PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:=$^\"'])")
"""What begins or ends anything in CommonMark, in tables, in bare links (`://`, `www.`) and in the
mathematics of some renderers; CommonMark 0.31 section 2.4 lets a backslash precede any of them."""


def visible(text: str, most: int = SENTENCE_CHARACTERS) -> str:
    """Return text in which every character shows: controls and direction marks as escapes.

    Args:
        text: anything.
        most: characters that are kept of it.
    """
    kept = text if len(text) <= most else text[: most - 3] + "..."
    if kept.isprintable():
        return kept
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in kept
    )


def name(text: str) -> str:
    """Return a name that shows, of bounded length."""
    return visible(text, NAME_CHARACTERS)


def markdown(text: str) -> str:
    """Return a sentence that any Markdown renderer shows as it is: no markup, links or HTML."""
    escaped = PUNCTUATION.sub(r"\\\1", visible(text))
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        escaped = escaped.replace(mark, entity)
    # Renderers look for addresses and mentions after they have undone escapes.
    return escaped.replace("@", "@&#8203;")
