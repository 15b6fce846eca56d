"""The admission policy that puts the probe into pods, evaluated."""

from __future__ import annotations

import kubernetes_validate
import pytest

from admission import TypeMismatchError, add, check_names, evaluated, mutated
from limit_ranges import refusals
from policies import first

PROBE = "/opt/rankscope/probe"
LABELLED = {"rankscope.dev/probe": "enabled"}
INJECTION = first("components", "probe-injection", "policy.yaml")["spec"]
KYVERNO = first("probe", "kyverno.yaml")["spec"]


def trainer(name="trainer", **fields) -> dict:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {"name": name, "image": "registry.example/team/trainer:1", **gpus, **fields}


def pod(*containers: dict, labels=None, **spec) -> dict:
    metadata = {"name": "trainer-0", "namespace": "team", "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers or (trainer(),)), **spec},
    }


def admitted(given: dict, namespace=LABELLED) -> dict:
    """Return the pod as the policy leaves it, once it is one that an API server would take."""
    found = mutated(INJECTION, given, namespace)
    kubernetes_validate.validate(found, "1.37.0", strict=True)
    spec = found["spec"]
    everything = [*spec.get("initContainers", ()), *spec["containers"]]
    assert unique(one["name"] for one in everything)
    assert unique(volume["name"] for volume in spec.get("volumes", ()))
    for container in everything:
        assert unique(mount["mountPath"] for mount in container.get("volumeMounts", ()))
    return found


def unique(names) -> bool:
    names = list(names)
    return len(names) == len(set(names))


def environment(container: dict) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", ())}


def mounts(container: dict) -> dict[str, str]:
    return {one["mountPath"]: one["name"] for one in container.get("volumeMounts", ())}


def test_a_pod_with_gpus_gets_the_probe():
    found = admitted(pod())["spec"]
    (container,) = found["containers"]
    assert environment(container) == {"PYTHONPATH": PROBE}
    assert mounts(container) == {"/run/rankscope": "rankscope", PROBE: "rankscope-probe"}
    assert {one["name"]: one["emptyDir"] for one in found["volumes"]} == {
        "rankscope": {"medium": "Memory", "sizeLimit": "256Mi"},
        "rankscope-probe": {"sizeLimit": "1Mi"},
    }
    (copier,) = found["initContainers"]
    assert copier["args"] == [f"--copy-probe={PROBE}"]
    assert mounts(copier) == {PROBE: "rankscope-probe"}


def test_the_template_for_people_says_the_same():
    template = first("probe", "pod-template.yaml")
    (container,) = template["spec"]["containers"]
    found = admitted(pod(trainer(resources=container["resources"])))["spec"]
    assert template["spec"]["initContainers"] == found["initContainers"]
    assert template["spec"]["volumes"] == found["volumes"]
    assert mutated(INJECTION, template, LABELLED) == template


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([], PROBE),
        ([{"name": "PYTHONPATH", "value": "/workspace:/lib"}], f"{PROBE}:/workspace:/lib"),
        ([{"name": "PYTHONPATH", "value": "$(HOME)/lib"}], f"{PROBE}:$(HOME)/lib"),
        ([{"name": "PYTHONPATH"}], PROBE),  # an empty entry would be the working directory
        ([{"name": "PYTHONPATH", "value": ""}], PROBE),
    ],
)
def test_the_users_python_path_stays_behind_the_probe(env, expected):
    around = [{"name": "HOME", "value": "/root"}, *env, {"name": "LAST", "value": "1"}]
    (container,) = admitted(pod(trainer(env=around)))["spec"]["containers"]
    assert environment(container) == {"HOME": "/root", "PYTHONPATH": expected, "LAST": "1"}
    assert [one["name"] for one in container["env"] if one["name"] != "PYTHONPATH"] == [
        "HOME",  # references look back, so the order stays
        "LAST",
    ]


def test_a_python_path_out_of_a_whole_config_map_is_referred_to():
    """The kubelet expands references to what envFrom brings, as it does those to env."""
    given = trainer(envFrom=[{"configMapRef": {"name": "settings"}}])
    (container,) = admitted(pod(given))["spec"]["containers"]
    assert environment(container) == {"PYTHONPATH": f"{PROBE}:$(PYTHONPATH)"}


