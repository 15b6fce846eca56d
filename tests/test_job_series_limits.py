"""How many series a watch exports of jobs, and how much it sums up of their ends and starts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from rankscope_analyzers.watch.cluster_jobs import ClusterJobs
from rankscope_analyzers.watch.completions import Completions
from rankscope_analyzers.watch.job_samples import of_job
from rankscope_analyzers.workloads.jobs import Job
from rankscope_analyzers.workloads.state import Progress, Replicas, WorkloadState

STARTED = Job(
    top=WorkloadState(
        "PyTorchJob", "team", "train", "uid", 0.0, "research", None, Progress("running")
    ),
    name="train",
    state="running",
    cause="",
    waiting={},
    queue="",
    unscheduled=0,
    gpus_held=0,
    gpus_waiting=0,
    startup={},
    interruptions=None,
    oldest_pod=None,
    newest_pod=None,
    nodes=frozenset(),
    pods=0,
)


def job(number=0, namespace="team", job_class="research", uid="", **changes):
    top = replace(
        STARTED.top,
        uid=uid or f"{namespace}-{job_class}-{number}",
        name=f"train-{number}",
        namespace=namespace,
        job_class=job_class,
        created=0.0,
        progress=Progress("running", **changes.pop("progress", {})),
    )
    return replace(STARTED, top=top, name=top.name, **changes)


def named(samples, name):
    return [one for one in samples if one.metric.name == name]


def test_eight_numbers_of_replicas_of_a_job_have_series_those_that_are_wanted_first():
    roles = tuple(Replicas(f"role-{number}", wanted=number, active=1) for number in range(7))
    found = named(of_job(job(progress={"replicas": roles}), {}), "rankscope_job_replicas")
    assert len(found) == 8
    assert [one.value for one in found] == [*range(7), 1]


def test_the_four_reasons_that_a_job_waits_for_longest_have_series():
    waiting = {f"reason-{number}": float(number) for number in range(6)}
    found = named(of_job(job(waiting=waiting), {}), "rankscope_job_pending_seconds")
    assert [one.value for one in found] == [5.0, 4.0, 3.0, 2.0]


def test_the_four_newest_notices_of_a_jobs_nodes_have_series():
    notices = {f"gpu-{number}": {"maintenance": float(number)} for number in range(6)}
    found = named(
        of_job(job(nodes=frozenset(notices)), notices),
        "rankscope_job_node_notice_timestamp_seconds",
    )
    assert [one.value for one in found] == [5.0, 4.0, 3.0, 2.0]


def test_a_job_of_which_there_is_much_to_say_has_25_series():
    roles = tuple(Replicas(f"role-{number}", wanted=number, active=1) for number in range(7))
    crowded = job(
        waiting={f"reason-{number}": float(number) for number in range(6)},
        startup={f"phase-{number}": 1.0 for number in range(9)},
        interruptions=1,
        progress={"replicas": roles, "elastic": (1, 8)},
    )
    assert len(list(of_job(crowded, {}, "gpus"))) == 25


def looked(*of_each_look):
    known = Completions()
    for at, jobs in enumerate(of_each_look):
        known.look(jobs, (), (one.top.uid for one in jobs), frozenset(), float(at))
    return known


def test_sums_are_kept_of_sixteen_classes_and_the_others_together():
    known = looked([job(job_class=f"class-{number}") for number in range(20)])
    assert {key[1] for key in known.totals} == {*(f"class-{n}" for n in range(16)), "other"}


def test_sums_are_kept_of_256_namespaces_and_the_others_together():
    known = looked([job(namespace=f"team-{number}") for number in range(260)])
    assert {key[0] for key in known.totals} == {*(f"team-{n}" for n in range(256)), "other"}


def test_jobs_durations_are_counted_from_a_minute_to_thirty_days():
    bounds = (60, 600, 3600, 14400, 43200, 86400, 259200, 604800, 2592000)
    ends = [
        job(number, progress={"outcome": "succeeded", "ended": float(bound)})
        for number, bound in enumerate(bounds)
    ]
    known = looked([], ends)
    value = known.durations["research"].value()
    assert value.buckets == tuple((bound, count) for count, bound in enumerate(bounds, 1))


def test_jobs_starts_are_counted_from_a_second_to_a_day():
    bounds = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
    starts = [
        job(number, oldest_pod=1.0, newest_pod=1.0, startup={"image": float(bound)})
        for number, bound in enumerate(bounds)
    ]
    value = looked(starts).startups["research", "image"].value()
    assert value.buckets == tuple((bound, count) for count, bound in enumerate(bounds, 1))


def test_the_ends_of_4096_jobs_are_remembered_one_by_one():
    ends = [
        job(number, progress={"outcome": "succeeded", "ended": 1.0 + number})
        for number in range(4097)
    ]
    known = looked([], ends)
    assert (len(known.ends), known.forgotten) == (4096, 1.0)


def test_a_thousand_jobs_have_series(monkeypatch):
    found = [job(number) for number in range(1001)]
    monkeypatch.setattr("rankscope_analyzers.watch.cluster_jobs.jobs", lambda *_: tuple(found))
    view = SimpleNamespace(
        objects=(),
        pods=(),
        gone=(),
        whole=True,
        conditions={},
        followed=frozenset(),
        nodes=None,
        quotas=(),
    )
    cluster = ClusterJobs(lambda: view)
    cluster.look(100.0)
    assert len(named(cluster.samples(), "rankscope_job_state")) == 1000
