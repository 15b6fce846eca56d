"""`rankscope preflight` of nodes: pages of real agents over simulated GPUs, and changes to them."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.request
from xml.etree import ElementTree

import pytest
from benchmarks.agents import agents_over

from preflight_jobs import NETWORK, changed
from rankscope_analyzers import cli
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.preflight import pool
from rankscope_analyzers.preflight.checks import POOL_CHECKS, results
from rankscope_analyzers.preflight.job import NodeInterface

DAY = 86_400.0
SERIES_SECONDS = 60.0


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """Agents of three nodes alike, and of one with other and fewer GPUs."""
    folders = [tmp_path_factory.mktemp("nodes") / name for name in ("a", "b", "odd")]
    for folder in folders:
        (folder / "rings").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        urls = stack.enter_context(agents_over(folders[:2], "--simulate=h100x8"))
        urls += stack.enter_context(agents_over(folders[2:], "--simulate=a100x4"))
        for url in urls:
            whole(url)
        yield urls


def whole(url: str) -> str:
    """Return an agent's page, once all collectors have run."""
    deadline = time.monotonic() + SERIES_SECONDS
    wanted = ("rankscope_gpu_info{", "rankscope_rdma_port_state{", "rankscope_clock_synchronized")
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            text = answer.read().decode()
        if all(name in text for name in wanted):
            return text
        time.sleep(0.1)
    raise AssertionError(f"not all series are there:\n{text}")


@pytest.fixture(scope="module")
def page(agents):
    """The page of a sound node, whose clock is kept whatever that of this machine is."""
    text = re.sub(r"(?m)^rankscope_clock_synchronized .*$", "", whole(agents[0]))
    text = re.sub(r"(?m)^rankscope_clock_max_error_seconds .*$", "", text)
    kept = "rankscope_clock_synchronized 1\nrankscope_clock_max_error_seconds 0.01\n"
    return text + kept + 'rankscope_kernel_log_info{source="kmsg"} 1\n'


def verdicts(*pages: str, silent=()) -> dict[str, tuple[str, bool, str]]:
    now = time.time()
    read = [Page(f"n{number}", now, text) for number, text in enumerate(pages)]
    nodes = pool.Pool(from_pages(read, pool.READS), silent, now, now - 7 * DAY)
    return {
        one.check.id: (one.outcome.verdict, one.outcome.undecided, one.outcome.seen)
        for one in results(nodes, POOL_CHECKS)
    }


def test_equal_and_sound_nodes_pass_every_check(page):
    running = logged("2.27.5")(page)
    found = verdicts(running, running, running)
    assert {verdict for verdict, *_ in found.values()} == {"pass"}
    assert len(found) == len(POOL_CHECKS)


GPU_3 = r'(rankscope_{name}{{[^}}]*gpu="3"[^}}]*}}) \S+'


def first(pattern: str, instead: str):
    def change(text: str) -> str:
        changed, count = re.subn(pattern, instead, text, count=1)
        assert count == 1, pattern
        return changed

    return change


def without(name: str):
    return lambda text: re.sub(rf"(?m)^{name}[{{ ].*\n", "", text)


def gpu(name: str, value: float):
    return first(GPU_3.format(name=name), rf"\1 {value}")


def xid(severity: str, age: float):
    return lambda text: (
        f"{text}rankscope_gpu_xid_last_timestamp_seconds"
        f'{{gpu="3",uuid="u",pci="p",xid="79",severity="{severity}",action="RESET_GPU"}}'
        f" {time.time() - age}\n"
    )


def gone(text: str) -> str:
    """An agent whose node has another kind of nothing: it answers, and shows none of this."""
    return re.sub(r"(?m)^rankscope_(gpu|rdma|pci|kernel_log_info|clock).*\n", "", text)


def way(name: str, value: int):
    return first(rf'(rankscope_gpudirect_rdma{{way="{name}"}}) 1', rf"\1 {value}")


def both(*changes):
    def change(text: str) -> str:
        for one in changes:
            text = one(text)
        return text

    return change


DMA_BUF_ALONE = way("peer_memory", 0)
NEITHER = both(way("peer_memory", 0), way("dma_buf", 0))
STATE = r"(rankscope_rdma_port_state{[^}]*}) 4"
ADAPTER = 'rankscope_pci_link_ratio{pci="b1"} 0.5\n'


def line(text: str):
    return lambda page: f"{page}{text}\n"


def ecc(scope: str, count: int):
    labels = f'gpu="3",uuid="u",pci="p",kind="uncorrected",scope="{scope}"'
    return line(f"rankscope_gpu_ecc_errors_total{{{labels}}} {count}")


