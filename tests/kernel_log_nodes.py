"""A node whose kernel's log is a list of messages, and the page that its collector makes."""

from __future__ import annotations

import pytest

from rankscope_agent.sources.kernel_log.collector import KernelLogCollector, Node
from rankscope_agent.sources.kernel_log.records import Batch, Record

NOW, UPTIME = 1_800_000_000.0, 5_000.0
UUID = "GPU-00000000-1111-2222-3333-444444444444"
XID_79 = ("rankscope_gpu_xid_errors_total", "0", UUID, "0000:3b:00", "79", "fatal", "reboot_node")
POD_A, POD_B = (f"0f9d2c1e-7a51-4b7e-9a35-{n:012d}" for n in (1, 2))


class Log:
    """A source over lists of messages: each is a record, a second after the one before."""

    def __init__(self, *messages: str, name: str = "kmsg") -> None:
        self.messages = list(messages)
        self.name = name
        self.lost = 0
        self.fails = False
        self.closed = False

    def read(self, cursor):
        if self.fails:
            raise OSError(5, "Input/output error")
        first = cursor.get("sequence", -1) + 1
        records = [
            Record(n, float(n), text.encode()) for n, text in enumerate(self.messages) if n >= first
        ]
        return Batch(records, {"sequence": len(self.messages) - 1}, self.lost)

    def close(self):
        self.closed = True


@pytest.fixture
def node(tmp_path) -> Node:
    boot = tmp_path / "proc" / "sys" / "kernel" / "random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    card = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:3b:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text(f"Model: \t\t H100\nIRQ:   \t\t 1\nGPU UUID: \t {UUID}\n")
    (tmp_path / "state").mkdir()
    clock = iter(range(10**6))
    return Node(
        tmp_path / "proc",
        tmp_path / "pstore",
        tmp_path / "wtmp",
        tmp_path / "state" / "kernel_log.json",
        lambda: NOW + 60 * next(clock),
        lambda: UPTIME,
    )


def page(collector: KernelLogCollector) -> dict[tuple[str, ...], float]:
    return {(s.metric.name, *s.labels): s.value for s in collector.collect()}


def opened(node: Node, *sources: Log) -> KernelLogCollector:
    return KernelLogCollector([lambda one=one: one for one in sources], node)
