import contextlib
import socket
import threading

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet import FakeKubelet, claim, devices, field, pod_resources, varint
from rankscope_agent.sources.pods import kubelet as kubelet_module
from rankscope_agent.sources.pods.devices import (
    Allocation,
    DeviceId,
    parse_device_id,
    parse_pod_resources,
)
from rankscope_agent.sources.pods.kubelet import KubeletClient, KubeletError
from rankscope_agent.sources.pods.protobuf import WireError, fields

GPU = "GPU-8f6a1b2c-0d3e-4f50-9a61-7b8c9d0e1f2a"
MIG = "MIG-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def kubelet(tmp_path):
    made = FakeKubelet(tmp_path / "kubelet.sock")
    yield made
    made.close()


def test_devices_of_a_real_grpc_answer_are_read(kubelet, tmp_path):
    kubelet.answer = (
        pod_resources("ml", "a", devices("nvidia.com/gpu", GPU), devices("rdma/hca", "0"))
        + pod_resources("ml", "b", claim("gpu.nvidia.com", "n1", "gpu-3", f"k8s.nvidia/gpu={GPU}"))
        + pod_resources("ml", "c", claim("dra.example", "n1", "nic-0"))
        + pod_resources("ml", "without-devices")
    )
    message = KubeletClient(tmp_path / "kubelet.sock").call()
    assert parse_pod_resources(message) == [
        Allocation("ml", "a", "main", "nvidia.com/gpu", GPU),
        Allocation("ml", "a", "main", "rdma/hca", "0"),
        Allocation("ml", "b", "main", "gpu.nvidia.com", GPU),
        Allocation("ml", "c", "main", "dra.example", "n1/nic-0"),
    ]


def test_an_answer_larger_than_grpc_clients_take_is_read(kubelet, tmp_path):
    ids = [f"{GPU}::{n}" for n in range(1000)]
    parts = [pod_resources("ml", f"p{n}", devices("nvidia.com/gpu", *ids)) for n in range(120)]
    kubelet.answer = b"".join(parts)
    assert len(kubelet.answer) > 4 << 20
    message = KubeletClient(tmp_path / "kubelet.sock").call()
    assert message == kubelet.answer
    assert len(parse_pod_resources(message)) == 65536


def test_a_kubelet_that_restarts_is_reached_again(tmp_path):
    path = tmp_path / "kubelet.sock"
    client = KubeletClient(path)
    for name in ("before", "after"):
        made = FakeKubelet(path, pod_resources("ml", name))
        assert client.call() == made.answer
        made.close()
        path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        client.call()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED: rejected by rate limit"),
        (grpc.StatusCode.UNIMPLEMENTED, "UNIMPLEMENTED"),
        (grpc.StatusCode.INTERNAL, "gRPC status 13"),
    ],
)
def test_errors_are_named(kubelet, tmp_path, code, said):
    kubelet.failure = (code, "rejected by rate limit")
    with pytest.raises(KubeletError, match=said):
        KubeletClient(tmp_path / "kubelet.sock").call()


def test_a_method_that_does_not_exist_is_named(kubelet, tmp_path):
    with pytest.raises(KubeletError, match="UNIMPLEMENTED"):
        KubeletClient(tmp_path / "kubelet.sock").call("/v9.PodResourcesLister/List")


def test_a_kubelet_that_hangs_is_given_up(kubelet, tmp_path):
    kubelet.hanging = True
    with pytest.raises(TimeoutError):
        KubeletClient(tmp_path / "kubelet.sock", seconds=0.3).call()


def test_an_answer_without_end_is_given_up(kubelet, tmp_path, monkeypatch):
    monkeypatch.setattr(kubelet_module, "MAX_ANSWER", 10_000)
    kubelet.answer = field(1, b"x" * 200_000)
    with pytest.raises(KubeletError, match="larger than"):
        KubeletClient(tmp_path / "kubelet.sock").call()


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b""])
def test_whatever_else_listens_on_the_socket_does_no_harm(tmp_path, said):
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises((KubeletError, OSError)):
            KubeletClient(path, seconds=2).call()
        thread.join()


@pytest.mark.parametrize(
    ("text", "device"),
    [
        (GPU, DeviceId(uuid=GPU)),
        (GPU.lower().replace("gpu", "GPU"), DeviceId(uuid=GPU)),
        (f"{GPU}::3", DeviceId(uuid=GPU, shared=True)),
        (MIG, DeviceId(uuid=MIG)),
        (f"{MIG}::0", DeviceId(uuid=MIG, shared=True)),
        ("nvidia3", DeviceId(gpu=3)),
        ("nvidia0/gi1", DeviceId()),
        ("nvidia0/vgpu2", DeviceId(shared=True)),
        ("0000:3b:00.2", DeviceId(pci="0000:3b:00.2")),
        ("0", DeviceId()),
        ("GPU-x", DeviceId()),
        ("", DeviceId()),
    ],
)
def test_device_ids_are_taken_apart(text, device):
    assert parse_device_id(text) == device


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("nvidia.com/gpu", "gpu"),
        ("nvidia.com/gpu.shared", "gpu"),
        ("nvidia.com/mig-1g.10gb", "gpu"),
        ("gpu.nvidia.com", "gpu"),
        ("amd.com/gpu", "gpu"),
        ("rdma/hca_shared_devices_a", "rdma"),
        ("nvidia.com/hostnics", "rdma"),
        ("openshift.io/mlx_ib_nic1", "rdma"),
        ("vpc.amazonaws.com/efa", "rdma"),
        ("smarter-devices/fuse", "other"),
        ("hugepages-2Mi", "other"),
    ],
)
def test_resources_are_told_apart(resource, kind):
    assert Allocation("ml", "a", "main", resource, "0").kind == kind


def test_fixed_width_fields_are_passed_over():
    message = varint(1 << 3 | 1) + b"8 bytes." + varint(2 << 3 | 5) + b"4byt" + field(3, "x")
    assert [number for number, _ in fields(memoryview(message))] == [1, 2, 3]


@pytest.mark.parametrize("message", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x09abc"])
def test_bytes_that_are_no_message_are_refused(message):
    with pytest.raises(WireError):
        list(fields(memoryview(message)))


MESSAGE = pod_resources("ml", "a", devices("nvidia.com/gpu", GPU, MIG)) * 2


@given(st.integers(0, len(MESSAGE)), st.binary(max_size=8), st.integers(0, 8))
def test_a_damaged_message_is_refused_or_gives_no_more_devices_than_it_has_bytes_for(
    place, damage, lost
):
    message = MESSAGE[:place] + damage + MESSAGE[place + lost :]
    try:
        found = parse_pod_resources(message)
    except WireError:
        return
    assert sum(len(one.device) for one in found) <= len(message)
    if message == MESSAGE:
        assert [one.device for one in found] == [GPU, MIG, GPU, MIG]
