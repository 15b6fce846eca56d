"""What an alert is about: pods without a job, ranks that are there, steps that do differ."""

from collections.abc import Sequence

import pytest

from alert_series import JOB, JOB_KNOWN, LOG_POD, NODE
from alert_timelines import Case, Series, counter, steady
from promtool_tests import follow
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

BY_NAME = {alert.name: alert for alert in ALERTS}


def errors(pod: int, minutely: float, job: str = 'job_id=""') -> Series:
    of_pod = f'node="n{pod}",{job},pod_uid="p-{pod}",device="eth0",direction="receive"'
    return counter(f"rankscope_pod_nic_errors_total{{{of_pod}}}", minutely)


def test_interfaces_of_pods_without_a_job_are_not_added_up(tmp_path):
    """A few errors in each of many notebooks are nothing; many in one are, and in a job's pods."""
    alert, promtool = BY_NAME["RankscopePodInterface"], require_server("promtool")
    few = [errors(pod, 1) for pod in range(20)]
    of_job = [errors(pod, 1, JOB) for pod in range(30, 40)]
    for series, fires in ((few, 0), ([*few, errors(20, 7)], 1), ([*few, *of_job], 1)):
        checks = [(30, fires), (55, fires)]
        done = follow(tmp_path, promtool, alert, Case(tuple(series)), 60, checks)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_store_that_was_cleared_before_a_restart_does_not_fill(tmp_path):
    """The series of ranks that are gone fell until then; what is free now does not fall."""

    def of_rank(rank: int) -> str:
        return f'{{{NODE},{JOB},rank="{rank}"}}'

    def falling(states: Sequence[str], step: int) -> list[str]:
        free = [f"{60e9 - 1e8 * i * step:.10g}" for i in range(len(states))]
        return ["stale" if i * step == 400 else one for i, one in enumerate(free[: 400 + 1])]

    def cleared(states: Sequence[str], step: int) -> list[str]:
        return ["_" if i * step < 405 else "29e9" for i in range(len(states))]

    free, size = "rankscope_checkpoint_store_free_bytes", "rankscope_checkpoint_store_size_bytes"
    series = (
        Series(f"{free}{of_rank(0)}", falling),
        Series(f"{free}{of_rank(8)}", cleared),
        steady(f"{size}{of_rank(0)}", 1e11),
        steady(f"{size}{of_rank(8)}", 1e11),
    )
    alert = BY_NAME["RankscopeCheckpointStoreFilling"]
    checks = [(355, 0), (395, 1), (500, 0), (600, 0), (700, 0)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 700, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def printed(framework: str, pod: str, losses: Sequence[tuple[int, str]]) -> Series:
    """Return what an agent reads in a log: `_`, `stale` or a loss, each from a minute on."""

    def values(states: Sequence[str], step: int) -> list[str]:
        minutes = range(0, len(states) * step, step)
        return [[one for begun, one in losses if begun <= minute][-1] for minute in minutes]

    labels = f'{LOG_POD},framework="{framework}",source="stdout",pod="{pod}"'
    return Series(f"rankscope_job_log_loss{{{labels}}}", values)


def test_a_loss_goes_on_diverging_when_the_agent_is_replaced(tmp_path):
    """Its lowest is that of the hour, whichever agent read it."""
    series = (
        printed("megatron", "a", [(0, "2.0"), (90, "4.1"), (110, "stale"), (111, "_")]),
        printed("megatron", "b", [(0, "_"), (111, "4.1")]),
        *JOB_KNOWN,
    )
    alert = BY_NAME["RankscopeLossDiverging"]
    checks = [(80, 0), (107, 1), (120, 1), (148, 1), (170, 1), (190, 0)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 190, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_losses_that_two_frameworks_print_are_compared_each_with_its_own(tmp_path):
    series = (
        printed("megatron", "a", [(0, "2.0"), (60, "5.0")]),
        printed("tqdm", "a", [(0, "40.0")]),
        *JOB_KNOWN,
    )
    alert = BY_NAME["RankscopeLossDiverging"]
    checks = [(55, 0), (80, 1)]
    done = follow(tmp_path, require_server("promtool"), alert, Case(series), 90, checks)
    assert done.returncode == 0, done.stdout + done.stderr


BOUNDS = (0.5, 1.0, 2.5, 10.0)


@pytest.mark.parametrize(
    ("seconds", "fires"),
    [
        ((2.4, 2.45, 2.49, 2.52, 2.55), 0),
        ((2.45,) * 18 + (2.6, 2.7), 0),
        ((0.9,) * 9 + (1.1,), 0),
        ((1.5, 2.0, 2.4, 2.6, 3.2), 0),
        ((1.0,) * 9 + (3.0,), 1),
        ((1.2,) * 9 + (4.8,), 1),
        ((2.4,) * 9 + (9.0,), 1),
        ((0.4,) * 18 + (2.0, 3.0), 1),
        ((0.9,) * 19 + (9.0,), 0),
    ],
)
def test_steps_on_both_sides_of_a_bucket_are_no_tail(tmp_path, seconds, fires):
    """The last one stands at the 95th percentile, which is below it."""
    steps = "rankscope_step_latency_seconds"
    counts = [(f"{bound:g}", sum(one <= bound for one in seconds)) for bound in BOUNDS]
    series = [
        counter(f'{steps}_bucket{{{NODE},{JOB},le="{bound}"}}', count)
        for bound, count in (*counts, ("+Inf", len(seconds)))
    ]
    series.append(counter(f"{steps}_sum{{{NODE},{JOB}}}", sum(seconds)))
    checks = [(30, 0), (45, fires), (60, fires)]
    done = follow(
        *(tmp_path, require_server("promtool"), BY_NAME["RankscopeStepTailSlow"]),
        *(Case(tuple(series)), 60, checks),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("moved", [120, 170, None], ids=["before", "after", "never"])
def test_a_job_is_requeued_whichever_watch_counts_it(tmp_path, moved):
    """Evictions at minutes 30, 60 and 150; the queue knows how many there were."""

    def counted(pod: str, minutes: range) -> Series:
        def values(states: Sequence[str], step: int) -> list[str]:
            times = range(0, len(states) * step, step)
            found = [f"{sum(at >= one for one in (30, 60, 150))}" for at in times]
            ends = ["stale" if at == minutes.stop else "_" for at in times]
            return [
                one if at in minutes else end
                for at, one, end in zip(times, found, ends, strict=True)
            ]

        return Series(f'rankscope_job_interruptions{{{JOB},pod="{pod}"}}', values)

    watches = (
        (counted("a", range(600)),)
        if moved is None
        else (counted("a", range(moved)), counted("b", range(moved + 1, 600)))
    )
    checks = [(100, 0), (149, 0), (151, 1), (169, 1), (250, 1), (388, 1), (430, 0)]
    done = follow(
        *(tmp_path, require_server("promtool"), BY_NAME["RankscopeJobRequeued"]),
        *(Case((*watches, *JOB_KNOWN)), 440, checks),
    )
    assert done.returncode == 0, done.stdout + done.stderr
