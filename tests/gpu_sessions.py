"""Sessions with fake GPUs."""

from __future__ import annotations

import time

from gpu_nodes import Clock, FaultyDevice, device, read
from rankscope_agent.contract.metrics import gpus as metrics

SHORT = 0.2  # patience of tests in which something hangs


def gpus(count, clock=None):
    clock = clock or Clock()
    return [FaultyDevice(device(f"h100x{count}", index, clock)) for index in range(count)]


def until_responsive(session, gpu):
    return read_until(session, lambda page: page.value(metrics.GPU_UNRESPONSIVE, gpu=gpu) == 0)


def read_until(session, holds):
    """Read until a page shows something: calls end, or are found to hang, in their own threads."""
    for _ in range(1000):
        time.sleep(0.005)
        page = read(session)
        if holds(page):
            return page
    raise AssertionError("the GPUs were never as expected")
