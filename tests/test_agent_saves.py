"""Saves outside of steps are those that agents report now, not those of the first look."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from rankscope_agent.web.routes import JSON_TYPE, Response, Route, sentence
from rankscope_analyzers.intake import agent_steps
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.agent_saves import AgentSaves
from rankscope_analyzers.intake.step_history import StepHistory
from serving import answering
from simulated_jobs import Job
from test_agent_steps import agent_of
from test_checkpoint_share import document, span
from test_watch_streaming import Node, Watch, fleet  # noqa: F401 - a fixture

KINDS = ("checkpoint_save", "checkpoint_staging")


class Saving(Node):
    """A node whose ranks also save; `saved` and `refuses` of the clock are those of all nodes."""

    def steps(self, request):
        if getattr(self.clock, "refuses", False):
            return sentence(401, "token")
        return super().steps(request)

    def spans(self, _):
        rows = getattr(self.clock, "saved", [])
        mine = [row for row in rows if row[1] in self.tables]
        return Response(200, JSON_TYPE, json.dumps(document(*mine)).encode())

    def routes(self):
        return {**super().routes(), "/api/v1/spans": Route(self.spans, "open")}


def saves_of(watched, job="team/job"):
    """Return the saves that the watch would judge now, as rank and time that steps waited."""
    gathered = watched.cycle._fleet.gathered(watched.cycle._look, 0.0, [job])
    return [(one.rank, one.blocked) for one in gathered.jobs[0].beside]


def save(at, rank=0, blocked: object = 1.0, job="team/job", kind="checkpoint_save"):
    return span(rank=rank, kind=kind, begin=at, blocked=blocked, job=job)


def test_a_watch_that_follows_steps_has_the_saves_of_each_look_once(fleet, tmp_path):  # noqa: F811
    clock, urls = fleet(Job(steps=200, ranks_per_node=4), node=Saving)
    clock.steps = 60
    watched = Watch(urls, tmp_path)
    watched.evaluate()
    assert saves_of(watched) == []
    began = watched.cycle._look.poll.pages[0].time
    clock.saved = [save(began - 100.0, 3), save(began - 50.0, 5, None), save(began, 6, job="x/y")]
    watched.evaluate()
    assert sorted(saves_of(watched)) == [(3, 1.0), (5, 0.0)]
    clock.saved[1] = save(began - 50.0, 5, 9.0)
    clock.refuses = True
    watched.look()
    clock.refuses = False
    for agent in watched.cycle._fleet.stream.agents.values():
        agent.retry = 0.0
    clock.steps = 90
    watched.evaluate()
    assert sorted(saves_of(watched)) == [(3, 1.0), (5, 9.0)]
    watched.cycle.stand_by()


def test_each_look_at_all_records_has_the_saves_since_a_time_even_if_a_page_is_missing():
    history = StepHistory()
    with agent_of([0, 1]) as agent:
        for saves, since in (((), 0.0), ((10.0, 20.0), 0.0), ((10.0, 20.0, 30.0), 0.0), (None, 15)):
            if saves is None:
                agent.answers["/api/v1/spans"] = b"not now"
            else:
                body = document(*(span(begin=begin) for begin in saves))
                agent.answers["/api/v1/spans"] = json.dumps(body).encode()
            read = agent_steps.from_agents([agent.url], None, float(since), history=history)
            known = [10.0, 20.0, 30.0] if saves is None else [*saves]
            assert sorted(one.begin for one in read.jobs[0].beside) == [
                begin for begin in known if begin >= since
            ]


@pytest.mark.parametrize("kind", ["evaluation", "compile"])
def test_many_spans_of_a_pod_take_no_room_of_another_jobs_saves(kind):
    hostile = [save(1e10 - number, job="ns/bad") for number in range(20_000)]
    others = [save(float(number), kind=KINDS[number % 2]) for number in range(5000)]
    body = json.dumps(document(*hostile, *others, save(1.0, kind=kind))).encode()
    routes = {"/api/v1/spans": Route(lambda _: Response(200, JSON_TYPE, body), "open")}
    with answering(routes) as url:
        agent, saves = Agent(url), AgentSaves()
        found = saves.of_agent(agent, None, 0.0)
        assert len(found) == 8192
        mine = [one for job, one in found if job == "team/job"]
        assert {one.begin for one in mine} == {float(one) for one in range(5000 - 4096, 5000)}
        assert {one.kind for one in mine} == set(KINDS)
        by_job, errors, _ = saves.of_agents([agent], 4000.0)
        assert (len(by_job["team/job"]), errors) == (1000, ())
        saves.keep(())
    assert saves.of_agent(agent, None, 0.0) == [], "nothing answers, and nothing is remembered"


def test_an_agent_whose_spans_make_something_raise_costs_no_other_its_saves():
    class Odd:
        url = "http://odd"

        def json(self, *_):
            raise ZeroDivisionError

    plain = SimpleNamespace(url="http://a", json=lambda *_: document(save(5.0)))
    by_job, errors, _ = AgentSaves().of_agents([Odd(), plain], 0.0)
    assert [url for url, _ in by_job["team/job"]] == ["http://a"]
    assert [error.about for error in errors] == ["http://odd"]
