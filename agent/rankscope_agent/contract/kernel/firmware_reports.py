"""Lines of errors that the node's firmware reports (APEI): pure patterns and their meaning.

Formats: drivers/acpi/apei/ghes.c and drivers/firmware/efi/cper.c, cper_print_aer in
drivers/pci/pcie/aer.c. A report is several lines: how grave it is comes first, then what it is
about. For PCIe that is a device, not the node's memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rankscope_agent.contract.kernel.events import KernelEvent, Kind
from rankscope_agent.contract.kernel.rule import Builder, Rule, plain
from rankscope_agent.contract.kernel.vocabulary import Action, Severity

_REPORT = r"\[Hardware Error\]: "
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"

_MEANING: Mapping[Kind, Mapping[Severity, tuple[Action, Severity]]] = {
    "machine_check": {"fatal": ("drain", "fatal"), "error": ("drain", "fatal")},
    "pcie_error": {
        "fatal": ("reboot_node", "fatal"),
        "error": ("investigate", "error"),
        "info": ("none", "info"),
    },
}
"""What the severity of a report means for its subject; for others, as for unknown ones: a look."""


def _reported(build: Builder) -> Builder:
    """Return a builder for the line that says what a report is about."""
    return lambda match: replace(build(match), reported=True)


_OF_PCIE = _reported(plain("pcie_error", "pcie", "investigate", "warn"))
_OF_PCIE_DETAIL = _reported(plain("pcie_error", "pcie", "investigate", "warn", True))
_OF_MEMORY = _reported(plain("machine_check", "host_memory", "investigate", "warn"))

_SEVERITIES: tuple[tuple[str, Action, Severity], ...] = (
    ("Hardware error from APEI", "investigate", "warn"),
    ("event severity: fatal", "drain", "fatal"),
    ("event severity: recoverable", "drain", "error"),
    ("event severity: (?:corrected|info)", "none", "info"),
)


def begins_report(event: KernelEvent) -> bool:
    """Return True for a line that says how grave a report is, before what it is about."""
    return event.kind == "machine_check" and event.detail


def of_report(event: KernelEvent, report: KernelEvent | None) -> KernelEvent:
    """Return an event with the severity of the report that it is part of, if it is of one.

    Args:
        event: any event.
        report: the last line that began a report; None if there was none.
    """
    if not event.reported or report is None:
        return event
    meaning = _MEANING[event.kind].get(report.severity)
    return event if meaning is None else replace(event, action=meaning[0], severity=meaning[1])


RULES: tuple[Rule, ...] = (
    *(
        Rule(
            "[Hardware Error]: ",
            re.compile(rf"{_REPORT}{text}"),
            plain("machine_check", "host_memory", action, severity, True),
        )
        for text, action, severity in _SEVERITIES
    ),
    Rule(
        "[Hardware Error]: ",
        re.compile(rf"{_REPORT} {{1,8}}section_type: (?!PCIe error)"),
        _OF_MEMORY,
    ),
    # The device is in a later line, and again in one that names its driver, unless all ends here.
    Rule(
        "[Hardware Error]: ",
        re.compile(
            rf"{_REPORT} {{1,8}}(?:section_type: PCIe error|device_id: (?P<pci>{_ADDRESS}))"
        ),
        _OF_PCIE_DETAIL,
    ),
    Rule(
        "AER: ",
        re.compile(rf"\S{{1,40}} (?P<pci>{_ADDRESS}): AER: aer_status: 0x"),
        _OF_PCIE,
    ),
)
"""The rules for such lines."""
