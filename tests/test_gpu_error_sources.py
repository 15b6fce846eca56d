"""What Prometheus is asked about GPU errors: how often, of how many GPUs, over how many hours."""

from __future__ import annotations

import time

import numpy as np
import pytest

from prometheus_blocks import serving_samples
from rankscope_agent.contract.metrics import kernel_log, pods, training
from rankscope_analyzers.gpus.error_sources import from_prometheus
from rankscope_analyzers.gpus.failure_rates import rates
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus

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


SCRAPE, REPLACED_AT, SCRAPES = 15, 60, 120


def told_by_two_agents(start):
    """Yield what two agents of a node tell, of which the second one replaces the first."""
    told = {
        "rankscope_kernel_disk_errors_total": ('disk="sda"', 3),
        "rankscope_gpu_fallen_off_bus_total": ('gpu="0",uuid="GPU-0",pci="0000:3b:00"', 0),
        "rankscope_agent_build_info": ('version="1"', 1),
    }
    for name, (labels, value) in told.items():
        yield f"# TYPE {name.removesuffix('_total')} {'counter' if value != 1 else 'gauge'}"
        for pod, scrapes in (("a", range(REPLACED_AT)), ("b", range(REPLACED_AT, SCRAPES))):
            scraped = f'node="gpu-07",pod="{pod}",instance="10.0.0.{len(scrapes)}{pod}:9836"'
            for scrape in scrapes:
                yield f"{name}{{{scraped},{labels}}} {value} {start + scrape * SCRAPE}"
    yield "# EOF"


def test_what_an_agent_tells_again_for_the_one_it_replaces_is_no_failure(tmp_path):
    start = (int(time.time()) // SCRAPE - SCRAPES) * SCRAPE
    end = start + (SCRAPES - 1) * SCRAPE
    with serving_samples(tmp_path, told_by_two_agents(start)) as url:
        log = from_prometheus(Prometheus(url), start + 2 * SCRAPE, end)
    counted = {rate.name: rate.count for rate in rates((), log.nodes, log.gpu_hours)}
    assert counted["disk"] == 0
    assert log.gpu_hours == pytest.approx((end - start - 2 * SCRAPE) / 3600)
