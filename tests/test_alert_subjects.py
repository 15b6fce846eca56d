"""What an alert is about: pods without a job, ranks that are there, steps that do differ."""

from collections.abc import Sequence

import pytest

from alert_series import JOB, JOB_KNOWN, LOG_POD, NODE, OWNER
from alert_timelines import Case, Series, counter, steady
from clusters_apart import Followed, follow_together, of_alert
from promtool_tests import follow
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

BY_NAME = {alert.name: alert for alert in ALERTS}


def errors(pod: int, minutely: float, job: str = 'job_id=""') -> Series:
    of_pod = f'node="n{pod}",{job},pod_uid="p-{pod}",device="eth0",direction="receive"'
    return counter(f"rankscope_pod_nic_errors_total{{{of_pod}}}", minutely)


def interfaces(series: Sequence[Series], fires: int) -> Followed:
    return of_alert("RankscopePodInterface", series, [(30, fires), (55, fires)])


FEW = [errors(pod, 1) for pod in range(20)]
INTERFACES = {
    "few in each": interfaces(FEW, 0),
    "many in one": interfaces([*FEW, errors(20, 7)], 1),
    "few in each of a job": interfaces([*FEW, *(errors(pod, 1, JOB) for pod in range(30, 40))], 1),
}


def test_interfaces_of_pods_without_a_job_are_not_added_up(tmp_path):
    """A few errors in each of many notebooks are nothing; many in one are, and in a job's pods."""
    said = follow_together(tmp_path, require_server("promtool"), INTERFACES)
    assert said == dict.fromkeys(INTERFACES, "")


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
    checks = [(355, 0), (395, 1), (500, 0), (600, 0), (700, 0)]
    clusters = {"cleared": of_alert("RankscopeCheckpointStoreFilling", series, checks)}
    said = follow_together(tmp_path, require_server("promtool"), clusters, step=5, sample=1)
    assert not said["cleared"]


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


def by_pods(metric: str, *spans: range) -> list[Series]:
    """Return what pods of a job print, each for some minutes, of which its last twenty are bad."""
    series = []
    for number, span in enumerate(spans):
        keys = f'{NODE},pod_namespace="team",pod_name="llm-{number}"'
        bad = range(span.stop - 20, span.stop)

        def values(states: Sequence[str], step: int, span=span, bad=bad) -> list[str]:
            minutes = range(0, len(states) * step, step)
            return ["_" if m not in span else "5.0" if m in bad else "2.0" for m in minutes]

        series.append(Series(f'{metric}{{{keys},framework="megatron",source="log"}}', values))
        of_pod = f'{NODE},{JOB},pod_uid="p-{number}",pod_namespace="team",pod_name="llm-{number}"'
        series.append(steady(f"rankscope_pod_job_info{{{of_pod}}}"))
    return series


PRINTED_BY_PODS = {
    f"{name}, {told}": of_alert(
        name, (*by_pods(metric, *spans), OWNER), [(spans[-1].stop - 3, 1), (spans[-1].stop, 1)]
    )
    for name, metric in (
        ("RankscopeLossDiverging", "rankscope_job_log_loss"),
        ("RankscopeNonFiniteLoss", "rankscope_job_log_nonfinite_losses_total"),
    )
    for told, spans in {
        "two at a time": (range(80), range(80)),
        "one after the other": (range(50), range(52, 80)),
    }.items()
}


def test_pods_of_a_job_that_print_its_loss_are_one_alert(tmp_path):
    said = follow_together(tmp_path, require_server("promtool"), PRINTED_BY_PODS)
    assert said == dict.fromkeys(PRINTED_BY_PODS, "")


BOUNDS = (0.5, 1.0, 2.5, 10.0)


def steps(fires: int, *seconds: float) -> Followed:
    """Return a cluster with a job that makes steps of so many seconds each minute."""
    name = "rankscope_step_latency_seconds"
    counts = [(f"{bound:g}", sum(one <= bound for one in seconds)) for bound in BOUNDS]
    series = [
        counter(f'{name}_bucket{{{NODE},{JOB},le="{bound}"}}', count)
        for bound, count in (*counts, ("+Inf", len(seconds)))
    ]
    series.append(counter(f"{name}_sum{{{NODE},{JOB}}}", sum(seconds)))
    return of_alert("RankscopeStepTailSlow", series, [(30, 0), (45, fires), (60, fires)])


TAILS = {
    "all beside a bound": steps(0, 2.4, 2.45, 2.49, 2.52, 2.55),
    "few beyond a bound": steps(0, *(2.45,) * 18, 2.6, 2.7),
    "one beyond a bound": steps(0, *(0.9,) * 9, 1.1),
    "on both sides": steps(0, 1.5, 2.0, 2.4, 2.6, 3.2),
    "one of ten of 3 s": steps(1, *(1.0,) * 9, 3.0),
    "one of ten of 4.8 s": steps(1, *(1.2,) * 9, 4.8),
    "one of ten of 9 s": steps(1, *(2.4,) * 9, 9.0),
    "two of twenty": steps(1, *(0.4,) * 18, 2.0, 3.0),
    # It stands at the 95th percentile, which is below it.
    "one of twenty": steps(0, *(0.9,) * 19, 9.0),
}


@pytest.fixture(scope="module")
def said_of_steps(tmp_path_factory):
    return follow_together(tmp_path_factory.mktemp("rules"), require_server("promtool"), TAILS)


@pytest.mark.parametrize("tail", TAILS)
def test_steps_on_both_sides_of_a_bucket_are_no_tail(tail, said_of_steps):
    assert not said_of_steps[tail]


def requeued(moved: int | None) -> Followed:
    """Evictions at minutes 30, 60 and 150; the queue knows how many there were.

    Args:
        moved: when another watch counts them, None if it is one all the time.
    """

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
    return of_alert("RankscopeJobRequeued", (*watches, *JOB_KNOWN), checks)


MOVED = {"before": requeued(120), "after": requeued(170), "never": requeued(None)}


@pytest.fixture(scope="module")
def said_of_queues(tmp_path_factory):
    return follow_together(tmp_path_factory.mktemp("rules"), require_server("promtool"), MOVED)


@pytest.mark.parametrize("moved", MOVED)
def test_a_job_is_requeued_whichever_watch_counts_it(moved, said_of_queues):
    assert not said_of_queues[moved]
