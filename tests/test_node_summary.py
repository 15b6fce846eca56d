"""What a node's series say together: per job, and what is out of order."""

import pytest

from collected_page import Page, collector
from rankscope_agent.collecting.summary.node import NodeSummary
from rankscope_agent.contract.metrics import (
    gpus,
    host,
    nccl_log,
    pods,
    rdma,
    training,
)
from rankscope_agent.contract.metrics import summary as metrics
from rankscope_agent.contract.model import FLAG_SAMPLED, HistogramValue, Scrape
from ring_writer import RingWriter
from summarized_nodes import DEVICE, GPU, POD, PORT, Node, of, scrape


def rank(number, *, job="team/llm", busy=1.0, alive=1, stage="0", uid="u-1", pod="llm-0"):
    labels = dict.fromkeys(training.RANK_INFO.labels, "")
    labels |= {"job_id": job, "rank": str(number), "pp_stage": stage, "pod_uid": uid}
    labels |= {"pod_namespace": "team" if pod else "", "pod_name": pod}
    keys = {"job_id": job, "rank": str(number)}
    return (
        training.RANK_INFO.sample(1, **labels),
        training.RANK_ALIVE.sample(alive, **keys),
        training.LAST_DATA_SECONDS.sample(0.1, **keys),
        training.LAST_COMPUTE_SECONDS.sample(busy - 0.1, **keys),
    )


def held(uuid, job="team/llm", pod="llm-0"):
    labels = dict.fromkeys(pods.GPU_ALLOCATION_INFO.labels, "")
    labels |= {"uuid": uuid, "job_id": job, "pod_namespace": "team", "pod_name": pod}
    return pods.GPU_ALLOCATION_INFO.sample(1, **labels)


def test_a_node_of_which_nothing_is_known_has_no_summary():
    assert Node().look() == {}


def test_the_slowest_rank_of_a_stage_is_named_beside_the_median_of_those_that_live():
    ranks = [one for n in range(8) for one in rank(n, busy=1.6 if n == 5 else 1.0 + n / 100)]
    found = Node().look(*ranks, *rank(8, busy=9.0, alive=0), *rank(9, stage="1", busy=3.0))
    assert of(found, metrics.STAGE_BUSIEST) == {
        ("team/llm", "5", "0"): pytest.approx(1.6),
        ("team/llm", "9", "1"): pytest.approx(3.0),
    }
    assert of(found, metrics.STAGE_BUSY)["team/llm", "0"] == pytest.approx(1.035)
    assert of(found, metrics.JOB_RANKS_ALIVE) == {("team/llm",): 9}


def test_ranks_whose_compute_is_not_measured_are_left_out():
    info, alive, data, _ = rank(0)
    found = Node().look(info, alive, data)
    assert not of(found, metrics.STAGE_BUSY)
    assert of(found, metrics.JOB_RANKS_ALIVE) == {("team/llm",): 1}


def test_a_sampled_jobs_ranks_have_a_time_of_their_own_in_a_sampled_step_alone(tmp_path):
    """Without a watch, rules have nothing to compare between two samples: docs/alerts.md."""
    ring = RingWriter(tmp_path)
    ring.step(flags=FLAG_SAMPLED)
    read = collector(tmp_path)
    assert of(Node().look(*Page(read).samples), metrics.STAGE_BUSY)
    ring.step(7, flags=FLAG_SAMPLED, compute_ns=-1, sync_ns=-1)
    found = Node().look(*Page(read).samples)
    assert not of(found, metrics.STAGE_BUSY)
    assert not of(found, metrics.STAGE_BUSIEST)
    assert of(found, metrics.JOB_RANKS_ALIVE) == {("team/job",): 1}
    ring.end()


