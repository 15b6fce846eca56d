"""Each end of a job counts exactly once: over restarts, changes of leader and outages."""

import json

import pytest

from rankscope_analyzers.intake.cluster_objects import ClusterView
from rankscope_analyzers.intake.kubernetes_api import Answer, NoAnswerError
from rankscope_analyzers.intake.object_watch import Gone
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch import completions
from rankscope_analyzers.watch.cluster_jobs import KEPT_AS, ClusterJobs
from rankscope_analyzers.watch.completions import Completions
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore, Part
from rankscope_analyzers.workloads import kinds, nodes, pods
from rankscope_analyzers.workloads.kinds import KINDS
from workload_objects import START, condition, kind, pod, thing

ENDS_KEPT = 4096
AFTER_END_SECONDS = 3600.0
LABELS = {"training.kubeflow.org/job-name": "train"}
PATH = "/api/v1/namespaces/rankscope/configmaps/state"


class Cluster:
    """Objects that a test changes; each watch has a view of its own."""

    def __init__(self):
        self.objects, self.pods, self.watchers = {}, [], []
        self.followed = frozenset(one.kind for one in KINDS)
        self.machines = None

    def put(self, name, *conditions, of="PyTorchJob", uid="", **more):
        found = thing(kind(of), {}, {"conditions": list(conditions)}, name, uid, **more)
        one = kinds.read(kind(of), found)
        self.objects[one.uid] = one

    def delete(self, name, seen=True):
        uid = next(one.uid for one in self.objects.values() if one.name == name)
        gone = Gone(self.objects.pop(uid), seen)
        for watcher in self.watchers:
            watcher.gone.append(gone)

    def view(self, watcher):
        gone, watcher.gone = watcher.gone, []
        conditions = {"pytorchjobs.kubeflow.org": "followed"}
        found = list(self.objects.values())
        pods_of_jobs, machines = tuple(self.pods), self.machines
        return ClusterView(found, gone, pods_of_jobs, conditions, self.followed, nodes=machines)


