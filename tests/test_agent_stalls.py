"""Which agents are asked where ranks stand, and what of their answers is believed."""

from __future__ import annotations

import json

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.intake import agent_stalls
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.page_history import from_pages
from test_agent_steps import FakeAgent
from test_hang import page, training_page
from test_stalls import real


def answering(*found):
    asked = []

    def answer(query):
        asked.append(query)
        return json.dumps({"node": "n1", "stalls": found}).encode()

    return FakeAgent({"/api/v1/stalls": answer}), asked


def asked_of(pages, *found, job_id="job"):
    agent, asked = answering(*found)
    with agent:
        observed = from_pages(pages, job_reports.READS)
        return agent_stalls.from_agents({"n1": Agent(agent.url)}, observed, job_id), asked


def test_a_node_with_a_quiet_rank_is_asked():
    found, asked = asked_of([training_page(30.0)], real(rank=1))
    assert asked == ["job=job"]
    assert [one.rank for one in found["job"]] == [1]


def test_ranks_without_a_step_so_far_are_quiet():
    assert asked_of([page(alive=[1])], real(rank=0))[1] == ["job=job"]


def test_nodes_whose_ranks_go_on_or_have_ended_are_left_alone():
    assert asked_of([training_page(1.0)], real(rank=1))[1] == []
    assert asked_of([training_page(30.0, alive=[0] * 4)], real(rank=1))[1] == []
    assert asked_of([training_page(30.0)], real(rank=1), job_id="other")[1] == []


def test_ranks_that_the_nodes_page_does_not_know_are_not_believed():
    found, _ = asked_of([training_page(30.0)], real(rank=9), real(job_id="victim", rank=1))
    assert found == {}


def test_a_rank_that_cannot_be_read_costs_no_other_rank_its_place():
    found, _ = asked_of([training_page(30.0)], {"job_id": "job"}, real(rank=1))
    assert [one.rank for one in found["job"]] == [1]


def test_ranks_of_a_job_share_the_list_of_all_of_them():
    """Each rank of NCCL lists its whole group: the lists of 4,096 ranks would take 600 MB."""
    everybody = list(range(1000))
    several = [real(rank=rank) for rank in range(3)]
    for one in several:
        one["groups"][0]["ranks"] = list(everybody)
    found, _ = asked_of([training_page(30.0)], *several)
    assert [one.groups[0].ranks for one in found["job"]] == [tuple(everybody)] * 3
    assert len({id(one.groups[0].ranks) for one in found["job"]}) == 1


def test_an_answer_that_cannot_be_read_is_none():
    assert asked_of([training_page(30.0)], {"job_id": "job"})[0] == {}
    agent = FakeAgent({})
    with agent:
        observed = from_pages([training_page(30.0)], job_reports.READS)
        assert agent_stalls.from_agents({"n1": Agent(agent.url)}, observed, None) == {}
