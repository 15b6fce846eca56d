"""A pod that cannot be read costs no other pod its job, and the collector says that it is there."""

from __future__ import annotations

import threading

import pytest

from collected_pods import Kubelet, Node
from fake_api_server import FakeApiServer
from pod_json import pod, uid
from pod_templates import kubeflow
from rankscope_agent.contract.metrics import pods as metrics
from rankscope_agent.sources.pods import memberships, records
from rankscope_agent.sources.pods.api_client import ApiServer
from rankscope_agent.sources.pods.launchers import membership
from rankscope_agent.sources.pods.reflector import Reflector

GOOD = pod("llm-0", number=1, owner=("batch/v1", "Job", "llm"))
ODD = pod("odd-0", number=2, owner=("batch/v1", "Job", "odd"))
TYPE_IS_A_LIST = '{"cluster": {"worker": ["a"]}, "task": {"type": [], "index": 0}}'


@pytest.fixture
def api():
    made = FakeApiServer()
    yield made
    made.close()


@pytest.fixture
def node(tmp_path, api):
    """A node whose reflector asks a server, without a pause between two requests."""
    made = Node(tmp_path, Kubelet())
    made.reflector = Reflector(
        ApiServer(api.url, tmp_path), made.directory, "n1", pause=lambda _: False
    )
    made.collector._reflector = made.reflector
    return made


@pytest.fixture
def unreadable(monkeypatch):
    """Of one pod reading the membership raises, as a fault in the reading of a launcher would."""

    def read(one):
        if one.name == "odd-0":
            raise TypeError(f"unhashable\x1b: {'x' * 4096}")
        return membership(one)

    monkeypatch.setattr(memberships, "membership", read)


def test_a_tf_config_of_another_form_costs_no_pod_its_name(node, api):
    odd = kubeflow("TFJob", "worker", 0, {"TF_CONFIG": TYPE_IS_A_LIST})
    odd["metadata"]["uid"] = uid(2)
    api.put(odd)
    api.put(GOOD)
    node.reflector._attempt()
    assert node.reflector.failure == ""
    assert node.directory.job_of(uid(1)) == "ml/llm"
    assert node.directory.job_of(uid(2)) == "ml/train"


@pytest.mark.usefixtures("unreadable")
def test_a_pod_whose_job_cannot_be_read_has_none_and_all_others_have_theirs(node, api, caplog):
    api.put(ODD)
    api.put(GOOD)
    node.reflector._attempt()
    assert (node.reflector.failure, node.reflector.errors) == ("", 0)
    assert node.directory.job_of(uid(1)) == "ml/llm"
    assert node.directory.job_of(uid(2)) is None
    assert node.directory.member(node.directory.find(uid(2))) is None
    assert node.directory.of_pod(uid(2), "mine").job_id == "ml/mine"
    assert node.values(metrics.JOB_NAMES_REJECTED) == {("unreadable",): 1}
    assert node.values(metrics.POD_SOURCE_UP)["api",] == 1
    (said,) = [line for line in caplog.messages if line.startswith("pod ml/odd-0: ")]
    assert "its job cannot be read: TypeError('unhashable\\x1b: xxx" in said
    assert len(said) < 400


@pytest.mark.usefixtures("unreadable")
def test_a_pod_that_can_be_read_again_has_its_job_again(node, api, monkeypatch):
    api.put(ODD)
    node.reflector._attempt()
    monkeypatch.setattr(memberships, "membership", membership)
    node.reflector._version = None
    node.reflector._attempt()
    assert node.directory.job_of(uid(2)) == "ml/odd"
    assert node.values(metrics.JOB_NAMES_REJECTED) == {}


def test_numbers_of_thousands_of_digits_cost_no_pod_anything(node, api):
    odd = pod("odd-0", number=2, owner=("batch/v1", "Job", "odd"), limits={"x.org/y": "9" * 5000})
    odd["status"]["containerStatuses"][0]["restartCount"] = "9" * 20
    api.put(odd)
    api.put(GOOD)
    node.reflector._attempt()
    assert (node.reflector.failure, node.reflector.errors) == ("", 0)
    assert (node.directory.job_of(uid(1)), node.directory.job_of(uid(2))) == ("ml/llm", "ml/odd")
    (container,) = node.directory.find(uid(2)).containers
    assert (container.limits, container.restarts) == ({}, 0)
    assert node.values(metrics.JOB_NAMES_REJECTED) == {}


def test_a_pod_of_which_only_the_name_can_be_read_costs_no_other_its_job(
    node, api, monkeypatch, caplog
):
    """A fault of ours in the reading of a status, at each list."""

    def odd(status):
        if status["phase"] == "Odd":
            raise TypeError(f"unhashable: {'x' * 4096}")

    monkeypatch.setattr(records, "pod_failure", odd)
    api.put({**ODD, "status": {"phase": "Odd"}})
    api.put(GOOD)
    for _ in range(2):
        node.reflector._attempt()
        assert (node.reflector.failure, node.directory.dropped) == ("", 0)
        assert node.directory.job_of(uid(1)) == "ml/llm"
        assert node.directory.job_of(uid(2)) is None
        assert node.values(metrics.JOB_NAMES_REJECTED) == {("unreadable",): 1}
        node.reflector._version = None
    (said,) = [line for line in caplog.messages if line.startswith("pod ml/odd-0: ")]
    assert "its job cannot be read: TypeError('unhashable: xxx" in said
    assert len(said) < 400
    api.put(ODD)
    node.reflector._attempt()
    assert node.directory.job_of(uid(2)) == "ml/odd"
    assert node.values(metrics.JOB_NAMES_REJECTED) == {}


def test_whatever_an_answer_raises_is_a_failure_and_the_pods_are_listed_again(
    node, api, monkeypatch
):
    """A fault of ours in what is stored: the thread goes on, and the source counts as failed."""
    put, raising = node.directory.put, threading.Event()

    def odd(one, now):
        if raising.is_set():
            raise KeyError(one.name)
        put(one, now)

    monkeypatch.setattr(node.directory, "put", odd)
    api.put(GOOD)
    raising.set()
    assert node.reflector._attempt() == 0.0
    api.put(pod("late-0", number=3, owner=("batch/v1", "Job", "late")))
    assert node.reflector._attempt() > 0.0
    assert node.reflector.failure == "KeyError('late-0')"
    assert node.values(metrics.POD_SOURCE_UP)["api",] == 0
    assert node.values(metrics.POD_SOURCE_ERRORS)["api",] == 1
    assert node.directory.job_of(uid(1)) == "ml/llm", "what was known is kept"
    node.reflector._attempt()
    assert node.reflector.failure == ""
    assert node.directory.job_of(uid(3)) == "ml/late"
    assert node.reflector.requests == {"list": 2, "watch": 1}


def test_the_thread_outlives_what_it_cannot_process(node, api, monkeypatch):
    kept, begun = node.directory.replace, []

    def odd(*of_list):
        if begun.append(of_list) or len(begun) < 3:
            raise RuntimeError("odd")
        kept(*of_list)

    monkeypatch.setattr(node.directory, "replace", odd)
    monkeypatch.setattr(node.reflector, "_pause", lambda _: len(begun) == 3)
    api.put(GOOD)
    node.reflector.run()
    assert node.directory.job_of(uid(1)) == "ml/llm"
    assert (node.reflector.errors, node.reflector.failure) == (2, "")
