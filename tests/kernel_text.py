"""Lines of kernel logs as the formats' sources describe them, for tests."""

from __future__ import annotations

from rankscope_agent.contract.kernel.log import KernelLog
from rankscope_agent.contract.kernel.verdict import Verdict, judge


def xid(code: int, message: str = "text", pci: str = "0000:3b:00", pid: int | None = 71) -> str:
    who = "" if pid is None else f"pid={pid}, name=trainer, "
    return f"NVRM: Xid (PCI:{pci}): {code}, {who}{message}"


def stamped(seconds: float, message: str) -> str:
    return f"[{seconds:12.6f}] {message}"


def log_of(*lines: str) -> KernelLog:
    log = KernelLog()
    log.feed("".join(f"{line}\n" for line in lines).encode())
    return log


def verdict_of(*lines: str) -> Verdict:
    log = log_of(*lines)
    return judge(log.seen, log.boot)


def recovery(number: int, pci: str = "0000:3b:00") -> str:
    text = f"GPU recovery action changed from 0x0 (None) to 0x{number:x} (Whatever)"
    return xid(154, text, pci, None)
