"""GPUs that the driver cannot start, dumps of their system processor, several GPUs in one log."""

from __future__ import annotations

import json

import pytest

from kernel_text import recovery, verdict_of, xid
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.contract.kernel.xid import XIDS, describe
from rankscope_agent.contract.kernel.xid_actions import CATALOGUE, PUBLISHED
from rankscope_analyzers import cli

LINES = (
    ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "gpu_fallen_off_bus", "0000:01:00"),
    ("NVRM: GPU at PCI:0000:01:00: has fallen off the bus.", "gpu_fallen_off_bus", "0000:01:00"),
    ("NVRM: x: Assertion failed: lost [NV_ERR_GPU_IS_LOST] (0xF)", "gpu_fallen_off_bus", None),
    ("NVRM: RmInitAdapter failed! (0x26:0xffff:1127)", "gpu_init_failure", None),
    ("NVRM: rm_init_adapter failed for device bearing minor number 0", "gpu_init_failure", None),
    ("NVRM: BAR0 is 0M @ 0x0 (PCI:0000:06:00.0)", "gpu_probe_failure", "0000:06:00"),
    ("nvidia: probe of 0000:06:00.0 failed with error -1", "gpu_probe_failure", "0000:06:00"),
    ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "gpu_probe_failure", None),
    ("NVRM: None of the NVIDIA devices were initialized.", "gpu_probe_failure", None),
    ("NVRM: installed in this system is not supported by open", "gpu_probe_failure", None),
    ("NVRM: GPU6 RmInitAdapter: Cannot initialize GSP firmware RM", "gpu_firmware_no_start", None),
    (
        "NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP",
        "gpu_firmware_no_start",
        None,
    ),
    ("NVRM: GPU6 kflcnCoreDumpDestructive_IMPL: ICD: csr[100] = 0x1", "gpu_firmware_crash", None),
    ("NVRM: kflcnCoreDumpNondestructive_IMPL: PRI: riscvCpuctl : 1", "gpu_firmware_crash", None),
    ("NVRM:     RISC-V CSR State:", "gpu_firmware_crash", None),
    ("NVRM:     Reported by libos partition:2#4 kernel v3.1", "gpu_firmware_crash", None),
    (
        "NVRM:     -1    76   GSP_RM_CONTROL    4126 0x000000002080a026 0x0000000000000214",
        "gpu_firmware_crash",
        None,
    ),
    (
        "nvidia 0000:06:00.0: Direct firmware load for nvidia/580.1/gsp_ga10x.bin failed with"
        " error -2",
        "gpu_firmware_missing",
        "0000:06:00",
    ),
    (
        "NVRM: uvm encountered global fatal error 0x60, requiring os reboot",
        "gpu_reset_required",
        None,
    ),
    ("rdma_rxe: qp#17 moved to error state", "software_rdma_error", None),
    ("rdma_rxe: null vaddr", "software_rdma_error", None),
    ("mlx5_core 0000:03:00.0: mlx5_load_one failed with error code -22", "nic_probe_failure", None),
    ("mlx5_core: probe of 0000:03:00.0 failed with error -22", "nic_probe_failure", None),
    ("general protection fault: 0000 [#6] SMP PTI", "kernel_fault", None),
)


@pytest.mark.parametrize(("line", "kind", "pci"), LINES)
def test_each_line_gives_its_event(line, kind, pci):
    event = read(f"[   84.702013] {line}".encode())
    assert event is not None
    assert (event.kind, event.pci) == (kind, pci)


@pytest.mark.parametrize(("length", "found"), [(200, True), (202, False)])
@pytest.mark.parametrize(
    "words",
    [
        "\0NV_ERR_GPU_IS_LOST",
        "\0NV_ERR_RESET_REQUIRED",
        "\0uvm encountered global fatal error 0x60, requiring os reboot",
        "\0gpuWaitForGfwBootComplete_TU102: failed",
        "gpuWaitForGfwBootComplete_TU102: \0failed",
        "\0knvlinkDiscoverPostRxDetLinks_GH100: failed",
        "knvlinkDiscoverPostRxDetLinks_GH100:\0failed",
        "\0No firmware image found",
    ],
)
def test_what_a_message_says_stands_near_its_beginning(words, length, found):
    gap = ("x " * length)[:length]
    line = words.replace("\0", gap)
    assert (read(f"[   84.702013] NVRM: {line}".encode()) is not None) is found


