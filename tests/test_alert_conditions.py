"""Where an alert is easily wrong: gaps, long steps, nodes that leave, all jobs at once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from alert_cases import CASES
from alert_series import JOB, JOB_KNOWN, LOG_POD, LOST_AT_RESTART, NODE, failure
from alert_timelines import Case, Series, event, follow, gauge, run, steady
from rankscope_agent.contract.metrics.training import SPAN_BEGAN
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

BY_NAME = {alert.name: alert for alert in ALERTS}


def test_a_job_with_long_steps_does_not_stand_between_them(tmp_path):
    """Steps of a quarter of an hour, as rollouts take; the first brings the series."""
    alert, of_job = BY_NAME["RankscopeJobStalled"], '{node="n",job_id="j"}'

    def counting(states: Sequence[str], step: int, each: float) -> list[str]:
        ended = (min(i * step, 180) // 15 for i in range(len(states)))  # after 3 hours it hangs
        return [f"{8 * (1 + number) * each:.10g}" for number in ended]

    series = (
        Series(
            f"rankscope_step_latency_seconds_count{of_job}", lambda s, step: counting(s, step, 1)
        ),
        Series(
            f"rankscope_step_latency_seconds_sum{of_job}", lambda s, step: counting(s, step, 900)
        ),
        steady(f"rankscope_job_ranks_alive{of_job}", 8),
    )
    # The ten minutes of the record, the hour, and the five minutes of the alert.
    checks = [*((minute, 0) for minute in range(20, 250, 5)), (262, 1), (280, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 280, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_in_a_marked_checkpoint_does_not_stand_for_an_hour(tmp_path):
    """It writes from minute 60 on and never ends; another job does nothing that is marked."""
    alert = BY_NAME["RankscopeJobStalled"]

    def counting(states: Sequence[str], step: int) -> list[str]:
        return [f"{40 * min(i * step, 60)}" for i in range(len(states))]

    def began(states: Sequence[str], step: int) -> list[str]:
        return ["3600" if i * step >= 60 else "_" for i in range(len(states))]

    def job(name: str) -> tuple[Series, ...]:
        of_job = f'{{node="n",job_id="{name}"}}'
        seconds = f"rankscope_step_latency_seconds_sum{of_job}"
        return (
            Series(f"rankscope_step_latency_seconds_count{of_job}", counting),
            Series(seconds, counting),
            steady(f"rankscope_job_ranks_alive{of_job}", 8),
        )

    marked = f'{SPAN_BEGAN.name}{{node="n",job_id="saves",rank="0",kind="checkpoint_save"}}'
    series = (*job("saves"), *job("hangs"), Series(marked, began))
    checks = [(50, 0), (70, 0), (80, 1), (110, 1), (119, 1), (130, 2)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 140, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_loss_that_the_probe_has_counts_and_not_what_the_log_says_of_it(tmp_path):
    """The log's is that of single steps; the probe's level moves from minute 60 on."""
    alert = BY_NAME["RankscopeLossDiverging"]
    printed = f'rankscope_job_log_loss{{{LOG_POD},framework="pytorch",source="log"}}'
    rank = f'{{{NODE},{JOB},rank="0"}}'

    def level(states: Sequence[str], step: int) -> list[str]:
        return ["2.0" if i * step < 60 else "4.01" for i in range(len(states))]

    def spiky(states: Sequence[str], step: int) -> list[str]:
        return ["2.0" if i * step < 20 else "9.0" for i in range(len(states))]

    series = (
        Series(printed, spiky),
        Series(f"rankscope_loss_level{rank}", level),
        steady(f"rankscope_loss_level_lowest{rank}", 2.0),
        *JOB_KNOWN,
    )
    checks = [(50, 0), (58, 0), (74, 0), (76, 1), (100, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 110, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_that_has_ended_is_not_told_to_use_its_gpus(tmp_path):
    """It hung for 25 minutes, was ended, and is part of the last hour's mean for an hour."""
    busy = ["7.2"] * 120 + ["0.2"] * 25 + ["stale"] * 120
    held = ["8"] * 145 + ["stale"] * 120
    of_job = '{node="n",job_id="j"}'
    series = (
        Series(f"rankscope_job_busy_gpus{of_job}", lambda _states, _step: busy),
        Series(f"rankscope_job_gpus{of_job}", lambda _states, _step: held),
    )
    checks = [(minute, 0) for minute in range(100, 265, 5)]
    for name in ("RankscopeLowGpuUtilisation", "RankscopeGpusIdle"):
        done = follow(
            tmp_path, require_server("promtool"), BY_NAME[name], Case(series), 264, checks
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_power_limit_that_the_whole_cluster_has_was_chosen(tmp_path):
    def nodes(number: int, lowered: int) -> Case:
        reduced = "rankscope_gpu_power_limit_reduced_ratio"
        return Case(
            (
                *(steady(f'rankscope_build_info{{node="n{i}"}}') for i in range(number)),
                *(
                    steady(f'{reduced}{{node="n{i}",gpu="{j}",uuid="{i}-{j}",pci=""}}', 0.8)
                    for i in range(lowered)
                    for j in range(2)
                ),
            )
        )

    for number, lowered, told in ((1, 1, 2), (3, 3, 6), (8, 4, 8), (8, 5, 0), (8, 8, 0)):
        done = follow(
            *(tmp_path, require_server("promtool"), BY_NAME["RankscopeGpuPowerLimited"]),
            *(nodes(number, lowered), 30, [(5, 0), (20, told), (29, told)]),
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("pods", [("a", "a"), ("a", "b")], ids=["restarted", "replaced"])
def test_what_an_agent_reads_again_is_no_throughput_of_that_day(tmp_path, pods):
    """A job makes a step a second for days, and its rings hold those of 18 hours."""
    alert, begun, held = BY_NAME["RankscopeThroughputDegraded24h"], 1500, 65_536

    def before(i: int, step: int) -> str:
        return f"{60 * i * step}" if i * step < begun else "_"

    def after(i: int, step: int) -> str:
        since = i * step - begun
        return "_" if since < 0 else f"{60 * since + (held if since else held // 2)}"

    def values(*parts):
        return lambda states, step: [
            next((one for one in (part(i, step) for part in parts) if one != "_"), "_")
            for i in range(len(states))
        ]

    first, second = (
        f'rankscope_job_samples_total{{{NODE},{JOB},pod="{pod}",instance="{pod}"}}' for pod in pods
    )
    alone = (Series(first, values(before)), Series(second, values(after)))
    series = alone if first != second else (Series(first, values(before, after)),)
    checks = [(minute, 0) for minute in range(1400, 4300, 60)]
    case = Case(series, step=2)
    done = follow(tmp_path, require_server("promtool"), alert, case, 4300, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gpus_that_are_read_from_dcgm_now_are_not_missed(tmp_path):
    dcgm = gauge('rankscope_collector_success{node="gpu-07",collector="dcgm"}', 1, 0)
    states = [*(["good"] * 440), *(["bad"] * 400)]
    alert, promtool = BY_NAME["RankscopeCollectorFailing"], require_server("promtool")
    lost = tuple(fixed(one, states) for one in LOST_AT_RESTART.series)
    for series, told in ((lost, 1), ((*lost, fixed(dcgm, states)), 0)):
        done = follow(tmp_path, promtool, alert, Case(series), 800, [(430, 0), (500, told)])
        assert done.returncode == 0, done.stdout + done.stderr


def with_gap(selector: str, value: float, gap: range) -> Series:
    """Return a constant that is not scraped in some minutes."""

    def values(states: Sequence[str], step: int) -> list[str]:
        return ["stale" if i * step in gap else f"{value}" for i in range(len(states))]

    return Series(selector, values)


def test_what_failed_before_a_gap_of_scrapes_is_not_new_after_it(tmp_path):
    """Agents that are exchanged are silent for a minute or two, and remember what was before."""
    pod, gap = 'node="n",pod_namespace="t",pod_name="p"', range(100, 104)
    series = (
        steady('rankscope_build_info{node="other"}'),
        *(with_gap(failure("Error", f'job_id="j{i}"'), 3, gap) for i in range(5)),
        with_gap(f'rankscope_nccl_ib_errors_total{{{pod},device="m",status="12"}}', 3, gap),
        with_gap(f'rankscope_nccl_collective_timeouts_total{{{pod},op="ALLREDUCE"}}', 3, gap),
        with_gap(
            f'rankscope_job_log_nonfinite_losses_total{{{pod},framework="f",source="s"}}', 3, gap
        ),
    )
    # In the first quarter of an hour nothing is known of what was before.
    checks = [(minute, 0) for minute in range(60, 130)]
    told = ("PodFailed", "JobFailureCascade", "NcclIbErrors", "NcclCollectiveTimeout")
    for name in (*told, "NonFiniteLoss"):
        alert = BY_NAME[f"Rankscope{name}"]
        done = follow(
            tmp_path, require_server("promtool"), alert, Case(series, step=1), 130, checks
        )
        assert done.returncode == 0, done.stdout + done.stderr


OF_A_RANK = f'{NODE},{JOB},rank="0"'

TOLD_AGAIN = [
    ("RankscopeNonFiniteLoss", f"rankscope_nonfinite_losses_total{{{OF_A_RANK}"),
    ("RankscopeCheckpointFailing", f"rankscope_checkpoint_write_failures_total{{{OF_A_RANK}"),
    ("RankscopeCheckpointCorrupt", f"rankscope_checkpoint_load_failures_total{{{OF_A_RANK}"),
    ("RankscopeCheckpointOverwritten", f"rankscope_checkpoint_shared_paths_total{{{NODE},{JOB}"),
    ("RankscopeNcclIbErrors", f'rankscope_nccl_ib_errors_total{{{LOG_POD},device="m",status="12"'),
    (
        "RankscopeNcclCollectiveTimeout",
        f'rankscope_nccl_collective_timeouts_total{{{LOG_POD},op="a"',
    ),
]


@pytest.mark.parametrize(("name", "selector"), TOLD_AGAIN)
@pytest.mark.parametrize(("since", "fires"), [(3, 0), (4, 1)])
def test_what_an_agent_told_is_not_new_when_its_successor_tells_it(
    tmp_path, name, selector, since, fires
):
    """With the monitors of the operator, series carry the name of the agent's pod."""

    def by_pod(pod: str, value: int, minutes: range) -> Series:
        def values(states: Sequence[str], step: int) -> list[str]:
            told = [f"{value}" if i * step in minutes else "_" for i in range(len(states))]
            return ["stale" if i * step == minutes.stop else one for i, one in enumerate(told)]

        return Series(f'{selector},pod="{pod}",instance="{pod}:9877"}}', values)

    case = Case((by_pod("a", 3, range(200)), by_pod("b", since, range(202, 360))), step=1)
    checks = [(150, 0), (199, 0), (203, fires), (210, fires), (359, 0)]
    done = follow(tmp_path, require_server("promtool"), BY_NAME[name], case, 359, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_cascade_that_leaves_no_job_running_is_one(tmp_path):
    case = CASES["RankscopeJobFailureCascade"]
    running = tuple(
        replace(one, values=lambda states, _step: ["0" if s == "bad" else "4" for s in states])
        if 'phase="Running"' in one.selector
        else one
        for one in case.series
    )
    assert running != case.series
    case = replace(case, series=running, gap=1)
    alert = BY_NAME["RankscopeJobFailureCascade"]
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("third", "fires"), [("team", 0), ("others", 1)])
def test_failures_of_one_namespace_mute_nobody_else(tmp_path, third, fires):
    """Three failing jobs of one tenant are no cascade, where other tenants have jobs."""
    failed = [
        event(failure("Error", f'job_id="{team}/j{i}"'))
        for i, team in enumerate(("team", "team", third))
    ]
    running = steady('rankscope_job_pods{node="n",job_id="others/llm",phase="Running"}', 4)
    case = Case((*failed, running, steady('rankscope_build_info{node="n"}')), step=1)
    states = [*(["good"] * 30), *(["bad"] * 20)]
    case = replace(case, series=tuple(fixed(one, states) for one in case.series))
    alert = BY_NAME["RankscopeJobFailureCascade"]
    promtool = require_server("promtool")
    done = follow(tmp_path, promtool, alert, case, 49, [(25, 0), (40, fires)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("nodes_back", "groups", "fires"),
    [((20, 21), False, {24: 0, 50: 0}), ((20,), False, {24: 1, 50: 1, 61: 0}), ((), True, {24: 0})],
    ids=["all its processes are new", "those of one node are not", "a replica group goes on"],
)
def test_a_job_is_away_after_a_preemption_until_it_has_been_started_again(
    tmp_path, nodes_back, groups, fires
):
    """Pods of one node are taken away at minute 15; the other node's processes remain."""

    def started(states: Sequence[str], step: int, again: int | None) -> list[str]:
        now = again if again is not None else 10**9
        return ["60" if i * step < now else str(60 * now) for i in range(len(states))]

    names = ("n0", "n1")
    backs = (*nodes_back, None, None)
    series = [
        Series(
            f'rankscope_job_processes_started_timestamp_seconds{{node="{node}",{JOB}}}',
            lambda states, step, back=back: started(states, step, back),
        )
        for node, back in zip(names, backs, strict=False)
    ]
    series += [steady(f'rankscope_job_ranks_alive{{node="{node}",{JOB}}}', 8) for node in names]
    # Nothing of the job is left here, and what has been is old.
    series += [
        steady(f'rankscope_job_ranks_alive{{node="gone",{JOB}}}', 0),
        steady(f'rankscope_job_processes_started_timestamp_seconds{{node="gone",{JOB}}}', 1),
    ]
    if groups:
        series.append(steady(f'rankscope_job_replica_group_ranks{{node="n0",{JOB}}}', 8))
    taken = failure("DisruptionTarget", detail="PreemptionByScheduler")
    series.append(fixed(event(taken), [*(["good"] * 14), *(["bad"] * 2), *(["good"] * 60)]))
    checks = [(10, 0), *([] if groups else [(17, 1)]), *fires.items()]
    alert = BY_NAME["RankscopeJobTakenAway"]
    done = follow(tmp_path, require_server("promtool"), alert, Case(tuple(series)), 70, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_that_left_the_cluster_is_not_missed(tmp_path):
    """Autoscalers take nodes away; kube-state-metrics tells which nodes there are."""
    gone = gauge('rankscope_build_info{node="gpu-07",version="1"}', None, 1)
    case = Case((gone, steady('kube_node_info{node="gpu-08"}')))
    alert = BY_NAME["RankscopeAgentDown"]
    states = [*(["good"] * 30), *(["bad"] * 90)]
    case = replace(case, series=tuple(fixed(one, states) for one in case.series))
    checks = [(minute, 0) for minute in (20, 45, 60, 80)]
    done = follow(tmp_path, require_server("promtool"), alert, case, 119, checks)
    assert done.returncode == 0, done.stdout + done.stderr
    without = replace(case, series=case.series[:1])
    checks = [(20, 0), (45, 1), (80, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, without, 119, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def fixed(series: Series, states: list[str]) -> Series:
    """Return a series that goes through states of its own."""
    return replace(series, values=lambda _states, step: series.values(states, step))


def test_a_gang_whose_pods_have_no_node_waits_only_while_others_hold_gpus(tmp_path):
    """Agents see no pod without a node; the watch does."""
    alert = BY_NAME["RankscopeGangPartial"]

    def of_job(name: str, waiting_gpus: float) -> tuple[Series, ...]:
        job = f'{{job_id="team/{name}"}}'
        return (
            steady(f"rankscope_job_unscheduled_pods{job}", 2),
            steady(f"rankscope_job_waiting_gpus{job}", waiting_gpus),
        )

    # One holds eight GPUs while it waits; of the other no pod has a node.
    case = Case((*of_job("partial", 8), *of_job("whole", 0)))
    checks = [(10, 0), (17, 1), (30, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, case, 40, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_without_any_node_is_pending_once_its_queue_has_admitted_it(tmp_path):
    """Of one no pod has a node, one is in its queue still, and one holds nodes for a part of it."""
    alert = BY_NAME["RankscopeJobPending"]

    def of_job(name: str, held: float, *more: str) -> tuple[Series, ...]:
        job = f'job_id="team/{name}"'
        return (
            steady(f"rankscope_job_unscheduled_pods{{{job}}}", 2),
            steady(f"rankscope_job_held_gpus{{{job}}}", held),
            *(steady(f'rankscope_job_pending_seconds{{{job},reason="{one}"}}', 9) for one in more),
        )

    case = Case((*of_job("whole", 0, "no_gpu"), *of_job("queued", 0, "quota"), *of_job("part", 8)))
    done = follow(
        tmp_path, require_server("promtool"), alert, case, 50, [(25, 0), (32, 1), (45, 1)]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def unscheduled(namespace: str, number: int) -> tuple[Series, ...]:
    """Return what kube-state-metrics says of pods without a node, of eight GPUs each."""
    pods = [f'namespace="{namespace}",pod="llm-{i}"' for i in range(number)]
    gpus = 'container="main",resource="nvidia_com_gpu"'
    return (
        *(steady(f"kube_pod_status_unschedulable{{{one}}}") for one in pods),
        *(steady(f"kube_pod_container_resource_requests{{{one},{gpus}}}", 8) for one in pods),
    )


def waiting(job_id: str, pods: float, held_gpus: float) -> tuple[Series, ...]:
    """Return what the watch says of a job some of whose pods have no node."""
    job = f'{{job_id="{job_id}"}}'
    return (
        steady(f"rankscope_job_unscheduled_pods{job}", pods),
        steady(f"rankscope_job_held_gpus{job}", held_gpus),
        steady(f"rankscope_job_waiting_gpus{job}", held_gpus if pods else 0),
    )


# Nothing else than the launcher of the job runs, which has no GPU: no alert of a job is about it.
LAUNCHER = steady('rankscope_job_pods{job_id="team/llm",node="n",phase="Running"}')


@pytest.mark.parametrize(
    ("known", "pods", "ticket"),
    [
        ((), 2, "RankscopeGpuPodsUnscheduled"),
        (waiting("team/llm", 2, 0), 2, "RankscopeJobPending"),
        (waiting("team/llm", 2, 8), 2, "RankscopeGangPartial"),
        (waiting("team/llm", 0, 16), 2, "RankscopeGpuPodsUnscheduled"),
        ((*waiting("team/llm", 2, 0), LAUNCHER), 2, "RankscopeGpuPodsUnscheduled"),
    ],
)
def test_pods_without_a_node_have_one_ticket(tmp_path, known, pods, ticket):
    """With the watch that of their job, else the one of kube-state-metrics."""
    case = Case((*unscheduled("team", pods), *known))
    for name in ("RankscopeGpuPodsUnscheduled", "RankscopeJobPending", "RankscopeGangPartial"):
        checks = [(33, int(name == ticket)), (45, int(name == ticket))]
        done = follow(tmp_path, require_server("promtool"), BY_NAME[name], case, 50, checks)
        assert done.returncode == 0, name + done.stdout + done.stderr


def test_pods_of_which_the_watch_does_not_know_have_a_ticket_beside_those_of_a_job(tmp_path):
    """One pod more in the job's namespace, two in another."""
    alert, promtool = BY_NAME["RankscopeGpuPodsUnscheduled"], require_server("promtool")
    for others, count in ((unscheduled("team", 3), 1), (unscheduled("else", 2), 1)):
        case = Case((*others, *waiting("team/llm", 2, 0)))
        done = follow(tmp_path, promtool, alert, case, 50, [(25, 0), (33, count), (45, count)])
        assert done.returncode == 0, done.stdout + done.stderr
