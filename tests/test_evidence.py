"""What an agent knows of a job that stands: read part by part, and kept when the job is gone."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.sources import kernel_files
from rankscope_agent.sources.evidence import kernel_lines as kernel_module
from rankscope_agent.sources.evidence import (
    node_evidence,
    process_states,
    ras_report,
    saved_evidence,
)
from rankscope_agent.sources.evidence.hang_recorder import PAUSE_SECONDS, HangRecorder
from rankscope_agent.sources.evidence.kernel_lines import kernel_lines
from rankscope_agent.sources.evidence.log_tails import LogTails, last_lines
from rankscope_agent.sources.evidence.node_evidence import PARTS, NodeEvidence
from rankscope_agent.sources.evidence.process_states import process_state
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence
from rankscope_agent.sources.evidence.stalled_jobs import StalledJobs
from rankscope_agent.sources.kernel_log.records import Batch, Record
from rankscope_agent.sources.nccl_ras.client import Reply
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource
from ring_writer import NS, RingWriter
from running_agent import running_agent

NOW = 1_800_000_000.0
SECRET = "hf_Zx9correcthorse77"


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def standing_ring(folder: Path, name="7-8.ring", quiet=90.0, **header):
    folder.mkdir(exist_ok=True)
    ring = RingWriter(folder, name, created_unix_ns=round((NOW - 1000) * NS), **header)
    ring.step(start_unix_ns=round((NOW - quiet - 0.1) * NS))
    return ring


def evidence_of(rings: Path, clock, *, logs=None, kernel=(), patterns=(), ras=None):
    source = RingStepSource(rings, rings / "none", "n1", clock)
    stalls = StallSource(source, Path("/proc"), clock)
    tails = LogTails(logs or rings / "none", patterns)
    return NodeEvidence(source, stalls, Path("/proc"), RasReports(ras), kernel, tails, clock)


def test_the_state_of_a_process_and_its_threads_is_told():
    """Of this process itself, which may be traced by itself."""
    ready, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), end.wait()))
    thread.start()
    ready.wait()
    found = process_state(Path("/proc"), os.getpid())
    end.set()
    thread.join()
    assert found["status"]["State"].startswith("R")
    assert len(found["threads"]) >= 2
    assert {one["state"] for one in found["threads"]} <= set("RSDtTXZI")
    assert found["cpu_seconds"] > 0


def test_without_the_right_to_trace_the_rest_is_told_and_so_is_what_is_missing(tmp_path):
    place = tmp_path / "77"
    (place / "task" / "77").mkdir(parents=True)
    (place / "status").write_text("Name:\tpython\nState:\tD (disk sleep)\nThreads:\t1\nUid:\t0\n")
    stat = "77 (pt_main) D 1 77 77 0 -1 4194304 1 0 0 0 300 100 0 0 20 0 1\n"
    for path in (place / "stat", place / "task" / "77" / "stat"):
        path.write_text(stat)
    (place / "wchan").write_text("0")
    for name in ("stack", "syscall"):  # as the kernel refuses: opened, and not readable
        (place / name).symlink_to(place / "status")
    found = process_state(tmp_path, 77)
    assert found["status"] == {"State": "D (disk sleep)", "Threads": "1"}
    assert found["threads"] == [{"tid": "77", "name": "pt_main", "state": "D"}]
    assert set(found["not_readable"]) == {"wchan", "stack", "syscall"}
    assert "may not trace it" in found["not_readable"]["wchan"]
    json.dumps(found)


def process_of_threads(place: Path, states: str, wchan: str):
    """Write a process whose threads are in some states, and sleep where the kernel says."""
    (place / "status").parent.mkdir()
    (place / "status").write_text("State:\tS (sleeping)\n")
    for number, state in enumerate(states):
        task = place / "task" / str(80 + number)
        task.mkdir(parents=True)
        (task / "stat").write_text(f"{task.name} (worker) {state} 1 77 77 0 -1 0 1 0 0 0 3 1 0\n")
        (task / "wchan").write_text(wchan)


@pytest.mark.parametrize(("wchan", "asked", "told"), [("0", 5, 0), ("futex_wait_queue", 12, 12)])
def test_threads_are_asked_for_where_they_sleep_until_the_kernel_refused_some(
    wchan, asked, told, tmp_path, monkeypatch
):
    process_of_threads(tmp_path / "77", "RRSSDSSSSSSS", wchan)
    read: list[str] = []
    monkeypatch.setattr(
        process_states, "read_text", lambda path, *size: (read.append(str(path)), plain(path))[1]
    )
    plain = kernel_files.read_text
    found = process_state(tmp_path, 77)
    assert len([path for path in read if path.endswith("wchan")]) == asked
    assert [one.get("wchan") for one in found["threads"]].count(wchan) == told
    assert len(found["threads"]) == 12


def test_a_rank_in_another_pid_namespace_is_said_not_to_be_seen(tmp_path):
    standing_ring(tmp_path / "rings")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "locks").write_text("")  # what a reader in another namespace is given
    source = RingStepSource(tmp_path / "rings", tmp_path / "none", "n1", Clock())
    stalls = StallSource(source, tmp_path / "proc", Clock())
    logs = LogTails(tmp_path / "none", ())
    evidence = NodeEvidence(source, stalls, tmp_path / "proc", RasReports(None), (), logs, Clock())
    (one,) = evidence.part("processes", "team/job")["processes"]
    assert one["rank"] == 0
    assert "another PID namespace" in one["not_seen"]
    (stall,) = evidence.part("stalls", "team/job")["stalls"]
    assert (stall["state"], stall["cpu_share"]) == ("", None)


def test_the_rank_whose_process_is_seen_has_its_state(tmp_path):
    standing_ring(tmp_path / "rings", rank=3)
    (one,) = evidence_of(tmp_path / "rings", Clock()).part("processes", "team/job")["processes"]
    assert (one["rank"], one["pid"]) == (3, os.getpid())


def cri(text, stream="stderr"):
    return f"2026-01-01T00:00:00.000000000Z {stream} F {text}\n"


def test_the_last_lines_of_each_rank_are_kept_redacted_and_of_no_other_pod(tmp_path):
    for uid in ("mine", "other"):
        folder = tmp_path / f"team_{uid}_{uid}" / "trainer"
        folder.mkdir(parents=True)
        lines = [cri(f"[rank{n % 2}]: line {n} of {uid}") for n in range(1000)]
        (folder / "0.log").write_text("".join(lines) + cri(f"HF_TOKEN={SECRET} \x1b[2J end"))
    (found,) = LogTails(tmp_path, ()).of({"mine"}, outside=True)
    assert found["pod"] == "team/mine"
    assert len(found["lines"]) == 2 * 200 + 1
    assert "line 600 of mine" in found["lines"][0]
    assert SECRET not in "".join(found["lines"])
    assert all(line.isprintable() for line in found["lines"])
    assert "***" in found["lines"][-1]


def test_a_rank_that_talks_much_does_not_push_out_the_one_that_fell_silent():
    loud = b"".join(b"[rank1]: loud\n" for _ in range(5000))
    assert last_lines(b"[rank0]: my last words\n" + loud)[0] == "[rank0]: my last words"


def test_a_huge_log_is_read_from_its_end_alone(tmp_path):
    log = tmp_path / "nccl.log"
    with log.open("wb") as sink:
        sink.truncate(2 << 30)
        sink.seek(0, os.SEEK_END)
        sink.write(b"\nthe end\n")
    (found,) = LogTails(tmp_path / "none", (log,)).of((), outside=True)
    assert found["lines"][-1] == "the end"
    (found,) = LogTails(tmp_path / "none", (tmp_path / "*.log",)).of((), outside=True)
    (tmp_path / "link.log").symlink_to("/etc/passwd")
    tails = LogTails(tmp_path / "none", (tmp_path / "*.log",)).of((), outside=True)
    assert [one["not_read"] for one in tails] == ["symlink", ""]


def test_logs_outside_of_pods_are_left_out_where_two_jobs_may_have_written_them(tmp_path):
    (tmp_path / "x.log").write_text("whose line is it\n")
    standing_ring(tmp_path / "rings")
    evidence = evidence_of(tmp_path / "rings", Clock(), patterns=[tmp_path / "x.log"])
    assert len(evidence.part("logs", "team/job")["logs"]) == 1
    standing_ring(tmp_path / "rings", "9-9.ring", job_id="team/other")
    assert evidence.part("logs", "team/job")["logs"] == []


class Ring:
    """A kernel's log with one line per second of uptime."""

    name = "kmsg"

    def __init__(self, texts) -> None:
        self._texts = texts

    def read(self, cursor) -> Batch:
        assert not cursor
        booted = time.clock_gettime(time.CLOCK_MONOTONIC) - len(self._texts)
        found = [Record(n, booted + n, text) for n, text in enumerate(self._texts)]
        return Batch(found, {}, 0)

    def close(self) -> None:
        self._texts = []


