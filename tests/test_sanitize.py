import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rankscope_analyzers.text.sanitize import markdown, name, visible


def test_plain_text_stays_as_it_is():
    assert visible("rank 5 (node gpu-07, GPU 5) é 漢字") == "rank 5 (node gpu-07, GPU 5) é 漢字"


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b31m", "a\rb", "a\nb", "\u202egnp.exe", "\u2028", "\x00", "\udc80"]
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text):
    shown = visible(text)
    assert shown.isprintable()
    assert "\\" in shown


def test_names_are_no_longer_than_kubernetes_allows():
    assert len(name("n" * 10_000)) == 253
    assert name("n" * 10_000).endswith("...")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[click](http://evil.example)",
        "![x](http://evil.example/x.png)",
        "`code` *bold* _it_ ~~no~~ $x$",
        "# heading",
        "- item",
        "1. item",
        "| a | b |",
        "<http://evil.example>",
        "&lt;b&gt; &amp;",
        "a\\",
        "    indented",
        "> quote",
        "===",
        "---",
        "+ item",
        "2) item",
        "~~~",
        "_a_ a_b __c__ mlx5_0_",
        "www.evil.example http://evil.example",
        "trailing #",
        "gpu-07: 1.2 GHz (of 1.98), 40% slower; it's 'so' \"so\" {x} a=b a^b !",
    ],
)
@pytest.mark.parametrize("before", ["Name: ", ""], ids=["inside", "line start"])
def test_markdown_shows_a_sentence_as_it_is(text, before):
    tokens = MarkdownIt("commonmark").enable("table").parse(f"{before}{markdown(text)} end")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    (inline,) = (token for token in tokens if token.type == "inline")
    assert all(child.type in {"text", "text_special"} for child in inline.children)
    assert "".join(child.content for child in inline.children) == f"{before}{text} end"


@given(st.text(max_size=60))
@example("a|b")
@example("a\\|")
def test_whatever_stands_in_a_table_cell_leaves_the_table_alone(text):
    table = f"| a | b |\n|---|---|\n| {markdown(text)} | 1 |\n"
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(table)
    # A row is always given as many cells as its head has: what counts is what is in the last one.
    starts = [place for place, token in enumerate(tokens) if token.type == "td_open"]
    assert [tokens[place + 1].content for place in starts][1:] == ["1"]
    inline = [child for token in tokens for child in token.children or ()]
    assert all(child.type in {"text", "text_special"} for child in inline)


def test_figures_and_names_stay_readable_before_they_are_rendered():
    said = "rank 13 (node gpu-07, GPU 5) at 1.2 GHz of 1.98 since 2025-10-09 08:55:26, mlx5_5"
    assert markdown(said) == said


def test_addresses_are_no_links_to_a_renderer_that_links_bare_ones():
    for text in ("http://evil.example", "WWW.evil.example", "a@evil.example"):
        assert not re.search(r"(?<!\\)://|www\.|@\w", markdown(text), re.IGNORECASE)
