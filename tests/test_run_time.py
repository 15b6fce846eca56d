"""How long a run goes on with what others make: at each limit and just beyond it."""

from __future__ import annotations

import pytest

from rankscope_agent.sources.run_time import charging, time_left


class Clocks:
    """CPU time and the time of day, which move on by hand."""

    def __init__(self):
        self.cpu = self.time = 100.0


@pytest.fixture
def clocks():
    return Clocks()


@pytest.mark.parametrize(("seconds", "left"), [(1.9, True), (2.0, False)])
def test_a_run_goes_on_for_two_seconds_on_the_clock(clocks, seconds, left):
    is_left = time_left(lambda: clocks.cpu, 10.0, lambda: clocks.time)
    clocks.time += seconds
    assert is_left() is left


@pytest.mark.parametrize(("cpu_seconds", "left"), [(0.24, True), (0.25, False)])
def test_a_run_goes_on_until_its_cpu_time_is_used_up(clocks, cpu_seconds, left):
    is_left = time_left(lambda: clocks.cpu, 0.25, lambda: clocks.time)
    clocks.cpu += cpu_seconds
    assert is_left() is left


@pytest.mark.parametrize(("cpu_seconds", "charge"), [(0.0, 1.0), (0.9, 1.0), (1.1, 1.1)])
def test_a_second_of_waiting_is_charged_as_a_twentieth_of_one_of_work(clocks, cpu_seconds, charge):
    charged = charging(lambda: clocks.cpu, lambda: clocks.time)
    clocks.time += 20.0
    clocks.cpu += cpu_seconds
    assert charged() == pytest.approx(charge)
