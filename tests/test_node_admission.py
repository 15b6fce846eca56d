"""Which conditions of which nodes an agent may write."""

from __future__ import annotations

import copy

import pytest
import yaml

from admission import denials
from policies import ROOT, first

OWN_NODE = first("components", "admission-policy", "policy.yaml")["spec"]

NO_NODES = list(
    yaml.safe_load_all((ROOT / "components" / "admission-policy" / "policy.yaml").read_text())
)[2]["spec"]

AGENT = {
    "username": "system:serviceaccount:rankscope:rankscope-agent",
    "extra": {"authentication.kubernetes.io/node-name": ["gpu-07"]},
}


def node(name="gpu-07", **changes) -> dict:
    found = {
        "metadata": {"name": name, "labels": {"zone": "a"}, "annotations": {"owner": "b"}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"kubeletVersion": "v1.36.2"},
            "images": [{"names": ["registry.example/a:1"], "sizeBytes": 7}],
        },
    }
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [{"time": "t"}]}
    for path, value in changes.items():
        part = found
        *parents, last = path.split("__")
        for key in parents:
            part = part[key]
        part[last] = value
    return found


def without(part: str, key: str) -> dict:
    found = node()
    del found[part][key]
    return found


READY = {"type": "Ready", "status": "True"}
OURS = {"type": "RankscopeGpuHealthy", "status": "False"}

ATTACKS = {
    "its own node": (node("gpu-08"), node("gpu-08", status__conditions=[READY, OURS])),
    "conditions only": (node(), node(status__conditions=[READY | {"status": "False"}])),
    "node's spec": (node(), node(spec__unschedulable=True)),
    "node's labels": (node(), node(metadata__labels={"zone": "a", "evil": "1"})),
    "node's annotations": (node(), node(metadata__annotations={})),
    "node's capacity": (node(), node(status__capacity={"nvidia.com/gpu": "0"})),
    "capacity": (node(), node(status__allocatable={})),
    "node's addresses": (
        node(),
        node(status__addresses=[{"type": "InternalIP", "address": "6.6"}]),
    ),
    "addresses or other": (
        node(),
        node(status__daemonEndpoints={"kubeletEndpoint": {"Port": 6}}),
    ),
    "other status": (node(), without("status", "images")),
    "or other status": (node(), node(status__nodeInfo={})),
    "addresses or": (node(), node(status__fieldOfLaterVersions=[{"a": 1}])),
    "node's owners": (node(), node(metadata__ownerReferences=[{"uid": "nobody"}])),
    "finalizers": (node(), node(metadata__finalizers=["rankscope.dev/never"])),
    "other metadata": (node(metadata__finalizers=["a/b"]), node()),
}


def test_the_agent_may_write_conditions_of_its_own_node():
    assert list(denials(OWN_NODE, node(), node(status__conditions=[READY, OURS]), AGENT)) == []
    before = node(status__conditions=[OURS, READY])
    after = node(status__conditions=[OURS | {"status": "True"}, READY])
    after["metadata"] |= {"resourceVersion": "8", "managedFields": [], "generation": 2}
    assert list(denials(OWN_NODE, before, after, AGENT)) == []


@pytest.mark.parametrize("resource", ["nodes", "nodes/status"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_agent_may_write_nothing_else_of_any_node(attack, resource):
    (message,) = denials(OWN_NODE, *ATTACKS[attack], AGENT, resource)
    assert attack in message


SWOLLEN = {
    "nine conditions": [{"type": f"Rankscope{n}", "status": "True"} for n in range(9)],
    "a message": [OURS | {"message": "x" * 1025}],
    "a reason": [OURS | {"reason": "x" * 129}],
    "a type": [{"type": "Rankscope" + "x" * 64, "status": "True"}],
}


@pytest.mark.parametrize("name", SWOLLEN)
def test_the_agent_cannot_swell_its_node(name):
    (message,) = denials(OWN_NODE, node(), node(status__conditions=[READY, *SWOLLEN[name]]), AGENT)
    assert "eight conditions" in message
    most = [OURS | {"type": f"Rankscope{n}", "message": "x" * 1024} for n in range(8)]
    assert list(denials(OWN_NODE, node(), node(status__conditions=[READY, *most]), AGENT)) == []


def test_the_agent_may_create_and_delete_no_node():
    for old, new in ((None, node()), (node(), None)):
        (message,) = denials(NO_NODES, old, new, AGENT, "nodes")
        assert "create or delete" in message
        others = {"username": "system:node:gpu-07", "extra": {}}
        assert list(denials(NO_NODES, old, new, others, "nodes")) == []
    assert list(denials(NO_NODES, node(), node(), AGENT, "nodes")) == []


def test_a_token_that_names_no_node_may_write_none():
    """Those of Kubernetes before 1.30, and those that are bound to nothing, carry no node."""
    fresh = node(status__conditions=[READY, OURS])
    for extra in ({}, {"authentication.kubernetes.io/node-name": []}):
        (message,) = denials(OWN_NODE, node(), fresh, AGENT | {"extra": extra})
        assert "its own node" in message


def test_nodes_without_labels_or_conditions_are_no_error():
    bare = copy.deepcopy(node())
    for key in ("labels", "annotations"):
        del bare["metadata"][key]
    bare["status"] = {}
    assert list(denials(OWN_NODE, bare, bare, AGENT)) == []


@pytest.mark.parametrize(
    "name",
    [
        "system:node:gpu-07",
        "system:serviceaccount:rankscope:rankscope-agent-2",
        "system:serviceaccount:rankscope:a:rankscope-agent",
        "x:system:serviceaccount:rankscope:rankscope-agent",
    ],
)
def test_others_are_not_held_back(name):
    others = {"username": name, "extra": {}}
    assert list(denials(OWN_NODE, *ATTACKS["node's labels"], others)) == []


def test_an_agent_is_held_back_in_every_namespace():
    elsewhere = AGENT | {"username": "system:serviceaccount:observability:rankscope-agent"}
    (message,) = denials(OWN_NODE, *ATTACKS["node's labels"], elsewhere)
    assert "labels" in message
