"""Records in an agent's answers go round: no pod's fill them, whatever it writes into its rings."""

from __future__ import annotations

import json
import os
import time
from collections import Counter

import pytest

from known_pods import pods_named_after_their_namespace
from rankscope_agent.contract import step_blocks
from rankscope_agent.contract.fair_shares import allot_to_items
from rankscope_agent.serving.step_stream import steps_json
from rankscope_agent.sources.training import listing, reader
from rankscope_agent.sources.training.files import list_rings
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_analyzers.intake import agent_steps, left_out
from rankscope_analyzers.intake.step_history import StepHistory, step_answer
from ring_volumes import volume
from ring_writer import NS, PAGE, RingWriter, record_bytes
from served_agents import Agent

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


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """An agent on a node with a tenant's pod and one of the team, whose answers are small."""
    monkeypatch.setattr(reader, "MAX_STEP_ROWS", ROWS)
    tenant, team = volume(tmp_path, "aaa-bad"), volume(tmp_path, "team-llm")
    rings = [full_ring(tenant, rank, "x", NOW - 10.0) for rank in range(9)]
    rings += [full_ring(team, rank, "x", NOW - 10.0) for rank in range(2)]
    made = Agent({})
    names = pods_named_after_their_namespace()
    source = RingStepSource(tmp_path, tmp_path / "kubelet", "n", lambda: NOW, names)
    made.steps.ranks, made.steps.steps, made.steps.starts = (
        source.ranks,
        source.steps,
        source.starts,
    )
    made.source = source
    yield made
    made.close()
    for ring in rings:
        ring.end()


def missing(job):
    return [note for note in job.notes if "are missing" in note]


def test_an_answer_says_whose_records_it_has_no_room_for(agent):
    _, _, body = agent.ask(f"/api/v1/steps?since={NOW - 100.0}")
    document = json.loads(body)
    told = {(one["job_id"], one["rank"]): one["until_unix_seconds"] for one in document["left_out"]}
    assert told.keys() == {("aaa/x", rank) for rank in range(9)} | {("team/x", 0), ("team/x", 1)}
    assert told["team/x", 0] == pytest.approx(NOW - 10.0 + 0.1 * (CAPACITY - 15))
    assert not document["truncated"]


def test_an_answer_in_blocks_says_so_behind_them(agent):
    agent.steps.fresh = agent.source.fresh
    accept = {"Accept": step_blocks.MEDIA_TYPE}
    _, _, body = agent.ask(f"/api/v1/steps?since={NOW - 100.0}", **accept)
    tail = json.loads(body[body.rindex(b'{"next"') :])
    told = {(one["job_id"], one["rank"]): one["until_unix_seconds"] for one in tail["left_out"]}
    assert told.keys() == {("aaa/x", rank) for rank in range(9)} | {("team/x", 0), ("team/x", 1)}
    assert told["team/x", 0] == pytest.approx(NOW - 10.0 + 0.1 * (CAPACITY - 15))


@pytest.mark.parametrize(("since", "left_out"), [(49, True), (50, False)])
def test_what_is_not_asked_for_is_not_left_out(agent, since, left_out):
    """Of the team's first rank the newest fifteen of 64 records come."""
    began = NOW - 10.0 + 0.1 * since - 0.01
    _, _, body = agent.ask(f"/api/v1/steps?job=team/x&since={began}")
    assert [one["rank"] for one in json.loads(body)["left_out"]] == []
    _, _, body = agent.ask(f"/api/v1/steps?since={began}")
    named = [one["rank"] for one in json.loads(body)["left_out"] if one["job_id"] == "team/x"]
    assert (0 in named) is left_out


def test_a_reader_says_that_records_are_missing_as_long_as_they_are(agent):
    url, history = f"127.0.0.1:{agent.port}", StepHistory()
    for since in (NOW - 100.0, NOW - 60.0):
        ours, theirs = agent_steps.from_agents([url], None, since, history=history).jobs[::-1]
        (note,) = missing(ours)
        assert note.startswith("records of ranks 0, 1 up to 2027-01-15 07:59:5")
        assert "rankscope diagnose --job" in note
        assert missing(theirs)[0].startswith("records of ranks 0-8 up to")
    read = agent_steps.from_agents([url], None, NOW - 10.0 + 0.1 * 62, history=history)
    assert [missing(job) for job in read.jobs] == [[], []]
    (alone,) = agent_steps.from_agents([url], "team/x", NOW - 100.0).jobs
    assert (len(alone.records), len(missing(alone))) == (ROWS, 1)
    assert "--job" not in missing(alone)[0]


@pytest.mark.parametrize(
    "said", [None, 7, [7], [{}], [{"job_id": "j", "rank": "0", "until_unix_seconds": 1.0}]]
)
def test_what_an_agent_says_wrongly_of_what_it_left_out_costs_nothing(said):
    assert left_out.read(said) == {}


def test_an_agent_names_4096_ranks_at_most():
    said = [{"job_id": "j", "rank": n, "until_unix_seconds": 1.0} for n in range(4097)]
    assert len(left_out.read(said)) == 4096


def test_records_of_refused_ranks_are_not_missed():
    document = {
        "columns": ["job_id", "rank", "t_start_unix_seconds"],
        "rows": [["team/x", 0, 1.0]],
        "left_out": [{"job_id": "team/x", "rank": n, "until_unix_seconds": 1.0} for n in (0, 1)],
    }
    answer = step_answer("u", 0.0, document)
    refused = agent_steps._Refused(frozenset({("u", "team/x", "1")}), {})
    assert agent_steps._believable(answer, refused, None).left_out == {("team/x", 0): 1.0}


def test_rings_without_a_record_of_the_time_take_no_share(answered):
    rows = answered(lambda source: source.steps(None, NOW - 10.0), theirs=-1000.0)
    assert Counter(row[0] for row in rows) == {"team/x": 60}


@pytest.mark.parametrize(("behind", "read"), [(119.0, True), (121.0, False)])
def test_a_clock_that_was_set_back_by_two_minutes_hides_no_record(tmp_path, behind, read):
    """The newest record may be older, by its time, than some before it."""
    place = volume(tmp_path, "team-llm")
    ring = full_ring(place, 0, "x", NOW - 10.0)
    ring.write_slot(CAPACITY + 1, record_bytes(
        CAPACITY + 1, start_unix_ns=round((NOW - 10.0 - behind) * NS)))  # fmt: skip
    names = pods_named_after_their_namespace()
    source = RingStepSource(tmp_path, tmp_path / "kubelet", "n", lambda: NOW, names)
    assert bool(list(source.steps(None, NOW - 10.0))) is read
    ring.end()
