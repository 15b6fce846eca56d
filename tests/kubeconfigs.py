"""Says where a fake API server is, as users' files do."""

import json
from pathlib import Path

import pytest


def written(url: str, folder: Path, authority: Path | None = None) -> Path:
    """Write a file by which the server at `url` is found, whose certificate `authority` signs."""
    path = folder / "kubeconfig"
    named = {"name": "x"}
    trusted = {} if authority is None else {"certificate-authority": str(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{**named, "cluster": {"server": url, **trusted}}],
        "users": [{**named, "user": {}}],
        "contexts": [{**named, "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return path


def point_at(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, authority: Path | None = None
) -> None:
    """Have Kubernetes' client ask the server at `url`."""
    path = written(url, folder, authority)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
