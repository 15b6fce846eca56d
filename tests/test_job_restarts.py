"""What the agent says of preemptions, restarts and attempts of a job."""

import pytest

from job_status_page import JOB, newest, node, of_job_set, put, remove, sums
from pod_json import pod
from pod_states import PYTORCH_JOB, deleted, disrupted, ended, waits, with_state, worker
from rankscope_agent.contract.metrics import job_status as metrics
from rankscope_agent.sources.pods.probed import Probed

__all__ = ["node"]


@pytest.mark.parametrize("who", ["PreemptionByScheduler", "DeletionByTaintManager"])
def test_a_pod_that_is_taken_away_is_preempted_and_has_not_failed(node, who):
    node.pods(worker())
    put(node, disrupted(worker(), who, 100))
    put(node, deleted(disrupted(worker(), who, 100), 100))
    killed = with_state(worker(), ended("Error", 143, 105))
    put(node, deleted(disrupted(killed, who, 100), 100))
    assert newest(node) == {("DisruptionTarget", who): 100.0}
    assert sums(node) == (0, 0, 1)


def test_a_disruption_that_did_not_come_to_pass_is_none(node):
    data = disrupted(worker(), "PreemptionByScheduler", 100)
    data["status"]["conditions"][0]["status"] = "False"
    node.pods(worker(1, number=2))
    put(node, data)
    assert sums(node) == (0, 0, 0)


def test_a_rolling_restart_is_no_failure(node):
    node.pods(worker(number=1))
    put(node, deleted(worker(number=1), 50))
    put(node, deleted(with_state(worker(number=1), ended("Error", 137, 80)), 50))
    remove(node, worker(number=1))
    put(node, with_state(worker(number=2, phase="Pending"), waits("ContainerCreating")))
    put(node, worker(number=2))
    assert sums(node) == (0, 1, 0)
    assert newest(node) == {}


def test_a_job_that_is_made_anew_under_its_name_was_not_restarted(node):
    node.pods(worker(number=1))
    remove(node, worker(number=1))
    again = worker(number=2)
    again["metadata"]["ownerReferences"][0]["uid"] = "another-owner"
    put(node, again)
    assert sums(node) == (0, 0, 0)


def test_pods_of_one_index_in_two_jobs_of_a_set_are_two(node):
    node.pods(of_job_set(0, 0, number=1, suffix="bcdfg"))
    put(node, of_job_set(0, 1, number=2, suffix="hjklm", job_uid="job-2"))
    assert sums(node, "ml/set") == (0, 0, 0)


def test_a_restarted_set_makes_its_pods_anew_and_counts_its_attempt(node):
    old = of_job_set(0, 0, number=1, suffix="bcdfg")
    node.pods(old)
    remove(node, old)
    put(node, of_job_set(0, 0, number=12, suffix="xz245", job_uid="job-9"))
    assert sums(node, "ml/set") == (0, 1, 0)
    assert node.values(metrics.JOB_ATTEMPT) == {("ml/set", "launcher"): 1}


def test_pods_that_are_made_anew_minutes_later_are_restarts_all_the_same(node):
    old = of_job_set(0, 0, number=1, suffix="bcdfg")
    node.pods(old)
    remove(node, old)
    node.now += 60
    node.collect()
    node.now += 60
    put(node, of_job_set(0, 0, number=12, suffix="xz245", job_uid="job-9"))
    assert sums(node, "ml/set") == (0, 1, 0)


def test_restarts_by_torchrun_and_how_many_are_left(node, tmp_path):
    cid = "ab" * 32
    env = {"PET_NNODES": "2:4", "PET_MAX_RESTARTS": "3", "PET_NPROC_PER_NODE": "1"}
    node.pods(pod("w0", number=1, container_id=cid, owner=PYTORCH_JOB, env=env))
    node.process(
        10,
        1,
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="4",
        TORCHELASTIC_RUN_ID="x",
        TORCHELASTIC_RESTART_COUNT="2",
    )
    assert node.values(metrics.JOB_ATTEMPT) == {(JOB, "torchrun"): 2}
    assert node.values(metrics.JOB_RESTARTS_LEFT) == {(JOB,): 1}
    assert node.values(metrics.JOB_ELASTIC_PODS) == {(JOB, "min"): 2, (JOB, "max"): 4}
    node.directory.note_probed(Probed(frozenset({(JOB, 0)}), {JOB: 3}))
    assert node.values(metrics.JOB_ATTEMPT) == {(JOB, "torchrun"): 3}
    assert node.values(metrics.JOB_RESTARTS_LEFT) == {(JOB,): 0}


@pytest.mark.parametrize("nnodes", ["4", "4:2", ":4", "2:", "a:b", ""])
def test_what_is_no_range_of_pods_is_not_told(node, nnodes):
    node.pods(pod("w0", owner=PYTORCH_JOB, env={"PET_NNODES": nnodes}))
    assert node.values(metrics.JOB_ELASTIC_PODS) == {}
