"""HTML elements as values: text is escaped, only elements remain elements."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rankscope_analyzers.text.sanitize import visible

VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
"""Elements without content or end tag (HTML standard, section 13.1.2)."""


@dataclass(frozen=True, slots=True)
class Html:
    """Markup that is safe to put on the page."""

    markup: str


Child: TypeAlias = "Html | str | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def element(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """Return an element.

    Args:
        tag: its name.
        children: elements, text that is escaped, or None for nothing.
        attributes: `class_` is class and `aria_label` aria-label; True is written without a value,
            None and False are left out.
    """
    sentences = "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in VOID:
        return Html(f"<{tag}{sentences}>")
    return Html(f"<{tag}{sentences}>{join(children).markup}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Join several elements."""
    return Html("".join(map(_markup, children)))


def _markup(child: Child) -> str:
    if isinstance(child, Html):
        return child.markup
    return html.escape(visible(child)) if child else ""


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(visible(str(value)))}"'
