"""The collector of logs: what it exports, and what a restart, a flood or an attack does to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_job_text import info, start
from rankscope_agent.contract.metrics import job_logs
from rankscope_agent.contract.metrics import nccl_log as metrics
from rankscope_agent.contract.model import Metric
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.sealed_state import unsealed

POD = ("team", "train-0")
NOW = 1_795_000_000.0


class Clock:
    """Unix time that passes in steps long enough to look for logs and to save."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        self.now += 20
        return self.now


class CpuClock:
    """Time that passes by a fixed amount with every look at it."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Node:
    """A node's directories and the collector on it."""

    def __init__(self, root: Path, cpu_step: float = 0.0, step: float = 0.0) -> None:
        self.root = root
        self.timer = CpuClock(step)
        self.log = root / "pods" / "team_train-0_uid-1" / "main" / "0.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.clock = Clock()
        self.cpu = CpuClock(cpu_step)
        self.collector = self.make()

    def make(self, *patterns: Path) -> NcclLogCollector:
        follower = NcclFollower(self.root / "pods", patterns, self.cpu, 1.0, self.timer)
        state = self.root / "nccl_logs.json"
        return NcclLogCollector(follower, self.root / "sys", state, self.clock, PodDirectory())

    def write(self, text: str) -> None:
        stamped = "".join(
            f"2026-11-21T02:14:00.123456789Z stdout F {line}\n" for line in text.splitlines()
        )
        with self.log.open("a") as sink:
            sink.write(stamped)

    def activate_port(self) -> None:
        port = self.root / "sys" / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")

    def page(self) -> dict[tuple[Metric, tuple[str, ...]], object]:
        samples = list(self.collector.collect())
        series = {(sample.metric, sample.labels): sample.value for sample in samples}
        assert len(series) == len(samples), "a series came twice"
        return series


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_fallback_is_exported_with_its_reason(node):
    node.activate_port()
    node.write(start(7, 16, "NET/Socket/0", network="Socket", extra=("NET/IB : No device found.",)))
    page = node.page()
    assert page[metrics.NCCL_SOCKET_FALLBACK, (*POD, "no_rdma_device")] == 1
    assert page[metrics.NCCL_NET_INFO, (*POD, "uid-1", "Socket", "internal", "unknown")] == 1
    connections = (metrics.NCCL_CONNECTIONS, (*POD, "NET/Socket", "false", "inter_node"))
    assert page[connections] == 1
    assert page[metrics.NCCL_RANKS_EXPECTED, POD] == page[metrics.NCCL_RANKS_INITIALIZED, POD] == 1


@pytest.mark.parametrize(
    ("network", "shown", "plugin"),
    [
        ("IB", "IB", "internal"),
        *((name, name, "external") for name in ("AWS Libfabric", "Libfabric", "OFI", "gIB")),
        *((name, name, "external") for name in ("FasTrak", "FastSocket", "GPUDirectTCPX", "UCX")),
        *((name, name, "external") for name in ("GPUDirectTCPX_v7", "IBext", "IBext_v4")),
        ("IBext_v12", "IBext_v12", "external"),
        ("IBext_v13", "other", "external"),
        ("of-my-own", "other", "external"),
    ],
)
def test_networks_that_are_in_use_have_their_names_and_no_log_makes_up_more(
    node, network, shown, plugin
):
    node.write(start(7, 16, f"NET/{network}/0", network=network))
    page = node.page()
    (labels,) = [labels for metric, labels in page if metric is metrics.NCCL_NET_INFO]
    assert labels == (*POD, "uid-1", shown, plugin, "unknown")


def test_a_fallback_on_a_node_without_rdma_is_expected(node):
    node.write(start(7, 16, "NET/Socket/0", network="Socket"))
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, (*POD, "expected")] == 1


def test_a_fallback_in_a_pod_with_an_adapter_of_its_own_is_not_expected(node):
    own = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.5<0>"
    node.write(start(7, 16, "NET/Socket/0", network="Socket", extra=(own,)))
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, (*POD, "unexplained")] == 1


def test_unknown_is_exported_as_unknown(node):
    node.write(info(0, "Using network Socket"))
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, (*POD, "no_connection_seen")] == -1


def test_a_pod_in_which_nccl_does_not_speak_has_no_series(node):
    node.write("epoch 1 loss 2.5")
    assert not [labels for _, labels in node.page() if labels[:2] == POD]


def test_channels_of_the_largest_communicator_are_exported_with_their_bounds(node):
    small = start(0, 2, "P2P/IPC").replace("16 coll", "4 coll").replace("d2c3b", "fffff")
    other = start(4, 16, "P2P/IPC").replace("16 coll channels", "12 coll channels")
    node.write(start(3, 16, "P2P/IPC") + other + small)
    page = node.page()
    bounds = {bound: page[metrics.NCCL_CHANNELS, (*POD, bound)] for bound in ("lowest", "highest")}
    assert bounds == {"lowest": 12, "highest": 16}


