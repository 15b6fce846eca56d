import dataclasses
import json

import pytest

from launched_pods import CASES, kubeflow
from pod_json import pod
from rankscope_agent.sources.pods.launchers import membership
from rankscope_agent.sources.pods.membership import Membership
from rankscope_agent.sources.pods.records import parse_pod


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=list(CASES))
def test_a_pod_is_placed_in_its_job(data, expected):
    found = membership(parse_pod(data))
    assert found is not None
    told = dataclasses.asdict(found)
    assert {key: told[key] for key in expected} == expected


@pytest.mark.parametrize(
    "data",
    [
        pod(owner=("apps/v1", "DaemonSet", "agent")),
        pod(owner=("v1", "Node", "n1")),
        pod(
            labels={"nodeset.slinky.slurm.net/pod-index": "1"},
            owner=("slinky.slurm.net/v1beta1", "NodeSet", "gpus"),
        ),
    ],
    ids=["DaemonSet", "static pod", "Slinky node"],
)
def test_pods_of_the_node_are_no_part_of_a_job(data):
    assert membership(parse_pod(data)) is None


def test_labels_that_a_template_lost_are_made_up_for_by_the_owner():
    found = membership(parse_pod(pod(owner=("kubeflow.org/v1", "PyTorchJob", "train"))))
    assert found == Membership("train", "PyTorchJob")


@pytest.mark.parametrize("text", ["-1", "1e3", "٣", "", "99999999", "1.0", "0x1"])
def test_what_is_no_number_gives_no_rank(text):
    found = membership(parse_pod(kubeflow("JAXJob", "worker", 0, {"PROCESS_ID": text})))
    assert found is not None
    assert found.rank is None


def test_containers_that_disagree_about_the_rank_give_none():
    data = kubeflow("JAXJob", "worker", 0, {"PROCESS_ID": "0", "NUM_PROCESSES": "2"})
    second = json.loads(json.dumps(data["spec"]["containers"][0]))
    second["env"][0]["value"] = "1"
    data["spec"]["containers"].append(second)
    found = membership(parse_pod(data))
    assert found is not None
    assert (found.rank, found.world_size) == (None, 2)


@pytest.mark.parametrize(
    "config",
    [
        "[]",
        "{",
        '{"cluster": 3, "task": []}',
        '{"cluster": {"worker": 1}, "task": {}}',
        '{"cluster": {"worker": ["a"]}, "task": {"type": ["worker"], "index": 0}}',
        '{"cluster": {"worker": ["a"]}, "task": {"type": {"worker": 0}, "index": 0}}',
        "[" * 50_000,
    ],
    ids=range(7),
)
def test_a_broken_tf_config_gives_no_rank(config):
    found = membership(parse_pod(kubeflow("TFJob", "worker", 0, {"TF_CONFIG": config})))
    assert found is not None
    assert found.rank is None