def logged(version: str, plugin: str = "1.14"):
    """A node with a rank of a job whose pod logs this version of NCCL and of its plugin."""
    rank = 'rankscope_rank_info{job_id="ml/llm",rank="0",pod_uid="u1",pod_namespace="ml"} 1'
    library = f'rankscope_job_nccl_info{{job_id="ml/llm",version="{version}"}} 1'
    labels = f'pod_uid="u1",net="AWS",plugin="aws-ofi",version="{plugin}"'
    lines = [rank, f"rankscope_nccl_net_info{{{labels}}} 1", *([library] if version else [])]
    return lambda page: page + "\n".join(lines) + "\n"


def virtual_function(text: str) -> str:
    """A node with one more device, which no pod uses: it is down, at the lowest rate."""
    device = 'device="mlx5_9",port="1"'
    info = 'device="mlx5_9",firmware="28.1",board_id="",function="virtual"'
    return (
        f"{text}rankscope_rdma_device_info{{{info}}} 1\nrankscope_rdma_port_state{{{device}}} 1\n"
        f"rankscope_rdma_port_rate_bytes_per_second{{{device}}} 1.25e9\n"
    )


WORN = "rankscope_gpu_sram_ecc_threshold_exceeded"
RUNNING = {"nccl-version"}
"""Checks that are about a job on all the nodes."""

# check, what differs on the third of three nodes, verdict, part of what is seen
CASES = [
    ("gpu-kind", first(r'model="NVIDIA H100', 'model="NVIDIA H200'), "fail", "node n2"),
    ("driver", first(r'driver="590', 'driver="580'), "warn", "580"),
    ("driver", first(r'driver="590[^"]*"', 'driver=""'), "undecided", "unknown on some nodes"),
    ("gpu-state", gpu("gpu_lost", 1), "fail", "GPU 3 of node n2"),
    ("gpu-state", gpu("gpu_unresponsive", 1), "fail", "GPU 3 of node n2"),
    ("gpu-state", both(without("rankscope_gpu_lost"), without("rankscope_gpu_unresponsive")),
     "undecided", "node n2 shows not whether"),
    ("memory-rows", gpu("gpu_row_remap_pending", 1), "fail", "GPU 3 of node n2"),
    ("memory-rows", gpu("gpu_row_remap_failure", 1), "fail", "GPU 3 of node n2"),
    ("memory-rows", lambda text: re.sub(r"(?m)^rankscope_gpu_(row|page|retired).*\n", "", text),
     "undecided", "node n2 shows not the state"),
    ("memory-errors", ecc("volatile", 2), "fail", "GPU 3 of node n2"),
    ("memory-errors", line(f'{WORN}{{gpu="3"}} 1'), "fail", "GPU 3 of node n2"),
    ("memory-errors", ecc("aggregate", 2), "warn", "GPU 3 of node n2"),
    ("memory-errors", without("rankscope_gpu_ecc_errors_total"), "undecided", "node n2"),
    ("nccl-version", logged("2.27.5"), "pass", "NCCL 2.27.5"),
    ("nccl-version", logged("2.26.2"), "fail", "2.27.5 on nodes n0, n1 and 2.26.2 on node n2"),
    ("nccl-version", logged("2.27.5", plugin="1.13"), "warn", "aws-ofi 1.14 on nodes n0, n1 and"),
    ("nccl-version", logged(""), "undecided", "on node n2 have logged no version"),
    ("xids", xid("fatal", DAY), "fail", "Xid 79, GPU 3 of node n2"),
    ("xids", xid("fatal", 8 * DAY), "pass", "none"),
    ("xids", xid("warn", DAY), "pass", "none"),
    ("xids", without("rankscope_kernel_log_info"), "undecided", "node n2"),
    ("pcie", gpu("gpu_pcie_link_width", 8), "fail", "GPU 3 of node n2"),
    ("pcie", first(r"\Z", ADAPTER), "fail", "adapter b1"),
    ("pcie", without("rankscope_gpu_pcie_link_width_max"), "undecided", "node n2"),
    ("rdma-ports", first(STATE, r"\1 1"), "fail", "of n2"),
    ("rdma-ports", first(r"rankscope_rdma_port_state{.*\n", ""), "fail", "node n2"),
    ("rdma-ports", line('rankscope_rdma_device_lost{device="mlx5_1",pci="0000:5b:00.0"} 1'), "fail",
     "gone while the agent was running: mlx5_1 of n2"),
    ("rdma-ports", virtual_function, "pass", "number of RDMA ports 9"),
    ("port-rate", virtual_function, "pass", "400 Gbit/s"),
    ("firmware", virtual_function, "pass", "adapter firmware"),
    ("rdma-ports", without("rankscope_rdma_port_state"), "undecided", "node n2"),
    ("port-rate", first(r"(rankscope_rdma_port_rate_\w+{[^}]*}) \S+", r"\1 12.5e9"), "fail",
     "100 Gbit/s"),
    ("port-rate", without("rankscope_rdma_port_rate_bytes_per_second"), "undecided", "node n2"),
    ("peer-memory", DMA_BUF_ALONE, "warn", "node n2 does not have nvidia_peermem"),
    ("peer-memory", way("dma_buf", 0), "pass", "nodes n0, n1, n2"),
    ("peer-memory", NEITHER, "fail", "neither nvidia_peermem nor DMA-BUF on node n2"),
    ("peer-memory", both(DMA_BUF_ALONE, first(r'rankscope_gpudirect\w+{way="dma_buf"} \S+\n', "")),
     "undecided", "replaces it is unknown"),
    ("peer-memory", without("rankscope_gpudirect_rdma"), "undecided", "node n2"),
    ("firmware", first(r'firmware="28', 'firmware="27'), "warn", "node n2"),
    ("firmware", without("rankscope_rdma_device_info"), "undecided", "node n2"),
    ("clocks", first(r"(?m)^(rankscope_clock_synchronized) 1", r"\1 0"), "warn", "node n2"),
    ("clocks", first(r"(?m)^(rankscope_clock_max_error_seconds) .*", r"\1 0.2"), "warn", "node n2"),
    ("clocks", without("rankscope_clock_synchronized"), "undecided", "node n2"),
]  # fmt: skip

