"""Nodes that are not ready or about to go, and quotas: what their objects say."""

import pytest

from rankscope_analyzers.watch.node_notices import NodeNotices
from rankscope_analyzers.watch.quota_samples import awaited, quota_samples
from rankscope_analyzers.workloads import kinds, nodes, pods, quotas
from rankscope_analyzers.workloads.jobs import jobs
from rankscope_analyzers.workloads.quotas import Use
from workload_objects import START, condition, kind, pod, stamp, thing


def node(name="gpu-1", *, taints=(), conditions=(), uid="", **spec):
    taints = [{"key": key, "effect": "NoSchedule", "timeAdded": stamp(50)} for key in taints]
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}"},
        "spec": {"taints": taints, **spec},
        "status": {"conditions": list(conditions)},
    }


def notices(**more):
    return dict(nodes.read(node(**more))[1].notices)


READY = condition("Ready", 5)


def test_a_healthy_node_says_nothing():
    gpu_only = ("nvidia.com/gpu", "kubernetes.azure.com/scalesetpriority")
    pressure = condition("MemoryPressure", 5, status="False")
    assert notices(taints=gpu_only, conditions=(READY, pressure)) == {}


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        ("aws-node-termination-handler/spot-itn", "spot_interruption"),
        ("aws-node-termination-handler/rebalance-recommendation", "rebalance"),
        ("aws-node-termination-handler/scheduled-maintenance", "maintenance"),
        ("cloud.google.com/impending-node-termination", "maintenance"),
        ("remediator.kubernetes.azure.com/unschedulable", "maintenance"),
        ("remediator.aks.microsoft.com/unschedulable", "maintenance"),
        ("karpenter.sh/disrupted", "scale_down"),
        ("ToBeDeletedByClusterAutoscaler", "scale_down"),
        ("node.kubernetes.io/unreachable", "not_ready"),
        ("node.cloudprovider.kubernetes.io/shutdown", "shutdown"),
    ],
)
def test_what_taints_of_clouds_and_autoscalers_mean(taint, expected):
    assert notices(taints=(taint,), conditions=(READY,)) == {expected: START + 50}


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        (condition("Ready", 60, status="False"), "not_ready"),
        (condition("Ready", 60, status="Unknown"), "not_ready"),
        (condition("DiskPressure"), "disk_pressure"),
        (condition("VMEventScheduled", 60, "PreemptScheduled"), "spot_interruption"),
        (condition("VMEventScheduled", 60, "VMEventScheduled", "Reboot planned"), "maintenance"),
        (
            condition(
                "VMEventScheduled", 60, "", "Preempt Scheduled: Mon, 02 Mar 2026 19:01:45 GMT"
            ),
            "spot_interruption",
        ),
        (condition("TerminateScheduled"), "spot_interruption"),
        (condition("MaintenancePlanned"), "maintenance"),
        (condition("GracefulNodeShutdownInProgress"), "shutdown"),
    ],
)
def test_what_conditions_of_nodes_mean(holds, expected):
    assert notices(conditions=(holds,)) == {expected: START + 60}


@pytest.mark.parametrize("label", ["cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible"])
def test_a_machine_of_google_that_goes_is_taken_back_if_it_was_lent(label):
    found = node(taints=("cloud.google.com/impending-node-termination",))
    found["metadata"]["labels"] = {label: "true"}
    assert dict(nodes.read(found)[1].notices) == {"spot_interruption": START + 50}


def test_a_host_of_google_that_is_maintained_says_so_by_a_label():
    found = node()
    found["metadata"]["labels"] = {"cloud.google.com/active-node-maintenance": "ONGOING"}
    assert dict(nodes.read(found)[1].notices) == {"maintenance": None}
    found["metadata"]["labels"] = {"cloud.google.com/active-node-maintenance": "PENDING"}
    assert nodes.read(found)[1].notices == {}


