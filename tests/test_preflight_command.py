"""`rankscope preflight`: what it prints, its exit codes, and how it fails."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from preflight_jobs import (
    CLAIM,
    GONE,
    IDS,
    JOB,
    NETWORK,
    POD,
    changed,
    env,
    outcomes,
    read,
)
from rankscope_analyzers import cli
from rankscope_analyzers.preflight.checks import POD_CHECKS, POOL_CHECKS
from rankscope_analyzers.preflight.documents import parse
from servers import require_tool

PAGE = Path(__file__).parents[1] / "docs" / "preflight.md"


@pytest.fixture
def write(tmp_path):
    def written(*bodies, name="job.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(bodies))
        return str(path)

    return written


def test_every_check_has_its_section_and_every_section_its_check():
    assert re.findall(r"^## ([a-z-]+)$", PAGE.read_text(), re.MULTILINE) == [
        *IDS,
        *(check.id for check in (*POOL_CHECKS, *POD_CHECKS)),
    ]


def test_a_good_job_passes(write, capsys):
    assert cli.main(["preflight", write(JOB, NETWORK, CLAIM), "--no-color"]) == 0
    assert "0 warn, 0 fail, 0 could not be decided" in capsys.readouterr().out


@pytest.mark.parametrize(("changes", "code"), [({}, 0), ({"main +env": env(NCCL_IB_DISABLE=1)}, 2)])
def test_kubectl_runs_it_and_hands_its_exit_code_on(changes, code, write):
    kubectl = Path(require_tool("kubectl"))
    folders = {str(kubectl.parent), str(Path(sys.executable).parent)}
    path = write(changed(changes), NETWORK, CLAIM)
    done = subprocess.run(
        [kubectl, "rankscope", "preflight", path, "--no-color"],
        env={**os.environ, "PATH": ":".join([*folders, os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "`rankscope runbook preflight` describes each check." in done.stdout


def test_a_warning_fails_only_a_strict_run(write):
    path = write(changed({"limits cpu": GONE}), NETWORK, CLAIM)
    assert cli.main(["preflight", path]) == 0
    assert cli.main(["preflight", path, "--strict"]) == 2
    assert cli.main(["preflight", path, "--strict", "--skip", "numa"]) == 0


def test_a_failure_counts_more_than_what_is_undecided(write):
    bad = changed({"main +env": env(NCCL_IB_DISABLE=1)})
    assert cli.main(["preflight", write(JOB)]) == 3
    assert cli.main(["preflight", write(bad)]) == 2


def test_json_and_junit_say_the_same(write, tmp_path, capsys):
    bad = changed({"main +env": env(NCCL_IB_DISABLE=1), "metadata name": "a\x01<b>"})
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"kind": "List", "items": [bad, {"kind": "Foo"}]}))
    target = tmp_path / "out.xml"
    assert cli.main(["preflight", str(path), "--json", "--junit", str(target)]) == 2
    shown = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in shown["passed_over"]] == ["Foo"]
    (job,) = shown["jobs"]
    by_id = {one["id"]: one for one in job["checks"]}
    assert by_id["rdma-transport"]["verdict"] == "fail"
    assert by_id["rdma-transport"]["page"] == "docs/preflight.md#rdma-transport"
    suite = ElementTree.parse(target).getroot()[0]
    assert suite.get("name").startswith("PyTorchJob ml/a\ufffd<b>")
    failures = {case.get("name") for case in suite if case.find("failure") is not None}
    assert failures == {name for name, one in by_id.items() if one["verdict"] == "fail"}
    errors = {case.get("name") for case in suite if case.find("error") is not None}
    assert errors == {name for name, one in by_id.items() if one["undecided"]}
    assert suite.get("tests") == str(len(IDS))


def test_a_template_for_others_in_a_manifest_makes_it_no_helm_template():
    secret = '{{- with secret "ml/key" -}}\nexport KEY={{ .Data.key }}\n{{- end }}\n'
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    pod["metadata"]["annotations"] = {"vault.hashicorp.com/agent-inject-template-key": secret}
    (found,) = parse(yaml.safe_dump(pod), "job.yaml")
    assert found.body == pod


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\nc: [1, 2\nd: e: f\n", "bad.yaml:3:2: not YAML"),
        ("a: 1\n  b: 2\n", "bad.yaml:2:4: not YAML: mapping values are not allowed"),
        ("kind: Pod\nimage: {{ .Values.image }}\n", "bad.yaml:2:8: a Helm template"),
        ("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", "bad.yaml:1:1: a Helm template"),
        ("a: !!python/object/apply:os.system [id]\n", "bad.yaml:1:4: not YAML"),
        ("- a\n", "bad.yaml:1: expected an object of Kubernetes, not a list"),
        ("[" * 100_000, "bad.yaml:1:101: not YAML of a manifest"),
        ("", "no job in"),
        ("kind: Foo\n", "no check knows Foo"),
    ],
)
def test_what_is_no_manifest_is_one_sentence_with_its_place(text, message, tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert cli.main(["preflight", str(path)]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_a_file_that_is_absent_is_one_sentence(capsys):
    assert cli.main(["preflight", "/nowhere/job.yaml"]) == 1
    assert "cannot read /nowhere/job.yaml: No such file" in capsys.readouterr().err


def test_folders_and_standard_input_are_read(write, tmp_path, monkeypatch, capsys):
    (tmp_path / "below").mkdir()
    write(JOB, name="below/job.yaml")
    write(NETWORK, name="net.yml")
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(CLAIM)))
    assert cli.main(["preflight", str(tmp_path), "-"]) == 0


def test_a_document_is_named_by_its_line():
    text = "---\nkind: A\n---\n# comment\nkind: B\n"
    assert [one.source for one in parse(text, "x")] == ["x:2", "x:5"]


TEMPLATE = {"template": POD}
KINDS = [
    (
        "kubeflow.org/v1",
        "MPIJob",
        {"mpiReplicaSpecs": {"Launcher": TEMPLATE, "Worker": TEMPLATE | {"replicas": 3}}},
        3,
    ),
    (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            "runLauncherAsWorker": True,
            "mpiReplicaSpecs": {"Launcher": TEMPLATE, "Worker": TEMPLATE},
        },
        2,
    ),
    ("batch/v1", "Job", TEMPLATE | {"parallelism": 4, "completions": 2}, 2),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "replicatedJobs": [
                {"name": "node", "replicas": 2, "template": {"spec": TEMPLATE | {"parallelism": 3}}}
            ]
        },
        6,
    ),
    (
        "batch.volcano.sh/v1alpha1",
        "Job",
        {"tasks": [TEMPLATE | {"name": "worker", "replicas": 5}]},
        5,
    ),
    (
        "ray.io/v1",
        "RayJob",
        {
            "rayClusterSpec": {
                "headGroupSpec": {},
                "workerGroupSpecs": [TEMPLATE | {"groupName": "g", "replicas": 2, "numOfHosts": 2}],
            }
        },
        4,
    ),
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}},
        8,
    ),
    (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {"runtimeRef": {"name": "r"}, "trainer": {"numNodes": 7}},
        7,
    ),
]


@pytest.mark.parametrize(("version", "kind", "spec", "pods"), KINDS)
def test_each_kind_says_how_many_pods_compute(version, kind, spec, pods):
    (job,) = read({"apiVersion": version, "kind": kind, "spec": spec}).jobs
    assert job.pods == pods
    assert kind == "TrainJob" or all(role.gpus == 8 for role in job.ranks)


def test_a_train_job_takes_the_rest_from_its_runtime():
    train = {"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}
    train["spec"] = {"runtimeRef": {"name": "r"}, "trainer": {"env": env(NCCL_ALGO="Ring")}}
    jobs = [{"name": "node", "template": {"spec": {"template": POD}}}]
    runtime = {
        "kind": "ClusterTrainingRuntime",
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "metadata": {"name": "r"},
        "spec": {"mlPolicy": {"numNodes": 4}, "template": {"spec": {"replicatedJobs": jobs}}},
    }
    (role,) = read(train, runtime).jobs[0].roles
    assert (role.replicas, role.gpus, role.missing) == (4, 8, "")
    names = [one["name"] for one in role.trainer["env"]]
    assert names == ["NCCL_DEBUG", "PYTHONPATH", "NCCL_ALGO"]


@pytest.mark.parametrize("field", ["runtimePatches", "podTemplateOverrides", "podSpecOverrides"])
def test_what_a_train_job_changes_of_its_runtime_is_not_taken_for_absent(field):
    """The field's name differs between versions of Kubeflow Trainer."""
    train = {"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1"}
    train["spec"] = {"runtimeRef": {"name": "r"}, "trainer": {}, field: [{"manager": "team"}]}
    jobs = [{"name": "node", "template": {"spec": {"template": POD}}}]
    runtime = {
        "kind": "ClusterTrainingRuntime",
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "metadata": {"name": "r"},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    shm = outcomes(train, runtime)["shared-memory"]
    assert (shm.undecided, field in shm.seen) == (True, True)


def test_thousands_of_pods_are_one_job(tmp_path, capsys):
    pods = []
    for rank in range(3000):
        named = {"name": f"w-{rank}", "labels": {"volcano.sh/job-name": "big"}}
        pod = POD | {"metadata": POD["metadata"] | named}
        pods.append({"apiVersion": "v1", "kind": "Pod", **pod})
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods}))
    assert cli.main(["preflight", str(path), "--json"]) == 3
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["pods"] == 3000
    sidecar = next(one for one in job["checks"] if one["id"] == "sidecar")
    assert "w-0 (and 2999 more of 3000)" in sidecar["seen"]


@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": 1}, True, [{"a": [None]}]])
def test_odd_values_end_no_check(value):
    paths = ("spec", "worker replicas", "template", "pod", "main", "main env", "limits", "notes")
    more = ("pod volumes", "main volumeMounts", "main command", "pod affinity", "spec runPolicy")
    for path in (*paths, *more, "pod topologySpreadConstraints", "main securityContext"):
        assert set(outcomes(changed({path: value}), NETWORK)) == set(IDS)
