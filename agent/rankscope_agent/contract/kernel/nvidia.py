"""Lines of NVIDIA's kernel driver and of NVSwitch: pure, from a message to an event.

Formats: kernel_rc.c and gpu.c of the open kernel modules (595.45.04), and lines posted by
administrators. Messages about GPUs that do not start are in `nvidia_start`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from rankscope_agent.contract.kernel import nvidia_start, nvlink5, sxid
from rankscope_agent.contract.kernel.events import KernelEvent, clean, pci_address
from rankscope_agent.contract.kernel.nvidia_start import GAP, NVRM
from rankscope_agent.contract.kernel.rule import Rule, plain
from rankscope_agent.contract.kernel.vocabulary import Action, Severity
from rankscope_agent.contract.kernel.xid import (
    CONTAINMENT,
    NVLINK5,
    NVLINK_FATAL,
    RECOVERY_ACTIONS,
    RECOVERY_CHANGED,
    describe,
)

# NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=7194, name=python, text; very old drivers
# omit `PCI:`, some generations omit pid or name. The name may contain commas and brackets.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[^()\s]{0,40})(?: GPU-C?I:\d{1,3}){0,2}\): (?P<code>\d{1,4}),"
    r"(?: pid=(?P<pid>[^,]{0,32})(?:,|$))?(?: name=(?P<comm>.{0,16}?)(?:, |$))?(?P<rest>.*)"
)
_PREVIOUS = re.compile(r"caused by previous Xid (\d{1,4})")
_RECOVERY = re.compile(r"changed from 0x([0-9a-fA-F]{1,8}) .*?\bto 0x([0-9a-fA-F]{1,8})\b")
_OLDER_LINK = re.compile(r"\bdetected on link (\d{1,2})\b")
_CONTAINMENT = re.compile(r"(?<!D-)RST: (Yes|No), D-RST: (Yes|No)", re.IGNORECASE)

# nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 62 egress ..., then tails.
_SXID = re.compile(
    r"(?:nvidia-nvswitch\d{1,3}: )?SXid \((?:PCI:)?(?P<pci>[^()\s]{0,40})\): "
    r"(?P<code>\d{1,6}), (?P<rest>.*)"
)
_SXID_TAIL = re.compile(r"Severity (?P<severity>\d)|Data \{|(?:Sub-)?[Ee]ngine instance")
_SXID_FATAL = "1"  # NVSWITCH_ERROR_SEVERITY_FATAL, ctrl_dev_nvswitch.h

_RESET = re.compile(rf"NVRM: {GAP}\bNV_ERR_RESET_REQUIRED\b")
_TRAINING = re.compile(
    rf"NVRM: {GAP}knvlink(?:DiscoverPostRxDetLinks|UpdatePostRxDetectLinkMask)\w*:{GAP}failed"
)
# A GPU's memory is full; its programs cope or exit, the hardware is fine.
_VA_SPACE = re.compile(r"NVRM: dmaAllocMapping\w*: can't alloc VA space")
_NVKMS = re.compile(r"\[drm:nv_drm_\w+(?: \[\w+\])?\] \*ERROR\* .*Failed to allocate NVKMS memory")
_MISMATCH = re.compile(r"NVRM: API mismatch: the client has (?:the )?version")


def _int(text: str | None) -> int | None:
    """Read a pid: `1234` or `'1234'`; None for `<unknown>` and masked ones."""
    digits = (text or "").strip().strip("'\"")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def _xid(match: re.Match[str]) -> KernelEvent:
    code = int(match["code"])
    known = describe(code)
    comm = (match["comm"] or "").strip("'\"")
    previous = _PREVIOUS.search(match["rest"])
    event = KernelEvent(
        kind="xid",
        cause=known.cause,
        action=known.action,
        severity=known.severity,
        text=clean(match[0]),
        code=code,
        pci=pci_address(match["pci"]),
        pid=_int(match["pid"]),
        comm="" if comm.startswith("<unknown") else clean(comm),
        previous=int(previous[1]) if previous else None,
    )
    refine = REFINEMENTS.get(code)
    return refine(event, match["rest"]) if refine else event


def _recovery(event: KernelEvent, rest: str) -> KernelEvent:
    """Read Xid 154: the number gives the action, its name differs between drivers.

    The number 0 reports that the GPU works again, as after a reset.
    """
    match = _RECOVERY.search(rest)
    action = RECOVERY_ACTIONS.get(int(match[2], 16)) if match else None
    if action is None:
        return event
    return replace(event, action=action, severity="info" if action == "none" else event.severity)


def _containment(event: KernelEvent, rest: str) -> KernelEvent:
    """Read Xid 94 and 95: RST asks for a reset of the GPU, D-RST for a drain and a reset."""
    match = _CONTAINMENT.search(rest)
    if match is None:
        return event
    reset, drain = (text.lower() == "yes" for text in match.groups())
    if drain:
        return replace(event, action="drain")
    return replace(event, action="reset_gpu") if reset else event


def _older_link(event: KernelEvent, rest: str) -> KernelEvent:
    """Read Xid 74: the link. What its register words mean depends on the GPU's generation."""
    match = _OLDER_LINK.search(rest)
    return replace(event, links=frozenset((int(match[1]),))) if match else event


def _link(event: KernelEvent, rest: str) -> KernelEvent:
    """Read Xid 144 to 150: unit, sub-code and status decide."""
    found = nvlink5.read(rest)
    if found is None:
        return event
    severity: Severity = "error" if found.rule.fatal else "warn"
    return replace(
        event,
        action=found.rule.action,
        severity=severity,
        follow_up=found.rule.then,
        links=frozenset((found.link,) if found.link >= 0 else ()),
    )


REFINEMENTS: Mapping[int, Callable[[KernelEvent, str], KernelEvent]] = {
    RECOVERY_CHANGED: _recovery,
    **dict.fromkeys(CONTAINMENT, _containment),
    NVLINK_FATAL: _older_link,
    **dict.fromkeys(NVLINK5, _link),
}
"""Codes whose line says more than the code."""


def _sxid(match: re.Match[str]) -> KernelEvent:
    code, rest = int(match["code"]), match["rest"]
    tail = _SXID_TAIL.search(rest)
    fatal = rest.startswith("Fatal")
    if tail is not None:
        stated = tail["severity"]
        fatal = code in sxid.ALWAYS_FATAL if stated is None else stated == _SXID_FATAL
    meaning: tuple[Action, Severity] = ("investigate", "warn")
    if fatal:
        meaning = ("reset_gpu", "fatal")
    elif code in sxid.CORRECTED:
        meaning = ("none", "info")
    return KernelEvent(
        kind="sxid",
        cause="nvlink_fabric",
        action=meaning[0],
        severity=meaning[1],
        text=clean(match[0]),
        code=code,
        pci=pci_address(match["pci"]),
        detail=tail is not None,
    )


RULES: tuple[Rule, ...] = (
    Rule(NVRM, _XID, _xid),
    Rule("SXid (", _SXID, _sxid),
    *nvidia_start.RULES,
    Rule(NVRM, _RESET, plain("gpu_reset_required", "driver", "reset_gpu", "error")),
    Rule(NVRM, _TRAINING, plain("nvlink_training_failure", "nvlink_fabric", "reset_gpu", "error")),
    Rule(NVRM, _VA_SPACE, plain("gpu_memory_full", "app", "none", "info")),
    Rule("NVKMS", _NVKMS, plain("gpu_memory_full", "app", "none", "info")),
    Rule(NVRM, _MISMATCH, plain("driver_mismatch", "driver", "reboot_node", "error")),
)
"""The rules for the driver's lines, the most frequent first."""
