"""Speed and memory of `rankscope explain kernel-log` compared with grep, on five kinds of logs.

All figures are CPU seconds (user and system) of whole processes, measured alternately, including
Python's start.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import cpu_of, peak_memory_mib

ROUNDS = 5
SIZE = 100_000_000
SEED = 7
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = 500
"""Programs and pods that a node's kernel names over some time."""
GOAL = 100.0  # MB per CPU second
MEMORY_GOAL_MIB = 128.0
"""MiB that its limits on different lines and events allow, whatever the log's size."""

PATTERN = "NVRM|SXid|AER|mlx5_core|blocked for more|EDAC|I/O error|lockup|oom-kill|XFS"
"""What an engineer would grep for; it finds lines and interprets none."""

QUIET = (
    "docker0: port {a}(veth{b:07x}) entered disabled state",
    "cni0: port {a}(veth{b:07x}) entered promiscuous mode",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{b:07x}: link becomes ready",
    'audit: type=1400 audit({b}:{a}): apparmor="STATUS" operation="profile_replace" pid={b}',
    'audit: type=1400 audit({b}:{a}): apparmor="DENIED" operation="ptrace" profile="{name}"',
    "perf: interrupt took too long ({a} > {b}), lowering kernel.perf_event_max_sample_rate to 5000",
    "cgroup: fork rejected by pids controller in /kubepods/burstable/pod{b:08x}",
    "systemd-journald[{a}]: Received client request to flush runtime journal.",
    "systemd[1]: Started Session {b} of User {name}.",
    "eth0: renamed from tmp{b:05x}",
    "nvidia-uvm: Loaded the UVM driver, major device number {a}.",
    "nvidia 0000:{a:02x}:00.0: vgaarb: VGA decodes changed: olddecodes=none,decodes=none:owns=none",
    "XFS (nvme0n1p{a}): Mounting V5 Filesystem {b:08x}",
    "XFS (nvme0n1p{a}): Ending clean mount",
    "EXT4-fs (sda{a}): mounted filesystem {b:08x} r/w with ordered data mode. Quota mode: none.",
    "usb {a}-1: new high-speed USB device number {a} using xhci_hcd",
    "mlx5_core 0000:{a:02x}:00.0 mlx5_{a}: Port: 1 Link ACTIVE",
    "nfs4: {name}: reclaimed {b} locks",
    "overlayfs: upperdir is in-use as upperdir/workdir of another mount, {name}",
    "python[{b}]: {name} uses deprecated v2 capabilities in a way that may be insecure",
    "hrtimer: interrupt took {b} ns",
    "clocksource: timekeeping watchdog on CPU{a}: Marking clocksource 'tsc' as unstable",
)
UNLIKE = (
    'audit: type=1400 audit({b}:{a}): apparmor="DENIED" operation="open" profile="{new}" pid={b}',
    "systemd[1]: run-{new}.scope: Deactivated successfully after {b} seconds.",
    "overlayfs: upperdir is in-use as upperdir/workdir of another mount, {new}",
)
EVENTS = (
    "NVRM: Xid (PCI:0000:{a:02x}:00): 31, pid={b}, name=python, MMU Fault: ENGINE GRAPHICS {b:08x}",
    "NVRM: Xid (PCI:0000:{a:02x}:00): 94, pid={b}, Contained: SM (0x1). RST: No, D-RST: No",
    "pcieport 0000:{a:02x}:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (x)",
    "mlx5_core 0000:{a:02x}:00.0: wait_func:1132:(pid {b}): X(0x710) timeout. Will cause a leak",
    "INFO: task python:{b} blocked for more than 120 seconds.",
    "EDAC MC0: {a} CE error on CPU#0Channel#2_DIMM#0 (channel:2 page:0x{b:x})",
    "Memory cgroup out of memory: Killed process {b} (python) total-vm:{b}kB, anon-rss:{b}kB",
    "I/O error, dev nvme{a}n1, sector {b} op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
)


def quiet() -> Iterator[str]:
    """Yield what a node's kernel logs all day."""
    return _stamped(QUIET, (), 0.0)


