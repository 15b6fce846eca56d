"""Events become one incident per GPU and root, with one cause and one action."""

from __future__ import annotations

import json

import pytest

from kernel_text import recovery, stamped, verdict_of, xid

GONE = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
HUNG = "INFO: task trainer:71 blocked for more than 120 seconds."
BOOT = "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org) (gcc-12) #1 SMP"
UP, DOWN = "mlx5_core 0000:01:00.1 eth1: Link up", "mlx5_core 0000:01:00.1 eth1: Link down"


def conclusion(*lines: str) -> tuple[str, str, int]:
    verdict = verdict_of(*lines)
    return verdict.cause, verdict.action, len(verdict.incidents)


def test_an_empty_log_is_benign():
    assert conclusion() == ("benign", "none", 0)


def test_a_burst_is_one_incident_per_gpu():
    burst = [xid(45, f"Ch {n:08x}", f"0000:{n % 2:02x}:00") for n in range(11_760)]
    verdict = verdict_of(*burst)
    assert [sum(s.count for s in one.events) for one in verdict.incidents] == [5880, 5880]
    assert (verdict.cause, verdict.action) == ("app", "none")


@pytest.mark.parametrize("code", [13, 31])
def test_a_programs_fault_and_its_clean_up_are_one_incident(code):
    assert conclusion(xid(code), xid(43), xid(45), xid(45)) == ("app", "restart_app", 1)


@pytest.mark.parametrize(
    ("root", "cause", "action"),
    [
        (48, "gpu_memory", "reset_gpu"),
        (62, "gpu_hardware", "reset_gpu"),
        (79, "pcie", "reboot_node"),
        (119, "driver", "reset_gpu"),
        (74, "nvlink_fabric", "drain"),
    ],
)
def test_faults_of_programs_beside_a_fault_of_hardware_are_its_effects(root, cause, action):
    assert conclusion(xid(31), xid(root), xid(13), xid(45)) == (cause, action, 1)


def test_a_fault_days_before_is_an_incident_of_its_own():
    lines = (stamped(10.0, xid(31)), stamped(90_000.0, xid(79)))
    verdict = verdict_of(*lines)
    assert [one.cause for one in verdict.incidents] == ["pcie", "app"]
    assert conclusion(stamped(10.0, xid(31)), stamped(200.0, xid(79)))[2] == 1


def test_times_of_different_boots_are_not_compared():
    lines = (stamped(10.0, xid(31)), stamped(0.0, BOOT), stamped(20.0, xid(79)))
    assert len(verdict_of(*lines).incidents) == 2
    program = f"trainer[71]: {BOOT}"
    assert len(verdict_of(lines[0], program, lines[2]).incidents) == 1


def entry(at: str, message: str) -> str:
    fields = {"__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": at, "_TRANSPORT": "kernel"}
    return json.dumps(fields | {"MESSAGE": message})


DATED = (
    ("Oct  1 02:14:27 n7 kernel: ", "Oct  1 02:19:2{} n7 kernel: "),
    ("Oct 01 02:14:27.25 n7 kernel: ", "Oct 01 02:19:2{}.25 n7 kernel: "),
    ("2026-10-01T02:14:27+0000 n7 kernel: ", "2026-10-01T04:19:2{}+0200 n7 kernel: "),
    ("2026-10-01T02:14:27,123456+00:00 ", "2026-10-01T02:19:2{},123456+00:00 "),
    ("kern  :err   : 2026-10-01T02:14:27,12+00:00 ", "kern  :err   : 2026-10-01T02:19:2{},12Z "),
    ("n7: kern: warning: [2026-10-01T02:14:27.1Z]: ", "n7: kern: err: [2026-10-01T02:19:2{}.1Z]: "),
    ("Thu 2026-10-01 02:14:27 UTC n7 kernel: ", "Thu 2026-10-01 02:19:2{} UTC n7 kernel: "),
    ("[Thu Oct  1 02:14:27 2026] ", "[Thu Oct  1 02:19:2{} 2026] "),
    ("1790820867.123456 n7 kernel: ", "179082116{}.123456 n7 kernel: "),
)