def test_a_job_has_as_many_ranks_as_its_live_ones_were_told():
    def told(number, size, alive):
        labels = dict.fromkeys(training.RANK_INFO.labels, "")
        labels |= {"job_id": "team/llm", "rank": str(number), "world_size": size}
        alive_now = training.RANK_ALIVE.sample(alive, job_id="team/llm", rank=str(number))
        return (training.RANK_INFO.sample(1, **labels), alive_now)

    found = Node().look(*told(0, "448", 1), *told(1, "512", 0), *told(2, "unknown", 1))
    assert of(found, metrics.JOB_WORLD_SIZE) == {("team/llm",): 448}
    assert not of(Node().look(*told(2, "unknown", 1)), metrics.JOB_WORLD_SIZE)


def test_an_ended_job_has_no_live_ranks_and_is_not_judged():
    found = Node().look(*rank(0, alive=0))
    assert of(found, metrics.JOB_RANKS_ALIVE) == {("team/llm",): 0}
    assert not of(found, metrics.STAGE_BUSIEST)


def test_utilisation_is_added_up_over_the_gpus_of_each_job():
    used = [
        gpus.GPU_UTILIZATION.sample(value, gpu=str(n), uuid=f"GPU-{n}", pci="p")
        for n, value in enumerate((1.0, 0.5, 0.2, 0.9))
    ]
    allocated = [held("GPU-0"), held("GPU-1"), held("GPU-2", "team/b", "b-0"), held("GPU-9")]
    found = Node().look(*used, *allocated, held("GPU-3", job=""))
    assert of(found, metrics.JOB_GPUS) == {("team/llm",): 2, ("team/b",): 1}
    assert of(found, metrics.JOB_BUSY_GPUS) == {("team/llm",): 1.5, ("team/b",): 0.2}


def test_a_pod_has_the_job_of_its_ranks_or_else_of_its_gpus():
    found = Node().look(*rank(0), *rank(1), held("GPU-0", job="other"), held("GPU-1", pod="x"))
    assert set(of(found, metrics.POD_JOB_INFO)) == {
        ("team/llm", "u-1", "team", "llm-0"),
        ("team/llm", "", "team", "x"),
    }
    assert not of(Node().look(*rank(0, uid="", pod="")), metrics.POD_JOB_INFO)


def test_environments_and_nccl_versions_are_told_once_per_job():
    def environment(number, value):
        return pods.RANK_ENVIRONMENT_INFO.sample(1, job_id="team/llm", rank=number, hash=value)

    def version(text):
        return nccl_log.NCCL_NET_INFO.sample(
            1, **POD, pod_uid="u-1", net="IB", plugin=text, version=text
        )

    found = Node().look(
        *rank(0),
        *(environment(str(n), "a" if n else "b") for n in range(8)),
        *(version("2.27.3"), version("2.21.5"), version("unknown")),
    )
    assert set(of(found, metrics.JOB_ENVIRONMENT_INFO)) == {("team/llm", "a"), ("team/llm", "b")}
    assert set(of(found, metrics.JOB_NCCL_INFO)) == {
        ("team/llm", "2.27.3"),
        ("team/llm", "2.21.5"),
    }


def there():
    more = dict.fromkeys(gpus.GPU_INFO.labels, "") | GPU
    return gpus.GPU_INFO.sample(1, **more)


def state(on, metric=gpus.GPU_LOST):
    return (metric.sample(on, **GPU), there())


def test_healthy_gpus_have_no_series_of_conditions():
    found = Node().look(*state(0), gpus.GPU_CLOCK_EVENT.sample(0, **GPU, reason="hw_power_brake"))
    assert found == {}


@pytest.mark.parametrize(
    ("condition", "metric"),
    [
        ("lost", gpus.GPU_LOST),
        ("row_remap_pending", gpus.GPU_REMAP_PENDING),
        ("row_remap_failure", gpus.GPU_REMAP_FAILURE),
        ("page_retirement_pending", gpus.GPU_RETIRED_PENDING),
        ("sram_threshold", gpus.GPU_SRAM_THRESHOLD),
    ],
)
def test_a_condition_appears_when_it_is_seen_and_is_zero_when_it_has_ended(condition, metric):
    node = Node()
    assert not of(node.look(*state(0, metric)), metrics.GPU_CONDITION)
    assert of(node.look(*state(1, metric)), metrics.GPU_CONDITION) == {(*DEVICE, condition): 1}
    assert of(node.look(*state(0, metric)), metrics.GPU_CONDITION) == {(*DEVICE, condition): 0}
    assert node.look() == {}, "nothing is said of a GPU of which nothing is known"


