"""Limits of captures, run records, errors, commands, hangs and traces: at each and beyond it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from flight_launches import Call, Recording
from kineto_traces import GLOO_THREAD, Trace
from rankscope_agent.contract.stalls import Call as StalledCall
from rankscope_agent.contract.stalls import GroupCalls
from rankscope_analyzers.captures import archive
from rankscope_analyzers.captures.archive import CaptureError
from rankscope_analyzers.captures.kept import HangCaptures
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import diff, doctor, gpus, jobs, watch
from rankscope_analyzers.commands.job_source import JobSource
from rankscope_analyzers.doctor import agent_startup
from rankscope_analyzers.hangs.mismatches import mismatches
from rankscope_analyzers.isolation.boundary import AnalysisError, ErrorLog, attempt
from rankscope_analyzers.profiles import collective_waits, flight_records, kineto_files
from rankscope_analyzers.profiles.json_stream import JsonStream, JsonStreamError
from rankscope_analyzers.profiles.kineto import node_name, rank_steps, writer
from rankscope_analyzers.profiles.kineto_spans import TraceError, TraceSpans
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.steps.job_records import SourceError


class Large(bytes):
    """Bytes that say that they are many more than they are."""

    def __new__(cls, length, text=b""):
        made = super().__new__(cls, text)
        made.length = length
        return made

    def __len__(self):
        return self.length


@pytest.mark.parametrize(("length", "left_out"), [(256 << 20, []), ((256 << 20) + 1, ["x"])])
def test_a_capture_holds_256_mib(tmp_path, monkeypatch, length, left_out):
    monkeypatch.setattr(archive, "_add", lambda *_: None)
    monkeypatch.setattr(archive, "hashlib", SimpleNamespace(sha256=lambda _: hashlib.sha256()))
    assert archive.write(tmp_path / "c", {"x": Large(length)}, {}) == left_out


def test_a_capture_holds_twenty_thousand_files(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_add", lambda *_: None)
    files = {f"pages/1-{number}.txt": b"" for number in range(20_001)}
    assert archive.write(tmp_path / "c", files, {}) == ["pages/1-20000.txt"]


def packed(path, *bodies):
    with gzip.open(path, "wb", 1) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name, body in bodies:
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return path


def manifest(size=0, version=1):
    found = json.dumps({"format_version": version, "files": [], "left_out": []}).encode()
    return "manifest.json", found + b" " * max(0, size - len(found))


@pytest.mark.parametrize(
    ("size", "why"), [(8 << 20, ""), ((8 << 20) + 1, "more than a capture holds")]
)
def test_a_manifest_has_8_mib(tmp_path, size, why):
    path = packed(tmp_path / "c", manifest(size))
    if not why:
        assert archive.read(path, tmp_path)["files"] == []
        return
    with pytest.raises(CaptureError, match=why):
        archive.read(path, tmp_path)


def test_captures_of_another_version_are_refused(tmp_path):
    with pytest.raises(CaptureError, match="manifest of version 1"):
        archive.read(packed(tmp_path / "c", manifest(version=2)), tmp_path)
    archive.write(tmp_path / "own", {}, {})
    assert archive.read(tmp_path / "own", tmp_path)["format_version"] == 1


def test_captures_beyond_64_or_2_gib_go_the_oldest_first(tmp_path):
    kept = HangCaptures(tmp_path, "0.1.0")
    for number in range(66):
        (tmp_path / f"{number:03d}.capture.tar.gz").touch()
    kept.take(None, (), 0.0)
    assert len(list(tmp_path.iterdir())) == 64
    os.truncate(tmp_path / "065.capture.tar.gz", 1 << 30)
    os.truncate(tmp_path / "064.capture.tar.gz", 1 << 30)
    kept.take(None, (), 0.0)
    assert len(list(tmp_path.iterdir())) == 64
    os.truncate(tmp_path / "063.capture.tar.gz", 1)
    kept.take(None, (), 0.0)
    assert sorted(path.name[:3] for path in tmp_path.iterdir()) == ["064", "065"]


@pytest.mark.parametrize(("age", "due"), [(599.0, False), (600.0, True)])
def test_a_run_record_is_renewed_after_ten_minutes(tmp_path, age, due):
    files = RunRecordFiles(tmp_path)
    files.write({"job_id": "team/a", "attempt": 0}, 1000.0)
    assert files.due("team/a", 1000.0 + age) is due


def test_ten_thousand_run_records_are_kept(monkeypatch):
    gone = []

    def record(number):
        state = SimpleNamespace(st_mtime=float(number))
        return SimpleNamespace(stat=lambda: state, unlink=lambda missing_ok: gone.append(number))

    files = RunRecordFiles(SimpleNamespace(glob=lambda _: [record(n) for n in range(10_003)]))
    files._thin_out()
    assert gone == [0, 1, 2]


def test_an_error_quotes_300_characters_of_its_message():
    def broken():
        raise ValueError("x" * 5000)

    error = attempt("report", "t/j", broken)
    assert isinstance(error, AnalysisError)
    assert 280 <= error.reason.count("x") <= 300


def one(calls, message=""):
    if calls:
        other(calls - 1, message)
    raise ValueError(message)


def other(calls, message):
    one(calls, message)


def test_a_traceback_has_twenty_frames_and_sixteen_thousand_characters():
    trace = attempt("report", "t/j", lambda: one(50)).trace
    assert trace.count(", in one") + trace.count(", in other") == 20
    assert len(attempt("report", "t/j", lambda: one(1, "x" * 20_000)).trace) == 16_000


@pytest.mark.parametrize(("others", "again"), [(4095, 0), (4096, 1)])
def test_4096_errors_are_known_as_logged(others, again):
    lines = []
    log = ErrorLog(lines.append)
    errors = [AnalysisError("report", str(n), "ValueError", "a.py:1", "") for n in range(4097)]
    log.note(errors[:1])
    log.note(errors[1 : others + 1])
    lines.clear()
    log.note(errors[:1])
    assert len(lines) == again


@pytest.mark.parametrize(("size", "read"), [(64 << 20, True), ((64 << 20) + 1, False)])
def test_a_run_record_to_compare_has_64_mib(monkeypatch, size, read):
    monkeypatch.setattr(diff.untrusted_json, "read", lambda data: {})
    document = SimpleNamespace(read=lambda most: Large(min(size, most)))

    class Record:
        def open(self, mode):
            return self

        def __enter__(self):
            return document

        def __exit__(self, *_):
            pass

    if read:
        assert diff._read(Record()) == {}
        return
    with pytest.raises(InputError):
        diff._read(Record())


def test_32_agents_are_examined_at_once(monkeypatch):
    pools = []

    class Pool:
        def __init__(self, size):
            pools.append(size)
            raise InputError("enough is known")

    monkeypatch.setattr(doctor, "ThreadPoolExecutor", Pool)
    with pytest.raises(InputError):
        doctor._ask([])
    assert pools == [32]


@pytest.mark.parametrize("seconds", [1.9, 600.1])
def test_gpus_are_watched_for_two_seconds_to_ten_minutes(seconds):
    with pytest.raises(InputError, match="takes 2 to 600"):
        gpus.run(SimpleNamespace(seconds=seconds))


@pytest.mark.parametrize("seconds", [2.0, 600.0])
def test_gpus_are_looked_at_every_two_seconds(monkeypatch, seconds):
    polls, pauses = [], []
    monkeypatch.setattr(gpus.agent_pages, "pages", lambda agents: polls.append(1) or (["page"], []))
    monkeypatch.setattr(gpus.time, "sleep", pauses.append)
    gpus.watch([], seconds)
    assert len(polls) == 1 + seconds / 2
    assert set(pauses) == {2.0}


@pytest.mark.parametrize(("refresh", "why"), [(1.9, "2 seconds or more"), (2.0, "--json")])
def test_a_table_of_jobs_is_shown_again_after_two_seconds(refresh, why):
    with pytest.raises(InputError, match=why):
        jobs.run(SimpleNamespace(refresh=refresh, json=True))


def test_who_leads_is_looked_at_every_second_and_an_evaluation_hangs_after_a_quarter_of_an_hour(
    monkeypatch,
):
    pauses, deadlines = [], []
    monkeypatch.setattr(watch.time, "sleep", pauses.append)
    exporter = SimpleNamespace(set_deadline=deadlines.append, stand_by=lambda: None)
    source = JobSource(lambda: None)
    standing_by = SimpleNamespace(held=lambda: False)
    watch.run_cycle(source, exporter, standing_by, 30.0, None)
    assert (deadlines, pauses) == ([930.0], [1.0])


NOW = 1_760_000_000.0


def event(message, age=0.0):
    at = pd.Timestamp(NOW - age, unit="s", tz="UTC").isoformat()
    return {
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"kind": "DaemonSet", "name": "rankscope-agent"},
    }


PULL = "Failed to pull image {}"


@pytest.mark.parametrize(("age", "told"), [(1199.0, 1), (1201.0, 0)])
def test_an_event_of_twenty_minutes_ago_says_nothing_of_now(age, told):
    assert len(agent_startup.reasons([event(PULL.format("a"), age)], (), NOW)) == told


def test_200_characters_of_an_event_are_shown():
    (sentence,) = agent_startup.reasons([event(PULL.format("x" * 999))], (), NOW)
    assert 150 <= sentence.count("x") <= 200


def pending(number):
    condition = {"type": "PodScheduled", "status": "False", "message": f"reason {number}"}
    return {"status": {"conditions": [condition]}}


def test_eight_reasons_why_agents_do_not_start_are_shown():
    assert len(agent_startup.waiting([pending(number) for number in range(12)])) == 8


def stalled(rank, operation):
    call = StalledCall(operation, 7, message=False, shape="", done=False, created_unix_seconds=1.0)
    return SimpleNamespace(groups=(GroupCalls("0", "default_pg", (), 7, (call,)),))


def test_of_two_ranks_in_different_collectives_neither_is_blamed():
    calls = {0: "all_reduce", 1: "all_gather", 2: "all_reduce"}
    found = {rank: stalled(rank, name) for rank, name in calls.items()}
    assert [one.differing for one in mismatches(found)] == [(1,)]
    del found[2]
    assert [one.differing for one in mismatches(found)] == [()]


def launches(apart):
    rows = [(rank, "g", "all_reduce", 1, at, np.nan, False) for rank, at in enumerate((0, apart))]
    return pd.DataFrame(rows, columns=list(collective_waits.LAUNCH_COLUMNS))


@pytest.mark.parametrize(("apart", "waited"), [(59.0, 59.0), (61.0, 0.0)])
def test_launches_a_minute_apart_are_not_of_one_collective(apart, waited):
    found = collective_waits.lateness(launches(apart), {})
    assert found["waited"].tolist() == [waited, 0.0]
    assert found["known"].all() == bool(waited)


@pytest.mark.parametrize(("gap", "seen"), [(0.8e-6, True), (1.5e-6, False)])
def test_windows_a_microsecond_apart_adjoin(gap, seen):
    spans = np.array([[100.0, 102.0]])
    windows = pd.DataFrame({"begin": [90.0, 101.0 + gap], "end": [101.0, 110.0]})
    assert collective_waits._inside(spans, windows).tolist() == [seen]


@pytest.mark.parametrize(("late", "notes"), [(14.5, 1), (15.5, 2)])
def test_a_host_that_is_last_by_a_twentieth_of_a_step_is_named(late, notes):
    recording = Recording(2, [Call({0: 10.0, 1: late})], backend="nccl")
    found = flight_records.complete(recording.records(), recording.windows(), {}, 2)[1]
    assert len(found) == notes


@pytest.mark.parametrize(("earlier", "used"), [(119.0, True), (121.0, False)])
def test_windows_two_minutes_older_than_all_records_are_of_no_use(monkeypatch, earlier, used):
    taken = []
    monkeypatch.setattr(
        collective_waits, "lateness", lambda found, _: taken.append(len(found)) or 1 / 0
    )
    recording = Recording(2, [Call({0: 10.0, 1: 60.0})])
    records, windows = recording.records(), recording.windows(0, 1)
    first = min(time for window in windows for time in window["time_ns"]) / 1e9
    records["t_start_unix_seconds"] += first + earlier - records["t_start_unix_seconds"].min()
    with pytest.raises(ZeroDivisionError):
        flight_records.complete(records, windows, {}, 2)
    assert (taken[0] > 0) is used


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
