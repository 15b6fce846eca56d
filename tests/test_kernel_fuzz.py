"""No input crashes the reading of kernel logs, or makes it keep more than its limits."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_text import recovery, stamped, xid
from rankscope_agent.contract.kernel.log import KernelLog
from rankscope_agent.contract.kernel.vocabulary import ACTIONS, CAUSES
from rankscope_analyzers.logs import kernel_report
from rankscope_analyzers.logs.kernel_report import KernelLogExplanation

MAX_SEEN = 30

PIECES = (
    stamped(1.5, xid(79)),
    stamped(2.5, xid(45, "Ch 1 caused by previous Xid 79")),
    xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x0 0x4)"),
    xid(94, "Contained: SM (0x1). RST: Yes, D-RST: No", "0000:01:00 GPU-I:05"),
    recovery(2),
    "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: fallen off the bus and is not responding to commands",
    "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 62 x",
    "pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (x)",
    "Feb 15 17:37:45 gpu-07 kernel: [82659.7] INFO: task a]:b:1 blocked for more than 120 seconds.",
    " ? f+0x60/0x60 [nvidia_uvm]",
    "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/kubepods/x,task_memcg=/y,task=a,pid=7,uid=0",
    "Memory cgroup out of memory: Killed process 7 (a) total-vm:1kB",
    "EDAC MC0: 99999999999999999999 CE error on CPU#0 ()",
    "4,1234,5678901234,-;mlx5_core 0000:01:00.1 eth1: Link down",
    '{"MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, x","_TRANSPORT":"kernel"}',
    '<script>NVRM: Xid (PCI:<b>): 13, pid=\x1b[31m, name="},{xid=1</script>',
)


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """Return lines that are cut at any byte and put together in any order."""
    pieces = st.sampled_from(PIECES).map(lambda text: f"{text}\n".encode())
    parts = draw(st.lists(st.one_of(pieces, st.binary(max_size=60)), max_size=14))
    text = b"".join(parts)
    for begin, length in draw(
        st.lists(st.tuples(st.integers(0, 600), st.integers(1, 40)), max_size=4)
    ):
        text = text[:begin] + text[begin + length :]
    return text * draw(st.sampled_from((1, 1, 5)))


@settings(max_examples=300)
@given(text=torn(), size=st.integers(1, 700))
def test_any_text_in_any_pieces_gives_a_report_within_the_limits(text, size):
    log = KernelLog(max_seen=MAX_SEEN)
    for begin in range(0, len(text), size):
        log.feed(text[begin : begin + size])
    assert len(log.seen) <= MAX_SEEN
    said = kernel_report.as_object(log)
    assert said["verdict"]["cause"] in CAUSES
    assert said["verdict"]["action"] in ACTIONS
    assert (said["verdict"]["cause"] == "benign") == (said["incidents"] == [])
    json.dumps(said, allow_nan=False)
    assert all(line.isprintable() for line in kernel_report.lines(log))


@settings(max_examples=100)
@given(text=torn(), cut=st.integers(1, 900))
def test_where_a_log_is_cut_in_pieces_does_not_matter_to_its_xids(text, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    whole, one, other = folder / "whole", folder / "one", folder / "other"
    middle = text.rfind(b"\n", 0, cut) + 1
    whole.write_bytes(text)
    one.write_bytes(text[:middle])
    other.write_bytes(text[middle:])
    together = KernelLogExplanation([str(whole)])
    parted = KernelLogExplanation([str(one), str(other)])
    assert _xids(together.log) == _xids(parted.log)


def _xids(log: KernelLog) -> dict[tuple[object, ...], int]:
    return {
        (s.event.code, s.event.pci, s.event.pid, s.event.action): s.count
        for s in log.seen
        if s.event.kind == "xid"
    }
