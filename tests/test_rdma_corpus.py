"""Real ports' files with the numbers that other programs read in them, where they are at hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from rankscope_agent.cli import main
from rankscope_agent.sources.rdma.tree import RdmaTree
from running_agent import agent_environment

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpora" / "sysfs"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no recorded sysfs in {CORPUS}")

_LINE = re.compile(r"(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")

# What node_exporter calls a series, and what it is here: name, further labels.
THEIRS = {
    "state_id": ("port_state", {}),
    "physical_state_id": ("port_physical_state", {}),
    "rate_bytes_per_second": ("port_rate_bytes_per_second", {}),
    "port_data_received_bytes_total": ("port_receive_bytes_total", {}),
    "port_data_transmitted_bytes_total": ("port_transmit_bytes_total", {}),
    "port_packets_received_total": ("port_receive_packets_total", {}),
    "port_packets_transmitted_total": ("port_transmit_packets_total", {}),
    "port_transmit_wait_total": ("port_transmit_wait_ticks_total", {}),
    "link_downed_total": ("link_downed_total", {}),
    "link_error_recovery_total": ("link_recoveries_total", {}),
    **{
        f"{cast}_packets_{participle}_total": (
            "port_cast_packets_total",
            {"direction": direction, "cast": cast},
        )
        for cast in ("unicast", "multicast")
        for participle, direction in (("received", "receive"), ("transmitted", "transmit"))
    },
    **{
        f"legacy_{cast}packets_{participle}_total": (
            "legacy_packets_total",
            {"direction": direction, "cast": cast.rstrip("_") or "all"},
        )
        for cast in ("", "unicast_", "multicast_")
        for participle, direction in (("received", "receive"), ("transmitted", "transmit"))
    },
    "legacy_data_received_bytes_total": ("legacy_bytes_total", {"direction": "receive"}),
    "legacy_data_transmitted_bytes_total": ("legacy_bytes_total", {"direction": "transmit"}),
    **{
        f"port_{kind}_{participle}_total": ("port_errors_total", {"type": f"port_{way}_{name}"})
        for kind, name in (
            ("discards", "discards"),
            ("errors", "errors"),
            ("constraint_errors", "constraint_errors"),
        )
        for participle, way in (("received", "rcv"), ("transmitted", "xmit"))
    },
}

# Where a counter of procfs' list is found here, by file name.
OURS = {
    "port_xmit_data": ("port_transmit_bytes_total", {}),
    "port_rcv_data": ("port_receive_bytes_total", {}),
    "port_xmit_packets": ("port_transmit_packets_total", {}),
    "port_rcv_packets": ("port_receive_packets_total", {}),
    "port_xmit_wait": ("port_transmit_wait_ticks_total", {}),
    "link_downed": ("link_downed_total", {}),
    "link_error_recovery": ("link_recoveries_total", {}),
    "lifespan": ("hw_max_age_seconds", {}),
    **{
        f"{cast}_{way}_packets": ("port_cast_packets_total", {"direction": name, "cast": cast})
        for cast in ("unicast", "multicast")
        for way, name in (("rcv", "receive"), ("xmit", "transmit"))
    },
}


def page(capsys, name: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    root = CORPUS / name
    flags = ["--once", f"--path.sysfs={root}/sys", f"--path.procfs={root}/proc"]
    assert main(flags, agent_environment()) == 0
    return series(capsys.readouterr().out, "rankscope_rdma_")


def series(text: str, prefix: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for match in _LINE.finditer(text):
        if match["name"].startswith(prefix):
            labels = frozenset(re.findall(r'(\w+)="([^"]*)"', match["labels"]))
            found[match["name"].removeprefix(prefix), labels] = float(match["value"])
    return found


def test_every_number_of_node_exporter_is_ours_too(capsys):
    expected = series(
        (CORPUS / "node_exporter" / "expected" / "node_infiniband.txt").read_text(),
        "node_infiniband_",
    )
    ours = page(capsys, "node_exporter")
    compared = 0
    for (name, labels), value in expected.items():
        if name == "info":
            device = dict(labels)
            renamed = {"firmware_version": "firmware"}
            want = {(renamed.get(key, key), text) for key, text in device.items()}
            assert any(want <= got for family, got in ours if family == "device_info"), labels
        else:
            family, extra = THEIRS[name]
            assert ours[family, labels | frozenset(extra.items())] == value, (name, labels)
        compared += 1
    assert compared == 51


def test_all_counters_of_procfs_are_ours_too(capsys):
    ours = page(capsys, "procfs")
    compared = 0
    expected = json.loads((CORPUS / "procfs" / "expected_infiniband.json").read_text())
    for device, facts in expected.items():
        for port, values in facts["ports"].items():
            place = frozenset({("device", device), ("port", port)})
            assert ours["port_rate_bytes_per_second", place] == values["Rate"]
            assert ours["port_state", place] == values["StateID"]
            assert ours["port_physical_state", place] == values["PhysStateID"]
            for path, value in values.items():
                if "/" not in path:
                    continue
                kind, name = path.split("/")
                fallback = ("port_errors_total", "type")
                if kind == "hw_counters":
                    fallback = ("hw_events_total", "event")
                family, extra = OURS.get(name, (fallback[0], {fallback[1]: name}))
                want = value / 1000 if name == "lifespan" else value
                assert ours[family, place | frozenset(extra.items())] == want, path
                compared += 1
    assert compared == 97


def test_a_real_node_of_nine_ports_stays_within_its_series():
    tree = RdmaTree(CORPUS / "gpud_h100" / "sys", 10_000, everything=False)
    tree.refresh()
    ports = Counter(sample.labels[0] for sample in tree.samples())
    tree.close()
    assert len(ports) == 9
    assert sum(ports.values()) <= 9 * 32
