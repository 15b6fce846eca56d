"""The watch follows the job objects of a cluster: what it may not read it names."""

import time

import pytest

from fake_api_server import FakeApiServer, Store
from kubeconfigs import point_at
from rankscope_analyzers.intake import object_watch
from rankscope_analyzers.intake.cluster_objects import ClusterObjects
from rankscope_analyzers.intake.kubernetes_api import KubernetesApi
from rankscope_analyzers.workloads.kinds import KINDS
from workload_objects import condition, kind, pod, thing

PATIENCE_SECONDS = 20.0
TORCH = "/apis/kubeflow.org/v1/pytorchjobs"
LABELS = {"training.kubeflow.org/job-name": "train"}


@pytest.fixture
def server(tmp_path, monkeypatch):
    one = FakeApiServer(bookmark_seconds=0.2)
    point_at(one.url, tmp_path, monkeypatch)
    monkeypatch.setattr(object_watch, "PAUSES", (0.05, 0.2))
    monkeypatch.setattr(object_watch, "REFUSED_SECONDS", 0.3)
    one.collections[TORCH] = Store()
    yield one
    one.close()


class Following:
    def __init__(self):
        self.said = []
        self.objects = ClusterObjects(KubernetesApi(), self.said.append, ("tier", "kind"))
        self.gone = []
        self.last = None

    def until(self, true):
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            self.last = self.objects.view()
            self.gone += self.last.gone
            if self.last.whole and true(self):
                return self.last
            time.sleep(0.02)
        raise AssertionError(f"it never came: {self.last}, said {self.said}")

    def states(self):
        return {one.job_id: one.progress.state for one in self.last.objects}


@pytest.fixture
def following(server):
    made = Following()
    yield made
    made.objects.close()


def torch(*conditions, name="train", **more):
    return thing(kind("PyTorchJob"), {}, {"conditions": list(conditions)}, name=name, **more)


def test_an_object_is_followed_from_its_start_to_its_end(server, following):
    torches = server.collections[TORCH]
    torches.put(torch())
    following.until(lambda one: one.states() == {"team/train": "pending"})
    torches.put(torch(condition("Running")))
    following.until(lambda one: one.states() == {"team/train": "running"})
    torches.put(torch(condition("Succeeded")))
    following.until(lambda one: one.states() == {"team/train": "succeeded"})
    torches.delete("team", "train")
    following.until(lambda one: one.gone)
    assert [(one.value.progress.state, one.seen) for one in following.gone] == [("succeeded", True)]
    assert following.states() == {}


def test_pods_of_jobs_are_followed_and_others_are_not_kept(server, following):
    server.put(pod("a", LABELS))
    server.put(pod("web", {"app": "web"}))
    view = following.until(lambda one: one.last.pods)
    assert [one.job for one in view.pods] == ["train"]


def test_lists_longer_than_a_page_are_read_whole(server, monkeypatch):
    monkeypatch.setattr(object_watch, "PAGE", "3")
    for number in range(8):
        server.collections[TORCH].put(torch(name=f"job-{number}"))
    made = Following()
    assert len(made.until(lambda one: one.last.objects).objects) == 8
    made.objects.close()


def test_a_kind_that_the_cluster_has_not_is_said_once_and_found_when_it_comes(server, following):
    sentence = "the cluster has no rayjobs.ray.io; nothing of this kind is looked for"
    following.until(lambda one: sentence in one.said)
    time.sleep(1.0)
    assert following.said.count(sentence) == 1
    assert following.last.conditions["rayjobs.ray.io"] == "absent"
    server.collections["/apis/ray.io/v1/rayjobs"] = Store()
    following.until(lambda one: one.last.conditions["rayjobs.ray.io"] == "followed")


def test_an_older_version_of_a_kind_is_taken_where_the_newest_is_not_there(server, following):
    jobs = server.collections["/apis/kubeflow.org/v1/mpijobs"] = Store()
    jobs.put(thing(kind("MPIJob"), {}, {"conditions": [condition("Running")]}, name="mpi"))
    following.until(lambda one: one.states() == {"team/mpi": "running"})


def test_what_may_not_be_read_is_named_with_the_rule_that_lacks(server, following):
    server.forbidden.add("/apis/jobset.x-k8s.io/v1alpha2/jobsets")
    following.until(lambda one: one.last.conditions["jobsets.jobset.x-k8s.io"] == "forbidden")
    rule = 'apiGroups: ["jobset.x-k8s.io"], resources: [jobsets], verbs: [list, watch]'
    assert [one for one in following.said if rule in one]
    assert "JobSet" not in following.last.followed


def test_a_version_that_is_forgotten_has_the_list_read_anew(server, following):
    torches = server.collections[TORCH]
    torches.put(torch(condition("Running"), name="old"))
    torches.put(torch(condition("Running"), name="other"))
    following.until(lambda one: len(one.states()) == 2)
    server.faults.status = 503
    following.until(lambda one: one.last.conditions[kind("PyTorchJob").resource] == "failing")
    assert len(following.states()) == 2
    torches.delete("team", "old")
    torches.put(torch(condition("Running"), name="new"))
    torches.forget_history()
    server.faults.status = 0
    following.until(lambda one: set(one.states()) == {"team/other", "team/new"})
    assert [(one.value.name, one.seen) for one in following.gone] == [("old", False)]
    assert [one for one in following.said if "503" in one and "pytorchjobs" in one]


def test_connections_that_break_in_the_middle_of_an_event_lose_none(server, following):
    torches = server.collections[TORCH]
    following.until(lambda one: True)
    server.faults.cut_mid_line = 3
    for step in ("Created", "Running", "Succeeded"):
        torches.put(torch(condition(step)))
        time.sleep(0.1)
    following.until(lambda one: one.states() == {"team/train": "succeeded"})


def test_a_job_made_anew_under_the_same_name_is_another_one(server, following):
    torches = server.collections[TORCH]
    torches.put(torch(condition("Running"), uid="first"))
    following.until(lambda one: one.last.objects)
    torches.delete("team", "train")
    torches.put(torch(uid="second"))
    view = following.until(lambda one: [o.uid for o in one.last.objects] == ["second"])
    assert [one.value.uid for one in following.gone] == ["first"]
    assert len(view.objects) == 1


def test_a_server_that_answers_nonsense_is_failing_and_ends_nothing(server, following):
    server.collections[TORCH].put(torch(condition("Running")))
    following.until(lambda one: one.last.objects)
    server.faults.garbage = b"<html>"
    server.faults.end_at_once = True
    following.until(lambda one: one.last.conditions["pods"] == "failing")
    assert following.states() == {"team/train": "running"}


def test_a_server_that_ends_watches_at_once_is_not_flooded(server):
    server.faults.end_at_once = True
    made = Following()
    made.until(lambda one: True)
    before = len(server.requests)
    time.sleep(2.0)
    # By default a second lies between two watches; here a twentieth, for each of 16 kinds at most.
    assert len(server.requests) - before < 2.0 / 0.05 * (len(KINDS) + 1)
    made.objects.close()


def test_the_class_of_a_job_is_that_of_the_labels_that_are_configured(server, following):
    labels = {"rankscope.io/class": "other", "kind": "nightly"}
    server.collections[TORCH].put(torch(labels=labels))
    view = following.until(lambda f: f.last.objects)
    assert [one.job_class for one in view.objects] == ["nightly"]
