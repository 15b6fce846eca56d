"""The URL of the API server that the node's pods are read from."""

from __future__ import annotations

from collections.abc import Mapping


def server_url(stated: str, environ: Mapping[str, str]) -> str:
    """Return the URL that the settings state, else that of the cluster; empty if there is none."""
    return stated or in_cluster_url(environ)


def in_cluster_url(environ: Mapping[str, str]) -> str:
    """Return the API server's URL from the environment of every pod; empty outside of pods."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
