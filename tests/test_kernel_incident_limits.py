"""Limits of what is made of kernel logs: at each and just beyond it."""

from __future__ import annotations

import pytest

from kernel_text import log_of, stamped, verdict_of, xid
from rankscope_agent.contract.kernel import log as kernel_log
from rankscope_agent.contract.kernel.host_incidents import _merge, _with_flaps, host_incidents
from rankscope_agent.contract.kernel.log import KernelLog
from rankscope_agent.contract.kernel.matcher import shape

UP = "mlx5_core 0000:01:00.1 eth1: Link up"
GPUS = [f"0000:{number:02x}:00" for number in range(20)]


@pytest.mark.parametrize(("apart", "incidents"), [(300.0, 1), (301.0, 2)])
def test_what_follows_a_root_within_five_minutes_belongs_to_it(apart, incidents):
    lines = stamped(100.0, xid(79)), stamped(100.0 + apart, xid(31))
    assert len(verdict_of(*lines).incidents) == incidents


@pytest.mark.parametrize(("timeouts", "action"), [(2, "reset_gpu"), (3, "reboot_node")])
def test_a_processor_that_did_not_answer_three_calls_is_dead(timeouts, action):
    calls = range(timeouts)
    lines = [stamped(100.0 + 45 * call, xid(119, f"Timeout {call}")) for call in calls]
    assert verdict_of(*lines).action == action


@pytest.mark.parametrize(("ups", "kinds"), [(2, ["link_up"]), (3, ["link_down"])])
def test_a_link_that_comes_up_three_times_was_down_in_between(ups, kinds):
    seen = log_of(*(stamped(1000.0 + 60 * number, UP) for number in range(ups))).seen
    assert [one.event.kind for one in _with_flaps(seen)] == kinds


def test_the_summary_quotes_two_of_the_incidents_that_another_one_explains():
    disks = [f"nvme nvme{n}: I/O 5 QID 3 timeout, aborting" for n in range(4)]
    found = list(host_incidents(log_of(*disks).seen))
    assert len(found) == 4
    (merged,) = _merge(found, found[0], lambda _: True)
    assert merged.summary.count(";") == found[0].summary.count(";") + 2
    assert len(merged.events) == 4


@pytest.mark.parametrize(("count", "words"), [(9, ""), (10, " and 1 more")])
def test_the_verdict_names_eight_further_subjects(count, words):
    summary = verdict_of(*(xid(79, pci=gpu) for gpu in GPUS[:count])).summary
    assert (" more)" in summary) == bool(words)
    assert words in summary


@pytest.mark.parametrize(("known", "beyond"), [(19_999, 0), (20_000, 1)])
def test_a_log_keeps_20_000_different_events(known, beyond):
    log = KernelLog()
    log._seen = dict.fromkeys(range(known))
    log.feed(f"{xid(79)}\n".encode())
    assert log.beyond_limits == beyond


def test_events_of_later_boots_come_after_those_of_earlier_ones():
    boot = "[    0.000000] Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)"
    log = log_of(boot, stamped(100.0, xid(79)), boot, stamped(5.0, xid(48, pci="0000:4b:00")))
    first, second = log.seen
    assert (first.first_seconds, second.first_seconds) == (100.0 + 1e9, 5.0 + 2e9)


def test_a_new_event_was_not_seen_in_any_boot():
    seen = kernel_log.Seen(None, 0, b"", b"")
    assert (seen.count, seen.boots) == (0, (0, 0))


def test_2048_bytes_of_a_line_are_looked_at():
    line = "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, " + "x" * 5000
    (seen,) = log_of(line).seen
    assert len(seen.first_line) == 2048


def test_what_50_000_messages_say_is_remembered_and_then_forgotten_at_once():
    log = KernelLog()
    log._known = dict.fromkeys(range(49_999))
    for code, known in ((79, 50_000), (48, 1)):
        log.feed(f"[1.0] {xid(code)}\n".encode())
        assert len(log._known) == known


def test_letters_that_tell_little_are_left_out_of_shapes():
    telling = b"\n!/:ABCDEFGHIJKLMNOPQRSTUVWXYZghklmpuvwxy"
    assert shape(bytes(range(256))) == telling


@pytest.mark.parametrize(("digits", "count"), [(9, 123_456_789), (10, 1)])
def test_a_count_in_a_line_has_nine_digits_at_most(digits, count):
    number = "1234567890"[:digits]
    (seen,) = log_of(f"[1.0] EDAC MC0: {number} CE error on CPU#0Channel#2_DIMM#0 ()").seen
    assert seen.count == count


@pytest.mark.parametrize(("frames", "modules"), [(62, {"ib_core"}), (63, set())])
def test_64_lines_of_a_stack_trace_are_looked_at(frames, modules):
    lines = ["[1.0] watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python:77]"]
    lines += ["[1.0]  schedule+0x2e/0xb0"] * frames + ["[1.0]  ib_post_send+0x1a/0x80 [ib_core]"]
    (seen,) = log_of(*lines).seen
    assert seen.modules == modules


@pytest.mark.parametrize(("gpus", "subjects"), [(1, 2), (2, 1)])
def test_a_switch_and_two_gpus_that_report_errors_are_a_fault_of_the_fabric(gpus, subjects):
    switch = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    dead = [xid(74, "Link 3 is down", GPUS[number]) for number in range(gpus)]
    assert len(verdict_of(switch, *dead).incidents) == subjects
