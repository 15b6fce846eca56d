"""Step records that are followed over many looks: each once, and those of all nodes of a job."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from rankscope_agent.contract.model import STEP_COLUMNS, FreshSteps, LeftOut
from rankscope_agent.contract.step_blocks import MEDIA_TYPE
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_agent.web.routes import JSON_TYPE, Response, Route
from ring_writer import NS, RingWriter
from running_agent import running_agent
from serving import answering
from step_agents import NOW, WAIT_SECONDS, OldAgent, Rings, followed, steps_of


def test_each_look_gets_what_no_earlier_one_got(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64, rank=3)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        writer.step(4)
        assert look().answered == 1
        assert steps_of(stream) == [(3, 0), (3, 1), (3, 2), (3, 3)]
        writer.step(2)
        look()
        assert stream.windows.of("team/job").fresh == 6
        assert steps_of(stream)[-2:] == [(3, 4), (3, 5)]
        look()
        assert len(steps_of(stream)) == 6
        assert [len(query.get("after", ())) for query in rings.asked] == [0, 1, 1]
        assert stream.failures == []
    writer.end()


def test_records_are_those_that_json_tells(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64, rank=3, dp_group=7, tp_group=1, pp_stage=2)
    writer.step(3)
    source = RingStepSource(rings.folder, rings.folder / "none", "n1")
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        look()
        records = stream.windows.of("team/job").records()
    told = [dict(zip(STEP_COLUMNS, row, strict=True)) for row in source.steps(None, 0.0)]
    for name in set(STEP_COLUMNS) & set(records.columns):
        values = [np.nan if one[name] is None else one[name] for one in told]
        assert records[name].tolist() == values, name
    missing = set(STEP_COLUMNS) - set(records.columns) - {"job_id"}
    assert all(one[name] is None for one in told for name in missing)
    writer.end()


def test_an_answer_that_is_cut_off_moves_no_cursor(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        writer.step(2)
        look()
        writer.step(2)
        rings.cut = True
        assert look().answered == 0
        assert "answer" in stream.failures[0]
        rings.cut = False
        look()
        assert [step for _, step in steps_of(stream)] == [0, 1, 2, 3]
        assert stream.failures == []
    writer.end()


def test_a_job_that_ended_before_what_is_kept_is_never_fetched(tmp_path):
    rings = Rings(tmp_path / "n1")
    ended = RingWriter(rings.folder, "1-1.ring", pid=1, job_id="team/ended", capacity=64)
    ended.step(50, start_unix_ns=round((NOW - 3600) * NS))
    ended.end()
    writer = RingWriter(rings.folder)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        for count in (1, 2, 3):
            writer.step()
            look()
            assert stream.records == count
        assert list(stream.windows.jobs) == ["team/job"]
    writer.end()


def test_a_cursor_that_is_none_of_its_ring_repeats_no_record(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        writer.step(3)
        look()
        agent = stream.agents[url]
        agent.cursors = dict.fromkeys(agent.cursors, 10**9)
        writer.step(2)
        look()
        assert [step for _, step in steps_of(stream)] == [0, 1, 2, 3, 4]
    writer.end()


def test_records_go_on_after_the_clock_of_their_node_was_set_back(tmp_path):
    rings = Rings(tmp_path / "n1")
    writer = RingWriter(rings.folder, capacity=64)
    begin = 1_700_000_000
    with answering(rings.routes()) as url, followed(url) as (look, stream):
        for begins in (range(begin, begin + 10), range(begin - 100, begin - 90)):
            for second in begins:
                writer.step(start_unix_ns=second * 10**9)
            look()
        assert [step for _, step in steps_of(stream)] == [*range(20)]
        agent = stream.agents[url]
        agent.cursors = dict.fromkeys(agent.cursors, 10**9)
        look()
        assert [step for _, step in steps_of(stream)] == [*range(20)], "those sent again count once"
    writer.end()


def test_agents_of_this_version_are_followed_over_a_restart(tmp_path):
    (tmp_path / "rings").mkdir()
    writer = RingWriter(tmp_path / "rings", capacity=256)
    writer.step(20)
    with running_agent(tmp_path) as agent, followed(agent.url) as (look, stream):
        look()
        assert len(steps_of(stream)) == 20
        cursors = stream.agents[agent.url].cursors
    writer.step(5)
    with running_agent(tmp_path) as agent, followed(agent.url) as (look, again):
        look()
        assert {name: number + 5 for name, number in cursors.items()} == (
            again.agents[agent.url].cursors
        )
    writer.end()


def test_ranks_that_speak_for_another_namespaces_job_are_left_out():
    rank = {"job_id": "team/job", "rank": 3, "pod_namespace": "other", "pod_uid": "u"}

    class Foreign(OldAgent):
        def ranks(self, request):
            body = json.dumps({"node": "n", "ranks": [rank]}).encode()
            return Response(200, JSON_TYPE, body)

    with answering(Foreign().routes()) as url, followed(url) as (look, stream):
        look()
        look()
        before = len(steps_of(stream))
        look()
        assert len(steps_of(stream)) == before
        assert "are not believed" in str(stream.notes)


class Full:
    """An agent without room for the records of some ranks, other ones at each look."""

    def __init__(self):
        self.ranks, self.until = range(0), NOW

    def steps(self, request):
        left = [LeftOut("team/job", rank, self.until) for rank in self.ranks]
        pieces = steps_blocks(FreshSteps((), iter(()), left), "n1")
        return Response(200, MEDIA_TYPE, pieces, compress=True)

    def routes(self):
        return {"/api/v1/steps": Route(self.steps, "open")}


def test_what_an_agent_leaves_out_is_forgotten_when_records_of_that_time_would_be():
    full = Full()
    with answering(full.routes()) as url, followed(url) as (_, stream):
        for look in range(5):
            full.ranks, now = range(look * 1000, look * 1000 + 1000), NOW + 600.0 * look
            full.until = 1e300 if look == 4 else now  # pods can write any time
            stream.look([url], now, WAIT_SECONDS)
        known = stream.agents[url].left_out
        assert {rank for _, rank in known} == {*range(1000, 5000)}
        assert max(known.values()) == NOW + 2400.0
        full.ranks = range(9000, 9900)
        stream.look([url], now, WAIT_SECONDS)
        assert len(known := stream.agents[url].left_out) == 4096
        assert {rank for _, rank in known} >= {*range(9000, 9900)}, "those that were named last"
        full.ranks = range(0)
        stream.look([url], now + 1801.0, WAIT_SECONDS)
        assert stream.agents[url].left_out == {}


@pytest.mark.parametrize("size", [1, 3])
def test_a_job_of_many_nodes_is_put_together(tmp_path, size):
    nodes = [Rings(tmp_path / f"n{number}") for number in range(size)]
    writers = [RingWriter(one.folder, rank=rank) for rank, one in enumerate(nodes)]
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(answering(one.routes())) for one in nodes]
        look, stream = stack.enter_context(followed(*urls))
        for writer in writers:
            writer.step(2)
        look()
        assert steps_of(stream) == [(rank, step) for rank in range(size) for step in range(2)]
        assert {ring.rank["rank"] for one in stream.agents.values() for ring in one.rings} == set(
            range(size)
        )
    for writer in writers:
        writer.end()