class Api:
    """An API server with one ConfigMap."""

    def __init__(self):
        self.map = {"metadata": {"name": "state", "resourceVersion": "1"}}
        self.down = self.lost_answer = False
        self.writes = 0

    def get(self, path, query, seconds):
        assert path == PATH
        if self.down:
            raise NoAnswerError("nobody there")
        return Answer(200, json.loads(json.dumps(self.map)))

    def put(self, path, body, seconds):
        if self.down:
            raise NoAnswerError("nobody there")
        if body["metadata"]["resourceVersion"] != self.map["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "modified"})
        self.writes += 1
        version = str(int(body["metadata"]["resourceVersion"]) + 1)
        self.map = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        if self.lost_answer:
            raise NoAnswerError("the answer was lost")
        return Answer(200, json.loads(json.dumps(self.map)))


class Watch:
    """One process of the watch."""

    def __init__(self, cluster, store=None, watching=True):
        self.gone = []
        if watching:
            cluster.watchers.append(self)
        self.jobs = ClusterJobs(lambda: cluster.view(self))
        self.said = []
        self.memory = Memory(store, self.said.append, {KEPT_AS: self.jobs})
        self.exporter = FindingsExporter(more=self.jobs.samples)
        self.followed = FollowedJobs()

    def look(self, at=100.0):
        self.memory.begin(self.exporter, self.followed)
        if self.memory.loaded:
            self.jobs.look(START + at)
        kept = self.memory.end(self.exporter, self.followed, changed=self.jobs.counted)
        if kept:
            self.jobs.announce()

    def stand_by(self):
        self.exporter.stand_by()
        self.memory.forget()
        self.jobs.stand_by()

    def totals(self):
        """Return what it tells: ends by outcome and cause, zeros left out."""
        found = {}
        for sample in self.jobs.samples():
            if sample.metric.name == "rankscope_job_completions_total" and sample.value:
                _, _, outcome, cause = sample.labels
                found[outcome, cause] = found.get((outcome, cause), 0) + sample.value
        return found

    def series(self, job_id="team/train"):
        return [
            sample
            for sample in self.jobs.samples()
            if "job_id" in sample.metric.labels and sample.labels[0] == job_id
        ]


RUNNING, SUCCEEDED = condition("Running"), condition("Succeeded", 90)
FAILED = condition("Failed", 90, message="specified deadline")


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


def stores(name, tmp_path):
    """Return the API of a cluster, and a function that makes the store of another process."""
    api = Api()
    if name == "file":
        return api, lambda: FileStore(tmp_path / "state")
    return api, lambda: ConfigMapStore(api, "state", "rankscope")


@pytest.mark.parametrize("name", ["file", "config map"])
def test_a_watch_that_is_started_anew_goes_on_counting(name, tmp_path):
    cluster = Cluster()
    _, store = stores(name, tmp_path)
    for job in ("a", "b", "c", "d"):
        cluster.put(job, RUNNING)
    first = Watch(cluster, store())
    first.look()
    cluster.put("a", SUCCEEDED)
    first.look(130)
    assert first.totals() == {("succeeded", ""): 1}
    cluster.put("b", FAILED)
    cluster.delete("c", seen=True)  # nothing watches
    second = Watch(cluster, store(), watching=False)
    second.look(500)
    expected = {("succeeded", ""): 1, ("failed", "deadline"): 1, ("unobserved", ""): 1}
    assert second.totals() == expected
    third = Watch(cluster, store())
    third.look(530)
    assert third.totals() == expected


def test_leaders_that_change_all_the_time_count_each_end_once():
    cluster, api = Cluster(), Api()
    watches = [Watch(cluster, ConfigMapStore(api, "state", "rankscope")) for _ in range(2)]
    watches[0].look()
    for number in range(20):
        cluster.put(f"job-{number}", RUNNING)
        watches[number % 2].look(number * 30)
        watches[number % 2].stand_by()
        if number % 3 == 0:
            cluster.delete(f"job-{number}")
        else:
            cluster.put(f"job-{number}", SUCCEEDED if number % 3 == 1 else FAILED)
    watches[0].look(900)
    assert sum(watches[0].totals().values()) == 20
    assert watches[0].totals()["succeeded", ""] == 7
    assert watches[0].totals()["failed", "deadline"] == 6
    assert (
        watches[0].totals()["cancelled", ""] + watches[0].totals().get(("unobserved", ""), 0) == 7
    )


def test_nothing_is_announced_before_it_is_kept():
    cluster, api = Cluster(), Api()
    watch = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    cluster.put("train", RUNNING)
    watch.look()
    api.down = True
    cluster.put("train", SUCCEEDED)
    watch.look(130)
    watch.look(160)
    assert watch.totals() == {}
    api.down = False
    watch.look(190)
    assert watch.totals() == {("succeeded", ""): 1}


def test_a_write_whose_answer_is_lost_counts_once():
    cluster, api = Cluster(), Api()
    watch = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    cluster.put("train", RUNNING)
    watch.look()
    cluster.put("train", SUCCEEDED)
    api.lost_answer = True
    watch.look(130)
    assert watch.totals() == {}
    api.lost_answer = False
    watch.look(160)
    assert watch.totals() == {("succeeded", ""): 1}


def test_a_watch_that_cannot_read_what_was_kept_does_not_begin_anew():
    cluster, api = Cluster(), Api()
    first = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    cluster.put("train", RUNNING)
    first.look()
    cluster.put("train", SUCCEEDED)
    first.look(130)
    api.down = True
    second = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    second.look(160)
    second.look(190)
    assert second.totals() == {}
    assert len(second.said) == 1
    assert "cannot be read" in second.said[0]
    api.down = False
    second.look(220)
    assert second.totals() == {("succeeded", ""): 1}


def test_of_two_that_believe_to_lead_the_second_reads_anew():
    cluster, api = Cluster(), Api()
    one, two = (Watch(cluster, ConfigMapStore(api, "state", "rankscope")) for _ in range(2))
    cluster.put("train", RUNNING)
    one.look()
    two.look()
    cluster.put("train", SUCCEEDED)
    one.look(130)
    assert one.totals() == {}  # the other has written since it read
    two.look(130)
    one.look(160)
    assert one.totals() == two.totals() == {("succeeded", ""): 1}


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_config_map_that_is_refused_is_named(status):
    api = Api()
    api.get = lambda *_: Answer(status, {"message": "no"})
    watch = Watch(Cluster(), ConfigMapStore(api, "state", "rankscope"))
    watch.look()
    assert "rankscope/state" in watch.said[0]
    assert str(status) in watch.said[0]


def test_what_finds_no_room_is_left_out_and_the_ends_come_first():
    api = Api()
    store = ConfigMapStore(api, "state", "rankscope")
    store.read()
    large = Part("job", "x", "y" * (500 << 10))
    assert store.write([Part(KEPT_AS, "", {}), large], 1.0) == 1
    assert [part.kind for part in store.read().parts] == [KEPT_AS]


def test_the_document_in_a_config_map_has_500_kib_at_most():
    api = Api()
    store = ConfigMapStore(api, "state", "rankscope")
    store.read()
    assert store.write([Part("job", "x", "")], 1.0) == 0
    # The number of parts, of which there is one here, may take nine digits more.
    empty = len(api.map["data"]["state"]) + 9
    for size, left_out in ((500 << 10, 0), ((500 << 10) + 1, 1)):
        assert store.write([Part("job", "x", "y" * (size - empty))], 1.0) == left_out


def test_the_most_that_is_kept_fits_into_a_config_map():
    known = Completions(began=1.0)
    for number in range(ENDS_KEPT):
        known.ends[f"{number:08d}-aaaa-bbbb-cccc-dddddddddddd"] = START + number + 0.123456
    for number in range(500):
        known.open[f"{number:08d}-aaaa-bbbb-cccc-eeeeeeeeeeee"] = completions.Open(
            "PyTorchJob", "n" * 63, "c" * 40, START
        )
    for number in range(1000):
        known.totals["n" * 60 + str(number), "c" * 40, "failed", "queue_timeout"] = number
    api = Api()
    store = ConfigMapStore(api, "state", "rankscope")
    store.read()
    assert store.write([Part(KEPT_AS, "", known.kept())], 1.0) == 0


def test_what_is_kept_is_what_was_known():
    cluster = Cluster()
    watch = Watch(cluster)
    cluster.pods = [pods.read(pod("a", LABELS))]
    for name in ("train", "b"):
        cluster.put(name, RUNNING)
    watch.look()
    cluster.put("b", SUCCEEDED)
    watch.look(130)
    kept = json.loads(json.dumps(watch.jobs.kept()))
    anew = ClusterJobs(lambda: cluster.view(watch))
    anew.restore(kept)
    assert anew.kept() == kept
    assert kept["notices"]["known"] is None
    assert kept["startups"]


@pytest.mark.parametrize("junk", [None, [], {}, {"began": 1}, "x", 3])
def test_what_makes_no_sense_is_begun_anew_and_said(junk, tmp_path):
    store = FileStore(tmp_path / "state")
    store.write([Part(KEPT_AS, "", junk)], 1.0)
    watch = Watch(Cluster(), FileStore(tmp_path / "state"))
    watch.look()
    assert junk is None or [one for one in watch.said if KEPT_AS in one]
    assert watch.jobs.kept()["began"] == START + 100


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


def machine(*taints):
    found = [{"key": key, "timeAdded": "2027-01-15T08:00:00Z"} for key in taints]
    body = {"metadata": {"name": "gpu-1", "uid": "n"}, "spec": {"taints": found}, "status": {}}
    return nodes.read(body)[1]


def noticed(watch):
    name = "rankscope_node_notices_total"
    found = [one for one in watch.jobs.samples() if one.metric.name == name and one.value]
    return {one.labels[0]: one.value for one in found}


def test_a_spot_notice_stands_beside_its_job_and_counts_once_over_leaders_and_an_outage():
    cluster, api = Cluster(), Api()
    cluster.machines = [machine()]
    cluster.put("train", RUNNING)
    cluster.pods = [pods.read(pod("a", LABELS))]
    first = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    second = Watch(cluster, ConfigMapStore(api, "state", "rankscope"))
    first.look()
    cluster.machines = [machine("aws-node-termination-handler/spot-itn")]
    api.down = True
    first.look(130)
    assert noticed(first) == {}, "it is not kept yet"
    api.down = False
    first.look(160)
    assert noticed(first) == {"spot_interruption": 1}
    first.stand_by()
    for at in (190, 220):
        second.look(at)
    assert noticed(second) == {"spot_interruption": 1}
    name = "rankscope_job_node_notice_timestamp_seconds"
    said = [one.labels for one in second.series() if one.metric.name == name]
    assert said == [("team/train", "gpu-1", "spot_interruption")]
    cluster.machines = None
    second.look(250)
    assert noticed(second) == {"spot_interruption": 1}
