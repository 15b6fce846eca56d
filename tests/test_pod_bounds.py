"""The last that is still taken and the first that is not, of what is kept of a node's pods."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from known_pods import pods_of
from pod_json import pod
from rankscope_agent.sources.pods import collector, directory, json_fields, memberships
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.log_directories import LogDirectories, PodIdentity
from rankscope_agent.sources.pods.records import parse_pod
from standing_clock import clock

__all__ = ["clock"]


def test_folders_of_logs_are_looked_at_again_after_five_seconds(tmp_path, clock):
    names = LogDirectories(tmp_path, clock.monotonic)
    assert names.find("u") is None
    (tmp_path / "team_llm-0_u").mkdir()
    clock.now += 4.9
    assert names.find("u") is None
    clock.now += 0.2
    assert names.find("u") == PodIdentity("team", "llm-0", "u")
    (tmp_path / "team_llm_0_v").mkdir()
    clock.now += 6
    assert names.find("0") is None, "no pod's folder has four parts"


def test_4096_folders_of_logs_are_looked_at(tmp_path, clock, monkeypatch):
    scanned = []

    class Folder:
        def __init__(self, name):
            self.name = name
            scanned.append(name)

    class Folders:
        def __enter__(self):
            return (Folder(f"ns_pod_{index}") for index in itertools.count())

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(os, "scandir", lambda root: Folders())
    names = LogDirectories(tmp_path, clock.monotonic)
    assert names.find("4095") is not None
    assert names.find("4096") is None
    assert len(scanned) == 4096


@pytest.mark.parametrize("number", [int, str])
def test_whole_numbers_of_pods_have_63_bits(number):
    counts = [json_fields.count_of(number(2**63 - 1 + more)) for more in (0, 1)]
    assert counts == [2**63 - 1, 0]


def test_what_is_kept_of_a_pod_has_bounds():
    labels = {f"l{index:03d}": "x" for index in range(130)}
    long_text = {"example.com/rank": "y" * 5000}
    data = pod(
        labels=labels,
        annotations=long_text,
        env={"NCCL_A": "z" * 5000},
        limits={f"example.com/r{index}": "1" for index in range(20)},
    )
    data["spec"]["containers"][0]["image"] = "i" * 600
    data["spec"]["containers"] += [{"name": f"c{index}"} for index in range(70)]
    found = parse_pod(data)
    assert len(found.labels) == 128
    assert len(found.containers) == 64
    main = found.containers[0]
    assert len(main.environment["NCCL_A"]) == 4096
    assert len(main.image) == 512
    assert len(main.limits) == 16


def test_32_kibibytes_are_kept_of_a_pods_texts():
    notes = {f"a{index:02d}/rank": "x" * 4096 for index in range(10)}
    kept = parse_pod(pod(annotations=notes)).annotations
    assert len(kept) == (32 << 10) // (4096 + len("a00/rank"))


def pods(count):
    return [parse_pod(pod(f"p{index}", number=index)) for index in range(count)]


def test_the_directory_holds_4096_pods_and_counts_each_of_the_others_once(monkeypatch):
    one, *_ = pods(1)
    member = memberships.membership(one)
    monkeypatch.setattr(memberships, "membership", lambda pod: member)
    many = [replace(one, uid=str(index)) for index in range(4096)]
    known = PodDirectory()
    known.replace(many, 0.0)
    assert known.dropped == 0
    for _ in range(2):
        known.put(one, 1.0)
    assert (known.dropped, len(known.pods()), known.find(one.uid)) == (1, 4096, None)
    known.remove("0", 2.0)
    known.put(one, 3.0)
    assert (known.dropped, len(known.pods()), known.find(one.uid)) == (0, 4096, one)
    for index in range(4097):
        known.put(replace(one, uid=f"more-{index}"), 4.0)
    assert known.dropped == 4096, "no more are remembered"
    known.remove("more-0", 5.0)
    assert known.dropped == 4095
    known.replace(many, 6.0, ["more-1"])
    assert known.dropped == 1


def test_a_pod_is_awaited_for_a_minute_of_the_first_list_and_of_its_own(monkeypatch, clock):
    monkeypatch.setattr(directory, "time", clock)
    known = PodDirectory()
    known.expect()
    clock.now += 59.9
    assert known.pending
    known.expect()  # as the pods collector does, after the agent
    clock.now += 0.2
    assert not known.pending
    known.replace([], clock.now)
    assert known._awaits("u")
    clock.now += 59.9
    assert known._awaits("u")
    clock.now += 0.2
    assert not known._awaits("u")


def test_1024_pods_are_awaited_at_once(monkeypatch, clock):
    monkeypatch.setattr(directory, "time", clock)
    known = pods_of()
    known.expect()
    known.replace([], clock.now)
    for index in range(1024):
        assert known._awaits(str(index))
    clock.now += 61
    assert not known._awaits("0")
    assert known._awaits("one more")
    assert known._awaits("0"), "all are forgotten together"


def test_once_waits_five_seconds_for_the_first_list(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(PodDirectory, "wait", lambda self, seconds: waits.append(seconds))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = SimpleNamespace(
        once=True,
        procfs=tmp_path,
        sysfs=tmp_path,
        ring_dir=tmp_path,
        kubelet=tmp_path,
        kubernetes_api="",
        node_name="n1",
        job_labels=(),
    )
    collector.create(config, PodDirectory())
    assert waits == [5.0]


def test_64_names_that_are_not_believed_are_logged(monkeypatch, caplog):
    refused = [(f"pod {number}", "not its own") for number in range(65)]
    monkeypatch.setattr(collector, "refused_names", lambda view, known: refused)
    made = collector.PodsCollector.__new__(collector.PodsCollector)
    made._directory, made._logged_refusals = None, frozenset()
    made._log_refusals(None)
    assert len(caplog.messages) == 64
