"""Records in an agent's answers go round: no pod's fill them, whatever it writes into its rings."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import pytest

from rankscope_agent.serving.step_stream import steps_json
from rankscope_agent.sources.fair_shares import allot_to_items
from rankscope_agent.sources.training import listing, reader
from rankscope_agent.sources.training.files import list_rings
from rankscope_agent.sources.training.reader import RingStepSource
from ring_writer import NS, PAGE, RingWriter, record_bytes
from test_training_shares import pods_named_after_their_namespace, volume

NOW = 1_800_000_000.0
ROWS = 60
CAPACITY = 64


def full_ring(folder, rank, job_id, start, capacity=CAPACITY):
    """Return a ring all of whose records began from a moment on, a tenth of a second apart."""
    made = round((start - 10.0) * NS)
    ring = RingWriter(
        folder, f"{rank}.ring", rank=rank, job_id=job_id, capacity=capacity, created_unix_ns=made
    )
    records = (
        record_bytes(seq, start_unix_ns=round((start + 0.1 * seq) * NS))
        for seq in range(1, capacity + 1)
    )
    os.pwrite(ring.descriptor, b"".join(records), PAGE)
    return ring


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """Return a function that has a pod of a tenant and one of the team on a node, and asks."""
    monkeypatch.setattr(reader, "MAX_STEP_ROWS", ROWS)
    rings = []

    def ask(question, theirs=0.0):
        tenant, team = volume(tmp_path, "aaa-bad"), volume(tmp_path, "team-llm")
        rings.extend(full_ring(tenant, rank, "x", NOW - 10.0 + theirs) for rank in range(9))
        rings.extend(full_ring(team, rank, "x", NOW - 10.0) for rank in range(2))
        names = pods_named_after_their_namespace()
        source = RingStepSource(tmp_path, tmp_path / "kubelet", "n", lambda: NOW, names)
        document = json.loads(b"".join(steps_json(question(source), "n", ROWS)))
        assert not document["truncated"]
        return document["rows"]

    yield ask
    for ring in rings:
        ring.end()


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_pod_with_many_full_rings_leaves_others_their_newest_records(answered, ahead):
    rows = answered(lambda source: source.steps(None, NOW - 100.0), theirs=ahead)
    assert Counter(row[0] for row in rows) == {"aaa/x": 30, "team/x": 30}
    ours = sorted(row[5] for row in rows if row[0] == "team/x" and row[2] == 0)
    assert ours == pytest.approx([NOW - 10.0 + 0.1 * seq for seq in range(50, 65)])


def test_starts_of_jobs_are_shared_as_well(answered):
    rows = answered(lambda source: source.starts(None, NOW))
    assert Counter(row[0] for row in rows) == {"aaa/x": 30, "team/x": 30}
    ours = sorted(row[5] for row in rows if row[0] == "team/x" and row[2] == 0)
    assert ours == pytest.approx([NOW - 10.0 + 0.1 * seq for seq in range(1, 16)])


def test_one_jobs_ranks_share_what_is_theirs(answered):
    rows = answered(lambda source: source.steps("aaa/x", NOW - 100.0))
    assert sorted(Counter(row[2] for row in rows).values()) == [6, 6, 6, 7, 7, 7, 7, 7, 7]


def test_a_reader_that_waits_for_the_processor_leaves_no_directory_out(tmp_path, monkeypatch):
    def slowly(descriptor):
        time.sleep(1.1 * listing.LISTING_SECONDS)
        return list_rings(descriptor)

    monkeypatch.setattr(listing, "list_rings", slowly)
    rings = [full_ring(volume(tmp_path, f"team-{n}"), n, "x", NOW - 10.0) for n in range(3)]
    source = RingStepSource(
        tmp_path, tmp_path / "kubelet", "n", lambda: NOW, pods_named_after_their_namespace()
    )
    assert len(source.ranks()) == 3
    for ring in rings:
        ring.end()


def test_items_share_by_holders_and_what_one_leaves_goes_to_others():
    owned = [(("a", "1"), 100), (("a", "1"), 2), (("b", "1"), 8), (("b", "2"), 100), (("c", ""), 1)]
    shares = allot_to_items(owned, 61)
    assert sum(shares) == 61
    assert shares == [28, 2, 8, 22, 1]
    assert allot_to_items([], 10) == []