OTHERS = {
    ("agents", "undecided"): "test_a_node_that_nobody_sees_is_undecided",
    ("gpu-kind", "undecided"): "test_a_node_that_shows_no_gpus_leaves_what_is_about_them_undecided",
}
"""Verdicts that another test sees; all checks pass in the first one."""

NEVER = {
    ("agents", "warn"): "of a node that is not seen nothing is known",
    ("agents", "fail"): "of a node that is not seen nothing is known",
    ("gpu-kind", "warn"): "the job runs at the pace of the slower kind",
    ("driver", "fail"): "a job runs on two drivers, with a risk",
    ("gpu-state", "warn"): "a GPU answers, or not",
    ("memory-rows", "warn"): "a row waits to be replaced, or none does",
    ("xids", "warn"): "errors of lesser severity are of programs, not of nodes",
    ("pcie", "warn"): "a link is whole, or slower than it can be",
    ("rdma-ports", "warn"): "a port is up, or down",
    ("port-rate", "warn"): "the job runs at the pace of the slower port",
    ("firmware", "fail"): "a job runs on two versions, with a risk",
    ("clocks", "fail"): "findings suffer from it, the job does not",
}
"""Verdicts that a check of nodes does not have, and why."""


@pytest.mark.parametrize(
    ("check", "change", "verdict", "says"),
    CASES,
    ids=[f"{check}-{verdict}-{number}" for number, (check, _, verdict, _) in enumerate(CASES)],
)
def test_one_odd_node_is_named(page, check, change, verdict, says):
    usual = logged("2.27.5")(page) if check in RUNNING else page
    found = verdicts(usual, usual, change(page))
    got, undecided, seen = found[check]
    assert ("undecided" if undecided else got) == verdict
    assert says in seen
    if verdict in {"warn", "fail"}:
        others = {name for name in found if found[name][0] not in {"pass", "skip"}}
        assert others == {check}


def test_each_check_is_seen_with_each_verdict_that_it_has():
    seen = {(check, verdict) for check, _, verdict, _ in CASES} | OTHERS.keys()
    assert all(name in globals() for name in OTHERS.values())
    for check in (one.id for one in POOL_CHECKS):
        for verdict in ("warn", "fail", "undecided"):
            assert ((check, verdict) in seen) != ((check, verdict) in NEVER), (check, verdict)
    assert {check for check, _ in NEVER} <= {one.id for one in POOL_CHECKS}


def test_a_node_that_shows_no_gpus_leaves_what_is_about_them_undecided(page):
    found = verdicts(page, page, gone(page))
    undecided = {name for name, (_, undecided, _) in found.items() if undecided}
    assert undecided >= {"gpu-kind", "driver", "gpu-state", "memory-rows", "rdma-ports", "clocks"}
    assert "node n2 shows no GPUs" in found["gpu-kind"][2]


