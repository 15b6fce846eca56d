"""How many objects of a job are read for a capture, and how many pages of objects for notices."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_analyzers.intake import job_objects, kubernetes_api, node_notices
from rankscope_analyzers.intake.cluster import ClusterError


def owned(name, owner):
    references = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner}]
    return {"metadata": {"name": name, "ownerReferences": references}}


class Kubernetes:
    """The API server of a cluster in which each pod has an owner of its own.

    Args:
        pods: how many the job has.
        chain: each owner has one itself.
    """

    def __init__(self, pods, *, chain):
        self.chain = chain
        self.seconds = set()
        self.pods = [owned(f"pod-{number}", f"job-{number}") for number in range(pods)]

    def get_namespaced_custom_object(self, *names, _request_timeout):
        self.seconds.add(_request_timeout)
        name = names[-1]
        return owned(name, f"{name}-owner") if self.chain else {"metadata": {"name": name}}


@pytest.fixture
def read(monkeypatch):
    """Return what is read of a job of so many pods."""

    def of_job(pods, *, chain=False):
        server = Kubernetes(pods, chain=chain)
        monkeypatch.setattr(job_objects, "pods_of_job", lambda job_id, access: server.pods)
        monkeypatch.setattr(
            job_objects, "core_api", lambda access: SimpleNamespace(api_client=None)
        )
        monkeypatch.setattr("kubernetes.client.CustomObjectsApi", lambda api_client: server)
        found = job_objects.read("team/llm", None)
        assert server.seconds == {20.0}
        return found

    return of_job


@pytest.mark.parametrize(("pods", "kept"), [(4096, 4096), (4097, 4096)])
def test_4096_pods_of_a_job_are_read(read, pods, kept):
    assert len(read(pods).pods) == kept


@pytest.mark.parametrize(("owners", "found"), [(16, 16), (17, 16)])
def test_16_owners_of_a_jobs_pods_are_read(read, owners, found):
    assert len(read(owners).owners) == found


def test_three_levels_of_owners_are_read(read):
    names = [one["metadata"]["name"] for one in read(1, chain=True).owners]
    assert names == ["job-0", "job-0-owner", "job-0-owner-owner"]


class Pages:
    """An API server whose list of nodes goes on for so many pages."""

    def __init__(self, pages):
        self.left, self.seconds = pages, set()

    def get(self, path, query, seconds):
        self.left -= 1
        self.seconds.add(seconds)
        more = {"continue": "x"} if self.left else {}
        return SimpleNamespace(status=200, body={"items": [], "metadata": more})


@pytest.mark.parametrize(("pages", "refused"), [(40, False), (41, True)])
def test_40_pages_of_nodes_are_read_for_their_notices(pages, refused):
    server = Pages(pages)
    listed = node_notices._listed(server, "nodes", {}, lambda item: None)
    if refused:
        with pytest.raises(ClusterError, match="more than 20,000 nodes"):
            list(listed)
    else:
        assert list(listed) == []
    assert server.seconds == {20.0}


def test_32_connections_to_an_api_server_are_kept_open(monkeypatch):
    pools = SimpleNamespace(connection_pool_kw={})
    client = SimpleNamespace(rest_client=SimpleNamespace(pool_manager=pools))
    monkeypatch.setattr(kubernetes_api, "configured_client", lambda *_: client)
    monkeypatch.setattr(kubernetes_api, "impatient", lambda made: made)
    kubernetes_api.KubernetesApi()
    assert pools.connection_pool_kw == {"maxsize": 32}
