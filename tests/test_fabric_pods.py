"""`rankscope fabric-check --manifest`: pods of its own, which the checks of manifests accept."""

from __future__ import annotations

import json

import kubernetes_validate
import pytest
import yaml

from rankscope_analyzers import cli

GIVEN = [
    *("--image", "registry.example/team/trainer:1", "--nodes", "4", "--pods-namespace", "ml"),
    *("--resource", "rdma/hca=8", "--network", "rail-0", "--network", "rail-1"),
]


def printed(capsys, kind: str, *more: str) -> list[dict]:
    assert cli.main(["fabric-check", "--manifest", kind, *GIVEN, *more]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def template(job: dict) -> dict:
    spec = job["spec"]
    if job["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    return spec


def test_objects_fit_their_schema(capsys):
    found = printed(capsys, "job")
    assert [one["kind"] for one in found] == ["Service", "NetworkPolicy", "Job"]
    for one in found:
        kubernetes_validate.validate(one, "1.37.0", strict=True)
    _, job_set = printed(capsys, "jobset")
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    kubernetes_validate.validate(made | {"spec": template(job_set)}, "1.37.0", strict=True)


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_the_checks_of_manifests_accept_it(kind, capsys, tmp_path):
    """But for what is not among the manifests, for checkpoints, of which there are none, for the
    probe, which has nothing to watch, and for racks, over which the check is to be spread."""
    assert cli.main(["fabric-check", "--manifest", kind, *GIVEN]) == 0
    path = tmp_path / "check.yaml"
    path.write_text(capsys.readouterr().out)
    cli.main(["preflight", str(path), "--json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    bad = {one["id"] for one in job["checks"] if one["verdict"] in {"warn", "fail"}}
    undecided = {one["id"] for one in job["checks"] if one["undecided"]}
    assert (job["pods"], bad) == (4, {"few-racks", "progress-visible"})
    assert undecided == {"attachment-definition", "address-ranges", "checkpoint-volume"}


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_it_is_bounded_and_admits_its_own_pods_alone(kind, capsys):
    *_, policy, job = printed(capsys, kind, "--seconds", "5", "--timeout", "60")
    spec = template(job)
    assert spec["activeDeadlineSeconds"] == 600 + 2 * 60 + 3 * 5
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert (rule["onExitCodes"]["operator"], rule["onExitCodes"]["values"]) == ("NotIn", [0])
    pod = spec["template"]
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": labels}}]}]
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_pods_run_the_check_as_it_was_asked_for(capsys):
    flags = ["--sizes", "1M", "--backend", "nccl", "--minimum", "200", "--name", "fc"]
    *_, job = printed(capsys, "job", *flags)
    (container,) = template(job)["template"]["spec"]["containers"]
    command = container["command"]
    assert command[:2] == ["torchrun", "--nnodes=4"]
    assert "--rdzv-endpoint=fc-0.fc:29400" in command
    assert command[command.index("--no-python") + 1 :] == [
        *("rankscope", "fabric-check", "--sizes=1M", "--link-size=8M", "--seconds=2"),
        *("--timeout=120", "--backend=nccl", "--minimum=200"),
    ]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--image", "x"], "--manifest takes --nodes as well"),
        (["--image", "x", "--nodes", "1"], "2 to 4096 nodes, not 1"),
        ([*GIVEN, "--name", "A b"], "not 'A b'"),
        ([*GIVEN, "--resource", "rdma"], "not 'rdma'"),
        ([*GIVEN, "--memory", "lots"], "not 'lots'"),
        ([*GIVEN, "--gpus", "-1"], "0 GPUs or more"),
    ],
)
def test_wrong_calls_are_one_sentence(flags, complaint, capsys):
    assert cli.main(["fabric-check", "--manifest", "job", *flags]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert complaint in shown.err
