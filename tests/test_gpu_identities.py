"""GPUs keep their names through hangs, losses and other drivers."""

from __future__ import annotations

import threading
import time

from gpu_nodes import Clock, FaultyDevice, Library, device, read, session_of
from gpu_sessions import SHORT, gpus, read_until, until_responsive
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus.nvml import NvmlError

REOPEN_SECONDS = 5.0


class SlowIdentity(FaultyDevice):
    """A GPU that says who it is only once it is released."""

    def __init__(self, real, code=0):
        super().__init__(real)
        self.released = threading.Event()
        self.code = code

    def identity(self):
        self.released.wait()
        if self.code:
            raise NvmlError(self.code, "identity")
        return self._real.identity()


def slow_gpu(index, code=0):
    return SlowIdentity(device("h100x3", index), code)


def test_a_gpu_that_hangs_before_it_says_who_it_is_costs_the_others_nothing():
    slow = slow_gpu(1)
    session = session_of(Library([*gpus(1), slow]), Clock(), SHORT)
    for _ in range(2):
        page = read(session)
        assert page.series[metrics.GPU_UNRESPONSIVE.name, ("1", "unknown", "unknown")] == 1
        assert page.value(metrics.GPU_CLOCK, "sm") == 1980e6
    slow.released.set()
    page = until_responsive(session, 1)
    assert page.value(metrics.GPU_CLOCK, "sm", gpu=1) == 1980e6
    assert not [s for s in page.samples if "unknown" in s.labels]


def test_a_gpu_that_hangs_in_a_later_session_keeps_its_name():
    clock, devices = Clock(), gpus(3)
    nvml = Library(devices)
    session = session_of(nvml, clock, SHORT)
    until_responsive(session, 1)
    devices[0].codes["fields"] = 15
    read_until(session, lambda page: page.of(metrics.GPU_LOST) == {(): 1})
    slow = slow_gpu(1)
    nvml.devices[1] = slow
    clock.now += REOPEN_SECONDS
    page = read_until(session, lambda _: nvml.opened == 2)
    slow.released.set()
    assert page.of(metrics.GPU_LOST, 1) == {}, "it hangs, and nobody knows whether it is lost"
    assert [s.labels[1] for s in page.samples if s.metric == metrics.GPU_UNRESPONSIVE and s.value]
    assert not [s for s in page.samples if "unknown" in s.labels[:3]]


def test_a_gpu_that_turns_out_to_be_lost_after_it_hung_is_lost():
    slow = slow_gpu(1, 15)
    session = session_of(Library([*gpus(1), slow]), Clock(), SHORT)
    read(session)
    slow.released.set()
    for _ in range(1000):
        time.sleep(0.005)
        page = read(session)
        if page.of(metrics.GPU_LOST, 1):
            break
    assert page.series[metrics.GPU_LOST.name, ("1", "unknown", "unknown")] == 1
