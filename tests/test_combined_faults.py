"""Faults that show in two layers or more: one incident, with the physical cause first."""

from dataclasses import replace

import pytest
from rich.console import Console

from faulty_clusters import GPUS, Cluster, Line, on, ports, pressure, starved
from rankscope_analyzers.fusion import causality
from rankscope_analyzers.reports import html, job_json, markdown, terminal
from simulated_jobs import START_UNIX_SECONDS, Fault, Job

HEALTHY = {"gpu-0": "healthy", "gpu-1": "healthy"}
WORLD = 2 * GPUS
POD = 'pod_namespace="team",pod_name="llm-gpu-{}"'


def job(*faults: Fault, groups: int = 1) -> Job:
    return Job(ranks=WORLD, steps=120, groups=groups, faults=faults)


def slow(kind: str, *ranks: int) -> Fault:
    return Fault(kind, ranks, 0.5, first_step=60)


def kernel_xid(node: str, gpu: int, code: int) -> Line:
    """Return what an agent shows of an Xid that came in the middle of the time looked at."""

    def line(where: str, second: float) -> str:
        if where != node or second < 5:
            return ""
        labels = f'gpu="{gpu}",uuid="",pci="0000:1b:00",xid="{code}"'
        labels += ',severity="fatal",action="reboot_node"'
        when = START_UNIX_SECONDS + 1.3 * 100 - 7
        return (
            f"rankscope_gpu_xid_errors_total{{{labels}}} 1\n"
            f"rankscope_gpu_xid_last_timestamp_seconds{{{labels}}} {when}\n"
        )

    return line


FALLBACK = "rankscope_nccl_socket_fallback_state{{" + POD + ',reason="no_rdma_device"}} 1'

TIMEOUTS = "rankscope_nccl_collective_timeouts_total{{" + POD + ',op="ALLREDUCE"}} 8'

