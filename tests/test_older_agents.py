"""Agents that know no cursors and send JSON are asked from their newest record on."""

from __future__ import annotations

from rankscope_agent.web.routes import Route
from ring_writer import RingWriter
from serving import answering
from step_agents import NOW, OldAgent, Rings, followed, steps_of


def test_an_older_agent_is_asked_from_its_newest_record_on():
    old = OldAgent()
    with answering(old.routes()) as url, followed(url) as (look, stream):
        look()
        old.steps = 4
        look()
        look()
        assert steps_of(stream) == [(3, 0), (3, 1), (3, 2), (3, 3)]
        assert [float(query["since"][0]) for query in old.asked] == [
            NOW - 1800.0, NOW - 49.0, NOW - 47.0,
        ]  # fmt: skip
        records = stream.windows.of("team/job").records()
        assert records["timing_source"].tolist() == ["kernel"] * 4
        assert records["node"].tolist() == ["old-node"] * 4
        (ring,) = stream.agents[url].rings
        assert ring.rank["world_size"] == 8


def test_an_agent_that_is_replaced_by_an_older_one_is_followed_on(tmp_path):
    rings, old = Rings(tmp_path / "n1"), OldAgent()
    writer = RingWriter(rings.folder, capacity=64)
    writer.step(2)
    routes = {**old.routes(), **rings.routes()}
    chosen = {"now": rings.steps}
    routes["/api/v1/steps"] = Route(lambda request: chosen["now"](request), "open")
    with answering(routes) as url, followed(url) as (look, stream):
        look()
        chosen["now"] = old.answer
        look()
        assert "400" in stream.failures[0]
        look()
        assert stream.failures == []
        assert (3, 1) in steps_of(stream)
    writer.end()
