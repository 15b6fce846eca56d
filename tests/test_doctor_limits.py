"""Limits of doctor: agents at once, and reasons why agents do not start."""

from __future__ import annotations

import pandas as pd
import pytest

from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import doctor
from rankscope_analyzers.doctor import agent_startup


def test_32_agents_are_examined_at_once(monkeypatch):
    pools = []

    class Pool:
        def __init__(self, size):
            pools.append(size)
            raise InputError("enough is known")

    monkeypatch.setattr(doctor, "ThreadPoolExecutor", Pool)
    with pytest.raises(InputError):
        doctor._ask([])
    assert pools == [32]


NOW = 1_760_000_000.0


def event(message, age=0.0):
    at = pd.Timestamp(NOW - age, unit="s", tz="UTC").isoformat()
    return {
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"kind": "DaemonSet", "name": "rankscope-agent"},
    }


PULL = "Failed to pull image {}"


@pytest.mark.parametrize(("age", "told"), [(1199.0, 1), (1201.0, 0)])
def test_an_event_of_twenty_minutes_ago_says_nothing_of_now(age, told):
    assert len(agent_startup.reasons([event(PULL.format("a"), age)], (), NOW)) == told


def test_200_characters_of_an_event_are_shown():
    (sentence,) = agent_startup.reasons([event(PULL.format("x" * 999))], (), NOW)
    assert 150 <= sentence.count("x") <= 200


def pending(number):
    condition = {"type": "PodScheduled", "status": "False", "message": f"reason {number}"}
    return {"status": {"conditions": [condition]}}


def test_eight_reasons_why_agents_do_not_start_are_shown():
    assert len(agent_startup.waiting([pending(number) for number in range(12)])) == 8
