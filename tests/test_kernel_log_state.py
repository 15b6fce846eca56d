"""Counts of the kernel's log that survive restarts of the agent, and reboots told apart."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
from pathlib import Path

import pytest

from kernel_log_nodes import UUID, XID_79, Log, node, opened, page
from kernel_text import xid
from rankscope_agent.sources.kernel_log.reboots import ended
from rankscope_agent.sources.sealed_state import unsealed

__all__ = ["node"]


def test_counts_go_on_after_a_restart_and_nothing_is_counted_twice(node):
    page(opened(node, Log(xid(79))))
    found = page(opened(node, Log(xid(79), xid(79))))
    assert found[XID_79] == 2


def test_a_gpu_that_the_driver_no_longer_lists_keeps_its_name(node):
    page(opened(node, Log()))
    (node.procfs / "driver" / "nvidia" / "gpus" / "0000:3b:00.0" / "information").write_text(
        "GPU UUID: \t GPU-????????-????-????-????-????????????\n"
    )
    assert page(opened(node, Log(xid(79))))[XID_79] == 1
    shutil.rmtree(node.procfs / "driver")
    assert page(opened(node, Log(xid(79), xid(79))))[XID_79] == 2


def test_another_source_does_not_count_the_same_records_again(node):
    page(opened(node, Log(xid(79), xid(79))))
    found = page(opened(node, Log(xid(79), xid(79), xid(79), name="syslog")))
    assert found[XID_79] == 3


def test_after_a_boot_the_log_is_read_from_its_beginning(node):
    page(opened(node, Log(xid(79))))
    boot_id = node.procfs / "sys" / "kernel" / "random" / "boot_id"
    boot_id.write_text("99999999-2222-3333-4444-555555555555\n")
    found = page(opened(node, Log(xid(79))))
    assert found[XID_79] == 2
    assert found["rankscope_node_reboots_total", "unknown"] == 1
    again = page(opened(node, Log(xid(79))))
    assert again["rankscope_node_reboots_total", "unknown"] == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"boot": 1}', '{"tally": {"version": 9}}', "\x00", '{"boot":' * 20_000]
)
def test_a_damaged_state_is_left_behind(node, text, caplog):
    node.state_file.write_text(text)
    found = page(opened(node, Log(xid(79))))
    assert found[XID_79] == 1
    assert "cannot continue" in caplog.text
    assert json.loads(unsealed(node.state_file.read_bytes()))["boot"]


def test_a_changed_digit_of_a_state_is_not_counted_on(node, caplog):
    page(opened(node, Log(xid(79), xid(79))))
    content = node.state_file.read_bytes()
    changed = content.replace(b'"fatal","reboot_node",2]', b'"fatal","reboot_node",6]')
    assert changed != content
    node.state_file.write_bytes(changed)
    found = page(opened(node, Log(xid(79), xid(79), xid(79))))
    assert found[XID_79] == 3
    assert "it is damaged" in caplog.text


def test_numbers_of_a_state_that_have_no_end_leave_it_behind(node, caplog):
    page(opened(node, Log(xid(79))))
    state = json.loads(unsealed(node.state_file.read_bytes()))
    state["cursors"]["kmsg"]["sequence"] = float("inf")
    node.state_file.write_text(json.dumps(state))
    assert page(opened(node, Log(xid(79))))[XID_79] == 1
    assert "cannot continue" in caplog.text


def test_a_state_that_cannot_be_written_costs_nothing_but_a_warning(node, caplog):
    lost = dataclasses.replace(node, state_file=Path("/proc/nowhere/kernel_log.json"))
    assert page(opened(lost, Log()))
    assert "cannot write" in caplog.text


def test_one_look_goes_on_from_a_state_and_leaves_it_alone(node):
    page(opened(node, Log(xid(79))))
    kept = node.state_file.read_bytes()
    look = dataclasses.replace(node, keeps_state=False)
    found = page(opened(look, Log(xid(79), xid(79))))
    assert (
        found[
            (
                "rankscope_gpu_xid_errors_total",
                "0",
                UUID,
                "0000:3b:00",
                "79",
                "fatal",
                "reboot_node",
            )
        ]
        == 2
    )
    assert node.state_file.read_bytes() == kept


def utmp(kind: int, user: bytes, seconds: int) -> bytes:
    head = struct.pack("<hxxi32s4s32s256s", kind, 0, b"~", b"~~", user, b"6.1")
    return head.ljust(340, b"\0") + struct.pack("<ii", seconds, 0) + b"\0" * 36


def test_how_a_boot_ended_is_told_by_its_dump_and_its_shutdown_record(tmp_path):
    pstore, wtmp = tmp_path / "pstore", tmp_path / "wtmp"
    assert ended(pstore, wtmp, 1000.0) == "unknown"
    wtmp.write_bytes(utmp(2, b"reboot", 100) + utmp(1, b"shutdown", 900))
    assert ended(pstore, wtmp, 1000.0) == "unexpected"
    wtmp.write_bytes(wtmp.read_bytes() + utmp(1, b"shutdown", 1003) + utmp(2, b"reboot", 1100))
    assert ended(pstore, wtmp, 1000.0) == "clean"
    pstore.mkdir()
    (pstore / "console-ramoops-0").touch()
    assert ended(pstore, wtmp, 1000.0) == "clean"
    (pstore / "dmesg-efi-1").touch()
    assert ended(pstore, wtmp, 1000.0) == "crashed"


@pytest.mark.parametrize("data", [b"", b"x", b"\xff" * 1000])
def test_a_garbled_record_of_shutdowns_raises_nothing(tmp_path, data):
    wtmp = tmp_path / "wtmp"
    wtmp.write_bytes(data)
    assert ended(tmp_path, wtmp, 1000.0) in {"unknown", "unexpected"}