def test_everything_else_of_a_pod_stays_as_it_is():
    given = pod(
        trainer(env=[{"name": "A", "value": "1"}], volumeMounts=[{"name": "d", "mountPath": "/d"}]),
        {"name": "sidecar", "image": "registry.example/proxy:1"},
        trainer("second", resources={"claims": [{"name": "gpus"}]}),
        volumes=[{"name": "d", "emptyDir": {}}],
        initContainers=[{"name": "fetch", "image": "registry.example/fetch:1"}],
        resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "eight"}],
    )
    found = admitted(given)
    assert found["spec"]["containers"][1] == given["spec"]["containers"][1]
    assert environment(found["spec"]["containers"][2]) == {"PYTHONPATH": PROBE}
    assert [one["name"] for one in found["spec"]["initContainers"]] == ["rankscope-probe", "fetch"]
    assert [one["name"] for one in found["spec"]["volumes"]] == [
        "d",
        "rankscope",
        "rankscope-probe",
    ]
    for container in found["spec"]["containers"]:
        ours = ("rankscope", "rankscope-probe")
        kept = [one for one in container.pop("volumeMounts", ()) if one["name"] not in ours]
        variables = [one for one in container.pop("env", ()) if one["name"] != "PYTHONPATH"]
        container.update({"volumeMounts": kept} if kept else {})
        container.update({"env": variables} if variables else {})
    found["spec"]["volumes"] = found["spec"]["volumes"][:1]
    found["spec"]["initContainers"] = found["spec"]["initContainers"][1:]
    assert found == given


def referring(**source) -> dict:
    return trainer(env=[{"name": "PYTHONPATH", "valueFrom": source}])


