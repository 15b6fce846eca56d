"""Limits of torch's profiler traces: at each and just beyond it."""

from __future__ import annotations

import numpy as np
import pytest

from kineto_traces import GLOO_THREAD, Trace
from rankscope_analyzers.profiles import kineto_files
from rankscope_analyzers.profiles.json_stream import JsonStream, JsonStreamError
from rankscope_analyzers.profiles.kineto import node_name, rank_steps, writer
from rankscope_analyzers.profiles.kineto_spans import TraceError, TraceSpans
from rankscope_analyzers.steps.job_records import SourceError


def text(characters):
    rest = iter((f'{{"a": "{"x" * (characters - 2)}"', "}", ""))
    return lambda _: next(rest)


@pytest.mark.parametrize(("characters", "taken"), [(32 << 20, True), ((34 << 20) + 1, False)])
def test_a_value_of_a_trace_has_32_mebi_characters(characters, taken):
    stream = JsonStream(text(characters), 1 << 40)
    if taken:
        assert len(dict(stream.members("traceEvents"))["a"]) == characters - 2
        return
    with pytest.raises(JsonStreamError):
        list(stream.members("traceEvents"))


def test_a_trace_is_read_a_mebi_character_at_a_time():
    sizes = []
    list(JsonStream(lambda size: sizes.append(size) or "{}", 1 << 40).members("x"))
    assert sizes[0] == 1 << 20


def gloo_steps(gap):
    """A step of 100 ms that waits for its peers all the time, with two operators in the middle."""
    trace = Trace(backend="gloo")
    trace.add("user_annotation", "ProfilerStep#3", 0, 100_000)
    trace.add("user_annotation", "Optimizer.step#SGD.step", 99_000, 500)
    trace.add("user_annotation", "gloo:all_reduce", 0, 100_000, GLOO_THREAD)
    trace.add("cpu_op", "aten::mul", 10_000, 10_000)
    trace.add("cpu_op", "aten::mul", 20_000 + gap, 10_000)
    spans = TraceSpans()
    for member, value in trace.document().items():
        for item in value if member == "traceEvents" else [value]:
            spans.take(member, item)
    return rank_steps(spans, writer(spans.about))


@pytest.mark.parametrize(("gap", "compute"), [(90, 0.02009), (110, 0.02)])
def test_a_tenth_of_a_millisecond_between_operators_is_python(gap, compute):
    np.testing.assert_allclose(gloo_steps(gap).compute, compute, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("seconds", "taken"), [(4_102_444_800, True), (4_102_444_801, False)])
def test_a_trace_begins_before_the_year_2100(seconds, taken):
    about = {"baseTimeNanoseconds": seconds * 10**9}
    if taken:
        assert writer(about).base_unix_ns == seconds * 10**9
        return
    with pytest.raises(TraceError, match="baseTimeNanoseconds"):
        writer(about)


@pytest.mark.parametrize(("microseconds", "kept"), [(4_102_444_800e6, 1), (4_102_444_801e6, 0)])
def test_an_event_ends_before_the_year_2100(microseconds, kept):
    spans = TraceSpans()
    event_of = {"ph": "X", "name": "ProfilerStep#1", "ts": microseconds, "dur": 1.0}
    spans.take("traceEvents", event_of)
    assert len(spans.steps) == kept


def test_a_node_name_of_a_trace_has_256_characters():
    assert node_name("n" * 999) == "n" * 256


class Folder:
    """A folder of traces that are never opened."""

    def __init__(self, count):
        self.count = count

    def is_dir(self):
        return True

    def iterdir(self):
        for number in range(self.count):
            yield File(f"{number}.json")


class File(str):
    __slots__ = ()
    name = property(str)

    def is_file(self):
        return True


def test_65536_traces_of_a_job_are_read():
    assert len(kineto_files._files(Folder(65_536))) == 65_536
    with pytest.raises(SourceError, match="more than 65536 traces"):
        kineto_files._files(Folder(65_537))


def test_eight_traces_that_cannot_be_used_are_named():
    found = kineto_files._shortened([f"{number} is empty" for number in range(20)])
    assert len([one for one in found if one.endswith("is empty")]) == 8


def test_a_trace_has_four_gibi_characters(monkeypatch, tmp_path):
    limits = []

    class Stream:
        def __init__(self, read, most):
            limits.append(most)

        def members(self, name):
            return ()

    monkeypatch.setattr(kineto_files, "JsonStream", Stream)
    (tmp_path / "a.json").write_text("{}")
    kineto_files._spans(tmp_path / "a.json")
    assert limits == [4 << 30]


def test_eight_million_spans_of_a_trace_are_kept():
    spans = TraceSpans()
    spans._kept = 7_999_999
    span = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1.0, "dur": 1.0}
    spans.take("traceEvents", span)
    with pytest.raises(TraceError, match="more than 8000000 spans"):
        spans.take("traceEvents", span)