def unlike() -> Iterator[str]:
    """Yield lines with names that never repeat, so that nothing can be cached."""
    return _stamped(UNLIKE, (), 0.0)


def mixed() -> Iterator[str]:
    """Yield the same, every hundredth line an event of any kind."""
    return _stamped(QUIET, EVENTS, 0.01)


def burst() -> Iterator[str]:
    """Yield clean-up after jobs on eight GPUs: channels differ in each line, programs sometimes."""
    chosen = random.Random(SEED)  # noqa: S311 - the same log each time
    number = 0
    while True:
        pid = 1000 + number // 1470
        gpu = chosen.randrange(8)
        yield (
            f"[{number / 1000:12.6f}] NVRM: Xid (PCI:0000:{gpu:02x}:00): 45, pid={pid},"
            f" name=python, Ch {number & 0xFFFF:08x}\n"
        )
        number += 1


def faulty() -> Iterator[str]:
    """Yield only events, of a thousand processes, no two lines the same."""
    return _stamped((), EVENTS, 1.0)


LOGS: Mapping[str, Callable[[], Iterator[str]]] = {
    "quiet": quiet,
    "unlike": unlike,
    "mixed": mixed,
    "burst": burst,
    "faulty": faulty,
}


def _stamped(usual: tuple[str, ...], events: tuple[str, ...], share: float) -> Iterator[str]:
    chosen = random.Random(SEED)  # noqa: S311 - the same log each time
    names = ["".join(chosen.choices(LETTERS, k=12)) for _ in range(NAMES)]
    seconds = 0.0
    while True:
        seconds += chosen.expovariate(100.0)
        form = chosen.choice(events if chosen.random() < share else usual)
        text = form.format(
            a=chosen.randrange(1, 9),
            b=chosen.randrange(1000, 2000),
            name=chosen.choice(names),
            new="".join(chosen.choices(LETTERS, k=12)),
        )
        yield f"[{seconds:12.6f}] {text}\n"


@dataclass(frozen=True, slots=True)
class KernelLogCost:
    """MB per CPU second by log and program, and the command's peak memory by log in MiB."""

    speeds: Mapping[str, Mapping[str, float]]
    memory_mib: Mapping[str, float]


def measure(size: int = SIZE, rounds: int = ROUNDS) -> KernelLogCost:
    """Make the logs and run both programs on them alternately."""
    with tempfile.TemporaryDirectory() as name:
        logs = {kind: Path(name) / f"{kind}.log" for kind in LOGS}
        for kind, log in logs.items():
            _write(log, LOGS[kind](), size)
        speeds = {kind: _speeds(log, rounds) for kind, log in logs.items()}
        memory = {kind: peak_memory_mib(_command(log)) for kind, log in logs.items()}
    return KernelLogCost(speeds, memory)


def _write(log: Path, lines: Iterator[str], size: int) -> None:
    written = 0
    with log.open("w", encoding="ascii") as sink:
        for line in lines:
            sink.write(line)
            written += len(line)
            if written >= size:
                return


def _command(log: Path) -> list[str]:
    code = "from rankscope_analyzers.cli import main; import sys; sys.exit(main())"
    return [sys.executable, "-c", code, "explain", "kernel-log", "--json", str(log)]


def _speeds(log: Path, rounds: int) -> dict[str, float]:
    commands = {"rankscope": _command(log)}
    if shutil.which("grep"):
        # Into a pipe: with /dev/null as its output grep ends at the first match.
        commands["grep -cE"] = ["sh", "-c", 'grep -cE "$0" "$1" | cat', PATTERN, str(log)]
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            spent[name].append(cpu_of(command))
    megabytes = log.stat().st_size / 1e6
    return {name: megabytes / statistics.median(values) for name, values in spent.items()}


def report(cost: KernelLogCost) -> str:
    """Write the figures and the goals."""
    lines = []
    for kind, speeds in cost.speeds.items():
        figures = ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items())
        lines.append(
            f"{kind} log, MB per CPU second: {figures}, goal at least {GOAL:.0f};"
            f" memory {cost.memory_mib[kind]:.1f} MiB, goal at most {MEMORY_GOAL_MIB:.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(measure()))