def refused():
    raise PermissionError(1, "Operation not permitted")


def test_the_kernels_lines_since_a_moment_are_read_by_the_first_way_that_is_open():
    texts = [b"old"] * 100 + [b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off", b"key=\x07a"]
    found = kernel_lines((refused, lambda: Ring(texts)), time.time() - 50)
    assert found["source"] == "kmsg"
    assert len(found["lines"]) == pytest.approx(50, abs=2)
    assert "Xid" in found["lines"][-2]
    assert found["lines"][-1].isprintable()
    many = kernel_lines((lambda: Ring([b"x"] * 5000),), 0.0)
    assert (len(many["lines"]), many["left_out"]) == (2000, 3000)


def test_lines_of_the_kernel_that_are_left_out_are_not_worked_on(monkeypatch):
    worked_on = []
    monkeypatch.setattr(kernel_module, "redacted", lambda text: worked_on.append(text) or text)
    found = kernel_lines((lambda: Ring([b"x"] * 5000),), 0.0)
    assert len(worked_on) == len(found["lines"]) == 2000


def test_where_every_way_is_closed_it_is_said():
    found = kernel_lines((refused, refused), 0.0)
    assert found["lines"] == []
    assert found["not_read"] == "Operation not permitted; Operation not permitted"


def test_the_parts_of_one_question_take_one_look_at_the_rings(tmp_path, monkeypatch):
    standing_ring(tmp_path / "rings")
    clock = Clock()
    evidence = evidence_of(tmp_path / "rings", clock)
    looks = []
    plain = RingStepSource.rings_of
    monkeypatch.setattr(
        RingStepSource, "rings_of", lambda rings, job: (looks.append(job), plain(rings, job))[1]
    )
    for name in ("processes", "kernel"):
        evidence.part(name, "team/job")
    assert looks == [None]
    evidence.part("logs", "team/job")
    assert looks == [None, None]
    standing_ring(tmp_path / "rings", "9-9.ring", rank=1)
    clock.now += node_evidence.KNOWN_SECONDS
    assert [one["rank"] for one in evidence.part("processes", "team/job")["processes"]] == [0, 1]


def test_ras_is_asked_once_in_a_while_and_its_report_is_kept_as_it_is():
    reply = b"SERVER PROTOCOL 2\nOK\nOK\n" + json.dumps({"communicators": []}).encode()
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(4096))
                    connection.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        clock = Clock()
        reports = RasReports(ListenAddress("127.0.0.1", server.getsockname()[1]), clock)
        first = reports.report()
        assert reports.report() is first
        clock.now += 10.0
        second = reports.report()
        thread.join(10.0)
    assert (first["format"], first["text"]) == ("json", '{"communicators": []}')
    assert (len(asked), second["taken_unix_seconds"]) == (2, NOW + 10.0)
    assert reports.report() is second
    assert "--nccl.ras-address" in RasReports(None).report()["not_read"]


