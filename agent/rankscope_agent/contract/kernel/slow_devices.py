"""Lines about devices that work, but slowly or not for others: pure patterns and their meaning.

Formats: therm_throt.c of drivers/thermal/intel, drivers/pci/pci.c, dmar.c and amd/iommu.c of
drivers/iommu, kernel/module/main.c, events.c of mlx5.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.kernel.rule import Rule, plain

_FULL = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_SHORT = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_ASLEEP = (
    r"(?:Unable to|can't) change power state from \S{1,8} to \S{1,8}"
    r"(?:, device| \(config space) inaccessible"
)
_REFUSED = plain("iommu_fault", "pcie", "investigate", "warn")

RULES: tuple[Rule, ...] = (
    # Before and since Linux 5.5, which reports it only if the temperature still rises.
    Rule(
        " temperature above threshold, cpu clock throttled",
        re.compile(
            r"(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature (?:is )?above threshold,"
            r" cpu clock (?:is )?throttled"
        ),
        plain("cpu_throttled", "host_kernel", "investigate", "warn"),
    ),
    Rule(
        "High temperature on sensors with bit set",
        re.compile(rf"mlx\d?\w* (?P<device>{_FULL}): .{{0,80}}?High temperature on sensors"),
        plain("nic_hot", "network_nic", "investigate", "warn"),
    ),
    # Where the slot, a switch or the device's own contacts limit it: many a board is built so.
    Rule(
        " Gb/s available PCIe bandwidth, limited by ",
        re.compile(
            rf"\S{{1,40}} (?P<pci>{_FULL}): [\d.]{{1,12}} Gb/s available PCIe bandwidth, limited by"
        ),
        plain("slow_pcie_link", "pcie", "investigate", "info"),
    ),
    Rule(
        "DMAR:",
        re.compile(
            rf"DMAR: ?\[DMA (?:Read|Write)[^\]]{{0,20}}\] Request device \[(?P<pci>{_SHORT})\]"
        ),
        _REFUSED,
        also=" Request device [",
    ),
    Rule(
        "AMD-Vi: Event logged [IO_PAGE_FAULT",
        re.compile(rf"\S{{1,40}} (?P<pci>{_FULL}): AMD-Vi: Event logged \[IO_PAGE_FAULT"),
        _REFUSED,
    ),
    Rule(
        "AMD-Vi: Event logged [IO_PAGE_FAULT",
        re.compile(rf"AMD-Vi: Event logged \[IO_PAGE_FAULT(?: device=(?P<pci>{_SHORT}))?"),
        _REFUSED,
    ),
    # Reads of its registers return nothing but ones: it is gone from the bus.
    Rule(
        " change power state from ",
        re.compile(rf"nvidia(?:-gpu)? (?P<pci>{_FULL}): {_ASLEEP}"),
        plain("gpu_fallen_off_bus", "pcie", "reboot_node", "fatal"),
    ),
    Rule(
        " change power state from ",
        re.compile(rf"\S{{1,40}} (?P<pci>{_FULL}): {_ASLEEP}"),
        plain("device_inaccessible", "pcie", "reboot_node", "error"),
    ),
    *(
        Rule(
            "nvidia_peermem: ",
            re.compile(rf"nvidia_peermem: {what} ib_\w{{0,40}}peer_memory_client"),
            plain("peer_memory_missing", "driver", "investigate", "warn"),
            also=what,
        )
        for what in ("Unknown symbol", "disagrees about version of symbol")
    ),
)
"""The rules for such lines."""