def test_a_gpu_whose_links_come_up_again_is_in_order():
    def up(own):
        other = gpus.GPU_NVLINKS_UP.sample(18, gpu="6", uuid="GPU-b", pci="0000:3c:00")
        return (*state(0), gpus.GPU_NVLINKS_UP.sample(own, **GPU), other)

    node = Node()
    assert of(node.look(*up(0)), metrics.GPU_CONDITION) == {(*DEVICE, "no_nvlink"): 1}
    assert of(node.look(*up(18)), metrics.GPU_CONDITION) == {(*DEVICE, "no_nvlink"): 0}


def hot(load, reason="hw_thermal_slowdown"):
    return (
        *state(0),
        gpus.GPU_CLOCK_EVENT.sample(1, **GPU, reason=reason),
        gpus.GPU_UTILIZATION.sample(load, **GPU),
    )


def test_heat_counts_under_load_only():
    node = Node()
    for _ in range(30):
        assert not of(node.look(*hot(0.1)), metrics.GPU_CONDITION)
    for _ in range(30):
        found = node.look(*hot(0.9))
    assert of(found, metrics.GPU_CONDITION) == {(*DEVICE, "thermal_slowdown"): 1}
    for _ in range(30):
        found = node.look(*hot(0.2))
    assert of(found, metrics.GPU_CONDITION) == {(*DEVICE, "thermal_slowdown"): 0}
    assert not of(Node().look(*hot(0.9, "sw_power_cap")), metrics.GPU_CONDITION)


@pytest.mark.parametrize("active", [0.3, 0.9])
def test_a_partitioned_gpu_is_as_busy_as_its_busiest_instance(active):
    *slow, _ = (*hot(0.0), *pcie(8, 5, 0.0))
    known = [one for one in slow if one.metric is not gpus.GPU_UTILIZATION]
    parts = [
        gpus.MIG_SM_ACTIVE.sample(
            share, **GPU, gpu_instance=str(part), compute_instance="0", mig_profile="1g.10gb"
        )
        for part, share in enumerate((0.0, active, 0.1))
    ]
    found = Node().look(*known, *parts)
    assert bool(of(found, metrics.GPU_CONDITION)) is (active > 0.5)
    assert bool(of(found, metrics.GPU_PCIE_REDUCED)) is (active > 0.5)
    unknown = Node().look(*known)
    assert of(unknown, metrics.GPU_CONDITION) == {(*DEVICE, "thermal_slowdown"): 1}
    assert not of(unknown, metrics.GPU_PCIE_REDUCED), "it may be idle"


@pytest.mark.parametrize(("load", "told"), [(0.45, False), (0.55, True)])
def test_a_gpu_that_runs_kernels_half_of_the_time_is_at_work(load, told):
    assert bool(of(Node().look(*hot(load)), metrics.GPU_CONDITION)) is told


def test_load_is_that_of_the_last_five_minutes():
    """After five minutes at work 2.5 minutes of rest make less than half, and the other way."""
    node = Node()
    for _ in range(20):
        node.look(*hot(1.0))
    rested = [of(node.look(*hot(0.0)), metrics.GPU_CONDITION) for _ in range(14)]
    working = [found[(*DEVICE, "thermal_slowdown")] for found in rested]
    assert working[:8] == [1] * 8
    assert working[12:] == [0] * 2


def test_a_power_brake_counts_without_load():
    found = Node().look(*hot(0.0, "hw_power_brake"))
    assert of(found, metrics.GPU_CONDITION) == {(*DEVICE, "power_brake"): 1}


