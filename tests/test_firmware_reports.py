"""Errors that a node's firmware reports (APEI): what they are about, and how grave they are."""

from __future__ import annotations

import pytest

from kernel_text import verdict_of
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.sources.kernel_log.tally import Tally


def report(severity: str, *lines: str) -> list[str]:
    """Return the lines of a report as ghes.c and cper.c print them."""
    begun = (
        "Hardware error from APEI Generic Hardware Error Source: 4",
        f"event severity: {severity}",
        f" Error 0, type: {severity}",
    )
    return [f"[  812.101] {{1}}[Hardware Error]: {line}" for line in (*begun, *lines)]


PCIE = ("  section_type: PCIe error", "  port_type: 0, PCIe end point", "  version: 3.0")
DEVICE = "  device_id: 0000:3b:00.0"
MEMORY = ("  section_type: memory error", "  physical_address: 0x0000000040000000")
OF_DRIVER = (
    "[  812.101] nvidia 0000:3b:00.0: AER: aer_status: 0x00004000, aer_mask: 0x00002000",
    "[  812.101] nvidia 0000:3b:00.0: AER:    [14] CmpltTO                (First)",
)


def concluded(*lines: str) -> tuple[str, str, str, int]:
    verdict = verdict_of(*lines)
    subject = verdict.incidents[0].subject
    return verdict.cause, verdict.action, subject, len(verdict.incidents)


@pytest.mark.parametrize(
    ("severity", "action"),
    [("corrected", "none"), ("recoverable", "reset_gpu"), ("fatal", "reboot_node")],
)
def test_a_pcie_error_is_the_devices_and_as_grave_as_its_report_says(severity, action):
    lines = report(severity, *PCIE, DEVICE)
    assert concluded(*lines, *OF_DRIVER) == ("pcie", action, "GPU 0000:3b:00", 1)
    other = "investigate" if severity == "recoverable" else action
    assert concluded(*lines) == ("pcie", other, "PCIe device 0000:3b:00", 1)


def test_a_report_whose_device_is_cut_off_is_still_one_of_pcie():
    assert concluded(*report("fatal", *PCIE))[:2] == ("pcie", "reboot_node")


@pytest.mark.parametrize(
    ("severity", "action"),
    [("corrected", "investigate"), ("recoverable", "drain"), ("fatal", "drain")],
)
def test_other_reports_are_machine_checks(severity, action):
    for lines in (MEMORY, ("  section_type: IA32/X64 processor error",)):
        assert concluded(*report(severity, *lines)) == ("host_memory", action, "memory", 1)


def test_each_report_has_its_own_severity():
    lines = (*report("corrected", *PCIE, DEVICE), *OF_DRIVER, *report("fatal", *MEMORY))
    verdict = verdict_of(*lines)
    found = [(one.cause, one.severity) for one in verdict.incidents]
    assert found == [("host_memory", "fatal"), ("pcie", "info")]


def test_a_report_of_which_only_the_beginning_is_left_is_no_all_clear():
    assert concluded(*report("fatal"))[:2] == ("host_memory", "drain")
    assert concluded(OF_DRIVER[0])[0] == "pcie"


def test_the_agent_counts_them_by_device_and_severity():
    tally = Tally()
    for lines in (report("corrected", *PCIE, DEVICE), report("recoverable", *PCIE, DEVICE)):
        for line in (*lines, *OF_DRIVER):
            event = read(line.encode())
            if event is not None:
                tally.add(event, 1000.0)
    assert tally.pcie == {("0000:3b:00", "info"): 1, ("0000:3b:00", "error"): 1}
    assert tally.kinds == {("pcie_error",): 2}
    for line in report("fatal", *MEMORY):
        event = read(line.encode())
        if event is not None:
            tally.add(event, 1000.0)
    assert tally.kinds["machine_check",] == 1
