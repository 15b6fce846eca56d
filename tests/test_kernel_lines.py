"""What may stand before a kernel's message, and what makes it a program's."""

from __future__ import annotations

import json

import pytest

from kernel_text import xid
from rankscope_agent.contract.kernel.lines import uptime_seconds
from rankscope_agent.contract.kernel.log import read

KERNEL_PREFIXES = (
    "",
    "[12345.678901] ",
    "[    1.000001] ",
    "[Mon Jul 25 16:46:04 2022] ",
    "[Ter Set 19 16:55:39 2023] ",
    "[sáb 19 sep 16:55:39 2023] ",
    "[  +0.000049] ",
    "[1234.5] [T123] ",
    "[1234.5][ T123] ",
    "kern  :err   : 2024-01-02T03:04:05,123456+00:00 ",
    "kern  :err   : [  12.345] ",
    "Feb 15 17:37:45 gpu-07 kernel: [82659.755847] ",
    "Feb 15 17:37:45 gpu-07 kernel: ",
    "<6>Feb 15 17:37:45 gpu-07 kernel: ",
    "Apr  9 21:05:38.106121 gpu-07 INFO kernel: [235.1] ",
    "2024-01-02T03:04:05.123456+00:00 gpu-07 kernel: [1.2] ",
    "kernel: ",
    "gpu-07: kern: warning: [2024-01-02T03:04:05.123456789Z]: ",
    " kernel:[55716.328117] ",
    "gpu-07: [21435.0] ",
    "4,1234,5678901234,-;",
    "<4>[  123.4] ",
)

PROGRAM_PREFIXES = (
    "Feb 14 05:28:06 gpu-07 kubelet[123]: ",
    "Feb 14 05:28:06 gpu-07 trainer: ",
    "2024-01-02T03:04:05Z gpu-07 trainer[1]: kernel: ",
    "trainer[1]: kernel: ",
    "user  :notice: [ 1.2] ",
    "daemon:info  : [1.0] ",
    'time="2024" level=info msg="',
    "12,1,2,-;",
    "<14>[1.2] ",
    "x" * 300,
)


@pytest.mark.parametrize("prefix", KERNEL_PREFIXES)
def test_every_form_of_kernel_log_is_read(prefix):
    event = read((prefix + xid(79)).encode())
    assert event is not None
    assert (event.code, event.pci, event.pid) == (79, "0000:3b:00", 71)
    assert event.text == xid(79)


@pytest.mark.parametrize("prefix", PROGRAM_PREFIXES)
def test_what_a_program_writes_is_no_event(prefix):
    assert read((prefix + xid(79)).encode()) is None


def test_entries_of_the_journal_in_json_are_read_if_they_are_the_kernels():
    entry = {"MESSAGE": xid(79), "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}
    assert read(json.dumps(entry).encode()) is not None
    assert read(json.dumps(entry | {"_TRANSPORT": "stdout"}).encode()) is None
    assert read(json.dumps(entry).encode()[:-9]) is None
    assert read(json.dumps({"MESSAGE": [78, 86, 82]}).encode()) is None


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("[12345.5] x", 12345.5),
        ("[    1.25] x", 1.25),
        ("Feb 15 17:37:45 gpu-07 kernel: [82659.5] x", 82659.5),
        ("4,1234,5678901234,-;x", 5678.901234),
        ("[Mon Jul 25 16:46:04 2022] x", None),
        ("[  +0.000049] x", None),
        ("x", None),
    ],
)
def test_seconds_since_boot_are_taken_where_they_are_printed(line, seconds):
    assert uptime_seconds(line) == seconds
