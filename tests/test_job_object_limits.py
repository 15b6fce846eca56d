"""How many objects of a job are read for a capture, and how many pages of objects for notices."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_analyzers.intake import job_objects, node_notices
from rankscope_analyzers.intake.cluster import ClusterError


class Kubernetes:
    """The API server of a cluster in which each pod is owned by a Job of its own, and that by none.

    Args:
        pods: how many the job has.
    """

    def __init__(self, pods):
        self.asked = []
        self.pods = [
            {
                "metadata": {
                    "name": f"pod-{number}",
                    "ownerReferences": [
                        {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number}"}
                    ],
                }
            }
            for number in range(pods)
        ]

    def get_namespaced_custom_object(self, *names, **_):
        self.asked.append(names)
        return {"metadata": {"name": names[-1]}}


@pytest.fixture
def read(monkeypatch):
    """Return what is read of a job of so many pods."""

    def of_job(pods):
        server = Kubernetes(pods)
        monkeypatch.setattr(job_objects, "pods_of_job", lambda job_id, access: server.pods)
        monkeypatch.setattr(
            job_objects, "core_api", lambda access: SimpleNamespace(api_client=None)
        )
        monkeypatch.setattr("kubernetes.client.CustomObjectsApi", lambda api_client: server)
        return job_objects.read("team/llm", None)

    return of_job


@pytest.mark.parametrize(("pods", "kept"), [(4096, 4096), (4097, 4096)])
def test_4096_pods_of_a_job_are_read(read, pods, kept):
    assert len(read(pods).pods) == kept


@pytest.mark.parametrize(("owners", "found"), [(16, 16), (17, 16)])
def test_16_owners_of_a_jobs_pods_are_read(read, owners, found):
    assert len(read(owners).owners) == found


class Pages:
    """An API server whose list of nodes goes on for so many pages."""

    def __init__(self, pages):
        self.left = pages

    def get(self, path, query, seconds):
        self.left -= 1
        more = {"continue": "x"} if self.left else {}
        return SimpleNamespace(status=200, body={"items": [], "metadata": more})


@pytest.mark.parametrize(("pages", "refused"), [(40, False), (41, True)])
def test_40_pages_of_nodes_are_read_for_their_notices(pages, refused):
    listed = node_notices._listed(Pages(pages), "nodes", {}, lambda item: None)
    if refused:
        with pytest.raises(ClusterError, match="more than 20,000 nodes"):
            list(listed)
    else:
        assert list(listed) == []