def limits(enforced, default=700.0):
    return (
        gpus.GPU_POWER_LIMIT.sample(enforced, **GPU, kind="enforced"),
        gpus.GPU_POWER_LIMIT.sample(default, **GPU, kind="default"),
    )


def test_only_lowered_power_limits_are_told():
    assert of(Node().look(*limits(400)), metrics.GPU_POWER_REDUCED) == {
        DEVICE: pytest.approx(4 / 7)
    }
    assert Node().look(*limits(700)) == {}
    assert Node().look(limits(400)[0]) == {}, "nothing to compare with"


def pcie(width, generation, load):
    return (
        gpus.GPU_PCIE_WIDTH.sample(width, **GPU),
        gpus.GPU_PCIE_WIDTH_MAX.sample(16, **GPU),
        gpus.GPU_PCIE_GENERATION.sample(generation, **GPU),
        gpus.GPU_PCIE_GENERATION_MAX.sample(5, **GPU),
        gpus.GPU_UTILIZATION.sample(load, **GPU),
    )


def test_a_pcie_link_is_below_its_maximum_only_while_the_gpu_works():
    assert Node().look(*pcie(16, 1, 0.0)) == {}
    assert Node().look(*pcie(16, 5, 0.9)) == {}
    assert of(Node().look(*pcie(8, 4, 0.9)), metrics.GPU_PCIE_REDUCED) == {DEVICE: 0.5}
    assert of(Node().look(*pcie(16, 4, 0.9)), metrics.GPU_PCIE_REDUCED) == {DEVICE: 0.8}


def errors(aggregate, volatile, kind="uncorrected"):
    return (
        *state(0),
        gpus.GPU_ECC_ERRORS.sample(aggregate, **GPU, kind=kind, scope="aggregate"),
        gpus.GPU_ECC_ERRORS.sample(volatile, **GPU, kind=kind, scope="volatile"),
    )


def test_of_two_sources_of_a_counter_the_first_counts():
    node = Node()
    for _ in range(5):
        found = node.look(*errors(5, 5), *errors(4, 4))
        assert found == {}


def test_new_memory_errors_count_once_though_two_counters_have_them():
    node = Node()
    assert node.look(*errors(7, 2)) == {}
    assert of(node.look(*errors(8, 3)), metrics.GPU_RECENT_UNCORRECTED) == {DEVICE: 1}
    assert of(node.look(*errors(8, 0)), metrics.GPU_RECENT_UNCORRECTED) == {DEVICE: 1}
    assert node.look(*errors(8, 0), after=1000) == {}
    node.look(*errors(9, 9, "corrected"))
    assert node.look(*errors(90, 90, "corrected")) == {}


@pytest.mark.parametrize(("seconds", "told"), [(870, True), (930, False)])
def test_memory_errors_count_for_a_quarter_of_an_hour(seconds, told):
    node = Node()
    node.look(*errors(7, 2))
    node.look(*errors(8, 3))
    assert bool(node.look(*errors(8, 3), after=seconds)) is told


def test_resources_of_which_little_is_left_are_told_by_the_fullest_file_system():
    found = Node().look(
        host.MEMORY_TOTAL.sample(100.0),
        host.MEMORY_AVAILABLE.sample(4.0),
        host.DISK_USED.sample(0.5, filesystem="root"),
        host.DISK_USED.sample(0.97, filesystem="images"),
        host.INODES_USED.sample(0.2, filesystem="root"),
    )
    assert found == {
        (metrics.NODE_RESOURCE_USED, ("memory",)): pytest.approx(0.96),
        (metrics.NODE_RESOURCE_USED, ("disk",)): 0.97,
    }
    assert Node().look(host.MEMORY_AVAILABLE.sample(4.0)) == {}, "of how much is not known"