@pytest.mark.parametrize(("first", "later"), DATED)
def test_the_dates_of_lines_tell_incidents_apart_after_five_minutes(first, later):
    cause = first + xid(48)
    assert conclusion(cause, later.format(7) + xid(31))[2] == 1
    assert conclusion(cause, later.format(8) + xid(31))[2] == 2


def test_entries_of_the_journal_have_a_time_of_their_own():
    cause = entry("1790820867000000", xid(48))
    forged = xid(31, ' "__REALTIME_TIMESTAMP":"1790820867000000"')
    assert conclusion(cause, entry("1790821167000000", forged))[2] == 1
    assert conclusion(cause, entry("1790821168000000", forged))[2] == 2


def test_minutes_are_enough_where_a_log_has_no_more():
    assert conclusion("[Oct 1 02:14] " + xid(48), "[Nov29 02:14] " + xid(31))[2] == 2


def test_times_that_cannot_be_are_none():
    for first in (
        "[Xyz Oct 41 02:14:27 2026] ",
        "[Thu Okt  1 02:14:27 2026] ",
        "99999999999.1 n7 ",
    ):
        assert conclusion(first + xid(48), "[Sun Nov 29 02:14:27 2026] " + xid(31))[2] == 1


def test_a_boot_ends_incidents_without_times():
    for cause, later in ((xid(48), xid(31)), (xid(79), xid(31))):
        assert conclusion(cause, later)[2] == 1
        assert conclusion(cause, BOOT, later)[2] == 2
    in_json = [entry("1790820867000000", text) for text in (xid(48), BOOT, xid(31))]
    assert conclusion(*in_json)[2] == 2


def test_a_fault_in_each_of_two_boots_is_one_incident():
    again = (stamped(10.0, xid(79)), stamped(0.0, BOOT), stamped(5.0, xid(79)))
    assert conclusion(*again) == ("pcie", "reboot_node", 1)


def test_the_same_fault_on_two_gpus_is_two_incidents():
    assert conclusion(xid(31), xid(31, pci="0000:5e:00")) == ("app", "restart_app", 2)


def test_a_code_that_names_its_cause_follows_it_after_any_time():
    clean_up = xid(45, "Ch 00000001 caused by previous Xid 94")
    assert conclusion(stamped(1.0, xid(94)), stamped(5000.0, clean_up))[2] == 1


def test_a_clean_up_alone_has_the_cause_that_it_names():
    verdict = verdict_of(xid(45, "Ch 00000001 caused by previous Xid 48"))
    assert (verdict.cause, verdict.action) == ("gpu_memory", "reset_gpu")


@pytest.mark.parametrize(
    ("number", "action"),
    [(0, "reboot_node"), (1, "reset_gpu"), (2, "reboot_node"), (3, "drain"), (4, "drain")],
)
def test_the_drivers_own_advice_decides_the_action_but_not_the_cause(number, action):
    assert conclusion(xid(79), recovery(number)) == ("pcie", action, 1)


@pytest.mark.parametrize(
    ("code", "bits", "action"),
    [
        (94, "RST: No, D-RST: No", "restart_app"),
        (94, "RST: Yes, D-RST: No", "reset_gpu"),
        (95, "RST: Yes, D-RST: No", "reset_gpu"),
        (95, "RST: No, D-RST: Yes", "drain"),
        (94, "no bits", "restart_app"),
    ],
)
def test_contained_errors_ask_for_what_their_bits_say(code, bits, action):
    assert conclusion(xid(code, f"Contained: SM (0x1). {bits}")) == ("gpu_memory", action, 1)


def test_a_row_remap_waits_for_the_jobs_boundary():
    verdict = verdict_of(xid(63, "Row Remapper: New row marked for remapping"))
    assert (verdict.cause, verdict.action) == ("gpu_memory", "reset_gpu")
    assert "next boundary" in verdict.summary


