"""Limits of preflight's checks: at each and just beyond it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics import netdev
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.preflight import documents, pod_checks, running
from rankscope_analyzers.preflight.documents import ManifestError
from rankscope_analyzers.preflight.endurance_checks import restart_budget
from rankscope_analyzers.preflight.job import Job, NodeInterface, Settings, UndecidedError
from rankscope_analyzers.preflight.master_check import _on_all
from rankscope_analyzers.preflight.memory_checks import _shared_memory
from rankscope_analyzers.preflight.pool import Pool
from rankscope_analyzers.preflight.pool_checks import pcie
from test_preflight_pod import SOUND


def job(kind, body):
    return Job(kind, "ml", "llm", "a.yaml", (), body)


@pytest.mark.parametrize(
    ("kind", "used", "verdict"),
    [
        ("JobSet", {}, "fail"),
        ("RayJob", {}, "fail"),
        ("Job", {"failed": 4}, "pass"),
        ("Job", {"failed": 5}, "warn"),
        ("Job", {"failed": 6}, "fail"),
        ("Volcano Job", {"retryCount": 1}, "pass"),
        ("Volcano Job", {"retryCount": 2}, "warn"),
        ("Volcano Job", {"retryCount": 3}, "fail"),
        ("PyTorchJob", {}, "warn"),
    ],
)
def test_restarts_that_a_kind_has_without_being_told(kind, used, verdict):
    assert restart_budget(job(kind, {"status": used})).verdict == verdict


@pytest.mark.parametrize(("given", "verdict"), [(0, "fail"), (1, "warn"), (2, "pass")])
def test_two_restarts_are_enough(given, verdict):
    assert restart_budget(job("Job", {"spec": {"backoffLimit": given}})).verdict == verdict


@pytest.mark.parametrize(
    ("gpus", "limit", "verdict"),
    [
        (1, "1023Mi", "warn"),
        (1, "1Gi", "pass"),
        (16, "2047Mi", "warn"),
        (16, "2Gi", "pass"),
        (1, "64Mi", "fail"),
        (1, "65Mi", "warn"),
    ],
)
def test_shared_memory_has_a_gibibyte_and_128_mib_for_each_rank(gpus, limit, verdict):
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}
    role = SimpleNamespace(
        gpus=gpus,
        spec={"volumes": [volume]},
        trainer={"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]},
    )
    assert _shared_memory(job("Job", {}), role).verdict == verdict


@pytest.mark.parametrize(("limit", "verdict"), [((1 << 30) - 1, "fail"), (1 << 30, "warn")])
def test_rdma_can_do_with_a_gibibyte_of_locked_memory(limit, verdict):
    pod = replace(SOUND, memlock_bytes=float(limit))
    assert pod_checks.locked_memory(pod).verdict == verdict


def of_size(size):
    state = SimpleNamespace(st_size=size)
    return SimpleNamespace(
        is_file=lambda: True, stat=lambda: state, read_text=lambda encoding: "kind: x"
    )


def test_a_manifest_has_256_mib():
    assert documents._text(of_size(256 << 20)) == "kind: x"
    with pytest.raises(ManifestError, match="larger than 256 MiB"):
        documents._text(of_size((256 << 20) + 1))


def interfaces(count):
    return {"n0": {f"eth{number}": NodeInterface(True, "1500") for number in range(count)}}


def test_a_node_that_shows_32_interfaces_may_have_another():
    assert _on_all(interfaces(31), "rail-0", "ens7").verdict == "fail"
    with pytest.raises(UndecidedError):
        _on_all(interfaces(32), "rail-0", "ens7")


@pytest.mark.parametrize(("ratio", "verdict"), [(0.99, "pass"), (0.98, "fail")])
def test_an_adapter_with_99_percent_of_its_bandwidth_has_all_lanes(ratio, verdict):
    series = netdev.PCI_LINK_RATIO
    labels = ",".join(f'{name}="x"' for name in series.labels)
    page = Page("n0", 1000.0, f"{series.name}{{{labels}}} {ratio}\n")
    found = pcie(Pool(from_pages([page], [series]), (), 1000.0, 0.0))
    assert found.verdict == verdict


def test_what_a_job_names_is_read_in_three_rounds(monkeypatch):
    """A runtime names claims, a claim its volume."""
    rounds = []

    class Named:
        found, unread, absent = {}, {}, frozenset()

        def read_services(self, api, namespace):
            return ""

        def read(self, api, names):
            rounds.append(names)

    found = SimpleNamespace(pods=(), owners=(), not_read=())
    monkeypatch.setattr(running, "NamedObjects", Named)
    monkeypatch.setattr(running.job_objects, "read", lambda *_: found)
    monkeypatch.setattr(running, "_of_object", lambda *_: job("Job", {}))
    running.read("ml/llm", None, None, Settings())
    assert len(rounds) == 3


@pytest.mark.parametrize(("length", "taken"), [(256 << 20, True), ((256 << 20) + 1, False)])
def test_a_manifest_on_standard_input_has_256_mib_too(monkeypatch, length, taken):
    class Text(str):
        __slots__ = ()

        def __len__(self):
            return length

    asked = []
    stdin = SimpleNamespace(read=lambda most: asked.append(most) or Text("kind: x"))
    monkeypatch.setattr(documents.sys, "stdin", stdin)
    if taken:
        assert documents._piped() == "kind: x"
    else:
        with pytest.raises(ManifestError, match="standard input is larger than 256 MiB"):
            list(documents.read(["-"]))
    assert asked == [(256 << 20) + 1]
