"""Parts that end with a line give the same lines as parts of equal sizes, at the same places."""

from __future__ import annotations

import codecs
import io
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_analyzers.intake import log_files, whole_lines
from rankscope_analyzers.intake.log_files import chunks
from rankscope_analyzers.intake.whole_lines import WholeLines

PIECES = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\xff\xfe",
        b"h:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 2[1] via P2P/IPC\n",
        b"NC",
        b"CL WARN x",
        b'{"NCCL',
        b'{"log":"NCCL INFO a\\n"}\n',
        b"\x1b[0m",
        b"&gt;",
        b"2026-11-21T02:14:00Z stdout P part\n",
        b"x" * 40,
    ]
)


def texts(parts: Iterable[bytes], max_pending: int) -> tuple[list[bytes], int]:
    framing = Unframer(max_pending)
    found = [framing.feed(part) for part in parts]
    joined: list[bytes] = []
    for text in filter(None, (*found, framing.finish())):
        if joined and not joined[-1].endswith(b"\n"):
            joined[-1] += text  # carriage returns at the end of a text, one by one or together
        else:
            joined.append(text)
    return joined, framing.oversized


def in_equal_parts(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def in_lines(text: bytes, size: int) -> list[bytes]:
    """Read the first part as it is, and the rest by `WholeLines`."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "a.log"
        log.write_bytes(text)
        with io.FileIO(log) as source:
            parts = [source.read(size)]
            rest = WholeLines(source, size)
            while part := rest.read(size):
                parts.append(part)
    return parts


@example(b"\n\n\r\n\r\n\r\r", 4, 3)
@given(st.lists(PIECES).map(b"".join), st.integers(2, 90), st.integers(1, 64))
def test_each_part_completes_the_same_lines_as_one_of_equal_size(text, size, look):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_lines, "LOOK_BYTES", look)
        parts = in_lines(text, size)
    assert b"".join(parts) == text
    for max_pending in (size + look + 1, 10_000):
        assert texts(parts, max_pending) == texts(in_equal_parts(text, size), max_pending)


def test_a_part_ends_with_a_line():
    text = b"".join(b"%03d\n" % number for number in range(100))
    first, *others = in_lines(text, 90)
    assert first == text[:90]
    assert all(part.endswith(b"\n") for part in others)


@given(st.lists(PIECES).map(b"".join))
def test_a_file_is_read_to_its_last_byte(text):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "CHUNK_BYTES", 30)
        log = Path(folder) / "a.log"
        log.write_bytes(b"a" + text)
        assert b"".join(chunks(str(log))) == b"a" + text


def test_a_file_that_was_emptied_while_it_is_read_just_ends(tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"line\n" * (log_files.CHUNK_BYTES // 5 * 4))
    pieces = chunks(str(log))
    read = len(next(pieces)) + len(next(pieces))
    os.truncate(log, 0)
    assert list(pieces) == []
    assert read > log_files.CHUNK_BYTES


def test_lines_in_utf_16_are_cut_nowhere_but_at_equal_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 64)
    text = "step 1\n\N{LATIN CAPITAL LETTER S WITH CARON}\N{MALAYALAM LETTER UU}\n" * 40
    log = tmp_path / "a.log"
    log.write_bytes(codecs.BOM_UTF16_LE + text.encode("utf-16-le"))
    pieces = list(chunks(str(log)))
    assert b"".join(pieces).decode() == text
    assert len(pieces) == len(log.read_bytes()) // 64 + 2


def test_a_pipe_is_read_as_it_comes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"a\nb")
    pieces = chunks(str(pipe))
    assert next(pieces) == b"a\nb"
    pieces.close()
    os.close(writer)