def test_a_cordoned_node_says_so_and_nobody_knows_since_when():
    assert notices(conditions=(READY,), unschedulable=True) == {"cordoned": None}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("SpotInterrupted", "spot_interruption"),
        ("InstanceSpotRebalanceRecommendation", "rebalance"),
        ("ScheduledEvent", "maintenance"),
        ("ASGLifecycle", "scale_down"),
        ("StateChange", "shutdown"),
    ],
)
def test_what_events_about_a_node_mean(reason, expected):
    found = {
        "metadata": {"uid": "e"},
        "involvedObject": {"kind": "Node", "name": "gpu-1"},
        "reason": reason,
        "lastTimestamp": stamp(70),
    }
    _, one = nodes.event(found)
    (said,) = nodes.with_events([nodes.read(node())[1]], [one])
    assert dict(said.notices) == {expected: START + 70}
    assert nodes.event({**found, "reason": "Starting"}) is None
    assert nodes.event({**found, "involvedObject": {"kind": "Pod", "name": "gpu-1"}}) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Preempt Scheduled: Mon, 02 Mar 2026 19:01:45 GMT", "spot_interruption"),
        ("Freeze Scheduled: Mon, 02 Mar 2026 19:01:45 GMT", "maintenance"),
    ],
)
def test_an_event_of_azure_says_in_words_what_is_planned(message, expected):
    found = {
        "metadata": {"uid": "e"},
        "involvedObject": {"kind": "Node", "name": "gpu-1"},
        "reason": "VMEventScheduled",
        "message": message,
    }
    assert nodes.event(found)[1].notice == expected
    assert nodes.event({**found, "reason": "NoVMEventScheduled"}) is None


JUNK = (None, 3, "x", [], {}, [None, 3, {}], {"conditions": 3, "taints": [None, {"key": 3}]})


@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_objects_of_another_shape_harm_nothing(field, junk):
    for read in (nodes.read, nodes.event, quotas.resource_quota, quotas.cluster_queue):
        read({**node(), field: junk})


SPOT = "aws-node-termination-handler/spot-itn"


def facts(*names, taints=(SPOT,)):
    return [nodes.read(node(name, taints=taints))[1] for name in names]


def counted(found):
    return {notice: count for notice, count in found.totals.items() if count}


def test_a_notice_counts_once_over_looks_and_changes_of_leader():
    first = NodeNotices()
    assert not first.look(facts("a", "b", taints=()))
    assert first.look([*facts("a"), *facts("b", taints=())])
    assert not first.look([*facts("a"), *facts("b", taints=())])
    second = NodeNotices.of(first.kept())
    assert not second.look([*facts("a"), *facts("b", taints=())])
    assert second.look(facts("a", "b"))
    assert counted(second) == {"spot_interruption": 2}


def test_what_was_there_before_anything_watched_does_not_count():
    found = NodeNotices()
    found.look(facts("a"))
    assert counted(found) == {}


def test_a_notice_that_came_while_nothing_watched_counts_for_the_next_watch():
    first = NodeNotices()
    first.look(facts("a", taints=()))
    second = NodeNotices.of(first.kept())
    second.look(facts("a"))
    assert counted(second) == {"spot_interruption": 1}


def test_of_more_notices_than_8192_each_counts_once():
    many = [f"n{number:04}" for number in range(8193)]
    found = NodeNotices()
    found.look(facts(*many, taints=()))
    for _ in range(3):
        found.look(facts(*many))
    assert counted(found) == {"spot_interruption": 8193}


@pytest.mark.parametrize("saves", [1, 2])
@pytest.mark.parametrize("by_an_earlier_version", [False, True])
def test_notices_beyond_the_8192_of_a_saved_state_are_not_taken_for_new(
    saves, by_an_earlier_version
):
    many = [f"n{number:04}" for number in range(1, 8195)]
    found = NodeNotices()
    found.look(facts(*many))
    for _ in range(saves):
        kept = found.kept()
        assert len(kept["known"]) == 8192
        if by_an_earlier_version:
            del kept["whole"]
        found = NodeNotices.of(kept)
    found.look(facts("n0000", *many))
    assert counted(found) == {"spot_interruption": 1}
    found.look(facts("n0000", *many, "n9999"))
    assert counted(found) == {"spot_interruption": 2}


