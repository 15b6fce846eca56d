"""Series of jobs that the watch exports: for how long, how many, and histograms over all jobs."""

from rankscope_analyzers.workloads import kinds, pods
from watched_clusters import FAILED, LABELS, RUNNING, SUCCEEDED, Cluster, Watch
from workload_objects import condition, kind, pod, thing

AFTER_END_SECONDS = 3600.0


def test_the_series_of_a_job_end_an_hour_after_it_and_sums_stay():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)
    watch.look()
    cluster.put("train", FAILED)
    watch.look(130)
    cluster.delete("train")
    watch.look(200)
    said = {sample.metric.name for sample in watch.series()}
    assert "rankscope_job_failure_cause_info" in said
    watch.look(90 + AFTER_END_SECONDS + 1)
    assert watch.series() == []
    assert watch.totals() == {("failed", "deadline"): 1}


def test_a_clock_that_is_ahead_of_ours_prolongs_nothing():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", condition("Succeeded", 10_000_000))
    watch.look()
    watch.look(100 + AFTER_END_SECONDS + 1)
    assert watch.series() == []


def test_a_job_made_anew_under_the_same_name_is_the_one_that_is_shown():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", FAILED, uid="old")
    watch.look()
    cluster.put("train", RUNNING, uid="new", created=95)
    watch.look(130)
    states = [s.labels[1] for s in watch.series() if s.metric.name == "rankscope_job_state"]
    assert states == ["running"]


def test_a_job_has_25_series_at_most():
    cluster = Cluster()
    watch = Watch(cluster)
    replicas = {f"Role{number}": {"replicas": 3} for number in range(9)}
    elastic = {"minReplicas": 1, "maxReplicas": 4}
    spec = {"pytorchReplicaSpecs": replicas, "elasticPolicy": elastic}
    found = thing(kind("PyTorchJob"), spec, {"conditions": [RUNNING]})
    one = kinds.read(kind("PyTorchJob"), found)
    queue = thing(kind("Workload"), name="w", owner=("PyTorchJob", "train", one.uid))
    cluster.objects = {one.uid: one, "w": kinds.read(kind("Workload"), queue)}
    messages = (
        "Insufficient nvidia.com/gpu",
        "Insufficient cpu",
        "taint",
        "gang",
        "pvc",
        "affinity",
    )
    cluster.pods = [
        pods.read(
            pod(
                str(number),
                LABELS,
                scheduled=None,
                phase="Pending",
                conditions=[condition("PodScheduled", 1, "", message, status="False")],
            )
        )
        for number, message in enumerate(messages)
    ]
    watch.look()
    assert 12 <= len(watch.series()) <= 25


def test_histograms_are_exported_as_prometheus_wants_them():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)
    watch.look()
    cluster.put("train", SUCCEEDED)
    watch.look(130)
    page = watch.exporter.text()
    assert 'rankscope_job_duration_seconds_bucket{job_class="default",le="60.0"} 0.0' in page
    assert 'rankscope_job_duration_seconds_bucket{job_class="default",le="600.0"} 1.0' in page
    assert 'rankscope_job_duration_seconds_bucket{job_class="default",le="+Inf"} 1.0' in page
    assert 'rankscope_job_duration_seconds_sum{job_class="default"} 90.0' in page


def test_each_start_is_counted_once_and_that_of_the_next_attempt_again():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)

    def starts():
        page = watch.exporter.text()
        name = "rankscope_job_startup_phase_seconds_count"
        line = f'{name}{{job_class="default",phase="schedule"}} '
        return page.partition(line)[2].partition("\n")[0]

    cluster.pods = [pods.read(pod("a", LABELS)), pods.read(pod("b", LABELS))]
    watch.look()
    watch.look(130)
    assert starts() == "1.0"
    cluster.pods = [pods.read(pod("a", LABELS)), pods.read(pod("b2", LABELS, created=60))]
    watch.look(160)
    assert starts() == "1.0"  # one pod was replaced, the job was not started again
    again = {"created": 70, "scheduled": 75, "started": 90}
    cluster.pods = [pods.read(pod(name, LABELS, **again)) for name in ("a3", "b3")]
    watch.look(190)
    assert starts() == "2.0"