ANSWERS = {
    "NVRM: GPU at 0000:01:00.0 has fallen off the bus.": ("pcie", "reboot_node"),
    "NVRM: uvm encountered global fatal error 0x60, requiring os reboot": ("driver", "reboot_node"),
    "NVRM: BAR0 is 0M @ 0x0 (PCI:0000:06:00.0)": ("pcie", "investigate"),
    "nvidia: probe of 0000:06:00.0 failed with error -1": ("driver", "investigate"),
    "NVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x26:0xffff:1127)": (
        "gpu_hardware",
        "reboot_node",
    ),
    "NVRM: GPU6 RmInitAdapter: Cannot initialize GSP firmware RM": ("driver", "reset_gpu"),
    "NVRM: GPU6 kflcnCoreDumpDestructive_IMPL: ICD: csr[100] = 0x1": ("driver", "reset_gpu"),
    "nvidia 0000:06:00.0: Direct firmware load for nvidia/580.1/gsp_ga10x.bin failed with"
    " error -2": ("driver", "investigate"),
}


@pytest.mark.parametrize(("line", "answer"), ANSWERS.items())
def test_each_way_not_to_start_has_its_cause_and_action(line, answer):
    verdict = verdict_of(f"[   84.702013] {line}")
    assert (verdict.cause, verdict.action) == answer


HARMLESS = (
    "rdma_rxe: loaded",
    "infiniband rxe0: added eth0",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.1  Release Build",
    "NVRM: GPU at PCI:0000:06:00: GPU-00000000-0000-0000-0000-000000000000",
    "nvidia 0000:06:00.0: enabling device (0000 -> 0003)",
    "i915 0000:00:02.0: Direct firmware load for i915/x.bin failed with error -2",
    "ixgbe: probe of 0000:06:00.0 failed with error -1",
)


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_looks_alike_is_no_event(line):
    assert read(f"[   84.702013] {line}".encode()) is None


def test_a_gpu_that_is_gone_when_the_driver_is_loaded_is_one_incident():
    said = verdict_of(
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:2330) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )
    (incident,) = said.incidents
    assert (said.cause, said.action, incident.subject) == ("pcie", "reboot_node", "GPU 0000:b3:00")
    assert "did not answer when the driver was loaded" in incident.summary


def test_a_gpu_without_addresses_is_a_matter_of_the_nodes_firmware():
    said = verdict_of(
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)",
        "nvidia: probe of 0000:14:00.0 failed with error -1",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )
    assert (said.cause, said.action) == ("pcie", "investigate")
    assert "Above 4G Decoding" in said.summary


def test_a_gpu_that_the_driver_does_not_support_needs_another_driver():
    said = verdict_of(
        "NVRM: The NVIDIA GPU 0000:65:00.0 (PCI ID: 10de:1b38)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
    )
    assert (said.cause, said.action) == ("driver", "investigate")
    assert said.incidents[0].subject == "GPU 0000:65:00"


INIT = "NVRM: GPU 0000:a1:00.0: RmInitAdapter failed! (0x62:0x40:2168)"


@pytest.mark.parametrize(
    ("before", "cause", "action"),
    [
        ((), "gpu_hardware", "reboot_node"),
        (("NVRM: GPU6 RmInitAdapter: Cannot initialize GSP firmware RM",), "driver", "reboot_node"),
        (
            (
                "NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT",
                "NVRM: GPU6 RmInitAdapter: Cannot initialize GSP firmware RM",
            ),
            "gpu_hardware",
            "reboot_node",
        ),
        (
            (
                "nvidia 0000:a1:00.0: Direct firmware load for nvidia/1/gsp_a.bin failed with"
                " error -2",
            ),
            "driver",
            "investigate",
        ),
    ],
    ids=["alone", "no GSP", "no boot of its own", "no firmware file"],
)
def test_an_initialisation_that_fails_is_blamed_on_what_failed_before(before, cause, action):
    said = verdict_of(*before, INIT)
    (incident,) = said.incidents
    assert (said.cause, said.action, incident.subject) == (cause, action, "GPU 0000:a1:00")


def test_the_tail_of_a_dump_alone_is_a_crash_of_the_system_processor():
    lines = [
        f"NVRM: GPU6 kflcnCoreDumpDestructive_IMPL: ICD: csr[{n}] = 0x{n:016x}" for n in range(300)
    ]
    said = verdict_of(*lines)
    (incident,) = said.incidents
    assert (said.cause, said.action) == ("driver", "reset_gpu")
    assert sum(one.count for one in incident.events) == 300


def test_a_dump_belongs_to_the_xid_that_it_is_printed_around():
    crashed = "NVRM: Xid (PCI:0000:06:00): 120, GSP task exception: store access page fault"
    said = verdict_of("NVRM: _kgspLogXid119: *** GSP ***", crashed, "NVRM:     RISC-V CSR State:")
    (incident,) = said.incidents
    assert incident.root.event.code == 120
    assert sum(one.count for one in incident.events) == 3