def keeper_of(folder: Path, clock, page="rankscope_x 1\n"):
    rings = RingStepSource(folder / "rings", folder / "none", "n1", clock)
    spans = RingSpanSource(rings)
    kept = SavedEvidence(folder)
    evidence = evidence_of(folder / "rings", clock)
    return HangRecorder(
        "n1", StalledJobs(rings, spans), evidence, lambda: page, kept, clock, 0.0
    ), kept


def test_a_job_that_stands_is_kept_once_and_outlives_its_rings(tmp_path):
    clock = Clock()
    ring = standing_ring(tmp_path / "rings", quiet=59.0)
    keeper, kept = keeper_of(tmp_path, clock)
    keeper.look()
    assert kept.names() == []
    clock.now += 5.0
    keeper.look()
    clock.now += PAUSE_SECONDS
    keeper.look()
    (name,) = kept.names()
    ring.end()
    for path in (tmp_path / "rings").iterdir():
        path.unlink()
    found = SavedEvidence(tmp_path).get(name)  # as an agent that was started anew reads it
    assert found is not None
    assert (found["job_id"], found["node"], found["id"]) == ("team/job", "n1", name)
    assert [one["rank"] for one in found["stalls"]["stalls"]] == [0]
    assert [one["text"] for one in found["pages"]] == ["rankscope_x 1\n"] * 2
    assert set(PARTS) <= found.keys()
    assert (tmp_path / "hangs" / f"{name}.json.gz").stat().st_mode & 0o777 == 0o600


