"""Applied again, everything is unchanged: by the real kubectl, on what an API server has stored."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from typing import Any

import pytest

import kubeconfigs
from fake_objects import FakeObjects, key
from rendered_manifests import PATIENCE_SECONDS, combined, parsed
from servers import require_tool

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
COMPONENTS = ("tier-3", "host-network", "nvml", "journal", "selinux", "probe", "watch", "gpu-nodes")
COMPONENTS += ("network-policy", "admission-policy", "pod-monitor", "service-monitor")
COMPONENTS += ("probe-injection", "tls", "namespace", "prometheus-rules")
DEFAULTS = (
    (r"\.resourceRules\.\d+$", "scope", "*"),
    (r"\.ingress\.\d+\.ports\.\d+$", "protocol", "TCP"),
    (r"\.serviceAccountToken$", "expirationSeconds", 3600),
    (r"\.fieldRef$", "apiVersion", "v1"),
    (r"elabelings\.\d+$", "action", "replace"),
    (r"^\.spec\.matchConstraints$", "matchPolicy", "Equivalent"),
    (r"\.containers\.\d+$", "terminationMessagePolicy", "File"),
    (r"^\.spec$", "revisionHistoryLimit", 10),
)
"""What an API server fills in where it is not given: pkg/apis/*/v1/defaults.go of Kubernetes, and
the Prometheus operator's definitions; the last three are in no list, and change nothing."""
SPELLINGS = {"0.05": "50m", "1000m": "1", "1024Mi": "1Gi", "100000": "100k"}


def stored(value: Any, path: str = "") -> Any:
    """Return a part of an object as it is stored: filled in, spelt anew, without what is empty."""
    if isinstance(value, dict):
        made = {k: stored(v, f"{path}.{k}") for k, v in value.items() if v not in ([], {})}
        for pattern, name, default in DEFAULTS:
            if re.search(pattern, path):
                made.setdefault(name, default)
        return made
    if isinstance(value, list):
        return [stored(part, f"{path}.{number}") for number, part in enumerate(value)]
    return SPELLINGS.get(value, value) if isinstance(value, str) else value


def after_an_apply(found: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(stored(found))
    made["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    applied = copy.deepcopy(found)
    applied["metadata"].setdefault("annotations", {})
    annotations = made["metadata"].setdefault("annotations", {})
    text = json.dumps(applied, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    for character in "<>&":  # as Go writes them
        text = text.replace(character, f"\\u{ord(character):04x}")
    annotations[LAST_APPLIED] = text + "\n"
    return made


def applied_again(objects, folder, monkeypatch, patches=None) -> dict[str, str]:
    """Apply objects where they have been applied already; return what kubectl says of each.

    Args:
        objects: to apply.
        folder: for files.
        monkeypatch: points kubectl at the server.
        patches: takes what kubectl sends of each, by kind, namespace and name.
    """
    server = FakeObjects([after_an_apply(one) for one in objects])
    kubeconfigs.point_at(server.url, folder, monkeypatch)
    written = folder / "objects.json"
    written.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    command = [require_tool("kubectl"), f"--cache-dir={folder}", "apply", "--validate=false"]
    try:
        done = subprocess.run(
            [*command, "-f", str(written)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
    finally:
        server.close()
    if patches is not None:
        patches.update(server.patches)
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return combined(tmp_path_factory.mktemp("everything"), COMPONENTS)


SENT_AGAIN = {"poddisruptionbudget.policy/rankscope-watch"}
"""Its selector is replaced as a whole (patchStrategy of policy/v1), and kubectl sends what is to be
replaced whether or not it differs; the server finds nothing to change."""


def test_the_second_apply_changes_nothing(everything, tmp_path, monkeypatch):
    said = applied_again(everything, tmp_path, monkeypatch)
    assert len(said) == len({key(one) for one in everything}) == len(everything)
    assert {name for name, word in said.items() if word != "unchanged"} == SENT_AGAIN


def test_what_is_sent_again_is_what_is_stored(everything, tmp_path, monkeypatch):
    """So that no other manager's fields differ, either: only those that do are conflicts."""
    (budget,) = [one for one in everything if one["kind"] == "PodDisruptionBudget"]
    patches = {}
    said = applied_again([budget], tmp_path, monkeypatch, patches)
    assert said.keys() == SENT_AGAIN
    assert patches == {key(budget): {"spec": {"selector": budget["spec"]["selector"]}}}


QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: a, namespace: b}
spec: {hard: {pods: "100000"}}
"""
POLICY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: b}
spec: {podSelector: {matchLabels: {a: b}}, ingress: [{ports: [{port: web}]}]}
"""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (QUOTA, "configured"),
        (QUOTA.replace("100000", "100k"), "unchanged"),
        (POLICY, "configured"),
        (POLICY.replace("port: web", "port: web, protocol: TCP"), "unchanged"),
    ],
)
def test_another_spelling_would_be_seen(text, word, tmp_path, monkeypatch):
    assert set(applied_again(parsed(text), tmp_path, monkeypatch).values()) == {word}
