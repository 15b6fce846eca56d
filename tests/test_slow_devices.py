"""Lines about hot, slow and inaccessible devices, which make ranks slow without any other error."""

from __future__ import annotations

import pytest

from kernel_text import stamped, verdict_of, xid
from rankscope_agent.contract.kernel.host_incidents import KINDS
from rankscope_agent.contract.kernel.incidents import PHRASES
from rankscope_agent.contract.kernel.log import read

LIMITED = (
    "pci 0000:3b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at"
    " 0000:3a:00.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)"
)
ASLEEP = "Unable to change power state from D3cold to D0, device inaccessible"
LINES = (
    (
        "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 12)",
        ("cpu_throttled", "host_kernel", None),
    ),
    (
        "CPU3: Core temperature is above threshold, cpu clock is throttled (total events = 12)",
        ("cpu_throttled", "host_kernel", None),
    ),
    (
        "mlx5_core 0000:49:00.0: temp_warn:190:(pid 0): High temperature on sensors with bit set 0"
        " 1",
        ("nic_hot", "network_nic", None),
    ),
    (LIMITED, ("slow_pcie_link", "pcie", "0000:3b:00")),
    (
        "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0x1000 [fault reason 0x05]"
        " PTE Write access is not set",
        ("iommu_fault", "pcie", "0000:3b:00"),
    ),
    (
        "DMAR:[DMA Read] Request device [3b:00.0] fault addr fe000000",
        ("iommu_fault", "pcie", "0000:3b:00"),
    ),
    (
        "nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0x1000"
        " flags=0x0020]",
        ("iommu_fault", "pcie", "0000:3b:00"),
    ),
    (
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=3b:00.0 domain=0x001d address=0x0000000006]",
        ("iommu_fault", "pcie", "0000:3b:00"),
    ),
    (f"nvidia 0000:3b:00.0: {ASLEEP}", ("gpu_fallen_off_bus", "pcie", "0000:3b:00")),
    (f"nvme 0000:04:00.0: {ASLEEP}", ("device_inaccessible", "pcie", "0000:04:00")),
    (
        "igc 0000:02:00.0: can't change power state from D3hot to D0 (config space inaccessible)",
        ("device_inaccessible", "pcie", "0000:02:00"),
    ),
    (
        "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)",
        ("peer_memory_missing", "driver", None),
    ),
    (
        "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client",
        ("peer_memory_missing", "driver", None),
    ),
)

HARMLESS = (
    "mlx5_core 0000:49:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    "mce: CPU3: Package temperature/speed normal",
    "DMAR: IOMMU enabled",
    "DMAR: dmar0: reg_base_addr fbffc000 ver 1:0 cap 8d2078c106f0466 ecap f020df",
    "AMD-Vi: Interrupt remapping enabled",
    "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
    "nvidia_peermem: module license 'Dual BSD/GPL' taints kernel.",
)


@pytest.mark.parametrize(("line", "meaning"), LINES)
def test_such_lines_are_read_in_any_log(line, meaning):
    for before in ("", "[   10.100000] ", "Feb 15 17:37:45 gpu-07 kernel: "):
        event = read(f"{before}{line}".encode())
        assert event is not None
        assert (event.kind, event.cause, event.pci) == meaning
    assert read(f"Feb 15 17:37:45 gpu-07 trainer[7]: {line}".encode()) is None
    (incident,) = verdict_of(line).incidents
    assert incident.summary.isprintable()


@pytest.mark.parametrize("line", HARMLESS)
def test_similar_lines_of_healthy_devices_are_no_events(line):
    assert read(line.encode()) is None


def test_a_slow_link_is_the_least_of_what_a_log_shows():
    verdict = verdict_of(stamped(1.0, LIMITED), stamped(9000.0, xid(31, pci="0000:5d:00")))
    assert [one.cause for one in verdict.incidents] == ["app", "pcie"]


def test_what_a_gpus_own_address_is_in_is_part_of_its_incidents():
    verdict = verdict_of(LIMITED, xid(79), f"pci 0000:3b:00.0: {ASLEEP}")
    (incident,) = verdict.incidents
    assert incident.root.event.code == 79
    assert "a PCIe link below the GPU's own speed or width" in incident.summary


def test_every_event_that_names_a_pci_device_has_words_for_a_gpu():
    assert {kind for kind, (subject, _) in KINDS.items() if "{pci}" in subject} <= set(PHRASES)
