"""Lists the generated objects for kustomize, so that components of daemonset/ can include them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope_dashboards.rules.rule_files import HEADER
from rankscope_dashboards.yaml_text import Value, dump

FOLDERS = ("prometheusrules", "configmaps")
"""Directories of Kubernetes objects below the output."""


def files(made: Sequence[str]) -> Mapping[str, str]:
    """Return a kustomization for each directory of objects.

    Args:
        made: names of generated files, objects among them.
    """
    return {f"{folder}/kustomization.yaml": _component(folder, made) for folder in FOLDERS}


def _component(folder: str, made: Sequence[str]) -> str:
    names = sorted(name.partition("/")[2] for name in made if name.startswith(f"{folder}/"))
    component: Value = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": list(names),
    }
    return HEADER + dump(component)
