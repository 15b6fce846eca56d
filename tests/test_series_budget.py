"""What is left off a page that would be too long."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest

from rankscope_agent.collecting.series_budget import IMPORTANCE, series_of, within_budget
from rankscope_agent.contract.catalogue import CATALOGUE, declared
from rankscope_agent.contract.metrics import (
    agent,
    canary,
    cluster_jobs,
    flight_recorder,
    goodput,
    gpus,
    host,
    kernel_log,
    nccl_inspector,
    nccl_log,
    nccl_ras,
    netdev,
    pod_netdev,
    pods,
    rdma,
    starvation,
    summary,
    topology,
    training,
    watch,
)
from rankscope_agent.contract.model import HistogramValue, Metric, Sample, Scrape
from rankscope_agent.contract.sources import SOURCES

FAIR_JOBS = 8
FAIR_RANKS = 8


def first_metric(subject: ModuleType) -> Metric:
    return next(v for v in vars(subject).values() if isinstance(v, Metric) and v.labels)


def samples(metric: Metric, count: int) -> tuple[Sample, ...]:
    return tuple(
        Sample(metric, (str(number), *("x" for _ in metric.labels[1:])), 1.0)
        for number in range(count)
    )


def scrape(name: str, *parts: tuple[Sample, ...]) -> Scrape:
    return Scrape(name, True, 0.0, tuple(one for part in parts for one in part), "", 0.0)


LINKS = samples(first_metric(netdev), 50)
STEPS = tuple(Sample(training.STEPS, (f"team/{n % 4}", str(n)), 1.0) for n in range(20))
PODS = samples(first_metric(pods), 10)


def test_every_subject_of_an_agent_has_its_place():
    of_others = {metric.name for metric in declared((agent, canary, watch, goodput, cluster_jobs))}
    assert set(IMPORTANCE) == {metric.name for metric in CATALOGUE} - of_others


def test_what_rules_read_stays_before_what_explains_and_that_before_what_describes():
    subjects = (pods, training, summary, gpus, kernel_log, rdma, netdev, topology)
    first = [IMPORTANCE[first_metric(subject).name] for subject in subjects]
    assert first == sorted(first)


def test_sources_give_way_in_this_order_the_last_one_first():
    names = ["pods", "training", "starvation", "nvml", "dcgm", "kernel_log", "nccl_log", "rdma"]
    names += ["nccl_ras", "flight_recorder", "host", "storage_clients", "netdev", "pod_netdev"]
    names += ["nccl_inspector", "topology"]
    found = [one.name for one in sorted(SOURCES, key=lambda one: one.importance)]
    assert [one for one in found if one in names] == names  # one more finds its place by itself


def test_a_page_that_fits_is_left_as_it_is():
    found = within_budget([scrape("netdev", LINKS), scrape("training", STEPS)], 70)
    assert found.samples == (*LINKS, *STEPS)
    assert found.dropped == {"netdev": 0, "training": 0}
    assert within_budget([scrape("netdev", LINKS)], None).samples == LINKS


def test_the_least_important_family_goes_first_whoever_came_first():
    scrapes = [scrape("netdev", LINKS), scrape("training", STEPS), scrape("pods", PODS)]
    found = within_budget(scrapes, 35)
    assert found.samples == (*LINKS[:5], *STEPS, *PODS)
    assert found.dropped == {"netdev": 45, "training": 0, "pods": 0}
    assert within_budget(scrapes, 12).samples == (*STEPS[:2], *PODS)


def test_a_flood_of_one_collector_does_not_displace_what_matters_more():
    flood = samples(first_metric(topology), 100_000)
    found = within_budget([scrape("topology", flood), scrape("training", STEPS)], 2000)
    assert found.samples[-20:] == STEPS
    assert found.dropped == {"topology": 100_000 - 1980, "training": 0}


def of_job(job: str, ranks: int, *, alive: bool = True) -> tuple[Sample, ...]:
    """Return what a job has on the page: a histogram, and the series of each rank."""
    value = HistogramValue(tuple((float(n), n) for n in range(10)), 3, 1.5)
    families = [
        one
        for one in vars(training).values()
        if isinstance(one, Metric) and one.labels == training.RANK
    ]
    series = [
        Sample(metric, (job, str(rank)), float(alive or metric is not training.RANK_ALIVE))
        for rank in range(ranks)
        for metric in families
    ]
    return (Sample(training.STEP_LATENCY, (job,), value), *series)


def test_ranks_that_pods_make_up_keep_neither_gpus_nor_the_jobs_before_them_off_the_page():
    """Twenty pods, each with as many rings as are read; their names come first in every listing."""
    honest = of_job("team/job", FAIR_RANKS)
    flood = [of_job(f"a/{number}", 64) for number in range(20)]
    cards, held = samples(first_metric(gpus), 400), samples(first_metric(pods), 10)
    told = tuple(
        Sample(pods.RANK_ENVIRONMENT_INFO, (f"a/{number}", "0", "x"), 1.0) for number in range(20)
    )
    scrapes = [
        scrape("pods", told, held),
        scrape("training", honest, *flood),
        scrape("nvml", cards),
    ]
    found = within_budget(scrapes, 2000)
    assert {*honest, *cards, *held} <= {*found.samples}
    kept = {sample.labels for sample in found.samples if len(sample.labels) > 1}
    assert len({job for job, *_ in kept if job.startswith("a/")}) > FAIR_JOBS - 1
    assert found.dropped["training"] > 10_000
    assert found.dropped["nvml"] == 0


def of_pod(namespace: str, pod: str) -> tuple[Sample, ...]:
    """Make up what an agent exports of one pod's logs."""
    return tuple(
        Sample(metric, (namespace, pod, *("x" for _ in metric.labels[2:])), 1.0)
        for metric in vars(nccl_log).values()
        if isinstance(metric, Metric)
        and metric.labels[:2] == ("pod_namespace", "pod_name")
        and metric.kind != "histogram"
    )


