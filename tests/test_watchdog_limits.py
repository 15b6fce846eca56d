"""What is kept of the messages of PyTorch's watchdogs in one pod's logs."""

from __future__ import annotations

import tracemalloc

import pytest

from rankscope_agent.contract.nccl.facts import Facts
from rankscope_agent.sources.nccl_log.pod import PodLogs
from rankscope_agent.sources.pods.log_directories import PodIdentity

TIMEOUT = (
    b"[rank0]: [PG ID 0 PG GUID g%d Rank 0] Watchdog caught collective operation timeout:"
    b" WorkNCCL(SeqNum=%d, OpType=A, NumelIn=1)"
)


@pytest.mark.parametrize("same", [True, False])
def test_4096_repeated_timeouts_of_a_pod_are_remembered(same):
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    for number in range(4200):
        one.facts.watchdog.read(TIMEOUT % (number, 7 if same else number))
    assert len(one.facts.watchdog.of_groups) == 4096
    assert len(one.facts.watchdog.repeated) == (1 if same else 4096)


def test_watchdogs_that_were_stuck_are_counted_and_fill_no_memory():
    line = "[rank{0}]: Heartbeat monitor timed out! NCCL watchdog got stuck for 600 seconds\n"
    text = "".join(line.format(number) for number in range(20_000)).encode()
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    tracemalloc.start()
    try:
        one.feed(text, 1.0, fresh=True)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert one.facts.warnings["TORCH_WATCHDOG_STUCK"].count == 20_000
    one.sum_up()
    assert grown <= one.weight + 100_000


def test_operations_of_attempts_that_are_over_are_counted_by_names_of_pytorch():
    one = PodLogs(PodIdentity("n", "p", "u"), Facts())
    lines = [TIMEOUT % (0, number) for number in range(10)]
    for attempt in range(3):
        for number, line in enumerate(lines):
            name = b"ALLREDUCE" if number == 0 else b"X%d_%d" % (attempt, number)
            one.feed(line.replace(b"OpType=A", b"OpType=" + name) + b"\n", 1.0, fresh=True)
        one.begin_anew()
    assert one.facts.watchdog.earlier == {"ALLREDUCE": 3, "other": 27}
    assert one.facts.watchdog.counts() == {"ALLREDUCE": 3, "other": 27}