@pytest.mark.parametrize(("used", "told"), [(0.79, False), (0.81, True)])
def test_a_resource_is_told_before_the_kubelet_evicts_pods_for_it(used, told):
    found = Node().look(
        host.MEMORY_TOTAL.sample(100.0),
        host.MEMORY_AVAILABLE.sample(100.0 * (1 - used)),
        host.DISK_USED.sample(used, filesystem="root"),
        host.INODES_USED.sample(used, filesystem="root"),
        host.PIDS_USED.sample(used),
    )
    names = {labels for _, labels in found}
    assert names == ({("memory",), ("disk",), ("inodes",), ("pids",)} if told else set())


def fallback(value, reason="plugin_failed", port_state=4):
    return (
        nccl_log.NCCL_SOCKET_FALLBACK.sample(value, **POD, reason=reason),
        rdma.PORT_STATE.sample(port_state, **PORT),
    )


def test_a_fallback_to_tcp_counts_where_a_port_is_active_and_nobody_wanted_it():
    found = of(Node().look(*fallback(1), *rank(0)), metrics.POD_CONDITION)
    assert found == {("team/llm", "team", "llm-0", "socket_fallback", "plugin_failed"): 1}
    assert of(Node().look(*fallback(1, port_state=5)), metrics.POD_CONDITION), "active, with errors"
    for quiet in (fallback(0), fallback(-1), fallback(1, "expected"), fallback(1, port_state=3)):
        assert not of(Node().look(*quiet), metrics.POD_CONDITION)
    assert not Node().look(fallback(1)[0]), "a node without ports has only TCP"


def test_what_is_amiss_with_a_pod_of_an_unknown_job_has_an_empty_one():
    found = of(Node().look(nccl_log.NCCL_GDR_MISSING.sample(8, **POD)), metrics.POD_CONDITION)
    assert found == {("", "team", "llm-0", "gdr_missing", ""): 8}


def test_a_pod_with_a_problem_keeps_its_job_while_its_ranks_cannot_be_read():
    node, amiss = Node(), nccl_log.NCCL_GDR_MISSING.sample(8, **POD)
    of_job, of_none = (
        {(job_id, "team", "llm-0", "gdr_missing", ""): 8} for job_id in ("team/llm", "")
    )
    assert of(node.look(amiss, *rank(0)), metrics.POD_CONDITION) == of_job
    assert of(node.look(amiss), metrics.POD_CONDITION) == of_job
    assert of(node.look(*rank(0)), metrics.POD_CONDITION) == {}
    assert of(node.look(amiss), metrics.POD_CONDITION) == of_none, "nobody says it is the same pod"


def test_ranks_that_wait_for_their_communicator_are_counted():
    def initialised(ended):
        return (
            nccl_log.NCCL_RANKS_EXPECTED.sample(8, **POD),
            nccl_log.NCCL_RANKS_INITIALIZED.sample(ended, **POD),
        )

    assert Node().look(*initialised(8)) == {}
    found = Node().look(*initialised(5))
    assert found == {(metrics.POD_CONDITION, ("", "team", "llm-0", "ranks_waiting", "")): 3}


def test_shared_memory_is_amiss_where_gpus_have_nvlinks():
    def connected(links):
        return (
            nccl_log.NCCL_CONNECTIONS.sample(
                16, **POD, transport="SHM", gdr="false", scope="intra_node"
            ),
            nccl_log.NCCL_CONNECTIONS.sample(
                2, **POD, transport="SHM", gdr="true", scope="intra_node"
            ),
            gpus.GPU_NVLINKS_UP.sample(links, **GPU),
        )

    assert Node().look(*connected(0)) == {}
    found = Node().look(*connected(18))
    assert found == {(metrics.POD_CONDITION, ("", "team", "llm-0", "shared_memory", "")): 16}


def test_samples_that_are_none_and_histograms_are_passed_over():
    odd = Scrape("broken", True, 0.1, ("no sample",), "", None)
    histogram = training.STEP_LATENCY.sample(HistogramValue(((1.0, 2),), 2, 1.5), job_id="j")
    assert list(NodeSummary().collect([odd, scrape(histogram)], 1.0)) == []
