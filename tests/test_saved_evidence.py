"""What an agent keeps of a job that stands, also when the job is gone."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from rankscope_agent.sources.evidence import node_evidence, saved_evidence
from rankscope_agent.sources.evidence.hang_recorder import PAUSE_SECONDS, HangRecorder
from rankscope_agent.sources.evidence.node_evidence import PARTS, NodeEvidence
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence, evidence_name
from rankscope_agent.sources.evidence.stalled_jobs import StalledJobs
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.sources.training.span_source import RingSpanSource
from ring_writer import NS
from standing_jobs import NOW, Clock, evidence_of, standing_ring


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


def test_an_agent_that_is_started_again_keeps_a_job_that_stands_once(tmp_path):
    clock = Clock()
    standing_ring(tmp_path / "rings")
    for _ in range(3):
        keeper, kept = keeper_of(tmp_path, clock)
        keeper.look()
        clock.now += 30.0
    assert len(kept.names()) == 1


def test_jobs_of_one_namespace_that_stand_keep_the_evidence_of_another(tmp_path):
    kept = SavedEvidence(tmp_path)
    first = evidence_name("prod/llm", NOW)
    assert kept.put(first, {"job_id": "prod/llm"})
    sweep = [evidence_name(f"sweep/{number}", NOW + 1 + number) for number in range(20)]
    for name in sweep:
        assert kept.put(name, {})
    assert kept.names() == [first, *sweep[-saved_evidence.MAX_KEPT + 1 :]]


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
