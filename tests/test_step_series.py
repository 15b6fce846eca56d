"""The watch tells of its own looks for steps: how late they are, and what they do not get."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_analyzers.intake import stream_health
from rankscope_analyzers.intake.followed_agent import FollowedAgent
from rankscope_analyzers.intake.step_columns import Ring
from rankscope_analyzers.intake.stream_health import StreamHealth
from rankscope_analyzers.watch import step_series
from rankscope_analyzers.watch.step_series import StepLook

NOW = 5000.0


def agent(*jobs, age=0.0, known=True, failure=""):
    """Return an agent that answered so many seconds ago, with a living rank of each job."""
    rings = tuple(
        Ring(
            f"{number:016x}",
            False,
            {"job_id": job, "rank": number, "alive": not job.startswith("ended")},
        )
        for number, job in enumerate(jobs)
    )
    made = FollowedAgent(in_blocks=True if known else None, rings=rings, failure=failure)
    made.answered = NOW - age
    return made


def health(agents, late=(), own=lambda _: True):
    return stream_health.of(agents, late, own, NOW)


@pytest.mark.parametrize(("age", "silent"), [(60.0, 0), (60.1, 2)])
def test_an_agent_is_silent_after_a_minute_without_an_answer(age, silent):
    found = health({"a": agent("team/x", "team/x", age=age, failure="timed out"), "b": agent()})
    assert found.silent_ranks == {"team/x": silent}
    assert (found.answering, found.new, found.silent) == (2 - bool(silent), 0, bool(silent))


def test_an_agent_that_is_not_asked_for_a_while_is_not_silent():
    agents = {"a": agent("team/x", age=90.0)}
    assert health(agents).silent_ranks == {"team/x": 0}
    assert health(agents, late={"a"}).silent_ranks == {"team/x": 1}


def test_agents_that_never_answered_are_new_and_then_silent():
    agents = {"a": agent(known=False, age=30.0), "b": agent(known=False, age=90.0)}
    assert health(agents) == StreamHealth(0, 1, 1, {})


def test_ranks_that_ended_canaries_and_jobs_of_other_shards_do_not_count():
    jobs = ("ended/x", "rankscope/rankscope-canary-29", "team/theirs", "team/ours")
    found = health({"a": agent(*jobs, age=90.0, failure="gone")}, own=lambda one: one[-1] == "s")
    assert found.silent_ranks == {"team/theirs": 1, "team/ours": 1}
    found = health({"a": agent(*jobs, age=90.0, failure="gone")}, own=lambda one: "our" in one)
    assert found.silent_ranks == {"team/ours": 1}


def test_before_any_agent_has_answered_there_is_no_time_of_a_look():
    look = StepLook(None, 0.1, StreamHealth(0, 1, 0, {}), 0, 0)
    names = {one.metric.name for one in step_series.samples(look, WHOLE)}
    assert "rankscope_watch_last_step_look_timestamp_seconds" not in names
    look = StepLook(7.0, 0.1, StreamHealth(1, 0, 0, {}), 10, 4)
    found = {
        (one.metric.name, one.labels): one.value for one in step_series.samples(look, Shard(1, 4))
    }
    assert found["rankscope_watch_last_step_look_timestamp_seconds", ("1", "4")] == 7.0
    assert found["rankscope_watch_step_records_total", ("judged",)] == 6
    assert found["rankscope_watch_step_records_total", ("dropped",)] == 4