def test_a_state_with_8192_notices_leaves_none_out():
    found = NodeNotices()
    found.look(facts(*(f"n{number:04}" for number in range(8192))))
    found = NodeNotices.of(found.kept())
    found.look(facts(*(f"n{number:04}" for number in range(8193))))
    assert counted(found) == {"spot_interruption": 1}


@pytest.mark.parametrize("kept", [3, {"totals": {}}, {"totals": {"cordoned": -1}, "known": None}])
def test_what_was_kept_and_makes_no_sense_is_refused(kept):
    with pytest.raises((TypeError, ValueError, KeyError, AttributeError)):
        NodeNotices.of(kept)


def quota(hard, used, name="gpus"):
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}"}
    return quotas.resource_quota({"metadata": metadata, "status": {"hard": hard, "used": used}})[1]


def test_a_quota_of_a_namespace():
    found = quota(
        {"requests.nvidia.com/gpu": "16", "limits.cpu": "64", "memory": "1Ti", "pods": "x"},
        {"requests.nvidia.com/gpu": "16", "limits.cpu": "1500m"},
    )
    assert found.uses == {
        "requests.nvidia.com/gpu": Use(16.0, 16.0),
        "limits.cpu": Use(1.5, 64.0),
        "memory": Use(0.0, 1024.0**4),
    }
    assert found.full_of == ("requests.nvidia.com/gpu",)


def test_a_cluster_queue_sums_its_flavors_up():
    def flavors(key, *counts):
        return [{"resources": [{"name": "nvidia.com/gpu", key: one}]} for one in counts]

    found = {
        "metadata": {"name": "research", "uid": "q"},
        "spec": {"resourceGroups": [{"flavors": flavors("nominalQuota", 8, "16")}]},
        "status": {"flavorsUsage": flavors("total", "8", "20")},
    }
    _, queue = quotas.cluster_queue(found)
    assert (queue.kind, queue.namespace) == ("ClusterQueue", "")
    assert queue.uses == {"nvidia.com/gpu": Use(28.0, 24.0)}
    values = {one.metric.name: (one.labels, one.value) for one in quota_samples([queue])}
    labels = ("ClusterQueue", "", "research", "nvidia.com/gpu")
    assert values == {
        "rankscope_quota_used": (labels, 28.0),
        "rankscope_quota_limit": (labels, 24.0),
    }


def test_of_many_resources_those_of_gpus_are_kept():
    hard = {f"a{number}.example/x": "1" for number in range(20)} | {"requests.nvidia.com/gpu": "8"}
    found = quota(hard, {})
    assert len(found.uses) == 8
    assert "requests.nvidia.com/gpu" in found.uses


def test_the_256_fullest_quotas_have_series():
    free = [quota({"pods": "4"}, {"pods": "1"}, f"a{number}") for number in range(256)]
    full = quota({"pods": "4"}, {"pods": "4"}, "z")
    names = {one.labels[2] for one in quota_samples([*free, full])}
    assert len(names) == 256
    assert "z" in names


LABELS = {"training.kubeflow.org/job-name": "train"}
FULL = {"requests.nvidia.com/gpu": "16"}


CREATED = (condition("Created", 1),)


def job(there, conditions=CREATED):
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    one = kinds.read(
        kind("PyTorchJob"), thing(kind("PyTorchJob"), spec, {"conditions": list(conditions)})
    )
    (found,) = jobs(
        [one], [pods.read(pod(str(number), LABELS)) for number in range(there)], START + 99
    )
    return found


def test_a_job_whose_pods_a_quota_keeps_from_being_made_names_it():
    full, free = quota(FULL, FULL), quota(FULL, {}, "free")
    assert awaited(job(2), [free, full]) == "gpus"
    assert awaited(job(4), [full]) == "", "all its pods are there"
    assert awaited(job(2), [free]) == ""
    ended = (condition("Succeeded"),)
    assert awaited(job(0, ended), [full]) == ""
    assert awaited(job(2), [quota({"services": "1"}, {"services": "1"})]) == ""
