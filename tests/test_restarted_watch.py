"""Ends of jobs count exactly once over restarts of the watch, changes of leader and outages."""

import json

import pytest

from rankscope_analyzers.watch.cluster_jobs import KEPT_AS, ClusterJobs
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.store import FileStore, Part
from rankscope_analyzers.workloads import nodes, pods
from watched_clusters import FAILED, LABELS, RUNNING, SUCCEEDED, Api, Cluster, Watch, noticed
from workload_objects import START, pod


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


def machine(*taints):
    found = [{"key": key, "timeAdded": "2027-01-15T08:00:00Z"} for key in taints]
    body = {"metadata": {"name": "gpu-1", "uid": "n"}, "spec": {"taints": found}, "status": {}}
    return nodes.read(body)[1]


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
