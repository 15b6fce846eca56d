"""The meaning of NVIDIA's Xid codes for on-call engineers: cause, severity, first action.

Codes 1 to 176 are those of NVIDIA's Xid catalogue (October 2025) and of nverror.h in driver 595.
The actions are the catalogue's immediate actions, in this project's words. Codes that it lists only
as unused are "retired", with their meaning in older documents.

For some codes, the rest of the line decides: 94 and 95 carry bits, 144 to 150 sub-codes, and 154 a
number (`rankscope_agent.contract.kernel`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract.kernel.vocabulary import Action, Cause, Severity

Application = Literal["no", "maybe", "yes"]
"""Whether a program's own fault is a likely cause."""


@dataclass(frozen=True, slots=True)
class Family:
    """Codes that share everything relevant; `texts` describe each one in a few words."""

    cause: Cause
    severity: Severity
    application: Application
    action: Action
    texts: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class XidCode:
    """One Xid code.

    Args:
        cause: where it originates.
        severity: how much is lost.
        application: whether a program's own fault is a likely cause.
        action: what to do first if only the code is known.
        text: what happened, in a few words.
    """

    code: int
    cause: Cause
    severity: Severity
    application: Application
    action: Action
    text: str


# fmt: off
FAMILIES: tuple[Family, ...] = (
    Family("gpu_hardware", "fatal", "no", "reset_gpu", {
        46: "the GPU stopped processing",
        62: "the power-management controller halted",
        110: "the GPU's security logic tripped",
        143: "the GPU could not be initialised",
        158: "the GPU ran into a fatal timeout",
        169: "the SEC2 controller halted",
    }),
    Family("gpu_hardware", "fatal", "no", "check_cable", {
        54: "the board's auxiliary power is not connected",
    }),
    Family("gpu_hardware", "error", "maybe", "restart_app", {
        159: "the coherent host interface refused a request",
    }),
    Family("gpu_hardware", "error", "no", "contact_vendor", {
        165: "power smoothing has reached the end of its life",
    }),
    Family("gpu_hardware", "warn", "no", "contact_vendor", {
        52: "retired",
        53: "retired",
        55: "retired",
        61: "the power-management controller stopped at a breakpoint",
        122: "reading the board's flash failed",
        123: "writing the board's flash failed",
        124: "erasing the board's flash failed",
        125: "the file system in the board's flash is damaged",
        164: "power smoothing is near the end of its life",
    }),
    Family("gpu_hardware", "warn", "no", "none", {
        163: "power smoothing switched itself off",
    }),
    Family("gpu_hardware", "info", "no", "none", {
        93: "the board's flash was written more often than meant; not fatal",
        152: "the deep-learning accelerator's memory unit reported an error",
        153: "the deep-learning accelerator did not end in time",
        162: "power smoothing works again",
    }),
    Family("pcie", "fatal", "no", "reboot_node", {
        79: "the GPU no longer answers on the PCIe bus",
        167: "PCIe ran into a fatal timeout",
    }),
    Family("pcie", "warn", "no", "contact_vendor", {
        176: "too many corrected PCIe errors (known by name only)",
    }),
    Family("gpu_memory", "fatal", "no", "reset_gpu", {
        48: "an ECC error that could not be corrected (double bit)",
        64: "a bad memory row or page could not be recorded for replacement",
        95: "an uncorrectable memory error that could not be contained: any program may be hit",
        140: "an ECC error escaped what would have contained it",
        171: "an uncorrectable error in DRAM: the details of a 48",
        172: "an uncorrectable error in SRAM: the details of a 48",
    }),
    Family("gpu_memory", "error", "no", "restart_app", {
        94: "an uncorrectable memory error, contained: it takes one program with it",
    }),
    Family("gpu_memory", "error", "no", "contact_vendor", {
        157: "a bad resource could not be retired",
        161: "a memory channel could not be retired",
        168: "errors in the protected region leave less usable memory",
        175: "the memory subsystem failed (known by name only)",
    }),
    Family("gpu_memory", "warn", "no", "reset_gpu", {
        63: "a bad memory row (or page) was marked for replacement; a reset activates it",
        156: "a bad resource was recorded for retirement; a reset activates it",
    }),
    Family("gpu_memory", "warn", "no", "none", {
        92: "many ECC errors are being corrected",
        160: "a memory channel was recorded for retirement",
    }),
    Family("nvlink_fabric", "fatal", "no", "reboot_node", {
        173: "the chip-to-chip link is down",
    }),
    Family("nvlink_fabric", "error", "no", "reset_gpu", {
        74: "a fatal error on an NVLink (generations 1 to 4) or at its other end",
        136: "an NVLink could not be trained",
        144: "NVLink 5, unit SAW: severity and sub-code are in the line",
        145: "NVLink 5, unit RLW: severity and sub-code are in the line",
        146: "NVLink 5, unit TLW: severity and sub-code are in the line",
        149: "NVLink 5, unit NETIR: links that went down, bit errors",
        150: "NVLink 5, unit MSE: sub-codes are not public",
        155: "software took an NVLink down",
        166: "data reached an encrypted NVLink before it was set up",
    }),
    Family("nvlink_fabric", "warn", "maybe", "none", {
        108: "an address from another GPU could not be translated; read with 137",
    }),
    Family("nvlink_fabric", "warn", "no", "none", {
        121: "the chip-to-chip link corrected an error",
        147: "NVLink 5, unit TREX: only harmless sub-codes are known",
        148: "NVLink 5, unit NVLPW: only harmless sub-codes are known",
    }),
    Family("nvlink_fabric", "warn", "maybe", "restart_app", {
        170: "an NVLink interrupt in confidential-computing mode",
    }),
    Family("driver", "fatal", "no", "reset_gpu", {
        119: "the GPU's system processor (GSP) did not answer a call",
        120: "the GPU's system processor (GSP) failed",
    }),
    Family("driver", "error", "maybe", "restart_app", {
        32: "the engine that fetches commands reported an error",
        39: "copy engine 0 raised an exception",
        40: "copy engine 1 raised an exception",
        41: "copy engine 2 raised an exception",
        60: "the SEC2 engine raised an exception",
        68: "video decoder 0 raised an exception",
        70: "copy engine 3 raised an exception",
        71: "copy engine 4 raised an exception",
        72: "copy engine 5 raised an exception",
        75: "copy engine 6 raised an exception",
        76: "copy engine 7 raised an exception",
        77: "copy engine 8 raised an exception",
        80: "commands arrived damaged at the GPU",
        82: "JPEG engine 0 raised an exception",
        83: "video decoder 1 raised an exception",
        84: "video decoder 2 raised an exception",
        85: "copy engine 9 raised an exception",
        86: "optical-flow engine raised an exception",
        88: "video decoder 3 raised an exception",
        89: "video decoder 4 raised an exception",
        96: "video decoder 5 raised an exception",
        97: "video decoder 6 raised an exception",
        98: "video decoder 7 raised an exception",
        99: "JPEG engine 1 raised an exception",
        100: "JPEG engine 2 raised an exception",
        101: "JPEG engine 3 raised an exception",
        102: "JPEG engine 4 raised an exception",
        103: "JPEG engine 5 raised an exception",
        104: "JPEG engine 6 raised an exception",
        105: "JPEG engine 7 raised an exception",
        126: "copy engine 10 raised an exception",
        127: "copy engine 11 raised an exception",
        128: "copy engine 12 raised an exception",
        129: "copy engine 13 raised an exception",
        130: "copy engine 14 raised an exception",
        131: "copy engine 15 raised an exception",
        132: "copy engine 16 raised an exception",
        133: "copy engine 17 raised an exception",
        134: "copy engine 18 raised an exception",
        135: "copy engine 19 raised an exception",
        139: "optical-flow engine 1 raised an exception",
    }),
    Family("driver", "error", "no", "contact_vendor", {
        78: "a virtual GPU could not start",
    }),
    Family("driver", "error", "maybe", "contact_vendor", {
        142: "video encoder 3 raised an exception",
    }),
    Family("driver", "error", "no", "reboot_node", {
        151: "the keys of confidential computing could not be changed",
    }),
    Family("driver", "error", "no", "drain", {
        154: "the driver changed what it recommends to recover this GPU; the line has the number",
    }),
    Family("driver", "warn", "no", "contact_vendor", {
        1: "retired; it meant: invalid or corrupted push buffer stream",
        2: "retired; it meant: invalid or corrupted push buffer stream",
        3: "retired; it meant: invalid or corrupted push buffer stream",
        4: "retired; it meant: invalid or corrupted push buffer stream",
        5: "retired",
        6: "retired; it meant: invalid or corrupted push buffer stream",
        7: "retired; it meant: invalid or corrupted push buffer address",
        9: "retired; it meant: driver error programming GPU",
        10: "retired",
        12: "retired; it meant: driver error handling GPU exception",
        14: "retired",
        15: "retired",
        16: "retired; it meant: display engine hung",
        17: "retired",
        18: "retired; it meant: bus mastering disabled in PCI config space",
        19: "retired; it meant: a display error",
        20: "retired; it meant: invalid or corrupted MPEG push buffer",
        21: "retired; it meant: invalid or corrupted motion estimation push buffer",
        22: "retired; it meant: invalid or corrupted video processor push buffer",
        23: "retired",
        24: "retired; it meant: GPU semaphore timeout",
        26: "retired; it meant: framebuffer timeout",
        27: "retired; it meant: video processor exception",
        28: "retired; it meant: video processor exception",
        29: "retired; it meant: video processor exception",
        30: "retired; it meant: GPU semaphore access error",
        33: "retired; it meant: internal micro-controller error",
        34: "retired; it meant: video processor exception",
        35: "retired; it meant: video processor exception",
        36: "retired; it meant: video processor exception",
        42: "retired; it meant: video processor exception",
        47: "retired; it meant: video processor exception",
        49: "retired",
        50: "retired",
        51: "retired",
        56: "retired; it meant: a display error",
        57: "retired; it meant: error programming video memory interface",
        58: "retired; it meant: unstable video memory interface detected",
        59: "retired; it meant: internal micro-controller error (older drivers)",
        65: "retired; it meant: video processor exception",
        73: "retired; it meant: nvenc2 error",
        81: "retired; it meant: a VGA error",
        87: "retired",
        90: "retired",
        91: "retired",
        111: "retired; it meant: display bundle error event",
        112: "retired; it meant: display supervisor error",
        113: "retired; it meant: display link training failed",
        114: "retired; it meant: display pipeline underflow error",
        115: "retired; it meant: display core channel error",
        116: "retired; it meant: display window channel error",
        117: "retired; it meant: display cursor channel error",
        118: "retired; it meant: display pixel pipeline error",
        138: "retired",
    }),
    Family("driver", "warn", "no", "none", {
        38: "the context-switch firmware did not finish in time, and was helped on",
    }),
    Family("driver", "warn", "maybe", "none", {
        44: "a fault during a context switch",
        66: "the driver touched a register it must not",
        67: "an access failed the hardware's verification",
        141: "CUDA's fast path failed",
    }),
    Family("driver", "info", "maybe", "none", {
        37: "the context-switch firmware was asked for what it does not have",
    }),
    Family("driver", "info", "no", "none", {
        106: "a test message of out-of-band management",
        107: "a silent test message of out-of-band management",
    }),
    Family("app", "error", "maybe", "restart_app", {
        8: "a channel made no progress until its time was up",
        11: "a command stream the engine could not decode",
        25: "an illegal command stream",
        69: "a program used a graphics class wrongly",
        137: "a peer's access was refused, as after an error of the program on the other GPU",
    }),
    Family("app", "error", "yes", "restart_app", {
        13: "a kernel made a streaming multiprocessor or the graphics engine raise an exception",
        31: "a kernel touched an address that has no valid mapping",
    }),
    Family("app", "error", "maybe", "reset_gpu", {
        109: "a context switch did not end in time",
    }),
    Family("app", "warn", "yes", "restart_app", {
        43: "a channel was reset because its program had faulted",
    }),
    Family("app", "info", "maybe", "none", {
        45: "channels removed after an earlier error or because their process was killed",
    }),
    Family("app", "info", "maybe", "restart_app", {
        174: "a channel was reset and its process ended (known by name only)",
    }),
)
# fmt: on

