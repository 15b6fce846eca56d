"""Lines of NVIDIA's driver about GPUs that it cannot start, and about dead system processors.

Formats: nv-pci.c and nv.c of the open kernel modules (595.45.04) for the loading of the driver,
osinit.c for RmInitAdapter, kernel_gsp.c and kernel_falcon.c for what is printed around a crash of
the GPU's system processor: hundreds of lines, of which a log often keeps only the end.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rankscope_agent.contract.kernel.events import KernelEvent
from rankscope_agent.contract.kernel.rule import Builder, Rule, plain

NVRM = "NVRM"
GAP = ".{0,200}"
"""Words within a message, few enough that a line which only repeats its beginning is soon read."""
_ADDRESS = r"(?P<pci>[0-9a-fA-F:]{3,15}[0-9a-fA-F](?:\.[0-7])?)"
_INDEX = r"NVRM: (?:GPU(?P<device>\d{1,3}) )?"

_FALLEN = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus")
_LOST_CODE = re.compile(rf"NVRM: {GAP}\bNV_ERR_GPU_IS_LOST\b")
_UVM_DEAD = re.compile(rf"NVRM: {GAP}uvm encountered global fatal error 0x\w+, requiring os reboot")
_NAMED = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+)")
_NOT_RESPONDING = re.compile(r"NVRM: fallen off the bus and is not responding to commands")
_UNSUPPORTED = re.compile(
    r"NVRM: (?:installed in this system )?(?:is not supported by|requires use)"
)
_NO_WINDOW = re.compile(rf"NVRM: BAR\d is 0M @ 0x0 \(PCI:{_ADDRESS}\)")
_PROBE = re.compile(rf"nvidia: probe of {_ADDRESS} failed with error")
_PROBES = re.compile(
    r"NVRM: (?:The NVIDIA probe routine (?:failed|was not called) for \d"
    r"|None of the NVIDIA (?:\w+ )?devices were (?:probed|initialized))"
)

_INIT = re.compile(rf"NVRM: (?:GPU {_ADDRESS}: )?RmInitAdapter failed!")
_INIT_MINOR = re.compile(rf"NVRM: (?:GPU {_ADDRESS}: )?rm_init_adapter failed")
_BOOT = re.compile(rf"NVRM: {GAP}gpuWaitForGfwBootComplete\w*: {GAP}failed")

_HEARTBEAT = re.compile(_INDEX + r"_?kgspIsHeartbeatTimedOut")
_NO_START = re.compile(
    _INDEX + r"(?:RmInitAdapter: Cannot initialize GSP firmware RM"
    r"|_?kgspBootGspRm: (?:unexpected WPR2|\(the GPU is likely in a bad state))"
)
# One entry of the call history: -1   76   GSP_RM_CONTROL   4126 0x..2080a026 0x..0214 ...
_CRASH = re.compile(
    _INDEX + r"(?:kflcnCoreDump\w{0,40}:|_?kgspLog(?:Xid|Rpc)\w{0,40}:|.{0,60}\bGSP task exception"
    r"|\s*RISC-V (?:CSR|GPR) State|\s*Reported by libos|.{0,60}\bGSP RPC (?:buffer|history)"
    r"|\s+-?\d{1,4}\s+\d{1,5}\s+[A-Z][A-Z0-9_]{3,60}\s+(?:\d{1,12}\s+)?0x[0-9a-f]{8})"
)
_NO_FIRMWARE = re.compile(
    rf"nvidia {_ADDRESS}: Direct firmware load for \S{{0,80}}gsp\w{{0,20}}\.bin failed"
)
_NO_IMAGE = re.compile(rf"NVRM: {GAP}No firmware image found")

AT_PROBE = "it did not answer when the driver was loaded: cut the node's power and reseat it"
NO_WINDOW = "the node's firmware gave it no addresses: allow 64-bit windows (Above 4G Decoding)"
UNSUPPORTED = "install a driver that supports it (or the other kind: open, closed)"
NO_FIRMWARE = "install the firmware that belongs to the loaded driver's version"


def _then(build: Builder, follow_up: str) -> Builder:
    """Return a builder whose events state what to do next."""

    def with_follow_up(match: re.Match[str]) -> KernelEvent:
        return replace(build(match), follow_up=follow_up)

    return with_follow_up


_PROBE_FAILURE = plain("gpu_probe_failure", "driver", "investigate", "fatal")
_WINDOW_FAILURE = plain("gpu_probe_failure", "pcie", "investigate", "fatal")
_LOST = plain("gpu_fallen_off_bus", "pcie", "reboot_node", "fatal")
_FIRMWARE_MISSING = plain("gpu_firmware_missing", "driver", "investigate", "fatal")

RULES: tuple[Rule, ...] = (
    Rule(NVRM, _FALLEN, _LOST),
    Rule(NVRM, _LOST_CODE, _LOST),
    Rule(NVRM, _UVM_DEAD, plain("gpu_reset_required", "driver", "reboot_node", "fatal")),
    Rule(NVRM, _NAMED, plain("gpu_named", "benign", "none", "info")),
    Rule(NVRM, _NOT_RESPONDING, _then(_LOST, AT_PROBE)),
    Rule(NVRM, _UNSUPPORTED, _then(_PROBE_FAILURE, UNSUPPORTED)),
    Rule(NVRM, _NO_WINDOW, _then(_WINDOW_FAILURE, NO_WINDOW)),
    Rule("nvidia: probe of", _PROBE, _PROBE_FAILURE),
    Rule(NVRM, _PROBES, plain("gpu_probe_failure", "driver", "investigate", "error", True)),
    Rule(NVRM, _INIT, plain("gpu_init_failure", "gpu_hardware", "reboot_node", "fatal")),
    Rule(
        NVRM, _INIT_MINOR, plain("gpu_init_failure", "gpu_hardware", "reboot_node", "fatal", True)
    ),
    Rule(NVRM, _BOOT, plain("gpu_boot_failure", "gpu_hardware", "reboot_node", "fatal")),
    Rule(NVRM, _HEARTBEAT, plain("gpu_firmware_silent", "driver", "reset_gpu", "fatal")),
    Rule(NVRM, _NO_START, plain("gpu_firmware_no_start", "driver", "reset_gpu", "fatal")),
    Rule(NVRM, _CRASH, plain("gpu_firmware_crash", "driver", "reset_gpu", "fatal")),
    Rule("Direct firmware load for nvidia", _NO_FIRMWARE, _then(_FIRMWARE_MISSING, NO_FIRMWARE)),
    Rule(NVRM, _NO_IMAGE, _then(_FIRMWARE_MISSING, NO_FIRMWARE)),
)
"""The rules for such lines, those that name their GPU first."""
