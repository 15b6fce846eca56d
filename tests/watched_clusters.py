"""A cluster whose objects a test changes, an API server with one ConfigMap, and a watch of both."""

import json

from rankscope_analyzers.configuration.values import TIMES_TO_COMPLETE
from rankscope_analyzers.intake.cluster_objects import ClusterView
from rankscope_analyzers.intake.kubernetes_api import Answer, NoAnswerError
from rankscope_analyzers.intake.object_watch import Gone
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch.cluster_jobs import KEPT_AS, ClusterJobs
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.workloads import kinds
from rankscope_analyzers.workloads.kinds import KINDS
from workload_objects import START, condition, kind, thing

LABELS = {"training.kubeflow.org/job-name": "train"}
PATH = "/api/v1/namespaces/rankscope/configmaps/state"

RUNNING, SUCCEEDED = condition("Running"), condition("Succeeded", 90)
FAILED = condition("Failed", 90, message="specified deadline")


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

    def __init__(self, cluster, store=None, watching=True, objectives=TIMES_TO_COMPLETE):
        self.gone = []
        if watching:
            cluster.watchers.append(self)
        self.jobs = ClusterJobs(lambda: cluster.view(self), objectives)
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


def noticed(watch):
    name = "rankscope_node_notices_total"
    found = [one for one in watch.jobs.samples() if one.metric.name == name and one.value]
    return {one.labels[0]: one.value for one in found}
