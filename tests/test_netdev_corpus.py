"""Recorded network and pressure files with the numbers that node_exporter reads in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope_agent.cli import main
from running_agent import agent_environment

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpora" / "sysfs" / "node_exporter"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no recorded sysfs in {CORPUS}")

_LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)

# What node_exporter calls a series, and what it is here: name, further labels.
SAME = {
    "node_network_up": ("rankscope_nic_up", {}),
    "node_network_carrier_up_changes_total": (
        "rankscope_nic_carrier_changes_total",
        {"direction": "up"},
    ),
    "node_network_carrier_down_changes_total": (
        "rankscope_nic_carrier_changes_total",
        {"direction": "down"},
    ),
    "node_netstat_Tcp_RetransSegs": ("rankscope_tcp_retransmitted_segments_total", {}),
    "node_netstat_Tcp_OutSegs": ("rankscope_tcp_sent_segments_total", {}),
    "node_netstat_TcpExt_TCPTimeouts": ("rankscope_tcp_events_total", {"event": "timeouts"}),
    "node_netstat_TcpExt_ListenDrops": ("rankscope_tcp_events_total", {"event": "listen_drops"}),
    "node_netstat_TcpExt_ListenOverflows": (
        "rankscope_tcp_events_total",
        {"event": "listen_overflows"},
    ),
    "node_pressure_cpu_waiting_seconds_total": (
        "rankscope_host_pressure_seconds_total",
        {"resource": "cpu", "kind": "some"},
    ),
    **{
        f"node_pressure_{resource}_{word}_seconds_total": (
            "rankscope_host_pressure_seconds_total",
            {"resource": resource, "kind": kind},
        )
        for resource in ("memory", "io", "irq")
        for word, kind in (("waiting", "some"), ("stalled", "full"))
    },
}


def series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (match["name"], frozenset(re.findall(r'(\w+)="([^"]*)"', match["labels"] or ""))): float(
            match["value"]
        )
        for match in _LINE.finditer(text)
    }


def test_the_numbers_of_node_exporter_are_ours_too(capsys):
    flags = ["--once", f"--path.sysfs={CORPUS}/sys", f"--path.procfs={CORPUS}/proc"]
    assert main(flags, agent_environment()) == 0
    ours = series(capsys.readouterr().out)
    compared = set()
    for file in ("node_network", "node_netstat", "node_pressure"):
        expected = series((CORPUS / "expected" / f"{file}.txt").read_text())
        for (name, labels), value in expected.items():
            # The recording holds the files of the bond, and not those of its eth0.
            if name in SAME and ("device", "eth0") not in labels:
                family, extra = SAME[name]
                assert ours[family, labels | frozenset(extra.items())] == pytest.approx(value)
                compared.add(name)
    assert compared == set(SAME) - {"node_pressure_irq_waiting_seconds_total"}