def test_the_newest_steps_of_each_rank_are_kept_with_a_job_that_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(node_evidence, "KEPT_STEPS", 3)
    for rank in range(2):
        ring = standing_ring(tmp_path / "rings", f"7-{rank}.ring", 4000.0, rank=rank, world_size=2)
        for step in range(5):
            ring.step(start_unix_ns=round((NOW - 95 + step) * NS), data_ns=-1)
    standing_ring(tmp_path / "rings", "9-9.ring", quiet=1.0, job_id="team/other")
    keeper, kept = keeper_of(tmp_path, Clock())
    keeper.look()
    (name,) = kept.names()
    steps = kept.get(name)["steps"]
    rows = [dict(zip(steps["columns"], row, strict=True)) for row in steps["rows"]]
    assert [(row["job_id"], row["rank"]) for row in rows] == [("team/job", 0)] * 3 + [
        ("team/job", 1)
    ] * 3
    began = [row["t_start_unix_seconds"] for row in rows]
    assert began == [NOW - 93, NOW - 92, NOW - 91] * 2
    assert {row["data_seconds"] for row in rows} == {None}


def test_a_job_of_which_a_rank_goes_on_is_not_kept(tmp_path):
    standing_ring(tmp_path / "rings", "7-8.ring", rank=0)
    standing_ring(tmp_path / "rings", "7-9.ring", rank=1, quiet=1.0)
    keeper, kept = keeper_of(tmp_path, Clock())
    keeper.look()
    assert kept.names() == []


def test_a_part_that_fails_costs_that_part(tmp_path, monkeypatch):
    standing_ring(tmp_path / "rings")
    keeper, kept = keeper_of(tmp_path, Clock())
    monkeypatch.setattr(
        NodeEvidence, "_kernel_log", lambda *_: (_ for _ in ()).throw(RuntimeError("broken"))
    )
    keeper, kept = keeper_of(tmp_path, Clock())
    keeper.look()
    (name,) = kept.names()
    found = kept.get(name)
    assert found["kernel"] == {"not_read": "RuntimeError: broken"}
    assert found["stalls"]["stalls"]


def test_the_quota_lets_the_oldest_go(tmp_path, monkeypatch):
    kept = SavedEvidence(tmp_path)
    names = [f"{1_800_000_000 + n}-{n:08x}" for n in range(20)]
    for name in names:
        assert kept.put(name, {"id": name})
    assert kept.names() == names[-saved_evidence.MAX_KEPT :]
    monkeypatch.setattr(saved_evidence, "MAX_ONE_BYTES", 100)
    assert not kept.put(names[0], {"noise": os.urandom(4096).hex()})
    monkeypatch.setattr(saved_evidence, "MAX_KEPT_BYTES", 150)
    monkeypatch.setattr(saved_evidence, "MAX_ONE_BYTES", 10_000)
    kept.put("1900000000-00000000", {})
    files = list((tmp_path / "hangs").iterdir())
    assert sum(path.stat().st_size for path in files) <= 150
    assert "1900000000-00000000" in kept.names()


