"""Kernel log lines about PCIe, network adapters and links: pure patterns and their meaning.

Formats: drivers/pci/pcie/aer.c, mlx5 core (cmd.c, health.c, events.c), net/sched/sch_generic.c,
bonding, and the messages of drivers about links that go down or come up.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.kernel.rule import Rule, plain

_ADDRESS = r"[0-9a-fA-F:]{4,16}\.[0-7]"
_PID = r"(?:\(pid \d{1,9}\))?:?"
_CORRECTED = r"(?:Correctable|Corrected)"
_FATAL = r"(?:Uncorrectable|Uncorrected) \(Fatal\)"
_NONFATAL = r"(?:Uncorrectable|Uncorrected) \(Non-Fatal\)"


def _aer_prefix(severity: str) -> re.Pattern[str]:
    """Return the port's announcement, as before and since kernel 6: device after `from` or `:`."""
    return re.compile(
        rf"\S{{1,40}} {_ADDRESS}: AER: (?:Multiple )?{severity} error(?: message)? received"
        rf"(?: from|:) (?P<pci>{_ADDRESS})"
    )


def _aer_detail(severity: str) -> re.Pattern[str]:
    """Return the device's own line; older kernels write `severity=`, newer ones may not."""
    return re.compile(
        rf"\S{{1,40}} (?P<pci>{_ADDRESS}): (?:AER: )?PCIe Bus Error: (?:severity=)?{severity},"
    )


def _link(state: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<device>[\w.@-]{{1,15}})(?:: (?:NIC )?| NIC )[Ll]ink (?:is )?{state}\b(?! \(SStatus)"
    )


AER, BUS_ERROR, MLX = "AER: ", "PCIe Bus Error: ", "mlx"
LINKS = ("Link ", "link ", "Link is ", "link is ")
_MLX = rf"mlx\d?\w* (?P<device>{_ADDRESS})(?: \S{{1,40}})?: "

