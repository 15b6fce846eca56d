"""Which agents are asked where ranks stand, and what of their answers is believed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from hanging_jobs import NOW, page, training_page
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake import agent_stalls
from rankscope_analyzers.intake.agent_client import Agent
from rankscope_analyzers.intake.page_history import from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from test_agent_steps import FakeAgent
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
        found = agent_stalls.from_agents({"n1": Agent(agent.url)}, observed, job_id)
        assert found.notes == {}
        return found.by_job, asked


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


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "answers 404"),
        ({"/api/v1/stalls": lambda _: b"{}"}, "does not list them"),
        ({"/api/v1/stalls": lambda _: b'{"stalls": 1}'}, "does not list them"),
    ],
)
def test_a_job_is_told_why_nothing_is_known_of_its_ranks_on_a_node(answers, why):
    with FakeAgent(answers) as agent:
        observed = from_pages([training_page(30.0)], job_reports.READS)
        found = agent_stalls.from_agents({"n1": Agent(agent.url)}, observed, None)
    assert found.by_job == {}
    ((job, (note,)),) = found.notes.items()
    assert job == "job"
    assert note.startswith("where its ranks on node n1 stand is unknown: ")
    assert why in note


def test_a_job_is_told_which_of_its_ranks_were_not_asked():
    agent, _ = answering(real(rank=0), real(rank=1, asked=False), real(rank=2, asked=False))
    with agent:
        observed = from_pages([training_page(30.0)], job_reports.READS)
        found = agent_stalls.from_agents({"n1": Agent(agent.url)}, observed, None)
    assert [one.asked for one in found.by_job["job"]] == [True, False, False]
    assert found.notes == {
        "job": [
            "the agent on node n1 did not ask ranks 1, 2 for collectives and stacks: too many"
            " ranks stand there, or do not answer"
        ]
    }


def test_what_is_unknown_of_standing_ranks_is_in_the_report_of_their_job():
    observed = from_pages([training_page(30.0)], job_reports.READS)
    evidence = JobEvidence(observed, of_jobs={"job": ("and this",)})
    with FakeAgent({}) as agent:
        poll = SimpleNamespace(agents={"n1": Agent(agent.url)})
        evidence = gather._with_stalls(evidence, poll, observed, None)
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert report.unobserved[0] == "and this"
    assert report.unobserved[1].startswith("where its ranks on node n1 stand is unknown: ")