def test_where_no_file_can_be_written_the_newest_are_held_in_memory(tmp_path):
    (tmp_path / "hangs").write_text("a file in place of the directory")
    kept = SavedEvidence(tmp_path)
    for number in range(20):
        assert kept.put(f"{1_800_000_000 + number}-00000000", {"number": number})
    assert len(kept.names()) == saved_evidence.MAX_KEPT
    assert kept.get(kept.names()[-1]) == {"number": 19}


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"[1]"), gzip.compress(b'{"a": ')[:10], gzip.compress(b"{")],
    ids=["empty", "no gzip", "no object", "cut off", "no JSON"],  # gzip writes the time
)
def test_what_was_damaged_is_nothing(tmp_path, content):
    kept = SavedEvidence(tmp_path)
    kept.put("1800000000-00000000", {"a": 1})
    (tmp_path / "hangs" / "1800000000-00000000.json.gz").write_bytes(content)
    assert kept.get("1800000000-00000000") is None
    assert kept.get("../../etc/passwd") is None


def test_what_unpacks_to_too_much_is_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_evidence, "MAX_TEXT_BYTES", 1000)
    kept = SavedEvidence(tmp_path)
    kept.put("1800000000-00000000", {"a": "x" * 2000})
    assert kept.get("1800000000-00000000") is None


def status_of(agent, path):
    connection = http.client.HTTPConnection(agent.url.removeprefix("http://"))
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status


def test_evidence_is_served_to_callers_with_the_token_alone(tmp_path):
    token = tmp_path / "token"
    token.write_text("correct-horse-battery")
    token.chmod(0o600)
    paths = ("/api/v1/evidence?job=team/job&part=processes", "/api/v1/hangs")
    with running_agent(tmp_path, f"--web.token-file={token}") as agent:
        for path in paths:
            assert status_of(agent, path) == 401
            request = urllib.request.Request(agent.url + path)
            request.add_header("Authorization", "Bearer correct-horse-battery")
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["node"] == "test-node"


def test_evidence_comes_in_one_line_which_python_writes_in_no_time(tmp_path):
    with running_agent(tmp_path) as agent:
        url = f"{agent.url}/api/v1/evidence?job=team/job&part=processes"
        with urllib.request.urlopen(url) as answer:
            text = answer.read()
    assert text.count(b"\n") == 1
    assert json.loads(text)["processes"] == []


REFUSED = {
    "/api/v1/evidence": 400,
    "/api/v1/evidence?job=a/b": 400,
    "/api/v1/evidence?job=a/b&part=environ": 400,
    "/api/v1/evidence?job=a/b&part=logs&x=1": 400,
    "/api/v1/hangs?x=1": 400,
    "/api/v1/hangs?id=1800000000-00000000": 404,
    "/api/v1/hangs?id=../../etc/passwd": 404,
}


def test_other_questions_are_refused(tmp_path):
    with running_agent(tmp_path) as agent:
        for path, status in REFUSED.items():
            assert status_of(agent, path) == status


@pytest.mark.parametrize(("seconds", "asked"), [(2.9, 1), (3.1, 2), (-0.1, 2)])
def test_ras_is_asked_again_after_three_seconds(seconds, asked, monkeypatch):
    reports, clock = [], Clock()
    monkeypatch.setattr(
        ras_report, "ask", lambda *_: reports.append(1) or Reply("json", str(len(reports)))
    )
    of = RasReports(ListenAddress("127.0.0.1", 28028), clock)
    of.report()
    clock.now += seconds
    assert of.report()["text"] == str(asked)
