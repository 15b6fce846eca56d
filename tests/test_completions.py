"""Each end of a job counts exactly once, and what is no end of a job does not."""

from rankscope_analyzers.watch import completions
from rankscope_analyzers.workloads import kinds, pods
from watched_clusters import FAILED, RUNNING, SUCCEEDED, Cluster, Watch
from workload_objects import condition, pod


def test_canaries_have_no_series_and_their_ends_do_not_count():
    cluster = Cluster()
    watch = Watch(cluster)
    canaries = ("rankscope-canary", "rankscope-canary-29384760")
    for state in (RUNNING, FAILED):
        for name in (*canaries, "rankscope-canary-like"):
            cluster.put(name, state)
        watch.look()
    assert sum(watch.totals().values()) == 1
    assert watch.series("team/rankscope-canary-like")
    assert not any(watch.series(f"team/{name}") for name in canaries)


def test_canaries_that_wait_for_gpus_hold_up_no_account():
    cluster = Cluster()
    watch = Watch(cluster)
    for name in ("rankscope-canary", "train"):
        cluster.put(name, RUNNING)
        labels = {"training.kubeflow.org/job-name": name}
        waits = pod(f"{name}-1", labels, phase="Pending", node="", scheduled=None, started=None)
        cluster.pods += [pods.read(pod(f"{name}-0", labels)), pods.read(waits)]
    watch.look()
    assert watch.jobs.waiting() == {"team/train"}


def test_an_end_counts_once_however_often_it_is_seen():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)
    watch.look()
    assert watch.totals() == {}
    cluster.put("train", SUCCEEDED)
    for at in (130, 160, 190):
        watch.look(at)
    cluster.delete("train")
    watch.look(220)
    assert watch.totals() == {("succeeded", ""): 1}


def test_jobs_that_ended_before_anything_watched_do_not_count():
    cluster = Cluster()
    cluster.put("old", SUCCEEDED)
    watch = Watch(cluster)
    watch.look()
    cluster.delete("old")
    watch.look(130)
    assert watch.totals() == {}


def test_a_job_that_comes_and_ends_between_two_looks_counts():
    cluster = Cluster()
    watch = Watch(cluster)
    watch.look()
    cluster.put("quick", FAILED)
    cluster.delete("quick")
    watch.look(130)
    assert watch.totals() == {("failed", "deadline"): 1}


def test_a_job_that_is_deleted_while_it_runs_is_cancelled():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)
    watch.look()
    cluster.delete("train")
    watch.look(130)
    assert watch.totals() == {("cancelled", ""): 1}


def test_a_job_whose_end_nobody_saw_is_unobserved():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)
    watch.look()
    cluster.delete("train", seen=False)
    watch.look(130)
    assert watch.totals() == {("unobserved", ""): 1}


def test_jobs_of_one_name_count_each():
    cluster = Cluster()
    watch = Watch(cluster)
    watch.look()
    for number in range(3):
        cluster.put("train", RUNNING, uid=str(number), created=number)
        watch.look(130 + 60 * number)
        cluster.put("train", SUCCEEDED, uid=str(number), created=number)
        watch.look(150 + 60 * number)
        cluster.delete("train")
    assert watch.totals() == {("succeeded", ""): 3}


def test_each_run_of_a_cron_job_counts_and_they_are_one_job():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("nightly", of="CronJob", uid="c")
    watch.look()
    for number in range(3):
        owner = ("CronJob", "nightly", "c")
        cluster.put(f"nightly-{number}", condition("Complete"), of="Job", owner=owner)
    watch.look(130)
    assert watch.totals() == {("succeeded", ""): 3}
    names = {s.labels[0] for s in watch.jobs.samples() if "job_id" in s.metric.labels}
    assert names == {"team/nightly"}


def test_a_part_of_a_job_is_no_end_of_its_own():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING, of="JobSet", uid="s")
    cluster.put("train-0", of="Job", owner=("JobSet", "train", "s"))
    watch.look()
    cluster.put("train-0", condition("Complete"), of="Job", owner=("JobSet", "train", "s"))
    watch.look(120)
    cluster.put("train", condition("Completed"), of="JobSet", uid="s")
    watch.look(130)
    cluster.delete("train-0")
    cluster.delete("train")
    watch.look(160)
    assert watch.totals() == {("succeeded", ""): 1}


def test_ends_that_are_forgotten_do_not_count_again(monkeypatch):
    monkeypatch.setattr(completions, "ENDS_KEPT", 4)
    cluster = Cluster()
    watch = Watch(cluster)
    watch.look()
    for number in range(10):
        cluster.put(f"job-{number}", condition("Succeeded", number))
        watch.look(130)
    watch.look(160)
    assert watch.totals() == {("succeeded", ""): 10}


def test_classes_and_namespaces_are_bounded(monkeypatch):
    monkeypatch.setattr(completions, "MOST_CLASSES", 3)
    cluster = Cluster()
    watch = Watch(cluster)
    watch.look()
    for number in range(9):
        cluster.put(f"j{number}", SUCCEEDED, labels={kinds.CLASS_LABELS[0]: f"class-{number}"})
    watch.look(130)
    classes = {s.labels[1] for s in watch.jobs.samples() if "completions" in s.metric.name}
    assert len(classes) == 4
    assert "other" in classes
    assert watch.totals() == {("succeeded", ""): 9}


def test_a_kind_that_may_no_longer_be_read_ends_no_job():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.put("train", RUNNING)
    watch.look()
    kept, cluster.objects, cluster.followed = cluster.objects, {}, frozenset()
    watch.look(130)
    cluster.objects, cluster.followed = kept, frozenset({"PyTorchJob"})
    watch.look(160)
    assert watch.totals() == {}
