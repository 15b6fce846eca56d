"""What a real Prometheus makes of totals when the agent that it scrapes is restarted in place."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope_analyzers.demo.free_ports import free_port
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, RunningAgent, running_agent
from test_prometheus_server import prometheus, query, until_found

__all__ = ["prometheus"]

STEPS = 'rankscope_steps_total{job_id="team/job"}'
SECONDS = 'rankscope_step_seconds_total{job_id="team/job"}'
LATENCY = 'rankscope_step_latency_seconds_count{job_id="team/job"}'
CAPACITY = 4096


def increase(address: str, series: str) -> float:
    """Return by how much a counter grew by all of its samples, as Prometheus sums it up.

    Its own function divides by the time between the first and the last sample, and so depends on
    how long a test takes.
    """
    (found,) = query(address, f"{series}[10m]")
    values = [float(value) for _, value in found["values"]]
    return sum(b - a if b >= a else b for a, b in itertools.pairwise(values))


def written(writer: RingWriter, count: int) -> None:
    writer.step(count, start_unix_ns=time.time_ns() - 100_000_000)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.1)


def shown(agent: RunningAgent, steps: int) -> bool:
    return f'rankscope_steps_total{{job_id="team/job",rank="0"}} {steps}' in agent.get("/metrics")


def kept(folder: Path, steps: int) -> bool:
    state = folder / "step_totals.json"
    return state.exists() and f'"steps":[{steps},'.encode() in state.read_bytes()


@pytest.mark.parametrize(
    ("end", "state"), [("SIGTERM", True), ("SIGKILL", True), ("SIGKILL", False)]
)
def test_a_restart_in_place_is_no_increase(prometheus, tmp_path, end, state):
    """A ring holds the newest 4,096 of 10,000 records when the agent is restarted."""
    (tmp_path / "rings").mkdir()
    port, log = free_port(), tmp_path / "prometheus.log"
    listen = f"--web.listen-address=127.0.0.1:{port}"
    writer = RingWriter(tmp_path / "rings", capacity=CAPACITY, created_unix_ns=time.time_ns())
    with running_agent(tmp_path, listen) as agent:
        address = prometheus(agent)
        for count in (3, 2997, 3500, 3500):
            written(writer, count)
            until(lambda: shown(agent, writer.seq))
            assert until_found(address, f"{STEPS} == {writer.seq}", log)
        if state and end == "SIGKILL":
            until(lambda: kept(tmp_path, 10_000))
        before = [increase(address, series) for series in (STEPS, SECONDS, LATENCY)]
        assert before == pytest.approx([9_997, 999.7, 9_997])
        agent.process.send_signal(getattr(signal, end))
        agent.process.wait(PATIENCE_SECONDS)
    written(writer, 20)
    if not state:
        (tmp_path / "step_totals.json").unlink(missing_ok=True)
    with running_agent(tmp_path, listen):
        total = 10_020 if state else 1
        assert until_found(address, f"{STEPS} == {total}", log)
        written(writer, 30)
        assert until_found(address, f"{STEPS} == {total + 30}", log)
    since = 50 if state else 31
    after = [increase(address, series) for series in (STEPS, SECONDS, LATENCY)]
    assert after == pytest.approx([9_997 + since, 999.7 + since / 10, 9_997 + since])
    resets = query(address, f"resets({STEPS}[10m])")[0]["value"][1]
    assert resets == ("0" if state else "1")
    writer.end()
