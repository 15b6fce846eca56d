"""Runbooks as HTML, for a page without network access."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from rankscope_analyzers.reports.report_page.elements import Html, element
from rankscope_analyzers.text import runbooks

LOWER = 2
"""Levels by which headings of a runbook are below those of the page."""


def section(names: Sequence[str]) -> Html | None:
    """Return all these runbooks, the first one open; None where none is found."""
    texts = {name: runbooks.text(name) for name in names}
    known = {name: text for name, text in texts.items() if text is not None}
    if not known:
        return None
    books = [
        element(
            "details",
            element("summary", name),
            _html(text, known),
            id=f"runbook-{name}",
            class_="runbook",
            open=number == 0,
        )
        for number, (name, text) in enumerate(known.items())
    ]
    return element(
        "section", element("h2", "Runbooks", id="runbooks"), *books, aria_labelledby="runbooks"
    )


def _html(text: str, embedded: Collection[str]) -> Html:
    """Return Markdown as HTML: HTML in it remains text, links stay inside the page."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(text)
    for token in _all(tokens):
        if token.type.startswith("heading_"):
            token.tag = f"h{min(6, int(token.tag[1]) + LOWER)}"
        if token.type == "link_open":
            name = PurePosixPath(str(token.attrs.get("href", ""))).stem
            inside = f"#runbook-{name}" if name in embedded else "#runbooks"
            token.attrs = {"href": inside}
    return Html(str(parser.renderer.render(tokens, parser.options, {})))


def _all(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())