def test_a_hanging_start_shows_as_ranks_not_initialised(node):
    text = start(3, 16, "P2P/IPC")
    node.write(text[: text.rindex("gpu-00")])
    page = node.page()
    assert (page[metrics.NCCL_RANKS_EXPECTED, POD], page[metrics.NCCL_RANKS_INITIALIZED, POD]) == (
        1,
        0,
    )


def test_a_restarted_agent_knows_what_it_knew_and_counts_nothing_twice(node):
    warning = "gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'"
    node.write(start(3, 16, "NET/IB/0/GDRDMA") + warning)
    before = node.page()
    node.collector = node.make()
    after = node.page()
    assert before == after
    node.write(warning)
    assert node.page()[metrics.NCCL_WARNINGS, (*POD, "CUDA_FAILURE")] == 2


@pytest.mark.parametrize(
    "state", ["", "[]", "{", '{"version": 1}', '{"version": 99}', "\0" * 100, "[" * 99_999]
)
def test_a_damaged_state_is_passed_over(node, state, caplog):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    (node.root / "nccl_logs.json").write_text(state)
    node.collector = node.make()
    assert "reading all logs again" in caplog.text
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, (*POD, "other_network")] == 0


def untimed(page):
    """Return the series that do not depend on when a line was read."""
    return {key: value for key, value in page.items() if key[0] is not metrics.NCCL_LAST_LINE}


def test_a_changed_letter_of_a_state_costs_no_verdict(node, caplog):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    before = untimed(node.page())
    content = bytearray((node.root / "nccl_logs.json").read_bytes())
    content[content.rindex(b"NET/IB")] ^= 1
    (node.root / "nccl_logs.json").write_bytes(content)
    node.collector = node.make()
    assert "(it is damaged); reading all logs again" in caplog.text
    assert untimed(node.page()) == before


