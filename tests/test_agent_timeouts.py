"""How long an agent has to answer, how much it may answer, and how long late ones have."""

from __future__ import annotations

import pytest

from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.agent_timeouts import AgentTimeouts
from rankscope_analyzers.intake.deadline import Deadline
from recording_entry import Entry, Reader


def test_an_agent_has_ten_seconds_for_a_byte_and_twenty_for_an_answer():
    entry = Entry()
    Agent("a:1", entry).body("/metrics", 10)
    (given,) = entry.deadlines
    assert (given.seconds, given.silence_seconds, given.connect_seconds) == (20.0, 10.0, 3.0)


def test_steps_may_take_an_agent_half_of_their_minute_to_begin_with():
    entry = Entry()
    Agent("a:1", entry).body("/api/v1/steps", 10, 60.0)
    assert (entry.deadlines[0].seconds, entry.deadlines[0].silence_seconds) == (60.0, 30.0)


def test_an_agent_answers_64_mib_and_is_read_in_pieces():
    entry = Entry(Reader())
    with pytest.raises(AgentError, match="more than 64 MiB"):
        Agent("a:1", entry).text("/metrics")
    assert 64 << 20 < entry.answer.read_bytes <= (64 << 20) + (1 << 16)
    assert set(entry.answer.sizes) == {1 << 16}


def test_a_lost_syn_may_be_repeated_and_a_dead_node_is_not_waited_for():
    assert Deadline(60.0).connect_seconds == 3.0


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("took", "late"), [(1.4, False), (1.6, True)])
def test_who_took_longer_than_a_second_and_a_half_is_late(took, late):
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = took
    timeouts.failed("http://a:1", "/metrics", given)
    following = timeouts.deadline("http://a:1", "/metrics", 20.0, 10.0)
    assert (following.seconds, following.connect_seconds) == ((6.0, 1.5) if late else (20.0, 3.0))


def all_late(count, path):
    """Return what is known of as many agents that were late with a path, and their URLs."""
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = 5.0
    urls = [f"http://a:{number}" for number in range(count)]
    for url in urls:
        timeouts.failed(url, path, given)
    return timeouts, urls


@pytest.mark.parametrize(("late", "seconds"), [(64, 6.0), (65, 3.0), (192, 2.0), (300, 1.5)])
def test_all_late_agents_together_add_six_seconds_to_a_look(late, seconds):
    timeouts, urls = all_late(late, "/")
    timeouts.keep(urls)
    assert timeouts.deadline(urls[0], "/", 20.0, 10.0).seconds == seconds
    assert timeouts.deadline(urls[0], "/", 3.0, 1.0).seconds == pytest.approx(
        min(3.0, max(1.5, 1.8 / -(-late // 64)))
    )


@pytest.mark.parametrize(("late", "seconds"), [(32, 6.0), (33, 3.0), (300, 1.5)])
def test_where_fewer_are_asked_at_a_time_each_late_agent_has_less_time(late, seconds):
    timeouts, urls = all_late(late, "/api/v1/stalls")
    timeouts.keep([*urls, *(f"http://b:{number}" for number in range(2048))])
    assert timeouts.deadline(urls[0], "/api/v1/stalls", 20.0, 10.0).seconds == seconds


def test_a_late_agent_is_waited_for_again_after_nine_short_looks_and_its_turn():
    clock, timeouts = Clock(), AgentTimeouts()
    given = Deadline(20.0, 10.0, clock=clock)
    clock.now = 5.0
    short = []
    for number in range(300):
        timeouts.failed(f"http://a:{number}", "/", given)
        looks = 0
        while timeouts.deadline(f"http://a:{number}", "/", 20.0, 10.0).seconds < 20.0:
            looks += 1
        short.append(looks)
    assert (min(short), max(short)) == (9, 17)