XIDS: Mapping[int, XidCode] = {
    code: XidCode(code, family.cause, family.severity, family.application, family.action, text)
    for family in FAMILIES
    for code, text in sorted(family.texts.items())
}
"""Every known code."""

ROW_REMAP = (63, 156)
"""Recorded replacements of bad memory, which take effect after a reset: at the job's next
boundary."""

CLEAN_UP = (43, 45)
"""Codes that follow an earlier fault: alone they say little."""

GSP = (119, 120)
"""The GPU's system processor is silent or has failed."""

CONTAINMENT = (94, 95)
"""Codes whose line states whether a reset (RST) or a drain and reset (D-RST) is needed."""

NVLINK_FATAL = 74
"""Its line contains a link and seven register words, without a unit or a severity."""

NVLINK5 = range(144, 151)
"""Codes whose line contains a unit, a severity, a link and register words."""

RECOVERY_CHANGED = 154
"""The driver's own advice."""

RECOVERY_ACTIONS: Mapping[int, Action] = {
    0: "none",
    1: "reset_gpu",
    2: "reboot_node",
    3: "drain",
    4: "drain",
    5: "investigate",
    6: "reset_gpu",
    7: "reboot_node",
}
"""The number in Xid 154, which is NVML's nvmlDeviceGpuRecoveryAction: none, GPU reset, reboot,
drain P2P, drain and reset, recover IMEX, bus reset, system reboot. The printed names vary by
driver."""


def describe(code: int) -> XidCode:
    """Return what is known of a code; an unknown one only calls for an investigation."""
    known = XIDS.get(code)
    return known or XidCode(code, "driver", "warn", "maybe", "investigate", "not in the catalogue")