def test_nodes_without_gpus_or_adapters_have_nothing_to_check(page):
    bare = re.sub(r"(?m)^rankscope_(gpu|gpudirect|rdma|pci|nic|nccl)_.*\n", "", page)
    found = verdicts(bare, bare)
    alone = {name for name, (verdict, *_) in found.items() if verdict == "pass"}
    assert alone == {"agents", "xids", "clocks"}
    assert not any(undecided for _, undecided, _ in found.values())


def test_a_node_that_nobody_sees_is_undecided(page):
    assert verdicts(page, silent=["no answer of n1"])["agents"] == ("skip", True, "no answer of n1")


def command(urls, *more):
    return ["preflight", *(word for url in urls for word in ("--agent", url)), *more]


def test_the_command_asks_agents_and_names_the_odd_node(agents, tmp_path, capsys):
    xml = tmp_path / "nodes.xml"
    assert cli.main(command(agents, "--skip", "clocks", "--json", "--junit", str(xml))) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["pool"]["nodes"] == ["a", "b", "odd"]
    failed = {one["id"] for one in answer["pool"]["checks"] if one["verdict"] == "fail"}
    assert failed == {"gpu-kind", "port-rate"}
    assert ElementTree.fromstring(xml.read_text()).find("testsuite").get("failures") == "2"
    sound = command(agents, *("--node", "a", "--node", "b", "--skip", "clocks", "--skip", "xids"))
    assert cli.main([*sound, "--no-color"]) == 0
    assert "2 nodes" in capsys.readouterr().out


def test_a_node_without_an_agent_is_undecided_and_none_at_all_an_error(agents, capsys):
    given = command(
        agents, "--node", "a", "--node", "gone", *("--skip", "clocks", "--skip", "xids")
    )
    assert cli.main(given) == 3
    assert "no agent answers for node gone" in capsys.readouterr().out
    assert cli.main(command(agents, "--node", "gone")) == 1
    assert "there is no agent for node gone" in capsys.readouterr().err
    assert cli.main(["preflight"]) == 1
    assert "give manifests to check, a job in the cluster" in capsys.readouterr().err
    assert cli.main(["preflight", "job.yaml", "--node", "a"]) == 1
    assert "--node needs agents" in capsys.readouterr().err


def test_what_nodes_show_decides_checks_of_a_job_on_them(agents, tmp_path, capsys):
    """Two nodes, each with nine ports of 400 Gbit/s, that show no network interfaces."""
    notes = {"parameters": "70B", "layout": "sharded", "step-seconds": "2"}
    body = changed(
        {
            "metadata annotations": {f"rankscope.io/{name}": text for name, text in notes.items()},
            "worker replicas": 2,
        }
    )
    config = json.dumps({"type": "macvlan", "master": "eth9"})
    path = tmp_path / "job.json"
    network = changed({"spec config": config}, NETWORK)
    path.write_text(json.dumps({"kind": "List", "items": [body, network]}))
    cli.main([*command(agents[:2], str(path)), "--json"])
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)["jobs"][0]["checks"]}
    assert found["fabric-budget"]["verdict"] == "pass"
    assert "0.467 s at 3600 Gbit/s" in found["fabric-budget"]["seen"]
    assert found["attachment-master"]["undecided"]
    assert "nodes a, b are not shown" in found["attachment-master"]["seen"]


def test_interfaces_and_rails_are_those_of_the_pages(page):
    now = time.time()
    nics = (
        'rankscope_nic_info{device="eth1",kind="physical",pci="",bond="",mtu="9000"} 1\n'
        'rankscope_nic_up{device="eth1"} 0\n'
    )
    slow = first(STATE, r"\1 1")(page)
    read = [Page("a", now, page + nics), Page("b", now, slow)]
    nodes = pool.Pool(from_pages(read, pool.READS), (), now, now)
    assert pool.interfaces(nodes) == {"a": {"eth1": NodeInterface(False, "9000")}, "b": {}}
    assert pool.least_rails(nodes) == 8 * 400e9 / 8, "a port that is down carries nothing"
    used = virtual_function(slow).replace('"mlx5_9",port="1"} 1\n', '"mlx5_9",port="1"} 4\n')
    assert used.count('"mlx5_9",port="1"} 4') == 1
    parts = pool.Pool(from_pages([read[0], Page("b", now, used)], pool.READS), (), now, now)
    assert pool.least_rails(parts) == 8 * 400e9 / 8, "nor does a virtual function in addition"
    bare = [*read, Page("c", now, without("rankscope_rdma_port_state")(page))]
    assert pool.least_rails(pool.Pool(from_pages(bare, pool.READS), (), now, now)) is None
