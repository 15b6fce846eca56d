"""From which values on a node's pressure, limits and shortages are worth a word: tables of each."""

import numpy as np
import pytest

from rankscope_agent.contract.metrics import host as metrics
from rankscope_agent.contract.metrics import starvation, training
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.observed import Series, gathered
from rankscope_analyzers.layers import host_pressure
from rankscope_analyzers.layers import starvation as starved
from rankscope_analyzers.layers.job_view import job_view

NODES = ("gpu-0", "gpu-1", "gpu-2")
JOB = job_view(
    "team/job",
    {
        rank: RankLocation(rank, node, pod=f"team/job-{rank}", pod_uid=f"uid-{rank}")
        for rank, node in enumerate(NODES)
    },
)
SECONDS = 60.0


def series(metric, node, first, last, **labels):
    """Return a series of a minute."""
    times = np.array([1e9, 1e9 + SECONDS])
    return Series(node, metric.name, labels, times, np.array([first, last]))


def grown(metric, node, by, **labels):
    return series(metric, node, 1000.0, 1000.0 + by, **labels)


def gauge(metric, node, value, **labels):
    return series(metric, node, value, value, **labels)


def kinds(*read):
    found = list(host_pressure.findings(gathered(read), JOB))
    return [(finding.kind, finding.where.nodes) for finding in found]


def pressures(resource, *shares):
    labels = {"resource": resource, "kind": "some"}
    pairs = zip(NODES, shares, strict=False)
    return [grown(metrics.PRESSURE, node, share * SECONDS, **labels) for node, share in pairs]


@pytest.mark.parametrize(
    ("resource", "below", "above"),
    [("cpu", 0.19, 0.21), ("memory", 0.045, 0.055), ("io", 0.09, 0.11)],
)
def test_a_node_waits_for_a_resource_from_some_share_of_the_time_on(resource, below, above):
    assert kinds(*pressures(resource, below, 0.0, 0.0)) == []
    assert kinds(*pressures(resource, above, 0.0, 0.0)) == [(f"{resource}_pressure", ("gpu-0",))]


@pytest.mark.parametrize(("share", "told"), [(0.58, 0), (0.62, 1)])
def test_a_node_has_to_wait_twice_as_much_as_its_peers(share, told):
    assert len(kinds(*pressures("cpu", share, 0.3, 0.3))) == told


def test_of_one_node_nobody_knows_what_is_usual():
    assert kinds(*pressures("cpu", 0.9)) == []


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        (metrics.DISK_USED, "disk_full"),
        (metrics.INODES_USED, "disk_full"),
        (metrics.PIDS_USED, "pids_exhausted"),
    ],
)
@pytest.mark.parametrize(("ratio", "told"), [(0.94, 0), (0.95, 1), (1.0, 1)])
def test_what_is_used_to_its_end_is_told_from_95_per_cent_on(metric, kind, ratio, told):
    assert kinds(gauge(metric, "gpu-1", ratio)) == [(kind, ("gpu-1",))] * told


@pytest.mark.parametrize(("used", "told"), [(0.94, 0), (0.96, 1)])
def test_shared_memory_is_told_from_95_per_cent_on(used, told):
    labels = {"pod_uid": "uid-1"}
    read = [gauge(metrics.SHM_SIZE, "gpu-1", 1e9, **labels)]
    read.append(gauge(metrics.SHM_USED, "gpu-1", used * 1e9, **labels))
    assert kinds(*read) == [("shm_full", ("gpu-1",))] * told


@pytest.mark.parametrize(("left", "told"), [(0.035, 0), (0.025, 1)])
def test_memory_is_told_when_three_per_cent_are_left(left, told):
    read = [gauge(metrics.MEMORY_TOTAL, "gpu-2", 1e12)]
    read.append(gauge(metrics.MEMORY_AVAILABLE, "gpu-2", left * 1e12))
    assert kinds(*read) == [("memory_pressure", ("gpu-2",))] * told


@pytest.mark.parametrize(("throttled", "told"), [(55, 0), (65, 1)])
def test_a_limit_holds_a_pod_back_from_a_tenth_of_the_periods_on(throttled, told):
    labels = {"pod_uid": "uid-0"}
    read = [grown(metrics.POD_PERIODS, "gpu-0", 600, kind="all", **labels)]
    read.append(grown(metrics.POD_PERIODS, "gpu-0", throttled, kind="throttled", **labels))
    assert kinds(*read) == [("cpu_throttled", ("gpu-0",))] * told


def nfs(node, requests, seconds):
    labels = {"pod_uid": f"uid-{NODES.index(node)}"}
    yield grown(metrics.NFS_OPERATIONS, node, requests, **labels)
    yield grown(metrics.NFS_ROUND_TRIP, node, requests * seconds, **labels)


@pytest.mark.parametrize(
    ("requests", "seconds", "peers", "told"),
    [
        (100, 0.045, 0.001, 0),
        (100, 0.055, 0.001, 1),
        (100, 0.200, 0.110, 0),
        (100, 0.200, 0.090, 1),
        (19, 0.500, 0.001, 0),
        (20, 0.500, 0.001, 1),
    ],
)
def test_a_file_server_is_slow_from_50_ms_and_twice_its_peers_on(requests, seconds, peers, told):
    read = [*nfs("gpu-0", requests, seconds), *nfs("gpu-1", 100, peers), *nfs("gpu-2", 100, peers)]
    assert kinds(*read) == [("nfs_slow", ("gpu-0",))] * told


def waits(metric, *shares):
    return [
        grown(metric, node, share * SECONDS, job_id="team/job", rank=str(rank))
        for rank, (node, share) in enumerate(zip(NODES, shares, strict=True))
    ]


@pytest.mark.parametrize("metric", [starvation.RANK_STARVED, starvation.LOADER_STARVED])
@pytest.mark.parametrize(
    ("share", "peers", "told"),
    [(0.19, 0.0, 0), (0.21, 0.0, 1), (0.38, 0.2, 0), (0.42, 0.2, 1), (0.5, 0.25, 1)],
)
def test_a_rank_is_starved_from_a_fifth_of_the_time_and_twice_its_peers_on(
    metric, share, peers, told
):
    found = list(starved.findings(gathered(waits(metric, peers, share, peers)), JOB))
    assert [finding.where.ranks for finding in found] == [(1,)] * told


def test_a_rank_whose_own_records_count_its_waits_is_left_to_them():
    read = waits(starvation.RANK_STARVED, 0.0, 0.9, 0.0)
    counted = waits(training.CPU_WAIT_SECONDS, 0.0, 0.0, 0.0)
    assert list(starved.findings(gathered([*read, *counted]), JOB)) == []
    workers = waits(starvation.LOADER_STARVED, 0.0, 0.9, 0.0)
    assert len(list(starved.findings(gathered([*workers, *counted]), JOB))) == 1
