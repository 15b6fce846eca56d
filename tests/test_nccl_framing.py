"""What log pipelines wrap around lines comes off, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_agent.contract.log_text.framing import Unframer, _has_objects

MAX_PARTIAL_BYTES = 64 << 10

STAMP = b"2026-11-21T02:14:00.123456789Z"


def unframed(*chunks: bytes) -> bytes:
    framing = Unframer()
    return b"".join([framing.feed(chunk) for chunk in chunks]) + framing.finish()


def test_what_a_web_page_escaped_is_itself_again():
    line = b"> h:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -&gt; 4[0] &#39;a&#39; &amp; &lt;b&gt;\n"
    assert unframed(line) == b"> h:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] 'a' & <b>\n"
    assert unframed(b"if a && b; &amp;lt;\n") == b"if a && b; &lt;\n"


@pytest.mark.parametrize("key", ["message", "msg", "line"])
def test_what_nccl_says_within_a_line_of_json_is_taken_out(key):
    said = b"h:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0\n"
    escaped = said.strip().replace(b">", b"\\u003e")
    line = b'{"ts":1,"%s":"%s\\n"}\n' % (key.encode(), escaped)
    other = b'{"loss": 2.5}\n{"NCCL": 3}\n{"cut NCCL\n'
    assert unframed(line + other) == said + other
    assert unframed(b"a line before\n" + line) == b"a line before\n" + said


@pytest.mark.parametrize("others", [0, 3, 700])
def test_a_line_of_json_is_found_among_any_number_of_brackets(others):
    said = b"h:1:2 [0] NCCL INFO Using network Socket\n"
    before = b"{'loss': 2.5} {\n" * others
    assert unframed(before + b'{"msg":"%s"}\n' % said.strip()) == before + said


@given(st.lists(st.sampled_from([b"{", b'"', b"\n", b"x", b'\n{"', b"y" * 300])).map(b"".join))
def test_a_line_of_json_is_found_by_its_bracket_as_by_its_whole_beginning(text):
    assert _has_objects(text) == (text.startswith(b'{"') or b'\n{"' in text)


def test_parts_of_a_cri_line_are_joined_for_each_stream():
    text = b"".join(
        STAMP + line
        for line in (
            b" stdout P one \n",
            b" stderr P un \n",
            b" stdout F two\n",
            b" stderr F deux\n",
        )
    )
    assert unframed(text) == b"one two\nun deux\n"


def test_parts_that_never_end_are_cut_off():
    text = (STAMP + b" stdout P " + b"x" * 16_000 + b"\n") * 100
    assert len(unframed(text)) <= MAX_PARTIAL_BYTES


@pytest.mark.parametrize("others", [0, 3, 700])
@pytest.mark.parametrize("stream", [b"stdout", b"stderr"])
def test_a_part_is_found_among_any_number_of_the_letter_its_tag_has(others, stream):
    whole = STAMP + b" stdout F PPP" + b"P" * others + b"\n"
    parts = STAMP + b" " + stream + b" P a\n" + STAMP + b" " + stream + b" F b\n"
    plain = unframed(whole + parts)
    assert plain.endswith(b"P\nab\n")


def test_tags_after_the_first_are_passed_over():
    assert unframed(STAMP + b" stdout P:new a\n" + STAMP + b" stdout F:new b\n") == b"ab\n"


def test_a_text_without_a_line_end_is_handed_on_in_pieces_and_counted():
    framing = Unframer(max_pending=1000)
    given = sum(len(framing.feed(b"x" * 300)) for _ in range(100))
    assert framing.oversized > 0
    assert framing.pending_bytes < 1000
    assert given + framing.pending_bytes == 30_000


@pytest.mark.parametrize(
    "line", [b'{"log":"cut off\n', b'{"log":17}\n', b'{"log":"' + b"[" * 5000 + b"\n"]
)
def test_what_only_begins_like_dockers_json_stays_as_it_is(line):
    assert unframed(line) == line


def test_colours_come_off():
    assert unframed(b"\x1b[1;31mred\x1b[0m\n") == b"red\n"