RULES: tuple[Rule, ...] = (
    Rule(BUS_ERROR, _aer_detail(_CORRECTED), plain("pcie_error", "pcie", "none", "info")),
    Rule(BUS_ERROR, _aer_detail(_NONFATAL), plain("pcie_error", "pcie", "investigate", "error")),
    Rule(BUS_ERROR, _aer_detail(_FATAL), plain("pcie_error", "pcie", "reboot_node", "fatal")),
    Rule(AER, _aer_prefix(_CORRECTED), plain("pcie_error", "pcie", "none", "info", True)),
    Rule(AER, _aer_prefix(_NONFATAL), plain("pcie_error", "pcie", "investigate", "error", True)),
    Rule(AER, _aer_prefix(_FATAL), plain("pcie_error", "pcie", "reboot_node", "fatal", True)),
    Rule(
        AER,
        re.compile(
            rf"\S{{1,40}} (?P<pci>{_ADDRESS}): AER: (?:can't recover|[Dd]evice recovery failed)"
        ),
        plain("pcie_unrecovered", "pcie", "investigate", "error"),
    ),
    # drivers/pci/pcie/dpc.c: the port disconnected the devices below it after an uncorrectable
    # error.
    Rule(
        "DPC: containment event",
        re.compile(rf"pcieport (?P<pci>{_ADDRESS}): DPC: containment event"),
        plain("pcie_error", "pcie", "investigate", "error"),
    ),
    Rule(
        ": Card not present",
        re.compile(r"pciehp.{0,60}?[Ss]lot\((?P<device>[\w-]{1,16})\): Card not present"),
        plain("pcie_link_down", "pcie", "investigate", "error"),
    ),
    Rule(
        "): Link Down",
        re.compile(r"pciehp.{0,60}?[Ss]lot\((?P<device>[\w-]{1,16})\): Link Down"),
        plain("pcie_link_down", "pcie", "investigate", "error"),
    ),
    # wait_func and wait_func_handle_exec_timeout: the adapter's firmware no longer answers.
    Rule(
        MLX,
        re.compile(_MLX + rf"wait_func\w*:\d+:{_PID} .*(?:No done completion|Will cause a leak)"),
        plain("nic_command_timeout", "network_nic", "reboot_node", "error"),
        also="wait_func",
    ),
    Rule(
        MLX,
        re.compile(
            _MLX
            + r"(?:.*health.*(?:compromised|Fatal error|assert_var|bad device)"
            + r"|.*print_health_info:.*synd)"
        ),
        plain("nic_firmware_fault", "network_nic", "reboot_node", "error"),
        also="health",
    ),
    # mlx5_load_one and the kernel's driver core: the adapter is missing for the whole boot.
    *(
        Rule(
            MLX,
            re.compile(_MLX + rf"{step} failed"),
            plain("nic_probe_failure", "network_nic", "investigate", "error"),
            also=also,
        )
        for also, step in (
            ("failed with", "mlx5_(?:load|init)_one"),
            ("handle_hca_cap", r"handle_hca_cap\w*"),
            ("enable hca failed", "enable hca"),
            ("init hca failed", "init hca"),
        )
    ),
    Rule(
        MLX,
        re.compile(rf"mlx5_core: probe of (?P<device>{_ADDRESS}) failed with error"),
        plain("nic_probe_failure", "network_nic", "investigate", "error"),
        also="failed with",
    ),
    # drivers/infiniband/sw/rxe: RDMA in software over any Ethernet adapter (soft RoCE).
    Rule(
        "rdma_rxe:",
        re.compile(
            r"rdma_rxe: ?(?P<device>)(?:.*\b(?:[Ee]rror|fail(?:ed|ure)?|[Uu]nable|[Ii]nvalid|"
            r"[Bb]ad|[Cc]ould not|[Cc]annot|timed out|unknown|no memory|null|"
            r"not (?:found|enough))\b)"
        ),
        plain("software_rdma_error", "network_nic", "investigate", "error"),
    ),
    # Access to registers that a function may not read, as monitoring does: harmless.
    Rule(
        MLX,
        re.compile(_MLX + rf"mlx5_cmd_(?:out_err|check):\d+:{_PID} .*failed, status"),
        plain("nic_command_refused", "benign", "none", "info"),
        also="mlx5_cmd_",
    ),
    # An event for a queue that no longer exists: harmless.
    Rule(
        MLX,
        re.compile(_MLX + rf"rsc_event_notifier:\d+:{_PID} Async event for bogus resource"),
        plain("nic_stray_event", "driver", "none", "info"),
        also="Async event for bogus resource",
    ),
    Rule(
        MLX,
        re.compile(_MLX + r".{0,80}?Detected insufficient power on the PCIe slot"),
        plain("nic_low_power", "network_nic", "investigate", "warn"),
        also="insufficient power on the PCIe",
    ),
    Rule(
        MLX,
        re.compile(_MLX + r"Port module event: module \d+, Cable unplugged"),
        plain("nic_cable_unplugged", "network_link", "check_cable", "error"),
        also="Cable unplugged",
    ),
    Rule(
        MLX,
        re.compile(_MLX + r"Port module event: module \d+, Cable plugged"),
        plain("port_state", "benign", "none", "info"),
        also="Cable plugged",
    ),
    Rule(
        MLX,
        re.compile(_MLX + r"Port module event\[error\]: module \d+, "),
        plain("nic_module_error", "network_link", "check_cable", "error"),
        also="Port module event[error]",
    ),
    Rule(
        MLX,
        re.compile(rf"mlx\d?\w* {_ADDRESS} (?P<device>\S{{1,40}}: Port: \d+) Link DOWN"),
        plain("link_down", "network_link", "check_cable", "error"),
        also=" Link DOWN",
    ),
    Rule(
        MLX,
        re.compile(
            rf"mlx\d?\w* {_ADDRESS} (?P<device>\S{{1,40}}: Port: \d+) Link (?:INIT|ARMED|ACTIVE)"
        ),
        plain("port_state", "benign", "none", "info"),
        also=": Port:  Link ",
    ),
    # sch_generic.c: the adapter has not sent anything from its queue for seconds; two wordings.
    Rule(
        "NETDEV WATCHDOG: ",
        re.compile(r"NETDEV WATCHDOG: (?P<device>\S{1,40}) \(\S*\): transmit queue \d+ timed out"),
        plain("nic_transmit_timeout", "network_nic", "investigate", "error"),
    ),
    Rule(
        "NETDEV WATCHDOG: ",
        re.compile(
            r"\S{1,40} \S{1,40} (?P<device>\S{1,40}): NETDEV WATCHDOG: .*transmit queue \d+ timed"
        ),
        plain("nic_transmit_timeout", "network_nic", "investigate", "error"),
    ),
    Rule(
        "TX timeout detected",
        re.compile(rf"\S{{1,40}} {_ADDRESS} (?P<device>\S{{1,40}}): TX timeout detected"),
        plain("nic_transmit_timeout", "network_nic", "investigate", "error"),
    ),
    # Drivers' own watchdogs: ena_netdev.c, and igb, ixgbe, e1000e of the Intel family.
    *(
        Rule(
            needle,
            re.compile(rf"\S{{1,40}} {_ADDRESS} (?P<device>\S{{1,40}}): {needle}"),
            plain("nic_transmit_timeout", "network_nic", "investigate", "error"),
        )
        for needle in (
            "Keep alive watchdog timeout",
            "Found a Tx that wasn't completed on time",
            "Detected Tx Unit Hang",
            "Detected Hardware Unit Hang",
            "Reset adapter unexpectedly",
        )
    ),
    Rule(
        "transmit timeout: latency",
        re.compile(r"(?P<device>ib\w{1,13}): transmit timeout: latency"),
        plain("nic_transmit_timeout", "network_nic", "investigate", "error"),
    ),
    Rule(
        "link status definitely down",
        re.compile(r"link status definitely down for interface (?P<device>[^\s,]{1,40})"),
        plain("link_down", "network_link", "check_cable", "error"),
    ),
    Rule(
        "link status definitely down",
        re.compile(r"\(slave (?P<device>\S{1,40})\): link status definitely down"),
        plain("link_down", "network_link", "check_cable", "error"),
    ),
    Rule(
        "without any active interface!",
        re.compile(r"(?P<device>\S{1,40}): (?:now running )?without any active interface!"),
        plain("link_down", "network_link", "check_cable", "error"),
    ),
    # Formats vary: `eth1: Link down`, `eth2: NIC Link is Down`, `igb: eth0 NIC Link is Down`.
    *(
        Rule(
            f"{link}{down}", _link(down), plain("link_down", "network_link", "check_cable", "error")
        )
        for link in LINKS
        for down in ("Down", "down")
    ),
    *(
        Rule(f"{link}{up}", _link(up), plain("link_up", "benign", "none", "info"))
        for link in LINKS
        for up in ("Up", "up")
    ),
)
"""The rules for lines about devices."""
