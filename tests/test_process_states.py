"""What an agent says of the processes of a job that stands, and of what it may not read."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from rankscope_agent.sources import kernel_files
from rankscope_agent.sources.evidence import process_states
from rankscope_agent.sources.evidence.log_tails import LogTails
from rankscope_agent.sources.evidence.node_evidence import NodeEvidence
from rankscope_agent.sources.evidence.process_states import process_state
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training.reader import RingStepSource
from standing_jobs import Clock, evidence_of, standing_ring


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