def test_a_row_remap_does_not_explain_a_programs_fault():
    assert [one.cause for one in verdict_of(xid(63), xid(31)).incidents] == ["app", "gpu_memory"]


def test_a_system_processor_that_stays_silent_needs_a_reboot():
    assert conclusion(xid(119))[1] == "reset_gpu"
    assert conclusion(xid(119), xid(119, pid=5), xid(119))[1] == "reboot_node"


def test_a_gpu_lost_without_an_xid_is_an_incident_and_with_one_the_same():
    assert conclusion(GONE) == ("pcie", "reboot_node", 1)
    assert conclusion(xid(79), GONE) == ("pcie", "reboot_node", 1)


def test_a_pcie_error_explains_the_faults_of_its_gpu():
    aer = "nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)"
    assert conclusion(aer, xid(31)) == ("pcie", "reset_gpu", 1)


def test_corrected_errors_ask_for_nothing():
    aer = "pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (x)"
    assert conclusion(aer) == ("pcie", "none", 1)


def test_nvlink5_errors_that_are_not_fatal_ask_for_nothing():
    words = "(0x0409a0c2 0x00000008 0x0 0x0 0x0 0x0)"
    line = xid(145, f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 {words}", pid=None)
    assert conclusion(line) == ("nvlink_fabric", "none", 1)


def test_a_fatal_nvlink5_error_after_a_harmless_one_of_its_gpu_is_as_grave_as_if_alone():
    words = "(0x{:08x} 0x{:08x} 0x0 0x0 0x0 0x0)"
    harmless = f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 {words.format(0x0409A0C2, 0x8)}"
    fatal = f"NETIR_LINK_EVT Fatal XC0 i0 Link 13 {words.format(0x025525C6, 0)}"
    lines = [xid(149, message, pid=None) for message in (harmless, fatal)]
    for order in (lines, lines[::-1]):
        verdict = verdict_of(*order, xid(31))
        (found,) = verdict.incidents
        assert (found.cause, found.action, found.severity) == ("nvlink_fabric", "drain", "error")
        assert "the other end of the link" in found.summary


def test_gpus_that_fault_with_their_switches_are_the_fabrics_incident():
    switch = "nvidia-nvswitch{}: SXid (PCI:0000:0{}:00.0): 12028, Non-fatal, Link 62 x"
    lines = (switch.format(1, 1), switch.format(2, 2), xid(94), xid(137, pci="0000:5e:00"))
    assert conclusion(*lines) == ("nvlink_fabric", "drain", 1)
    alone = conclusion(switch.format(1, 1), xid(31))
    assert alone == ("app", "restart_app", 2)


@pytest.mark.parametrize(("severity", "action"), [(1, "drain"), (0, "investigate")])
def test_the_end_of_a_switchs_error_says_whether_it_was_fatal(severity, action):
    error = "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, "
    tail = f"{error}Severity {severity} Engine instance 30 Sub-engine instance 00"
    words = f"{error}Data {{0x50610002, 0x10100030, 0x00000000}}"
    assert conclusion(tail, words) == ("nvlink_fabric", action, 1)
    assert conclusion(words, tail) == ("nvlink_fabric", action, 1)


def test_a_link_that_goes_down_and_up_while_booting_is_benign():
    assert conclusion(stamped(9.0, DOWN), stamped(12.0, UP)) == ("benign", "none", 0)
    again = (stamped(9000.0, UP), stamped(0.0, BOOT), stamped(9.0, DOWN), stamped(12.0, UP))
    assert conclusion(*again) == ("benign", "none", 0)
    later = conclusion(stamped(9000.0, DOWN), stamped(9012.0, UP))
    assert later == ("network_link", "check_cable", 1)


def test_a_link_that_comes_up_again_and_again_was_down_in_between():
    assert conclusion(UP, UP) == ("benign", "none", 0)
    assert conclusion(UP, UP, UP) == ("network_link", "check_cable", 1)


def test_a_file_server_that_is_silent_over_a_stuck_adapter_is_its_effect():
    silent = "nfs: server 10.0.0.1 not responding, still trying"
    stuck = "NETDEV WATCHDOG: eth0 (igb): transmit queue 0 timed out"
    assert conclusion(silent, stuck) == ("network_nic", "investigate", 1)
    assert conclusion(silent, HUNG) == ("storage", "reboot_node", 1)


def test_a_hung_task_is_blamed_on_what_its_stack_shows():
    frame = " ? {}+0x60/0x60 [{}]"
    assert conclusion(HUNG)[:2] == ("host_kernel", "reboot_node")
    assert conclusion(HUNG, " schedule+0x1/0x2", frame.format("f", "nvidia_uvm"))[0] == "driver"
    assert conclusion(HUNG, frame.format("nfs4_wait", "nfsv4"))[0] == "storage"
    unrelated = conclusion(HUNG, *["something else"] * 70, frame.format("f", "nvidia_uvm"))
    assert unrelated[0] == "host_kernel"


def test_a_task_that_hangs_while_its_channels_are_removed_hangs_in_the_driver():
    assert conclusion(xid(45), HUNG)[:2] == ("driver", "reboot_node")


def test_clean_up_after_a_process_was_killed_for_memory_is_part_of_that():
    killed = "Memory cgroup out of memory: Killed process 71 (trainer) total-vm:1kB"
    assert conclusion(killed, xid(45)) == ("app", "restart_app", 1)
    assert conclusion(killed, xid(45, pid=72))[2] == 2


def test_partitions_of_a_disk_are_one_subject():
    lines = (
        "I/O error, dev nvme0n1, sector 1 op 0x0:(READ) flags 0x0",
        "Buffer I/O error on dev nvme0n1p1, logical block 1",
        "EXT4-fs error (device nvme0n1p1): f:217: comm x: bad",
        "nvme nvme0: I/O 12 QID 3 timeout, reset controller",
    )
    assert conclusion(*lines) == ("storage", "drain", 1)


def test_thousands_of_faults_on_one_gpu_are_told_apart_by_their_times():
    faults = [stamped(1000.0 * n, xid(31, pid=n)) for n in range(3000)]
    assert len(verdict_of(*faults).incidents) == 3000


SEARCH = "python invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0"
KILL = "Out of memory: Killed process 71 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
OF_GROUP = "Memory cgroup out of memory: Killed process 71 (python) total-vm:1kB, anon-rss:1kB"


def test_a_log_that_ends_before_the_kill_still_says_that_memory_ran_out():
    verdict = verdict_of(SEARCH)
    assert (verdict.cause, verdict.action) == ("host_memory", "restart_app")
    assert "the log lacks the victim" in verdict.incidents[0].summary


@pytest.mark.parametrize(("kill", "cause"), [(KILL, "host_memory"), (OF_GROUP, "app")])
def test_who_asked_for_memory_and_whom_it_cost_are_one_incident(kill, cause):
    assert conclusion(SEARCH, kill) == (cause, "restart_app", 1)
    summary = verdict_of(stamped(9.5, SEARCH), stamped(9.6, kill)).incidents[0].summary
    assert summary == "process python: killed for lack of memory"


@pytest.mark.parametrize(
    "before",
    [
        "[   88.123456] ",
        "[88.1] ",
        "[Ter Set 19 11:02:33 2024] ",
        "Jan  2 10:00:00 gpu-1 kernel: ",
        "4,991,5678901234,-;",
        "kern  :warn  : 2026-05-01T03:02:01,120001+00:00 ",
    ],
)
def test_who_asked_for_memory_is_named_without_what_stands_before(before):
    summary = verdict_of(f"{before}{SEARCH}").incidents[0].summary
    assert summary == "the node's memory: python found none left; the log lacks the victim"


STUCK = "watchdog: BUG: soft lockup - CPU#17 stuck for 2690s! [ksoftirqd/17:113]"
IN_ADAPTER = "RIP: 0010:mlx5e_poll_ico_cq+0x6d/0x2a0 [mlx5_core]"
SILENT = "mlx5_core 0000:8a:00.0 eth0: TX timeout detected"


def test_a_cpu_stuck_in_an_adapters_driver_is_the_adapters_and_takes_a_reboot():
    assert conclusion(STUCK, IN_ADAPTER) == ("network_nic", "reboot_node", 1)
    assert conclusion(SILENT, STUCK, IN_ADAPTER) == ("network_nic", "reboot_node", 1)


def test_a_cpu_stuck_elsewhere_stays_apart_from_an_adapter_that_stopped_sending():
    assert conclusion(SILENT, STUCK)[2] == 2


def test_a_disk_behind_a_network_that_is_lost_is_no_disk_to_replace():
    assert conclusion("nvme nvme4: starting error recovery") == ("storage", "investigate", 1)


@pytest.mark.parametrize(("times", "incidents"), [(1, 0), (2, 0), (3, 1), (9, 1)])
def test_a_link_that_comes_up_again_and_again_must_have_been_down(times, incidents):
    ups = [stamped(90_000.0 + 600 * n, UP) for n in range(times)]
    verdict = verdict_of(*ups)
    assert [one.cause for one in verdict.incidents] == ["network_link"] * incidents


@pytest.mark.parametrize("code", [31, 94, 74])
def test_whatever_a_broken_fabric_does_to_several_gpus_is_the_fabrics(code):
    switch = "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    gpus = [xid(code, "text", f"0000:{bus}:00") for bus in ("1b", "2c")]
    verdict = verdict_of(switch, *gpus)
    assert [one.subject for one in verdict.incidents] == ["NVLink fabric"]
    assert verdict.action == "drain"


WORDS = "(0x0, 0x0, 0x90000, 0x0, 0x0, 0x0, 0x0)"
FATAL_LINK = "a fatal error on an NVLink (generations 1 to 4) or at its other end"


def on_link(link: int, pci: str = "0003:00:00") -> str:
    """Return the line of k028.log of the corpus, of another link."""
    who = f"NVRM: Xid (PCI:{pci}): 74, pid='<unknown>', name=<unknown>"
    return f"[454928.755174] {who}, NVLink: fatal error detected on link {link}{WORDS}"


@pytest.mark.parametrize(
    ("lines", "named", "more"),
    [
        ([on_link(14)], "Xid 74 on link 14", ""),
        ([on_link(14), on_link(14)], "Xid 74 on link 14", " (2 lines)"),
        ([on_link(12), on_link(3), on_link(12)], "Xid 74 on links 3, 12", " (3 lines)"),
        ([xid(74, "NVLink: fatal error detected on link 2")], "Xid 74 on link 2", ""),
        ([xid(74, "cut off")], "Xid 74", ""),
    ],
    ids=["one", "again", "two", "without words", "without a link"],
)
def test_the_links_that_an_older_nvlinks_error_names_are_named(lines, named, more):
    (incident,) = verdict_of(*lines).incidents
    assert incident.summary == f"{incident.subject}: {named}, {FATAL_LINK}{more}"
    assert (incident.cause, incident.severity, incident.action) == (
        *("nvlink_fabric", "error"),
        "drain",
    )


def test_the_link_of_a_newer_nvlinks_error_is_named_unless_it_is_about_none():
    words = "(0x025525c6 0x00000000 0x0 0x0 0x0 0x0)"
    lines = [
        xid(149, f"NETIR_LINK_EVT  Fatal   XC0 i0 Link {link} {words}") for link in ("09", "-1")
    ]
    summaries = [verdict_of(one).incidents[0].summary for one in lines]
    assert "Xid 149 on link 9, " in summaries[0]
    assert "Xid 149, " in summaries[1]


def test_links_of_another_gpu_and_other_codes_are_not_its_own():
    both = verdict_of(on_link(1), on_link(2, "0004:00:00"), xid(31, "on link 9", "0003:00:00"))
    assert [one.summary.split(",")[0] for one in both.incidents] == [
        "GPU 0003:00:00: Xid 74 on link 1",
        "GPU 0004:00:00: Xid 74 on link 2",
    ]
