"""A real veth pair in a network namespace of its own: drops, carrier, events, driver statistics."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from running_agent import agent_environment
from veth_look import FRAMES

PATIENCE_SECONDS = 60
LOOK = str(Path(__file__).parent / "veth_look.py")


@pytest.fixture(scope="module")
def looks():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    name = f"rankscope-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        done = subprocess.run(
            [
                "ip",
                "netns",
                "exec",
                name,
                sys.executable,
                str(Path(__file__).parent / "veth_look.py"),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
            env=agent_environment(),
        )
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return json.loads(done.stdout)


def grown(looks, series: str) -> float:
    return looks["after"][series] - looks["before"][series]


def test_frames_dropped_on_the_way_out_are_counted(looks):
    assert grown(looks, "rankscope_nic_dropped_total va transmit") == FRAMES
    assert grown(looks, "rankscope_nic_dropped_total vb transmit") == 0


def test_a_lost_carrier_is_counted_once_and_its_return_as_well(looks):
    assert grown(looks, "rankscope_nic_carrier_changes_total va down") == 1
    assert grown(looks, "rankscope_nic_carrier_changes_total va up") == 1


def test_the_state_follows_the_link(looks):
    states = [looks[look]["rankscope_nic_up va"] for look in ("before", "down", "after")]
    assert states == [1, 0, 1]


def test_link_events_give_the_time_of_the_change_and_of_nothing_else(looks):
    series = "rankscope_nic_last_change_timestamp_seconds va"
    assert series not in looks["before"], "another MTU, a sniffer and a bridge are no change"
    assert looks["after"][series] >= looks["down"][series] > 0


def test_the_drivers_statistics_are_read(looks):
    assert looks["peer"] == "vb"


def test_an_interface_that_goes_leaves_no_series_and_one_that_comes_back_starts_anew(looks):
    assert not [series for series in looks["gone"] if series.split()[1:2] == ["va"]]
    assert looks["again"]["rankscope_nic_dropped_total va transmit"] == 0
