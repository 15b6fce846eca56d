"""What Prometheus is asked about GPU errors: how often, of how many GPUs, over how many hours."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_agent.contract.metrics import kernel_log, pods, training
from rankscope_analyzers.gpus.error_sources import from_prometheus
from rankscope_analyzers.intake.prometheus_api import Matrix

NOW = 1_800_000_000.0


class Server:
    """Prometheus with one error on each of so many GPUs, all of which are watched."""

    def __init__(self, gpus=1):
        self.labels = tuple(
            {"node": "gpu-07", "gpu": str(n), "uuid": f"GPU-{n}", "xid": "79", "pci": "0000:3b:00"}
            | {"severity": "fatal", "action": "reboot_node", "instance": "a:1"}
            for n in range(gpus)
        )
        self.queries, self.intervals = [], set()

    def range(self, query, start, end, interval):
        self.queries.append(query)
        self.intervals.add(interval)
        times = np.arange(start, end + interval / 2, interval)
        if query.startswith("count("):
            return Matrix(({},), times, np.full((1, len(times)), float(len(self.labels))))
        if f"({kernel_log.XID_ERRORS.name}[" in query:
            counts = np.where(times < NOW - 60, 1.0, 2.0)
            return Matrix(self.labels, times, np.tile(counts, (len(self.labels), 1)))
        return Matrix((), times, np.empty((0, len(times))))


@pytest.mark.parametrize(
    ("seconds", "interval"), [(3600.0, 15.0), (10_800.0, 15.0), (86_400.0, 120.0)]
)
def test_a_time_is_read_every_fifteen_seconds_or_720_times(seconds, interval):
    server = Server()
    log = from_prometheus(server, NOW - seconds, NOW)
    assert server.intervals == {interval}
    assert len(log.errors) == 1
    assert all(f"[{interval:.0f}s]" in query for query in server.queries)


@pytest.mark.parametrize("seconds", [60.0, 100.0, 7200.0, 86_400.0])
def test_hours_of_gpus_are_those_in_which_their_kernel_logs_were_read(seconds):
    found = from_prometheus(Server(gpus=8), NOW - seconds, NOW).gpu_hours
    assert found == pytest.approx(8 * seconds / 3600)


@pytest.mark.parametrize(("gpus", "queries"), [(1, 1), (100, 1), (101, 2), (250, 3)])
def test_a_hundred_gpus_are_named_in_one_query(gpus, queries):
    server = Server(gpus)
    from_prometheus(server, NOW - 3600, NOW)
    for holder in (pods.GPU_ALLOCATION_INFO, training.RANK_INFO):
        assert sum(f"({holder.name}{{" in query for query in server.queries) == queries
