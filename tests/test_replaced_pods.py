"""Pods made anew in the place of others: one restart each, however long the old one stays."""

from __future__ import annotations

import pytest

from pod_json import pod
from pod_states import BEGIN, deleted, ended, with_state
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.records import parse_pod

JOB = "ml/train"
A, B, C = ("bcdfg", 1), ("hjklm", 2), ("xz245", 3)


def replica(which, phase="Running", **metadata):
    """Return a pod of index 0 of the indexed Job ml/train; its number is its age in seconds."""
    suffix, number = which
    index = "batch.kubernetes.io/job-completion-index"
    return pod(
        f"train-0-{suffix}",
        number=number,
        owner=("batch/v1", "Job", "train"),
        labels={"batch.kubernetes.io/job-name": "train", index: "0"},
        limits={"nvidia.com/gpu": "1"},
        phase=phase,
        **metadata,
    )


def failed(which):
    return with_state(replica(which, "Failed"), ended("Error", 1, 10))


class Node:
    """The pods of a node, told of one after another."""

    def __init__(self, *pods):
        self.directory = PodDirectory()
        self.directory.replace([parse_pod(one) for one in pods], BEGIN)

    def put(self, *pods):
        for one in pods:
            self.directory.put(parse_pod(one), BEGIN + 100)

    def listed(self, *pods):
        self.directory.replace([parse_pod(one) for one in pods], BEGIN + 100)

    @property
    def restarts(self):
        return self.directory.lives(frozenset({JOB}), BEGIN + 200)[JOB].restarted


def test_a_failed_pod_that_its_job_keeps_was_replaced_once():
    node = Node()
    node.put(replica(A), failed(A), replica(B, "Pending"), replica(B))
    assert node.restarts == 1
    for _ in range(3):
        node.listed(failed(A), replica(B))
    assert node.restarts == 1


def test_a_pod_that_ends_while_its_replacement_runs_was_replaced_once():
    node = Node(replica(A))
    node.put(deleted(replica(A), 30), replica(B))
    for _ in range(3):
        node.put(deleted(failed(A), 30), replica(B))
    assert node.restarts == 1


def test_each_further_replacement_counts():
    node = Node(replica(A))
    node.put(replica(B), failed(A), replica(C), failed(B), failed(A), replica(C))
    assert node.restarts == 2


@pytest.mark.parametrize("order", [(A, B), (B, A)], ids=["oldest first", "newest first"])
def test_pods_that_were_there_before_the_agent_replace_nothing(order):
    node = Node(*(replica(which) for which in order))
    node.put(failed(A), replica(B), failed(A))
    node.listed(replica(B), failed(A))
    assert node.restarts == 0


def test_an_older_pod_that_is_seen_late_replaces_nothing():
    node = Node(replica(B))
    node.put(failed(A), replica(B))
    assert node.restarts == 0


def test_of_pods_made_within_one_second_the_one_seen_later_is_newer():
    same = {"creationTimestamp": "2026-11-20T10:00:01Z"}
    node = Node(replica(A, **same))
    node.put(replica(B, **same), replica(A, "Failed", **same), replica(B, **same))
    node.listed(replica(A, "Failed", **same), replica(B, **same))
    assert node.restarts == 1


def test_an_old_pod_of_a_job_made_anew_does_not_hide_a_restart_of_the_new_one():
    old = replica(A)
    old["metadata"]["ownerReferences"][0]["uid"] = "the job before"
    node = Node(old)
    node.put(replica(B), deleted(old, 30), replica(C), deleted(old, 30))
    assert node.restarts == 1
