import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_json import field_ref, pod, uid
from rankscope_agent.contract.redaction import is_kept
from rankscope_agent.sources.pods.records import DeviceHealth, Pod, PodError, parse_pod

MAX_TEXT = 256


def variables(**env):
    (container,) = parse_pod(pod(env=env)).containers
    return container.environment, container.unresolved


def test_what_matters_of_a_pod_is_kept():
    data = pod(
        "train-0",
        number=7,
        owner=("batch/v1", "Job", "train"),
        limits={"nvidia.com/gpu": "8", "cpu": "4", "memory": "1Gi", "hugepages-2Mi": "1"},
        container_id="ab" * 32,
        env={"RANK": "3"},
    )
    found = parse_pod(data)
    assert (found.uid, found.namespace, found.name) == (uid(7), "ml", "train-0")
    assert found.owner is not None
    assert (found.owner.api_version, found.owner.kind) == ("batch/v1", "Job")
    assert found.created_unix_seconds == 1795168807.0
    (container,) = found.containers
    assert container.container_id == "ab" * 32
    assert container.limits == {"nvidia.com/gpu": 8}
    assert container.started


def kept_text(found):
    """Return how many characters are kept of a pod's own texts."""
    texts = [*found.labels.items(), *found.annotations.items()]
    for container in found.containers:
        texts += [*container.environment.items(), *((name, "") for name in container.unresolved)]
        texts += [(name, "") for name in container.limits]
    return sum(len(key) + len(value) for key, value in texts)


def test_however_much_a_pod_says_little_of_it_is_kept():
    many = {f"{'x' * 50}/{number:05d}": "y" * 4096 for number in range(5000)}
    env = {f"NCCL_{number:05d}": "z" * 4096 for number in range(500)}
    env |= {f"UCX_{number:05d}": {"secretKeyRef": {}} for number in range(500)}
    limits = dict.fromkeys(list(many)[:500], "1")
    data = pod(labels=many, annotations=many, env=env, limits=limits)
    data["spec"]["containers"] *= 100
    assert kept_text(parse_pod(data)) < 200_000


def test_what_is_long_keeps_nothing_out_that_is_short():
    notes = {f"a{number}": "x" * 4096 for number in range(100)} | {"z/rank": "5"}
    env = {f"NCCL_{number}": "x" * 4096 for number in range(20)} | {"RANK": "3"}
    found = parse_pod(pod(annotations=notes, env=env))
    assert found.annotations["z/rank"] == "5"
    assert found.containers[0].environment["RANK"] == "3"


def test_secrets_are_never_kept_nor_followed():
    known, unknown = variables(
        AWS_SECRET_ACCESS_KEY="x",
        DATABASE_URL="y",
        NCCL_NET_TOKEN="z",
        NCCL_DEBUG="INFO",
        RANK={"secretKeyRef": {"name": "s", "key": "k"}},
        NCCL_IB_HCA={"configMapKeyRef": {"name": "c", "key": "k"}},
    )
    assert known == {"NCCL_DEBUG": "INFO"}
    assert unknown == {"RANK", "NCCL_IB_HCA"}


def test_references_to_the_pods_own_fields_are_resolved():
    data = pod(
        labels={"a/b": "5"},
        env={
            "RANK": field_ref("metadata.labels['a/b']"),
            "MASTER_ADDR": field_ref("metadata.name"),
            "WORLD_SIZE": field_ref("status.podIP"),
        },
    )
    (container,) = parse_pod(data).containers
    assert container.environment == {"RANK": "5", "MASTER_ADDR": "train-worker-0"}
    assert container.unresolved == {"WORLD_SIZE"}


def test_values_that_expand_others_are_unknown():
    known, unknown = variables(MASTER_ADDR="$(POD_IP)", RANK="1")
    assert (known, unknown) == ({"RANK": "1"}, {"MASTER_ADDR"})


def test_the_last_of_two_equal_variables_counts():
    data = pod(env={"RANK": "1"})
    data["spec"]["containers"][0]["env"].append({"name": "RANK", "value": "2"})
    assert parse_pod(data).containers[0].environment == {"RANK": "2"}


def test_whole_specs_in_annotations_are_dropped():
    data = pod(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"})
    assert parse_pod(data).annotations == {"a": "b"}


def test_huge_values_are_cut():
    data = pod(labels={"x": "y" * 10_000}, annotations={"big": "z" * 1_000_000})
    found = parse_pod(data)
    assert len(found.labels["x"]) == MAX_TEXT
    assert len(found.annotations["big"]) <= 4096


def test_the_health_of_devices_is_read():
    data = pod()
    data["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = [
        {
            "name": "nvidia.com/gpu",
            "resources": [{"resourceID": "GPU-1", "health": "Unhealthy"}, {"resourceID": "GPU-2"}],
        }
    ]
    assert parse_pod(data).health == (
        DeviceHealth("main", "nvidia.com/gpu", "GPU-1", "Unhealthy"),
        DeviceHealth("main", "nvidia.com/gpu", "GPU-2", "Healthy"),
    )


def test_gangs_of_kubernetes_itself_are_read():
    data = pod()
    data["spec"]["schedulingGroup"] = {"podGroupName": "pg-1"}
    assert parse_pod(data).scheduling_group == "pg-1"


@pytest.mark.parametrize(
    ("key", "value"),
    [("containers", None), ("containers", [None, 3, "x"]), ("containers", {"name": "main"})],
)
def test_containers_of_a_wrong_type_are_none(key, value):
    data = pod()
    data["spec"][key] = value
    data["status"]["containerStatuses"] = value
    assert parse_pod(data).containers == ()


@pytest.mark.parametrize("data", [None, 3, [], {}, {"metadata": None}, {"metadata": {"uid": 3}}])
def test_what_is_no_pod_is_refused(data):
    with pytest.raises(PodError):
        parse_pod(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "env", "value", "valueFrom", "containers", "resources", "limits", "labels"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, JSON, JSON, JSON)
def test_parts_of_any_shape_never_break_a_pod(labels, references, spec, status):
    metadata = {"uid": "u", "namespace": "n", "name": "p", "labels": labels}
    metadata["ownerReferences"] = references
    found = parse_pod({"metadata": metadata, "spec": spec, "status": status})
    assert isinstance(found, Pod)
    json.dumps(dict(found.labels))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("NCCL_SOCKET_IFNAME", True),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", True),
        ("FI_PROVIDER", True),
        ("UCX_TLS", True),
        ("RANK", True),
        ("FI_API_KEY", False),
        ("NCCL_SECRET", False),
        ("HF_TOKEN", False),
        ("PATH", False),
    ],
)
def test_only_variables_about_ranks_and_transports_are_kept(name, kept):
    assert is_kept(name) is kept