@pytest.mark.parametrize("jobs_before", [1, 3])
def test_a_job_that_comes_late_is_on_a_page_that_another_namespace_has_filled(jobs_before):
    flood = [of_job(f"a/{number}", 64) for number in range(20)]
    logs = [of_pod("a", f"pod-{number:03}") for number in range(110)]
    before = [of_job(f"team/{number}", 2) for number in range(jobs_before)]
    late = of_job("team/late", 4), of_pod("team", "late-0")
    cards = samples(first_metric(gpus), 400)
    scrapes = [
        scrape("training", *flood[:10], *before, *flood[10:], late[0]),
        scrape("nccl_log", *logs, late[1]),
        scrape("nvml", cards),
    ]
    found = within_budget(scrapes, 2000)
    assert {*late[0], *late[1], *cards, *(one for job in before for one in job)} <= {*found.samples}


def test_a_newcomers_namespace_waits_behind_one_job_of_each_other_and_not_behind_all():
    flood = [of_job(f"{name}/{n}", 8) for n in range(9) for name in "abcdefg"]
    late = of_job("z/late", 1)
    found = within_budget([scrape("training", *flood, late)], 2000)
    assert {*late} <= {*found.samples}


def test_jobs_that_have_ended_displace_none_that_runs_nor_a_pod_that_logs():
    """Short jobs one after the other, as of a search for hyperparameters, stay for ten minutes."""
    ended = [of_job(f"team/{number:02}", 2, alive=False) for number in range(20)]
    runs = of_job("team/now", 2)
    logs = [of_pod("team", f"pod-{number:02}") for number in range(10)]
    found = within_budget(
        [scrape("training", runs, *ended), scrape("nccl_log", *logs)],
        sum(map(within, (runs, *ended[: FAIR_JOBS - 1], *logs))),
    )
    assert {*runs, *(one for pod in logs for one in pod)} <= {*found.samples}
    assert "team/06" in {one.labels[0] for one in found.samples}  # as far as there is room


