"""What doctor says of the PYTHONPATH of pods that the policy has put the probe into."""

from __future__ import annotations

import json

import pytest

import kubeconfigs
from fake_api_server import FakeApiServer
from node_with_agent import LLM, Node, eventually
from pod_json import agents_pod, pod
from rankscope_analyzers import cli
from rankscope_analyzers.doctor.python_paths import python_path_checks

PROBE = "/opt/rankscope/probe"


def said(data: dict) -> list[tuple[str, str]]:
    return [(one.state, one.detail) for one in python_path_checks(data)]


def test_a_path_that_the_image_sets_is_lost_and_one_of_the_pod_is_kept():
    admission = pytest.importorskip("admission")
    trained = pytest.importorskip("test_admission_policies")
    images = trained.trainer("images")
    own = trained.trainer("own", env=[{"name": "PYTHONPATH", "value": "/workspace"}])
    mutated = admission.mutated(
        trained.INJECTION, trained.pod(images, own, {"name": "sidecar"}), trained.LABELLED
    )
    (lost_state, lost), (kept_state, kept) = said(mutated)
    assert (lost_state, kept_state) == ("not seen", "seen")
    assert lost == (
        "the probe's folder is all of it in container images: one that the image sets is lost there"
    )
    assert kept == "container own: folders of its own behind the probe's"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"spec": None},
        {"spec": {"containers": [None, {"name": "a"}, {"name": "b", "env": "PYTHONPATH"}]}},
        pod(env={"PYTHONPATH": "/workspace"}),
        pod(env={"PYTHONPATH": {"configMapKeyRef": {"name": "a", "key": "b"}}}),
    ],
)
def test_pods_without_a_probe_by_injection_say_nothing(data):
    assert said(data) == []


def test_of_a_variable_that_is_given_twice_the_last_one_counts():
    data = pod()
    paths = [PROBE, f"{PROBE}:/workspace"]
    data["spec"]["containers"][0]["env"] = [{"name": "PYTHONPATH", "value": p} for p in paths]
    assert [state for state, _ in said(data)] == ["seen"]


def test_doctor_shows_it_of_a_pod_of_the_cluster(tmp_path, monkeypatch, capsys):
    api = FakeApiServer()
    kubeconfigs.point_at(api.url, tmp_path, monkeypatch)
    api.put(pod("w0", number=3, owner=LLM, env={"PYTHONPATH": PROBE}))
    with Node(tmp_path, api).agent() as agent:
        assert eventually(lambda: "rankscope_job_info{" in agent.get("/metrics"))
        api.put(agents_pod(agent.url, "rankscope"))
        code = cli.main(["doctor", "--cluster", "--json", "ml/w0"])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        shown = json.loads(printed.out)
    api.close()
    (section,) = shown["sections"]
    (check,) = [one for one in section["checks"] if one["source"] == "PYTHONPATH"]
    assert (check["state"], "lost" in check["detail"]) == ("not seen", True)
    assert check["remedy"].startswith("repeat in the pod's env what the image sets")
