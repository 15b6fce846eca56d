"""CPU time of reading RDMA ports: our collector and node_exporter's on the same 16-port tree.

Each port has 40 counter files. Between two looks the counters of traffic change, as on a port in
use, and those of errors do not. The tree is in memory, so neither program pays for a driver; the
additional cost of each system call would apply to both for every file that they read.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cpu_seconds, scrape, series_on, serving

from rankscope_agent.sources.rdma.collector import RdmaCollector
from rankscope_agent.sources.rdma.tree import RdmaTree
from rankscope_analyzers.demo.free_ports import free_port

PORTS = 16
ROUNDS = 9
LOOKS = 40
GOAL_RATIO = 0.2
GOAL_MILLISECONDS = 1.0
EXPORTER = "prometheus-node-exporter"
EXPORTER_FLAGS = (
    "--collector.disable-defaults",
    "--collector.infiniband",
    "--web.disable-exporter-metrics",
    "--log.level=error",
)

TRAFFIC = (
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "unicast_xmit_packets",
    "unicast_rcv_packets",
    "port_xmit_wait",
)
QUIET = (
    "multicast_xmit_packets",
    "multicast_rcv_packets",
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "VL15_dropped",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
HARDWARE = (
    "out_of_sequence",
    "packet_seq_err",
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "req_cqe_error",
    "resp_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_flush_error",
    "rx_read_requests",
    "rx_write_requests",
)
FILES = PORTS * (len(TRAFFIC) + len(QUIET) + len(HARDWARE))


@dataclass(frozen=True, slots=True)
class RdmaCost:
    """CPU milliseconds of one look at all ports, in the median round.

    Args:
        ours: our collector's, samples made, nothing rendered.
        exporter: node_exporter's whole scrape with only this collector; None if not installed.
        idle_exporter: the same without a port: the cost of its scrape apart from the ports.
    """

    ours: float
    samples: int
    exporter: float | None = None
    idle_exporter: float | None = None
    exporter_series: int = 0


def measure(rounds: int = ROUNDS, looks: int = LOOKS) -> RdmaCost:
    """Make the tree and let both look at it alternately."""
    memory = Path("/dev/shm")  # noqa: S108 - a file system in memory, as sysfs is one
    with contextlib.ExitStack() as stack:
        directory = str(memory) if memory.is_dir() else None
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        ports = [_make_port(root / "full", index) for index in range(PORTS)]
        (root / "none" / "class" / "infiniband").mkdir(parents=True)
        tree = RdmaTree(root / "full", 2 * FILES, everything=False)
        stack.callback(tree.close)
        collector = RdmaCollector(tree, root, lambda: 0.0)
        samples = len(tuple(collector.collect()))
        servers = list(_exporters(stack, (root / "full", root / "none")))
        mine: list[float] = []
        theirs: list[list[float]] = []
        for _ in range(rounds):
            mine.append(_our_cost(collector, ports, looks))
            theirs.append([_exporter_cost(pid, at, ports, looks) for pid, at in servers])
        return _summary(mine, theirs, samples, series_on(servers[0][1]) if servers else 0)


def _make_port(sysfs: Path, index: int) -> Path:
    device = sysfs / "class" / "infiniband" / f"mlx5_{index}"
    port = device / "ports" / "1"
    for folder in (port / "counters", port / "hw_counters"):
        folder.mkdir(parents=True)
    texts = {
        device / "fw_ver": "28.41.1000",
        device / "board_id": "MT_0000000001",
        device / "hca_type": "MT4129",
        port / "state": "4: ACTIVE",
        port / "phys_state": "5: LinkUp",
        port / "rate": "400 Gb/sec (4X NDR)",
        port / "link_layer": "InfiniBand",
        **{port / "counters" / name: "0" for name in (*TRAFFIC, *QUIET)},
        **{port / "hw_counters" / name: "0" for name in HARDWARE},
    }
    for path, text in texts.items():
        path.write_text(f"{text}\n")
    return port


def _exporters(stack: contextlib.ExitStack, trees: Sequence[Path]) -> Iterator[tuple[int, int]]:
    program = shutil.which(EXPORTER)
    for tree in trees if program is not None else ():
        port = free_port()
        flags = [f"--web.listen-address=127.0.0.1:{port}", f"--path.sysfs={tree}", *EXPORTER_FLAGS]
        yield stack.enter_context(serving([str(program), *flags], port)), port


def _advance_traffic(ports: Sequence[Path]) -> None:
    value = time.time_ns()
    for port in ports:
        for name in TRAFFIC:
            (port / "counters" / name).write_text(f"{value}\n")


def _our_cost(collector: RdmaCollector, ports: Sequence[Path], looks: int) -> float:
    spent = 0.0
    for _ in range(looks):
        _advance_traffic(ports)
        begin = time.thread_time()
        tuple(collector.collect())
        spent += time.thread_time() - begin
    return spent / looks * 1000


def _exporter_cost(pid: int, address: int, ports: Sequence[Path], looks: int) -> float:
    before = cpu_seconds(pid)
    for _ in range(looks):
        _advance_traffic(ports)
        scrape(address)
    return (cpu_seconds(pid) - before) / looks * 1000


def _summary(
    mine: Sequence[float], theirs: Sequence[Sequence[float]], samples: int, series: int
) -> RdmaCost:
    ours = statistics.median(mine)
    if not theirs[0]:
        return RdmaCost(ours, samples)
    full, idle = (statistics.median(costs) for costs in zip(*theirs, strict=True))
    return RdmaCost(ours, samples, full, idle, series)


def report(cost: RdmaCost) -> str:
    """Write the figures and the goals."""
    lines = [
        f"rankscope     {cost.ours:5.2f} ms CPU a look at {FILES} files, {cost.samples} samples"
        f" (goal at most {GOAL_MILLISECONDS:g} ms)"
    ]
    if cost.exporter is None or cost.idle_exporter is None:
        return "\n".join([*lines, f"{EXPORTER} is not installed: nothing to compare with"])
    net = cost.exporter - cost.idle_exporter
    lines += [
        f"node_exporter {cost.exporter:5.2f} ms CPU a scrape, {cost.exporter_series} series;"
        f" {cost.idle_exporter:.2f} ms without a port",
        f"ratio {cost.ours / cost.exporter:.3f} of its scrape, {cost.ours / net:.3f} of what the"
        f" ports add to it (goal at most {GOAL_RATIO})",
    ]
    return "\n".join(lines)