CASES = {
    "thermal slowdown and a slow rank": (
        Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, job(slow("compute", 13))),
        "thermal_slowdown", {13},
    ),
    "lower power limit and a slow rank": (
        Cluster({"gpu-0": "power-cap@2", "gpu-1": "healthy"}, job(slow("compute", 2))),
        "power_limit_differs", {2},
    ),
    "busy CPUs and slow input": (
        Cluster(HEALTHY, job(slow("data", 9)), [pressure({"gpu-1": {"cpu": 0.6}})]),
        "cpu_pressure", {9},
    ),
    "slow disk and slow input": (
        Cluster(HEALTHY, job(slow("data", 3)), [pressure({"gpu-0": {"io": 0.5}})]),
        "io_pressure", {3},
    ),
    "CPU limit and slow input": (
        Cluster(
            HEALTHY, job(slow("data", 12)),
            [
                pressure({"gpu-1": {"cpu": 0.5}}),
                lambda node, s: "".join(
                    f'rankscope_pod_cpu_periods_total{{pod_uid="u-{node}",kind="{kind}"}} {n * s}\n'
                    for kind, n in (("all", 10), ("throttled", 6 if node == "gpu-1" else 0))
                ),
            ],
        ),
        "cpu_throttled", {12},
    ),
    "starved process and slow compute": (
        Cluster(HEALTHY, job(slow("compute", 9)), [starved("rank", 9)]),
        "cpu_starved", {9},
    ),
    "starved loader workers and slow input": (
        Cluster(HEALTHY, job(slow("data", 3)), [starved("loader", 3)]),
        "workers_starved", {3},
    ),
    "lossy port and a slow group": (
        Cluster(
            HEALTHY, job(slow("transfer", 5), groups=8),
            [ports({"gpu-0": {"mlx5_5": {"out_of_sequence": 900.0}}})],
        ),
        "retransmission", {5},
    ),
    "port with errors that loses packets and a slow group": (
        Cluster(
            HEALTHY, job(slow("transfer", 3), groups=8),
            [ports({"gpu-1": {"mlx5_3": {"out_of_sequence": 900.0, "symbol_error": 400.0}}})],
        ),
        "errors", {11},
    ),
    "narrow link that congests and a slow group": (
        Cluster(
            HEALTHY, job(slow("transfer", 6), groups=8),
            [ports({"gpu-1": {"mlx5_6": {"speed": 12.5e9, "cnp_handled": 4000.0}}})],
        ),
        "rate_below_maximum", {14},
    ),
    "no RDMA device, sockets and a slow job": (
        Cluster(
            HEALTHY, Job(ranks=WORLD, steps=120, transfer=0.9),
            [
                on("gpu-0", FALLBACK.format(0)), on("gpu-1", FALLBACK.format(1)),
                on("gpu-1", f"rankscope_nccl_gdr_missing_connections{{{POD.format(1)}}} 8"),
            ],
        ),
        "socket_fallback", set(),
    ),
    "lost GPU, unhealthy device and a missing rank": (
        Cluster(
            {"gpu-0": "healthy", "gpu-1": "xid79@4"}, None,
            [
                on("gpu-1", 'rankscope_rank_alive{job_id="team/llm",rank="12"} 0'),
                on("gpu-0", TIMEOUTS.format(0)),
            ],
        ),
        {"gpu_lost", "pcie"}, {12},
    ),
    "memory kill, failed pod and timeouts elsewhere": (
        Cluster(
            HEALTHY, None,
            [
                lambda node, s: f'rankscope_pod_oom_kills_total{{pod_uid="u-{node}"}} '
                f'{1 if node == "gpu-1" and s > 5 else 0}\n',
                on("gpu-1", 'rankscope_job_pods{job_id="team/llm",phase="Failed"} 1'),
                on("gpu-0", TIMEOUTS.format(0)),
            ],
        ),
        "oom_kill", set(range(8, 16)),
    ),
    "Xid 79 in the kernel's log, a lost GPU and timeouts elsewhere": (
        Cluster(
            {"gpu-0": "healthy", "gpu-1": "xid79@0"}, None,
            [
                kernel_xid("gpu-1", 0, 79), on("gpu-0", TIMEOUTS.format(0)),
                on("gpu-1", 'rankscope_rank_alive{job_id="team/llm",rank="8"} 0'),
            ],
        ),
        "pcie", {8},
    ),
    "odd environment, sockets on one pod and a slow job": (
        Cluster(
            HEALTHY, Job(ranks=WORLD, steps=120, transfer=0.9),
            [
                lambda node, s: "".join(
                    f'rankscope_rank_environment_info{{job_id="team/llm",rank="{r}",'
                    f'hash="{"b" if r > 9 and node == "gpu-1" else "a"}"}} 1\n'
                    for r in (range(8) if node == "gpu-0" else range(8, 16))
                ),
                on("gpu-1", FALLBACK.replace("no_rdma_device", "forced_by_environment").format(1)),
            ],
        ),
        "environment_differs", set(range(10, 16)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cluster", "cause", "ranks"), CASES.values(), ids=CASES)
def test_the_physical_cause_is_the_one_incident(cluster, cause, ranks):
    said = cluster.report()
    assert [incident.cause.kind for incident in said.incidents] in (
        [[one] for one in (cause if isinstance(cause, set) else {cause})]
    )
    (incident,) = said.incidents
    assert len(incident.layers) >= 2 or len(incident.findings) >= 1
    assert set(incident.where.ranks) >= ranks


def test_what_is_wrong_elsewhere_explains_nothing():
    # GPU 2 of gpu-0 is hot, but it is rank 13 that is slow: two things.
    cluster = Cluster({"gpu-0": "thermal@2", "gpu-1": "healthy"}, job(slow("compute", 13)))
    said = cluster.report()
    assert [incident.cause.kind for incident in said.incidents] == ["gpu_compute"]
    assert said.incidents[0].where.ranks == (13,)
    assert [finding.kind for finding in said.observations] == ["thermal_slowdown"]


def test_two_hot_gpus_slow_two_ranks_and_none_of_them_is_called_harmless():
    slower = Fault("compute", (13,), 0.7, first_step=60)
    gpus = {"gpu-0": "thermal@2", "gpu-1": "thermal@5"}
    said = Cluster(gpus, job(slow("compute", 2), slower)).report()
    (incident,) = said.incidents
    assert incident.where.ranks == (13, 2)
    assert incident.cause.where.nodes == ("gpu-1",)
    assert [one.where.nodes for one in incident.other_causes] == [("gpu-0",)]
    shown = Console(no_color=True, width=200)
    with shown.capture() as text:
        terminal.show(shown, [said])
    found = job_json.as_object(said)["incidents"][0]
    assert [one["nodes"] for one in found["other_causes"]] == [["gpu-0"]]
    for page in (text.get(), markdown.write([said]), html.write([said])):
        assert "GPU 2 of node gpu-0: " in page
        assert "harmless" not in page
        assert "without an effect" not in page
    assert "Also a possible cause: GPU 2 of node gpu-0: " in text.get()
    two = replace(said, incidents=(incident, replace(incident, other_causes=())))
    with shown.capture() as text:
        terminal.show(shown, [two])
    beside = "Also a possible cause, beside thermal_slowdown of ranks 2, 13: GPU 2 of node gpu-0: "
    assert beside in text.get()


def test_compute_that_holds_no_waits_for_cpus_is_not_explained_by_them():
    lines = [starved("rank", 13, accounted=True)]
    (incident,) = Cluster(HEALTHY, job(slow("compute", 13)), lines).report().incidents
    assert incident.cause.kind == "gpu_compute"


def test_ranks_that_all_wait_for_cpus_are_not_told_apart_by_it():
    def line(node: str, second: float) -> str:
        name = "rankscope_rank_starved_seconds_total"
        return "".join(
            f'{name}{{job_id="team/llm",rank="{rank}"}} {second / 2}\n'
            for rank in (range(GPUS) if node == "gpu-0" else range(GPUS, WORLD))
        )

    (incident,) = Cluster(HEALTHY, job(slow("compute", 13)), [line]).report().incidents
    assert incident.cause.kind == "gpu_compute"


def test_a_healthy_job_on_healthy_nodes_has_no_incident():
    said = Cluster(HEALTHY, job(), [ports(), pressure({})]).report()
    assert (said.incidents, said.observations) == ((), ())


def test_agreeing_layers_raise_confidence_and_missing_ones_lower_it():
    nodes = {"gpu-0": "healthy", "gpu-1": "thermal@5"}
    (both,) = Cluster(nodes, job(slow("compute", 13)), [pressure({})]).report().incidents
    (alone,) = Cluster(HEALTHY, job(slow("compute", 13)), [pressure({})]).report().incidents
    (blind,) = Cluster(HEALTHY, job(slow("compute", 13))).report().incidents
    assert both.confidence > alone.confidence > blind.confidence > 0.5


def test_causes_are_deeper_than_what_they_explain():
    for name, kind in causality.KINDS.items():
        for symptom in kind.explains:
            assert causality.KINDS[symptom].depth < kind.depth, (name, symptom)
