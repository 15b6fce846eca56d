"""How many agents are asked at once, how often, for how much, and how much of pages is read."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from observed_series import observed, series
from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake import (
    agent_pages,
    agent_stalls,
    agent_steps,
    clock_skew,
    job_ownership,
    page_history,
)
from rankscope_analyzers.intake.step_history import StepHistory, step_answer
from rankscope_analyzers.steps.job_records import SourceError


@pytest.mark.parametrize(("ahead", "off"), [(59.0, False), (61.0, True), (-61.0, True)])
def test_a_clock_that_is_a_minute_off_is_far_off(ahead, off):
    page = observed(series(agent_metrics.SNAPSHOT_TIMESTAMP, 1000.0 + ahead, times=(1000.0,)))
    assert bool(clock_skew.ahead(page)) is off


@pytest.mark.parametrize(("quiet", "asked"), [(1.9, []), (2.1, ["n"])])
def test_a_node_whose_ranks_ended_a_step_two_seconds_ago_is_not_asked(quiet, asked):
    page = observed(
        series(agent_metrics.SNAPSHOT_TIMESTAMP, 1000.0),
        series(training.RANK_ALIVE, 1.0, job_id="j", rank="0"),
        series(training.LAST_STEP_TIMESTAMP, 1000.0 - quiet, job_id="j", rank="0"),
    )
    assert sorted(agent_stalls._quiet_jobs(page, None)) == asked


class Asked:
    """An agent; notes limits of size and time."""

    def __init__(self, answer):
        self.answer, self.limits = answer, []

    def json(self, path, most_bytes=0, seconds=None):
        self.limits.append((most_bytes, seconds))
        return self.answer


def test_where_ranks_stand_is_answered_in_twenty_seconds_and_16_mib():
    agent = Asked({"stalls": []})
    agent_stalls._asked(agent, None)
    assert agent.limits == [(16 << 20, 20.0)]


def truncated(rows):
    document = {"columns": ["job_id", "rank", "t_start_unix_seconds"], "rows": rows}
    return {**document, "truncated": True}


def test_steps_are_asked_for_six_times_in_512_mib_and_a_minute_in_all():
    agent = Asked(truncated([["j", 0, 0.0], ["j", 0, 100.0]]))
    agent.url = "a:1"
    with pytest.raises(ValueError, match="more than 2 records"):
        agent_steps._steps(agent, None, 0.0)
    assert len(agent.limits) == 6
    assert {most for most, _ in agent.limits} == {512 << 20}
    assert all(59.0 < seconds <= 60.0 for _, seconds in agent.limits)


def test_first_steps_are_asked_for_in_512_mib_and_a_minute():
    agent = Asked({"columns": [], "rows": []})
    agent.url = "a:1"
    agent_steps._start(agent, None, 0.0)
    assert agent.limits == [(512 << 20, 60.0)]


@pytest.mark.parametrize(
    ("module", "ask", "workers"),
    [
        (agent_pages, lambda: agent_pages.poll([]), 64),
        (agent_stalls, lambda: agent_stalls.from_agents({}, observed(), None), 32),
        (agent_steps, lambda: agent_steps.from_agents(["a:1"], None, 0.0), 32),
    ],
)
def test_so_many_agents_are_asked_at_once(monkeypatch, module, ask, workers):
    pools = []

    class Pool:
        def __init__(self, size):
            pools.append(size)
            raise SourceError("enough is known")

    monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    with pytest.raises(SourceError, match="enough"):
        ask()
    assert pools == [workers]


@pytest.mark.parametrize(("passed", "slept"), [(1.0, 2.0), (3.5, 0.0)])
def test_agents_are_polled_again_after_three_seconds(monkeypatch, passed, slept):
    pauses = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + passed, sleep=pauses.append)
    monkeypatch.setattr(agent_pages, "time", clock)
    apart = agent_pages.seconds_between(60.0)
    agent_pages.poll_again(agent_pages.AgentPoll((), {}, (), 0.0), 100.0, apart)
    assert pauses == [slept]


@pytest.mark.parametrize(
    ("quiet", "apart"), [(7.5, 3.0), (8.5, 2.5), (9.9, 1.1), (500.0, 1.0), (0.2, 3.0)]
)
def test_jobs_that_make_no_steps_are_looked_at_again_as_they_are_called_hung(quiet, apart):
    """What a page tells may be a second old: a look at the very moment would still see none."""
    assert agent_pages.seconds_between(10.0 - quiet) == pytest.approx(apart)


def test_twenty_thousand_series_of_a_page_are_read():
    name = training.RANK_ALIVE.name
    lines = "\n".join(f'{name}{{job_id="j",rank="{n}"}} 1' for n in range(20_001))
    page = page_history.Page("n", 1.0, lines)
    found = page_history.from_pages([page], [training.RANK_ALIVE])
    assert len(found.by_node["n"][name]) == 20_000


def test_an_agent_is_asked_for_everything_at_every_twentieth_poll():
    rows = [["j", 0, 100.0]]
    document = {"columns": ["job_id", "rank", "t_start_unix_seconds"], "rows": rows}
    history, asked = StepHistory(), []
    for _ in range(60):
        since = history.since("http://a:1", [{"job_id": "j", "rank": 0, "alive": True}], 50.0)
        asked.append(since == 50.0)
        history.add([step_answer("http://a:1", since, document)], 50.0)
    whole = [index for index, everything in enumerate(asked) if everything]
    assert whole[0] == 0
    assert np.diff(whole[1:]).tolist() == [20] * (len(whole) - 2)
    assert len(whole) in {3, 4}


@pytest.mark.parametrize(("number", "taken"), [(2**63 - 1, True), (2**63, False)])
def test_numbers_of_records_fit_into_63_bits(number, taken):
    document = {"columns": ["job_id", "rank", "step"], "rows": [["j", 0, number]]}
    if taken:
        assert step_answer("a", 0.0, document).rows
        return
    with pytest.raises(ValueError, match="larger than"):
        step_answer("a", 0.0, document)


def test_64_sentences_say_what_was_refused():
    claims = [
        job_ownership.OwnershipClaim("n", f"other/{n}", "0", "team", in_pod=True) for n in range(99)
    ]
    notes = job_ownership.notes(claims, set())
    assert 64 <= sum(len(own) for own in notes.values()) <= 65
