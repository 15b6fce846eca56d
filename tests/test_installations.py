"""Installations beside others: in a namespace that is there, twice in a cluster, removed again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kubeconfigs
from fake_objects import FakeObjects, key
from manifest_parts import containers
from manifest_rules import complaints
from rankscope_analyzers.configuration.example import EXAMPLE
from rendered_manifests import PATIENCE_SECONDS, ROOT, kustomize, parsed
from servers import require_tool

PAGE = (ROOT.parent / "docs" / "daemonset.md").read_text()
OVERLAYS = sorted(path.name for path in (ROOT / "overlays").iterdir())


def shown_in_documentation(folder: Path, namespace: str = "observability") -> str:
    """Render the overlay of one's own that the documentation shows."""
    (shown,) = re.findall(r"```yaml\n(# kustomization\.yaml.*?)```", PAGE, re.DOTALL)
    folder.mkdir(exist_ok=True)
    shown = shown.replace("rankscope/daemonset", os.path.relpath(ROOT, folder))
    (folder / "kustomization.yaml").write_text(
        shown.replace("namespace: observability", f"namespace: {namespace}")
    )
    return kustomize(folder)


def test_the_overlay_that_the_documentation_shows_names_images_and_namespace_everywhere(tmp_path):
    text = shown_in_documentation(tmp_path)
    objects = parsed(text)
    assert complaints(objects) == []
    assert "ghcr.io" not in text
    images = [container["image"] for _, _, container in containers(objects)]
    assert images == ["registry.example/rankscope:1", "registry.example/rankscope-agent:1"]
    assert {one["metadata"].get("namespace") for one in objects} - {None} == {"observability"}


def test_the_label_that_the_documentation_gives_prometheus_objects_reaches_them(tmp_path):
    """An operator that selects by it takes neither rules nor monitors without."""
    (shown,) = re.findall(r"```yaml\n(labels:\n.*?)```", PAGE, re.DOTALL)
    here = os.path.relpath(ROOT, tmp_path)
    parts = ("pod-monitor", "service-monitor", "prometheus-rules")
    listed = "".join(f"  - {here}/components/{name}\n" for name in parts)
    objects = with_plain_overlay(tmp_path, f"components:\n{listed}{shown}")
    kinds = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    found = {
        (one["kind"], one["metadata"]["labels"].get("release"))
        for one in objects
        if one["kind"] in kinds
    }
    assert found == {(kind, "kube-prometheus-stack") for kind in kinds}
    assert complaints(objects) == []


def with_plain_overlay(folder: Path, rest: str) -> list[dict[str, Any]]:
    (folder / "kustomization.yaml").write_text(
        f"resources: [{os.path.relpath(ROOT, folder)}/overlays/plain]\n{rest}"
    )
    return parsed(kustomize(folder))


def test_the_requests_that_the_documentation_gives_a_large_cluster_reach_the_watch(tmp_path):
    (shown,) = re.findall(r"```yaml\n(patches:\n.*?)```", PAGE, re.DOTALL)
    objects = with_plain_overlay(tmp_path, shown)
    (watch,) = [box for name, _, box in containers(objects) if name.startswith("Deployment")]
    assert watch["resources"]["requests"] == {"cpu": "500m", "memory": "4Gi"}
    assert complaints(objects) == []


def test_the_watch_is_given_the_file_that_the_documentation_makes_a_map_of(tmp_path):
    """Its name changes with the file, so that pods of a watch that reads it once are replaced."""
    page = (ROOT.parent / "docs" / "configuration.md").read_text()
    (shown,) = re.findall(r"```yaml\n(components:.*?)```", page, re.DOTALL)
    (tmp_path / "rankscope.yaml").write_text(EXAMPLE)
    here = os.path.relpath(ROOT, tmp_path)
    objects = with_plain_overlay(tmp_path, shown.replace("rankscope/daemonset", here))
    (made,) = [one for one in objects if one["kind"] == "ConfigMap"]
    assert made["data"] == {"rankscope.yaml": EXAMPLE}
    (watch,) = [one for one in objects if one["kind"] == "Deployment"]
    volumes = {one["name"]: one for one in watch["spec"]["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == made["metadata"]["name"]
    assert made["metadata"]["name"] != "rankscope-config"


def test_what_several_watches_replace_is_removed_as_the_documentation_says(tmp_path):
    """`kubectl apply` leaves the Deployment of before, and two kinds of watches count twice."""
    place = os.path.relpath(ROOT / "components/watch-shards", tmp_path)
    objects = with_plain_overlay(tmp_path, f"components: [{place}]\n")
    kinds = {one["kind"] for one in objects if one["metadata"]["name"] == "rankscope-watch"}
    assert ("StatefulSet" in kinds, "Deployment" in kinds) == (True, False)
    page = (ROOT.parent / "docs" / "scaling.md").read_text()
    assert "kubectl -n rankscope delete deployment/rankscope-watch" in page


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_leaves_namespaces_alone(name, tmp_path):
    """Applied in one that others use, it would change their labels, and its removal end them."""
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: team\nresources: [{os.path.relpath(ROOT / 'overlays' / name, tmp_path)}]\n"
        f"transformers: [{os.path.relpath(ROOT / 'installation', tmp_path)}]\n"
    )
    for objects in (parsed(kustomize(ROOT / "overlays" / name)), parsed(kustomize(tmp_path))):
        assert "Namespace" not in {one["kind"] for one in objects}
        assert complaints(objects) == []


def test_two_installations_have_no_object_in_common(tmp_path):
    one = {key(found) for found in parsed(shown_in_documentation(tmp_path / "a", "team-a"))}
    other = {key(found) for found in parsed(shown_in_documentation(tmp_path / "b", "team-b"))}
    plain = {key(found) for found in parsed(kustomize(ROOT / "install"))}
    of_cluster = {kind for kind, namespace, _ in one if namespace is None}
    assert of_cluster == {
        *("ClusterRole", "ClusterRoleBinding", "PriorityClass"),
        *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    }
    assert (one & other, one & plain) == (set(), set())


def others() -> list[dict[str, Any]]:
    """Return what somebody else has in the same namespace and in the cluster."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "db", "namespace": "rankscope"},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "rankscope"},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "rankscope-agent.team"},
        },
    ]


def created_beside() -> list[dict[str, Any]]:
    """Return what the documentation and the watch itself add to what was applied."""
    home = {"namespace": "rankscope"}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rankscope-api-token"} | home},
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "rankscope-watch"} | home,
        },
    ]


def test_what_the_documentation_removes_is_the_installation_and_nothing_else(tmp_path, monkeypatch):
    (shown,) = re.findall(r"### Removal\n\n```\n(.*?)```", PAGE, re.DOTALL)
    installed = parsed((ROOT / "install.yaml").read_text())
    server = FakeObjects([*installed, *created_beside(), *others()])
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    try:
        for line in shown.splitlines():
            _, *words = shlex.split(line)
            subprocess.run(
                [require_tool("kubectl"), f"--cache-dir={tmp_path}", *words],
                cwd=ROOT.parent,
                check=True,
                timeout=PATIENCE_SECONDS,
            )
    finally:
        server.close()
    left = {key(one) for one in others()} | {("Namespace", None, "rankscope")}
    assert set(server.stored) == left