def test_a_job_has_ended_only_when_all_of_its_ranks_have():
    half = tuple(
        replace(one, value=0.0)
        if one.metric is training.RANK_ALIVE and one.labels == ("team/half", "1")
        else one
        for one in of_job("team/half", 2)
    )
    run = [of_job(f"team/{number}", 2) for number in range(FAIR_JOBS)]
    ended = [of_job(f"team/over-{number}", 2, alive=False) for number in range(FAIR_JOBS)]
    scrapes = [scrape("training", *run, half, *ended)]
    found = within_budget(scrapes, within(half) * (FAIR_JOBS + 1))
    assert {*half} <= {*found.samples}


def test_made_up_ranks_of_another_namespace_do_not_displace_what_ended_jobs_left():
    runs, over = of_job("team/runs", 1), of_job("team/over", 1, alive=False)
    flood = [of_job(f"{name}/{n}", 1) for n in range(9) for name in "abcdefghij"]
    found = within_budget([scrape("training", *flood, runs, over)], within(over) * 30)
    assert {*runs, *over} <= {*found.samples}


def within(samples: tuple[Sample, ...]) -> int:
    return sum(series_of(one) for one in samples)


def test_whoever_holds_a_gpu_is_said_however_many_jobs_there_are():
    metric = pods.GPU_ALLOCATION_INFO
    held = tuple(Sample(metric, tuple(f"a/{n}" for _ in metric.labels), 1.0) for n in range(16))
    flood = [of_job(f"a/{n}", 8) for n in range(16)]
    found = within_budget([scrape("training", *flood), scrape("pods", held)], 200)
    assert {*held} <= {*found.samples}


def test_jobs_of_more_ranks_than_a_node_has_gpus_stay_whole_where_there_is_room():
    many = of_job("team/job", 64)
    assert within_budget([scrape("training", many)], 2000).samples == many


def test_which_series_stay_does_not_depend_on_their_values():
    other = tuple(Sample(one.metric, one.labels, 7.0) for one in LINKS)
    kept = [
        [one.labels for one in within_budget([scrape("netdev", part)], 17).samples]
        for part in (LINKS, other)
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 17


def test_a_histogram_counts_with_all_its_series_and_is_never_cut_in_two():
    metric = next(
        v for v in vars(training).values() if isinstance(v, Metric) and v.kind == "histogram"
    )
    value = HistogramValue(((0.1, 1), (1.0, 2)), 3, 1.5)
    histogram = Sample(metric, tuple("x" for _ in metric.labels), value)
    assert within_budget([scrape("training", (histogram,))], 5).samples == (histogram,)
    found = within_budget([scrape("training", (histogram,))], 4)
    assert (found.samples, found.dropped) == ((), {"training": 5})


# What a page that is too long keeps longest comes first; the node's own sums stand among them.
KEPT_LONGEST = (
    *(pods, training, starvation, summary, gpus, kernel_log, nccl_log, rdma, nccl_ras),
    *(flight_recorder, host, netdev, pod_netdev, nccl_inspector, topology),
)


@pytest.mark.parametrize("fit", range(1, len(KEPT_LONGEST) + 1))
def test_a_page_loses_its_sources_one_by_one_from_the_end(fit):
    """Every source has one series, and so many fit."""
    series = [samples(first_metric(subject), 1) for subject in KEPT_LONGEST]
    found = within_budget([scrape("all", *reversed(series))], fit)
    assert {*found.samples} == {one for several in series[:fit] for one in several}


@pytest.mark.parametrize("fit", [7, 8, 9])
def test_eight_pods_come_before_what_only_describes_the_node_and_a_ninth_after_it(fit):
    described = samples(first_metric(netdev), 1)
    metric = nccl_log.NCCL_TIMEOUTS
    logs = tuple(
        Sample(metric, ("a", f"pod-{number}", *("x" for _ in metric.labels[2:])), 1.0)
        for number in range(9)
    )
    found = within_budget([scrape("netdev", described), scrape("nccl_log", logs)], fit)
    assert {*found.samples} == {*logs[: min(fit, 8)], *(described if fit > 8 else ())}
