"""What of nodes the watch may write, where it publishes conditions."""

from __future__ import annotations

import copy
import os

import pytest
import yaml

from admission import denials
from manifest_rules import complaints
from policies import ROOT, first
from rendered_manifests import kustomize, parsed

CONDITIONS = first("components", "admission-policy", "policy.yaml")["spec"]

NO_NODES = list(
    yaml.safe_load_all((ROOT / "components" / "admission-policy" / "policy.yaml").read_text())
)[2]["spec"]

WATCH = {"username": "system:serviceaccount:rankscope:rankscope-watch", "extra": {}}


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
    "conditions only": (node(), node(status__conditions=[READY | {"status": "False"}])),
    "node's spec": (node(), node(spec__unschedulable=True)),
    "a node's spec": (node(), node(spec__taints=[{"key": "a", "effect": "NoExecute"}])),
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


def test_the_watch_may_write_conditions_of_any_node():
    assert list(denials(CONDITIONS, node(), node(status__conditions=[READY, OURS]), WATCH)) == []
    before = node(status__conditions=[OURS, READY])
    after = node(status__conditions=[OURS | {"status": "True"}, READY])
    after["metadata"] |= {"resourceVersion": "8", "managedFields": [], "generation": 2}
    assert list(denials(CONDITIONS, before, after, WATCH)) == []


@pytest.mark.parametrize("resource", ["nodes", "nodes/status"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_watch_may_write_nothing_else_of_any_node(attack, resource):
    (message,) = denials(CONDITIONS, *ATTACKS[attack], WATCH, resource)
    assert attack in message


SWOLLEN = {
    "nine conditions": [{"type": f"Rankscope{n}", "status": "True"} for n in range(9)],
    "a message": [OURS | {"message": "x" * 1025}],
    "a reason": [OURS | {"reason": "x" * 129}],
    "a type": [{"type": "Rankscope" + "x" * 64, "status": "True"}],
}


@pytest.mark.parametrize("name", SWOLLEN)
def test_the_watch_cannot_swell_a_node(name):
    (message,) = denials(
        CONDITIONS, node(), node(status__conditions=[READY, *SWOLLEN[name]]), WATCH
    )
    assert "eight conditions" in message
    most = [OURS | {"type": f"Rankscope{n}", "message": "x" * 1024} for n in range(8)]
    assert list(denials(CONDITIONS, node(), node(status__conditions=[READY, *most]), WATCH)) == []


def test_the_watch_may_create_and_delete_no_node():
    for old, new in ((None, node()), (node(), None)):
        (message,) = denials(NO_NODES, old, new, WATCH, "nodes")
        assert "create or delete" in message
        others = {"username": "system:node:gpu-07", "extra": {}}
        assert list(denials(NO_NODES, old, new, others, "nodes")) == []
    assert list(denials(NO_NODES, node(), node(), WATCH, "nodes")) == []


def test_nodes_without_labels_or_conditions_are_no_error():
    bare = copy.deepcopy(node())
    for key in ("labels", "annotations"):
        del bare["metadata"][key]
    bare["status"] = {}
    assert list(denials(CONDITIONS, bare, bare, WATCH)) == []


@pytest.mark.parametrize(
    "name",
    [
        "system:node:gpu-07",
        "system:serviceaccount:rankscope:rankscope-watch-2",
        "system:serviceaccount:team:rankscope-watch",
        "system:serviceaccount:rankscope:a:rankscope-watch",
        "x:system:serviceaccount:rankscope:rankscope-watch",
    ],
)
def test_others_are_not_held_back(name):
    others = {"username": name, "extra": {}}
    assert list(denials(CONDITIONS, *ATTACKS["node's labels"], others)) == []


def test_a_watch_is_held_back_in_the_namespace_that_it_is_installed_in(tmp_path):
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: observability\nresources: [{os.path.relpath(ROOT, tmp_path)}/overlays/plain]\n"
        f"components: [{os.path.relpath(ROOT, tmp_path)}/components/publish-nodes]\n"
        f"transformers: [{os.path.relpath(ROOT, tmp_path)}/installation]\n"
    )
    objects = parsed(kustomize(tmp_path))
    assert complaints(objects) == []
    specs = [one["spec"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    elsewhere = {"username": "system:serviceaccount:observability:rankscope-watch", "extra": {}}
    attack = ATTACKS["node's labels"]
    assert [m for spec in specs for m in denials(spec, *attack, elsewhere)] == [
        "the watch may not change a node's labels"
    ]
    assert [m for spec in specs for m in denials(spec, *attack, WATCH)] == []
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--publish-nodes" in container["args"]
