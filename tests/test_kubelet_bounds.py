"""The last that is still taken and the first that is not, of the kubelet's devices and the GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fake_kubelet import devices, pod_resources
from rankscope_agent.sources.pods import kubelet
from rankscope_agent.sources.pods.devices import parse_pod_resources
from rankscope_agent.sources.pods.gpu_order import read_gpus
from rankscope_agent.sources.pods.kubelet import KubeletClient, KubeletError
from rankscope_agent.sources.pods.protobuf import fields
from standing_clock import clock

__all__ = ["clock"]


def test_one_answer_of_the_kubelet_names_65536_devices():
    a_pod = pod_resources("ml", "p", devices("nvidia.com/gpu", *map(str, range(32768))))
    assert len(parse_pod_resources(a_pod * 2)) == 65536
    with_more = pod_resources("ml", "p", devices("nvidia.com/gpu", "0"))
    assert len(parse_pod_resources(with_more + a_pod * 2)) == 65536


def gpu_files(root, count, padding=0):
    folder = root / "driver" / "nvidia" / "gpus"
    for index in range(count):
        (folder / f"0000:{index:02x}:00.0").mkdir(parents=True)
        text = f"GPU UUID: GPU-{index}\nDevice Minor: 1{index}".rjust(padding, "\n")
        (folder / f"0000:{index:02x}:00.0" / "information").write_text(text)
    return root


def test_a_node_has_64_gpus_in_order(tmp_path):
    assert len(read_gpus(gpu_files(tmp_path, 65))) == 64


@pytest.mark.parametrize(("padding", "known"), [(8192, 10), (8193, 1)])
def test_eight_kibibytes_are_read_of_a_gpus_description(tmp_path, padding, known):
    (found,) = read_gpus(gpu_files(tmp_path, 1, padding))
    assert found.minor == known


def test_an_answer_of_the_kubelet_has_16_mebibytes_at_most():
    answer = kubelet._Answer()
    answer._body = bytearray(16 << 20)
    answer.take(SimpleNamespace(receive_data=lambda data: ()), b"")
    answer._body.append(0)
    with pytest.raises(KubeletError, match="larger than 16 MiB"):
        answer.take(SimpleNamespace(receive_data=lambda data: ()), b"")


def test_the_kubelet_is_waited_for_five_seconds(tmp_path, monkeypatch, clock):
    waits = []
    monkeypatch.setattr(kubelet, "time", clock)

    class Connection:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        settimeout = staticmethod(waits.append)

        def connect(self, path):
            raise FileNotFoundError

    monkeypatch.setattr(kubelet.socket, "socket", lambda *kind: Connection())
    with pytest.raises(FileNotFoundError):
        KubeletClient(tmp_path / "kubelet.sock").call()
    assert waits == [5.0]


def test_fixed_fields_are_four_and_eight_bytes_long():
    message = bytes([1 << 3 | 5, *b"four", 2 << 3 | 1, *b"of eight", 3 << 3 | 0, 7])
    found = [
        (key, value if isinstance(value, int) else bytes(value))
        for key, value in fields(memoryview(message))
    ]
    assert found == [(1, b"four"), (2, b"of eight"), (3, 7)]