def test_a_line_without_an_address_goes_to_the_gpu_that_is_near_in_time():
    said = verdict_of(
        "[  100.000000] NVRM: GPU 0000:a1:00.0: RmInitAdapter failed! (0x62:0x40:2168)",
        "[  100.100000] NVRM: GPU6 RmInitAdapter: Cannot initialize GSP firmware RM",
        "[ 9000.000000] NVRM: GPU2 kflcnCoreDumpDestructive_IMPL: ICD: a4:0x4",
    )
    first, second = said.incidents
    assert {first.subject, second.subject} == {
        "GPU 0000:a1:00",
        "a GPU that the log does not name",
    }


def test_clean_up_after_a_broken_nvlink_drains_the_node_on_each_gpu():
    lines = [
        f"NVRM: Xid (PCI:0000:{bus}:00): 45, pid=9, name=python, Ch 1 caused by previous Xid 149"
        for bus in ("ba", "dc", "ed")
    ]
    said = verdict_of(*lines)
    assert [(i.cause, i.action) for i in said.incidents] == [("nvlink_fabric", "drain")] * 3


def test_several_gpus_are_several_incidents_with_the_worst_first():
    said = verdict_of(
        xid(43, pci="0000:05:00"),
        xid(31, pci="0000:07:00"),
        xid(79, pci="0000:08:00"),
        recovery(2, pci="0000:08:00"),
        "NVRM: Xid (PCI:0000:09:00): 94, Contained: SM (0x1). RST: No, D-RST: No",
    )
    subjects = [incident.subject for incident in said.incidents]
    assert subjects == ["GPU 0000:08:00", "GPU 0000:09:00", "GPU 0000:07:00", "GPU 0000:05:00"]
    assert said.cause == "pcie"
    assert "and 3 more incidents: GPU 0000:09:00, GPU 0000:07:00, GPU 0000:05:00" in said.summary


def test_software_rdma_has_an_incident_of_its_own():
    said = verdict_of("rdma_rxe: loaded", "rdma_rxe: qp#17 moved to error state")
    assert (said.cause, said.action) == ("network_nic", "investigate")
    assert "software RoCE" in said.summary
    oops = verdict_of(
        "general protection fault: 0000 [#6] SMP PTI",
        "RIP: 0010:rxe_qp_cleanup+0x1d/0x60 [rdma_rxe]",
    )
    assert (oops.cause, oops.action) == ("network_nic", "reboot_node")
    named = verdict_of("BUG: KASAN: stack-out-of-bounds in rxe_post_send+0x12f3/0x1880 [rdma_rxe]")
    assert named.cause == "network_nic"


def test_an_adapter_that_its_driver_could_not_start_is_one_incident():
    said = verdict_of(
        "mlx5_core 0000:03:00.0: firmware version: 14.32.1010",
        "mlx5_core 0000:03:00.0: mlx5_load_one failed with error code -22",
        "mlx5_core: probe of 0000:03:00.0 failed with error -22",
    )
    (incident,) = said.incidents
    assert (said.cause, said.action) == ("network_nic", "investigate")
    assert incident.summary.startswith("NIC 0000:03:00.0: its driver could not start it")


ONE_WORD = {
    "RESTART_APP": "restart_app",
    "RESET_GPU": "reset_gpu",
    "RESTART_BM": "reboot_node",
    "RESTART_VM": "reboot_node",
    "CHECK_MECHANICALS": "check_cable",
    "CONTACT_SUPPORT": "contact_vendor",
}


def test_first_actions_are_those_that_nvidia_publishes():
    assert PUBLISHED.keys() == set(range(1, 162)) - {
        code for code in range(1, 162) if code not in XIDS
    }
    for code, pair in PUBLISHED.items():
        own = ONE_WORD.get(pair.immediate)
        assert own is None or own == describe(code).action, code


def test_the_answer_says_what_nvidia_publishes_and_of_which_edition(tmp_path, capsys):
    log = tmp_path / "kernel.log"
    log.write_text(f"{xid(119, 'Timeout')}\n")
    assert cli.main(["explain", "kernel-log", "--json", str(log)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["xid_catalogue"] == CATALOGUE
    (incident,) = said["incidents"]
    assert incident["nvidia"] == {"immediate": "RESET_GPU", "investigatory": "INVESTIGATE_SW"}
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    assert f"{CATALOGUE}: RESET_GPU, then INVESTIGATE_SW" in capsys.readouterr().out


def test_a_log_in_another_encoding_is_read(tmp_path, capsys):
    log = tmp_path / "kernel.log"
    log.write_bytes(f"\u00fcber\r\n{xid(79)}\r\n".encode("utf-16"))
    assert cli.main(["explain", "kernel-log", "--json", str(log)]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["cause"] == "pcie"
