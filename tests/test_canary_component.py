"""The component canary: its pods are harmless, one at a time, and train what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifest_parts import job_of
from quantities import quantity
from rankscope_agent.contract import canary
from rankscope_analyzers import cli
from rankscope_analyzers.arguments import canary as canary_options
from rankscope_analyzers.command import Parser
from rankscope_analyzers.commands import canary as command
from rankscope_analyzers.demo import run
from rankscope_analyzers.demo.faults import FAULTS
from rankscope_dashboards.rules.alerts.canary import MISSED_SECONDS
from rendered_manifests import combined


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    return combined(tmp_path_factory.mktemp("canary"), ("probe", "watch", "canary"))


@pytest.fixture(scope="module")
def cron_job(objects):
    (found,) = [one for one in objects if one["kind"] == "CronJob"]
    return found


@pytest.fixture(scope="module")
def pod(cron_job):
    return job_of(cron_job)["spec"]["template"]["spec"]


def of_pod(pod):
    return {one["name"]: one for one in (*pod["initContainers"], *pod["containers"])}


def test_it_is_called_by_the_reserved_name_and_runs_every_hour_one_at_a_time(cron_job):
    assert cron_job["metadata"]["name"] == canary.NAME
    assert cron_job["spec"]["concurrencyPolicy"] == "Forbid"
    minute, *rest = cron_job["spec"]["schedule"].split()
    assert rest == ["*"] * 4
    assert 0 < int(minute) < 60
    job_spec = cron_job["spec"]["jobTemplate"]["spec"]
    assert job_spec["backoffLimit"] == 0
    longest = cron_job["spec"]["startingDeadlineSeconds"] + job_spec["activeDeadlineSeconds"]
    assert longest < 3600 < 7200 < MISSED_SECONDS


def test_its_pods_are_allowed_where_pods_are_restricted(pod):
    """By the level `restricted` of Kubernetes' Pod Security Standards."""
    context = pod["securityContext"]
    assert context["runAsNonRoot"]
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {kind for one in pod["volumes"] for kind in one} == {"name", "emptyDir"}
    for one in of_pod(pod).values():
        own = one["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_it_takes_no_gpu_goes_to_nodes_with_gpus_too_and_is_bounded(pod):
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    for one in of_pod(pod).values():
        asked = {**one["resources"]["requests"], **one["resources"]["limits"]}
        assert asked.keys() == {"cpu", "memory"}
        assert quantity(one["resources"]["limits"]["memory"]) <= quantity("3Gi")
    assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"])


def test_it_runs_beside_an_agent(pod, objects):
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (agents,) = [one for one in objects if one["kind"] == "DaemonSet"]
    wanted = term["labelSelector"]["matchLabels"].items()
    assert wanted <= agents["spec"]["template"]["metadata"]["labels"].items()


def test_it_trains_the_job_of_which_the_slow_rank_is_expected(pod):
    train = of_pod(pod)["train"]
    assert train["command"][:3] == ["python3", "-m", "torch.distributed.run"]
    assert f"--nproc-per-node={canary.RANKS}" in train["command"]
    script, *arguments = train["args"]
    assert f"--rank={canary.SLOW_RANK}" in arguments
    assert "--fault=slow-compute" in arguments
    assert f"--steps={command.STEPS}" in arguments
    assert FAULTS["slow-compute"] == canary.SYMPTOM
    copy = of_pod(pod)["job"]["command"]
    assert copy[0] == "cp"
    assert copy[2] == script
    script_here = Path(run.__file__).with_name("job.py").as_posix()
    assert script_here.endswith(copy[1].removeprefix("/opt/rankscope"))
    names = {one["name"]: one["value"] for one in train["env"]}
    assert names["RANKSCOPE_JOB_ID"] == canary.NAME
    assert names["PYTHONPATH"] == Path(script).parent.as_posix()


def test_the_probe_is_copied_to_where_the_job_finds_it(pod):
    made = of_pod(pod)
    (argument,) = made["rankscope-probe"]["args"]
    assert argument == "--copy-probe=" + made["train"]["env"][0]["value"]


def test_it_asks_all_watches_by_a_name_that_leads_to_them(pod, objects):
    parser = Parser("canary")
    canary_options.add_arguments(parser)
    given = of_pod(pod)["canary"]["args"]
    assert given[0] == "canary"
    assert given[0] in cli.COMMANDS
    host, _, port = parser.parse_args(given[1:]).watch.removeprefix("http://").partition(":")
    (service,) = [
        one for one in objects if one["kind"] == "Service" and one["metadata"]["name"] == host
    ]
    assert service["spec"]["clusterIP"] == "None"
    assert [one["port"] for one in service["spec"]["ports"]] == [int(port)]
    (watch,) = [one for one in objects if one["kind"] == "Deployment"]
    labels = watch["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_its_namespace_is_known_to_whom_it_asks_for(pod):
    (variable,) = of_pod(pod)["canary"]["env"]
    assert variable["name"] == "POD_NAMESPACE"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