LEFT_ALONE = {
    "no GPU": pod({"name": "web", "image": "registry.example/web:1"}),
    "no limits": pod(trainer(resources={})),
    "from a secret": pod(referring(secretKeyRef={"name": "s", "key": "k"})),
    "from a config map": pod(referring(configMapKeyRef={"name": "s", "key": "k"})),
    "from a field": pod(referring(fieldRef={"fieldPath": "metadata.name"})),
    "has it already": pod(volumes=[{"name": "rankscope", "emptyDir": {}}]),
    "same init container": pod(initContainers=[{"name": "rankscope-probe", "image": "a:1"}]),
    "same container": pod(trainer(), {"name": "rankscope-probe", "image": "a:1"}),
    "place taken": pod(
        trainer(volumeMounts=[{"name": "d", "mountPath": "/run/rankscope"}]),
        volumes=[{"name": "d", "emptyDir": {}}],
    ),
    "not wanted": pod(labels={"rankscope.dev/probe": "disabled"}),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_pods_that_the_probe_is_not_for_are_left_alone(name):
    assert admitted(LEFT_ALONE[name]) == LEFT_ALONE[name]


def test_a_path_that_is_given_twice_is_left_alone():
    """API servers take it with a warning; the schema that tests use does so too."""
    twice = [{"name": "PYTHONPATH", "value": "/a"}, {"name": "PYTHONPATH", "value": "/b"}]
    given = pod(trainer(env=twice))
    assert mutated(INJECTION, given, LABELLED) == given


@pytest.mark.parametrize("namespace", [{}, {"rankscope.dev/probe": "disabled"}, {"team": "a"}])
def test_namespaces_that_did_not_ask_for_it_are_left_alone(namespace):
    assert admitted(pod(), namespace) == pod()


def test_pods_that_run_already_are_left_alone():
    assert mutated(INJECTION, pod(), LABELLED, operation="UPDATE") == pod()


def test_of_two_trainers_one_gets_the_probe_if_the_other_cannot():
    given = pod(referring(secretKeyRef={"name": "s", "key": "k"}), trainer("other"))
    found = admitted(given)["spec"]["containers"]
    assert found[0] == given["spec"]["containers"][0]
    assert environment(found[1]) == {"PYTHONPATH": PROBE}


def test_names_out_of_a_pod_cannot_change_another_part_of_it():
    """Paths of patches are made of numbers, never of text that somebody else wrote."""
    odd = [{"name": "a~1b/../..", "value": "/spec/hostPID"}, {"name": "PYTHONPATH", "value": '"}]'}]
    found = admitted(pod(trainer(env=odd)))["spec"]
    assert set(found) == {"containers", "volumes", "initContainers"}
    assert environment(found["containers"][0])["PYTHONPATH"] == f'{PROBE}:"}}]'


def test_what_is_added_is_allowed_where_pods_are_restricted():
    """By the level `restricted` of Kubernetes' Pod Security Standards."""
    (copier,) = admitted(pod())["spec"]["initContainers"]
    assert copier["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    found = admitted(pod(securityContext={"runAsUser": 1000}))["spec"]
    assert found["initContainers"][0]["securityContext"]["runAsNonRoot"] is True


def test_a_pod_of_root_still_starts():
    """The pod's user is the init container's as well, which runAsNonRoot would not let start."""
    (copier,) = admitted(pod(securityContext={"runAsUser": 0}))["spec"]["initContainers"]
    assert copier["securityContext"]["runAsNonRoot"] is False


def sized(requests: dict, limits: dict | None = None, name="trainer") -> dict:
    gpus = {"nvidia.com/gpu": "8"}
    limits = requests if limits is None else limits
    return trainer(name, resources={"requests": requests | gpus, "limits": limits | gpus})


SIZES = {
    "guaranteed": ({"cpu": "96", "memory": "1Ti"}, None),
    "burstable": ({"cpu": "2", "memory": "8Gi"}, {"cpu": "8", "memory": "16Gi"}),
    "no limit of CPU": ({"cpu": "500m", "memory": "8Gi"}, {"memory": "8Gi"}),
    "disk, too": ({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "10Gi"}, None),
    "GPUs alone": ({}, None),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_init_container_asks_for_what_the_trainer_asks_for(name):
    """A guaranteed pod stays one, or the kubelet takes the cores away that it pinned it to."""
    requests, limits = SIZES[name]
    (copier,) = admitted(pod(sized(requests, limits)))["spec"]["initContainers"]
    wanted = {"requests": requests, "limits": requests if limits is None else limits}
    assert copier["resources"] == wanted


def test_of_two_trainers_the_first_one_counts():
    small = sized({"cpu": "1", "memory": "1Gi"})
    large = sized({"cpu": "2", "memory": "2Gi"}, name="other")
    (copier,) = admitted(pod(small, large))["spec"]["initContainers"]
    assert copier["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    alone = trainer("claims", resources={"claims": [{"name": "gpus"}]})
    (copier,) = admitted(pod(alone, large))["spec"]["initContainers"]
    assert copier["resources"] == {"requests": {}, "limits": {}}


LIMITS = {
    "min": {"type": "Container", "min": {"cpu": "2", "memory": "8Gi"}},
    "max": {"type": "Container", "max": {"cpu": "8", "memory": "16Gi"}},
    "ratio": {"type": "Container", "maxLimitRequestRatio": {"cpu": "4", "memory": "2"}},
    "disk": {"type": "Container", "min": {"ephemeral-storage": "1Gi"}},
    "min of the pod": {"type": "Pod", "min": {"cpu": "2"}, "max": {"memory": "16Gi"}},
    "ratio of the pod": {"type": "Pod", "maxLimitRequestRatio": {"cpu": "4", "memory": "2"}},
}


@pytest.mark.parametrize("name", LIMITS)
def test_where_a_limit_range_takes_the_trainer_it_takes_the_pod_with_the_probe(name):
    """Each bound is just what the trainer asks for, or may take."""
    amounts = {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "1Gi"}
    most = {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "1Gi"}
    given = pod(sized(amounts, most))
    assert list(refusals([LIMITS[name]], given)) == []
    assert list(refusals([LIMITS[name]], admitted(given))) == []


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ({"type": "Container", "min": {"memory": "65Mi"}}, "asks for less memory"),
        ({"type": "Container", "max": {"cpu": "99m"}}, "may take more cpu"),
        ({"type": "Container", "max": {"hugepages-2Mi": "1Gi"}}, "may take more hugepages-2Mi"),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "1"}}, "1 times the cpu"),
        ({"type": "Container", "maxLimitRequestRatio": {"a": "1"}}, "asks for no a"),
        ({"type": "Pod", "max": {"cpu": "199m"}}, "pod: may take more cpu"),
        ({"type": "Pod", "min": {"memory": "1Gi"}}, "pod: asks for less memory"),
    ],
)
def test_limit_ranges_refuse_what_an_api_server_refuses(limit, wanted):
    small = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}
    given = pod({"name": "web", "image": "a:1", "resources": small})
    (reason,) = refusals([limit], given)
    assert wanted in reason


def test_kyvernos_policy_is_kubernetes_own():
    document = first("probe", "kyverno.yaml")
    assert (document["apiVersion"], document["kind"]) == (
        "policies.kyverno.io/v1",
        "MutatingPolicy",
    )
    # Of Kubernetes' fields Kyverno has no reinvocationPolicy, and it needs no binding.
    assert {k: v for k, v in INJECTION.items() if k != "reinvocationPolicy"} == KYVERNO


def test_wrong_names_of_types_are_noticed():
    """cel-python asks for no declared types, so that this check has to."""
    expression = "Object.spec.volumes{name: 'a', emptyDir: Object.spec.emptyDir{medium: 'Memory'}}"
    with pytest.raises(TypeMismatchError, match="emptyDir stands in Object"):
        check_names(evaluated(expression, {}))
    with pytest.raises(IndexError):
        add({"a": []}, "/a/1", 0)
