"""GPUs that are lost, hung or missing are named, whoever else is healthy."""

import json

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.commands import gpus as gpus_command
from rankscope_analyzers.gpus import states
from rankscope_analyzers.intake.page_history import Page

INFO = 'rankscope_gpu_info{{gpu="{0}",uuid="GPU-{0}",pci="0000:1{0}:00.0"}} 1\n'
FLAG = 'rankscope_gpu_{state}{{gpu="{gpu}",uuid="GPU-{gpu}",pci="0000:1{gpu}:00.0"}} {value}\n'
HELD = 'rankscope_gpu_allocation_info{{uuid="{uuid}",job_id="t/j",rank="{rank}"}} 1\n'


def node(*gpus, more="", at=1000.0, name="n0"):
    return Page(name, at, "".join(map(INFO.format, gpus)) + more)


def flagged(state, gpu, value=1):
    return FLAG.format(state=state, gpu=gpu, value=value)


def named(*pages):
    return [(one.state, one.node, one.gpu, one.uuid) for one in states.of_pages(pages)]


@pytest.mark.parametrize(("state", "flag"), [("lost", "lost"), ("hung", "unresponsive")])
def test_a_gpu_that_the_driver_lost_or_that_hangs_is_named(state, flag):
    more = "".join(flagged(flag, gpu, int(gpu == 2)) for gpu in range(4))
    assert named(node(*range(4), more=more)) == [(state, "n0", "2", "GPU-2")]


def test_a_lost_gpu_is_not_hung_as_well():
    more = flagged("lost", 1) + flagged("unresponsive", 1)
    assert named(node(0, 1, more=more)) == [("lost", "n0", "1", "GPU-1")]


def test_one_that_is_back_is_none():
    before = node(0, 1, more=flagged("lost", 1))
    after = node(0, 1, more=flagged("lost", 1, 0), at=1002.0)
    assert named(before, after) == []


def test_a_gpu_that_was_there_a_moment_ago_is_missing():
    assert named(node(0, 1), node(0, at=1002.0)) == [("missing", "n0", "1", "GPU-1")]


def test_a_gpu_that_a_pod_holds_and_the_driver_does_not_name_is_missing_with_its_job():
    more = HELD.format(uuid="GPU-7", rank=7) + HELD.format(uuid="GPU-0::3", rank=0)
    (one,) = states.of_pages([node(0, 1, more=more)])
    assert (one.state, one.uuid, one.job_id) == ("missing", "GPU-7", "t/j")
    assert one.summary.startswith("a GPU of node n0 (GPU-7), which job t/j holds: a pod holds it")


def test_partitions_and_nodes_whose_gpus_nobody_reads_miss_nothing():
    assert named(node(0, more=HELD.format(uuid="MIG-1", rank=0))) == []
    assert named(Page("n1", 1000.0, HELD.format(uuid="GPU-7", rank=0))) == []


def test_a_healthy_node_beside_it_has_none():
    lost = node(0, more=flagged("lost", 0), name="n1")
    assert named(node(0, 1), lost) == [("lost", "n1", "0", "GPU-0")]


LOADED = (
    'rankscope_gpu_utilization_ratio{{gpu="{0}",uuid="GPU-{0}",pci="0000:1{0}:00.0"}} 0.97\n'
    'rankscope_gpu_clock_hertz{{gpu="{0}",uuid="GPU-{0}",pci="0000:1{0}:00.0",domain="sm"}} 1.9e9\n'
)


def told(monkeypatch, capsys, pages, *arguments):
    monkeypatch.setattr(gpus_command, "watch", lambda *_: (list(pages), []))
    code = cli.main(["gpus", "--agent", "x", "--no-color", *arguments])
    return code, capsys.readouterr()


def test_the_command_shows_them_first_and_calls_no_node_healthy_for_the_others(monkeypatch, capsys):
    text = "".join(map(LOADED.format, (0, 1, 3))) + flagged("lost", 2)
    pages = [node(*range(4), more=text, at=at) for at in (1000.0, 1002.0, 1004.0)]
    code, said = told(monkeypatch, capsys, pages)
    lines = said.out.splitlines()
    assert code == 0
    assert lines[0].startswith("lost: GPU 2 of node n0 (GPU-2): the driver has lost it")
    assert "`rankscope runbook RankscopeGpuLost`" in lines[1]
    assert "No GPU deviates" not in said.out
    assert "Of the others no GPU deviates from its peers." in said.out
    rows = [line.split()[:3] for line in lines if line.startswith(" n0 ")]
    assert rows[0] == ["n0", "2", "lost"]
    assert [row[1] for row in rows[1:]] == ["0", "1", "3"]
    _, said = told(monkeypatch, capsys, pages, "--json")
    assert json.loads(said.out)["absent"] == [
        {"state": "lost", "node": "n0", "gpu": "2", "uuid": "GPU-2", "job_id": ""}
    ]


def test_gpus_with_too_few_peers_to_compare_are_not_called_normal(monkeypatch, capsys):
    slow = LOADED.format(0).replace("1.9e9", "0.6e9")
    pages = [node(0, 1, more=slow + LOADED.format(1), at=at) for at in (1000.0, 1002.0)]
    _, said = told(monkeypatch, capsys, pages)
    assert "Not seen: whether GPUs 0, 1 of node n0 deviate: fewer than 2 others" in said.out
    assert "deviates from its peers" not in said.out
    idle = LOADED.format(3).replace("0.97", "0.6")
    text = "".join(map(LOADED.format, (0, 1, 2))) + idle
    _, said = told(monkeypatch, capsys, [node(*range(4), more=text)])
    assert "Of the others no GPU deviates" in said.out
    assert "Not seen: whether GPU 3 of node n0 deviates: " in said.out
    _, said = told(monkeypatch, capsys, [node(*range(4), more=text)], "--json")
    assert json.loads(said.out)["unobserved"][0].startswith("whether GPU 3 ")


def test_a_node_with_nothing_but_lost_gpus_is_no_node_without_gpus(monkeypatch, capsys):
    code, said = told(monkeypatch, capsys, [node(0, more=flagged("lost", 0))])
    assert code == 0
    assert said.out.startswith("lost: GPU 0")


def test_of_one_job_only_those_that_it_holds_are_named(monkeypatch, capsys):
    more = flagged("lost", 0) + flagged("lost", 1) + HELD.format(uuid="GPU-1", rank=0)
    _, said = told(monkeypatch, capsys, [node(0, 1, more=more)], "--job", "t/j", "--json")
    assert [one["gpu"] for one in json.loads(said.out)["absent"]] == ["1"]