@pytest.mark.parametrize(
    "other",
    [
        {"logs": None},
        {"jobs": [[["a", "b", "c"], 0, 0, None]]},
        {"steps": [[["a", "b", "c"], 0]]},
        {"failures": [["team/a", 0, [[]]]]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_nothing_is_kept_of_a_state_of_which_a_part_has_another_form(node, caplog, other):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    before = untimed(node.page())
    state = json.loads(unsealed((node.root / "nccl_logs.json").read_bytes()))
    (node.root / "nccl_logs.json").write_text(json.dumps(state | other))
    node.collector = node.make()
    assert "reading all logs again" in caplog.text
    assert untimed(node.page()) == before


def test_a_state_of_an_older_agent_which_has_no_digest_is_continued(node):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    before = node.page()
    state = node.root / "nccl_logs.json"
    state.write_bytes(unsealed(state.read_bytes()))
    node.log.write_text("")
    node.collector = node.make()
    again = node.page()
    assert again[metrics.NCCL_CONNECTIONS, (*POD, "NET/IB", "true", "inter_node")] == 1
    assert before.keys() >= again.keys()


def test_the_state_is_whole_at_any_time(node):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    node.page()
    saved = json.loads(unsealed((node.root / "nccl_logs.json").read_bytes()))
    assert list(saved["logs"]) == [str(node.log)]


def test_a_flood_costs_the_budget_and_says_that_it_lags(tmp_path):
    node = Node(tmp_path, cpu_step=0.3)
    node.write(info(0, "Using network IB") * 20_000)
    lag = node.page()[metrics.NCCL_LOG_LAG, ()]
    assert 0 < lag < node.log.stat().st_size
    for _ in range(100):
        later = node.page()[metrics.NCCL_LOG_LAG, ()]
    assert later == 0


def test_reading_ends_where_it_takes_long_without_cpu_time(tmp_path):
    node = Node(tmp_path, step=0.7)
    node.write(info(0, "Using network IB") * 20_000)
    lags = [node.page()[metrics.NCCL_LOG_LAG, ()] for _ in range(100)]
    assert node.log.stat().st_size > lags[0] > lags[1] > lags[-1] == 0


def test_one_log_that_floods_does_not_starve_another(tmp_path):
    node = Node(tmp_path, cpu_step=0.3)
    node.write(info(0, "Using network IB") * 50_000)
    node.log = node.root / "pods" / "team_train-1_uid-2" / "main" / "0.log"
    node.log.parent.mkdir(parents=True)
    node.write(start(7, 16, "NET/Socket/0", network="Socket"))
    pages = [node.page() for _ in range(3)]
    assert (metrics.NCCL_SOCKET_FALLBACK, ("team", "train-1", "expected")) in pages[-1]


def test_names_of_a_log_become_labels_only_if_they_are_known(node):
    warning = "gpu-00:1:2 [0] x.cc:1 NCCL WARN NET/IB: Got completion from peer a<1> with status=12"
    timeout = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum"
    lines = "".join(
        f"{warning} hca h{n}\n"
        + info(0, f"Channel 00/0 : 0[0] -> 9[1] [send] via NET/evil{n}/0")
        + f"{timeout}={n}, OpType=EVIL{n}, Timeout(ms)=1) ran for 2 milliseconds\n"
        for n in range(100)
    )
    node.write(lines + info(0, "Using network evil") + "NCCL version 9.9.9.evil\n")
    page = node.page()
    assert page[metrics.NCCL_IB_ERRORS, (*POD, "other", "retry_exc")] == 100
    assert page[metrics.NCCL_TIMEOUTS, (*POD, "other")] == 100
    assert len(page) < 40
    assert "evil" not in str([labels for _, labels in page])


def test_a_pod_that_goes_takes_its_series_along(node):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    assert (metrics.NCCL_GDR_MISSING, POD) in node.page()
    node.log.unlink()
    node.log.parent.rmdir()
    assert (metrics.NCCL_GDR_MISSING, POD) not in node.page()


def test_files_given_by_flag_are_read_without_a_pod(node, tmp_path):
    (tmp_path / "nccl.gpu-00.7.log").write_text(start(3, 16, "NET/IB/0/GDRDMA"))
    node.collector = node.make(tmp_path / "nccl.*.log")
    assert node.page()[metrics.NCCL_SOCKET_FALLBACK, ("", "", "other_network")] == 0


def test_a_link_in_place_of_a_log_is_named(node):
    node.log.symlink_to("/etc/passwd")
    assert node.page()[metrics.NCCL_LOGS_REJECTED, ("symlink",)] == 1


STEP_LINE = (
    " iteration      120/    5000 | elapsed time per iteration (ms): 500.0 |"
    " learning rate: 1.5E-04 | global batch size:   256 | lm loss: 2.5E+00 |"
)
MEGATRON = (*POD, "megatron", "log")


def test_what_a_framework_prints_about_steps_is_exported_for_the_pod(node):
    node.write(STEP_LINE)
    page = node.page()
    assert page[job_logs.JOB_LOG_STEP, MEGATRON] == 120
    assert page[job_logs.JOB_LOG_STEP_SECONDS, MEGATRON] == 0.5
    assert page[job_logs.JOB_LOG_SAMPLES_RATE, MEGATRON] == 512
    assert page[job_logs.JOB_LOG_LOSS, MEGATRON] == 2.5
    assert (job_logs.JOB_LOG_SKIPPED_STEPS, MEGATRON) not in page
    assert (metrics.NCCL_GDR_MISSING, POD) not in page


def test_a_restarted_agent_knows_the_newest_step(node):
    node.write(STEP_LINE)
    before = node.page()
    node.collector = node.make()
    assert node.page() == before


def test_a_node_without_logs_has_no_data(tmp_path):
    follower = NcclFollower(tmp_path / "pods", (), CpuClock(0), 1.0)
    with pytest.raises(NoData, match=r"--path\.pod-logs or --nccl\.log-files"):
        list(
            NcclLogCollector(
                follower, tmp_path, tmp_path / "s.json", Clock(), PodDirectory()
            ).collect()
        )


def test_a_log_that_is_behind_says_by_how_many_lines(tmp_path):
    node = Node(tmp_path, cpu_step=0.3)
    node.write(info(0, "Using network IB") * 20_000)
    page = node.page()
    left = node.log.read_bytes()[-int(page[metrics.NCCL_LOG_LAG, ()]) :]
    assert page[metrics.NCCL_LOG_LAG_LINES, ()] == pytest.approx(left.count(b"\n"), rel=0.01)
    node.cpu.step = 0.0
    page = node.page()
    assert page[metrics.NCCL_LOG_LAG, ()] == page[metrics.NCCL_LOG_LAG_LINES, ()] == 0


def test_a_log_that_was_not_reached_is_behind_though_it_was_read_before(tmp_path):
    node = Node(tmp_path)
    node.write(info(0, "Using network IB"))
    assert node.page()[metrics.NCCL_LOG_LAG, ()] == 0
    node.write(info(0, "Using network IB"))
    node.cpu.step = 2.0
    page = node.page()
    assert page[metrics.NCCL_LOG_LAG, ()] > 0
    assert page[metrics.NCCL_LOG_LAG_LINES, ()] == 1


def test_the_state_is_not_written_again_while_nothing_is_read(node):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    node.page()
    node.page()
    saved = (node.root / "nccl_logs.json").stat().st_mtime_ns
    node.page()
    assert (node.root / "nccl_logs.json").stat().st_mtime_ns == saved
    node.write(info(3, "Using network IB"))
    node.page()
    assert (node.root / "nccl_logs.json").stat().st_mtime_ns > saved


def test_lines_without_an_end_are_counted_and_take_no_room(node):
    node.write(start(3, 16, "NET/IB/0/GDRDMA"))
    with node.log.open("ab") as sink:
        sink.write(b"\0\xff" * 500_000 + b"\n")
    assert node.page()[metrics.NCCL_UNPARSED, POD] >= 1
    node.write(info(3, "Using network IB"))
    assert node.page()[metrics.NCCL_LOG_LAG, ()] == 0
