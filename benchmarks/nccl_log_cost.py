"""Speed and memory of reading NCCL logs, compared with ripgrep and mtail; CPU of following files.

All figures are CPU seconds (user and system) of whole processes, measured alternately, so that
other load on the machine affects all of them equally. Programs that are not installed are left out
and named.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import nccl_log_text
from benchmarks.commands import cpu_of, environment, peak_memory_mib
from benchmarks.processes import cpu_seconds

from rankscope_agent.contract.nccl.info_lines import BEGINNINGS
from rankscope_agent.sources.nccl_log.collector import CPU_SHARE

ROUNDS = 5
SIZES = {"dense": 100_000_000, "trainer": 400_000_000}
"""Bytes: a large job's start, and some days of a trainer's output; Python's start, which counts, is
the twentieth of a second."""

MTAIL_SIZE = 5_000_000  # mtail needs a second for each five megabytes
FOLLOW_SECONDS = 20.0
FOLLOWED_FILES = 8
LINES_PER_SECOND = 100  # and file
TICKS = 100  # of the writer in a second
MAX_LINES = 100_000  # in memory, after which they come again
FLOOD_LINES_PER_SECOND = 100_000  # in all files
FLOOD_GOAL_PERCENT = 100 * CPU_SHARE + 0.5  # for reading, and for what it does besides
MEMORY_GOAL_MIB = 25.0
GOALS = {"dense": 0.06, "trainer": 0.30}
EXTRACTION_GOAL = 4.0
MTAIL_GOAL = 10.0

SELECTION = (
    r"NCCL(?: INFO (?:Channel \d+(?:/\d+)? : .|Ring \d+ : \S+ -> \S+ [^-]|"
    + BEGINNINGS.decode().replace("\\ ", " ")  # an escape that ripgrep does not know
    + r")| WARN | version \d| error|\(SeqNum|\.cpp:\d+\]| watchdog)"
)
"""What the parser selects (`contract.nccl.lines.SCAN`), for a program that only counts."""

EXTRACTION = (
    r"^.*?(\S+):(\d+):(\d+) \[\d+\] NCCL INFO (?:Channel (\d+)(?:/\d+)? : (\d+)\S* -> (\d+)\S*"
    r" (?:\[(?:send|receive)\] )?via (\S+)|.*comm 0x\w+ rank (\d+) nranks (\d+).*"
    r"|Using network (.+))"
)

# The host is captured like in the parser, which distinguishes processes by it.
MTAIL_PROGRAM = r"""
counter edges by via
counter complete
counter network by name
counter warnings
/(?P<host>\S+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO Channel \d+(?:\/\d+)? : (?P<rest>.+)/ {
  $rest =~ /(?P<from>\d+)\S* -> (?P<to>\d+)\S* (?:\[(?:send|receive)\] )?via (?P<via>\S+)/ {
    edges[$via]++
  }
}
/(?P<host>\S+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO .*comm 0x\w+ rank (?P<rank>\d+) / {
  complete++
}
/(?P<host>\S+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO Using network (?P<name>.+)/ {
  network[$name]++
}
/(?P<host>\S+):(?P<pid>\d+):\d+ \[\d+\] (?P<file>\S+) NCCL WARN / {
  warnings++
}
"""


LINES: Mapping[str, Callable[[], Iterator[str]]] = {
    "dense": lambda: nccl_log_text.dense(1 << 17),
    "trainer": lambda: nccl_log_text.trainer(1 << 40),
}
"""The kinds of logs that are read."""

FOLLOWED: Mapping[str, Callable[[], Iterator[str]]] = {
    "dense": LINES["dense"],
    "steady": lambda: nccl_log_text.steady(1 << 40),
}
"""The kinds of logs that are followed: a job that starts, and one that trains."""


@dataclass(frozen=True, slots=True)
class NcclLogCost:
    """The cost of reading.

    Args:
        speeds: MB per CPU second by kind of log and program.
        memory_mib: the command's peak resident memory on the trainer's log.
        following_percent: CPU of one core following eight files, by kind of log and program.
        flood_percent: the same for files that grow too fast to be read completely.
        missing: programs that are not installed.
    """

    speeds: Mapping[str, Mapping[str, float]]
    memory_mib: float
    following_percent: Mapping[str, Mapping[str, float]]
    flood_percent: Mapping[str, float]
    missing: tuple[str, ...]


def measure(
    sizes: Mapping[str, int] = SIZES, rounds: int = ROUNDS, seconds: float = FOLLOW_SECONDS
) -> NcclLogCost:
    """Make the logs, then run all programs on them alternately."""
    missing = tuple(name for name in ("rg", "mtail", "tail") if shutil.which(name) is None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = {kind: folder / f"{kind}.log" for kind in sizes}
        for kind, log in logs.items():
            nccl_log_text.write(log, LINES[kind](), sizes[kind])
        speeds = {kind: _speeds(log, rounds, missing) for kind, log in logs.items()}
        memory = peak_memory_mib(_command(logs["trainer"]))
        if "mtail" not in missing:
            speeds["dense"] |= {"mtail": _mtail_speed(folder, logs["dense"])}
        following = {
            kind: _following(folder / kind, FOLLOWED[kind](), LINES_PER_SECOND, seconds, missing)
            for kind in FOLLOWED
        }
        each = FLOOD_LINES_PER_SECOND // FOLLOWED_FILES
        flood = _following(folder / "flood", FOLLOWED["dense"](), each, seconds / 4, missing)
    return NcclLogCost(speeds, memory, following, flood, missing)


def _command(log: Path) -> list[str]:
    code = "from rankscope_analyzers.cli import main; import sys; sys.exit(main())"
    return [sys.executable, "-c", code, "explain", "nccl-log", str(log)]


def _speeds(log: Path, rounds: int, missing: Sequence[str]) -> dict[str, float]:
    """Return MB per CPU second of the median round; the command's includes Python's start."""
    commands = {"rankscope": _command(log)}
    if "rg" not in missing:
        commands["rg -c"] = ["rg", "--threads=1", "-c", SELECTION, str(log)]
        commands["rg -oN -r"] = [
            "rg",
            "--threads=1",
            "-oN",
            "-r",
            "$1 $4 $5 $6 $7",
            EXTRACTION,
            str(log),
        ]
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            spent[name].append(cpu_of(command))
    megabytes = log.stat().st_size / 1e6
    return {name: megabytes / statistics.median(values) for name, values in spent.items()}


def _mtail_speed(folder: Path, log: Path) -> float:
    """Return mtail's speed on the beginning of a log, minus its start (an empty log)."""
    program = folder / "nccl.mtail"
    program.write_text(MTAIL_PROGRAM)
    part, empty = folder / "part.log", folder / "empty.log"
    with log.open("rb") as source:
        part.write_bytes(source.read(MTAIL_SIZE))
    empty.touch()
    flags = ["mtail", "--one_shot", "--progs", str(program), "--logs"]
    spent = cpu_of([*flags, str(part)]) - cpu_of([*flags, str(empty)])
    return MTAIL_SIZE / 1e6 / spent


FOLLOWER = """
import sys, time
from pathlib import Path
from rankscope_agent.sources.nccl_log.collector import NcclLogCollector
from rankscope_agent.sources.nccl_log.follower import NcclFollower
from rankscope_agent.sources.pods.directory import PodDirectory
folder = Path(sys.argv[1])
follower = NcclFollower(folder / "none", (folder / "rank*.log",), time.thread_time, 0.05)
collector = NcclLogCollector(follower, folder, folder / "state.json", time.time, PodDirectory())
while True:
    list(collector.collect())
    time.sleep(1)
"""


def _following(
    folder: Path, text: Iterator[str], rate: int, seconds: float, missing: Sequence[str]
) -> dict[str, float]:
    """Follow growing files with the collector and with tail -F at the same time."""
    folder.mkdir()
    lines = list(itertools.islice(text, min(60 * rate, MAX_LINES)))
    files = [folder / f"rank{number}.log" for number in range(FOLLOWED_FILES)]
    for file in files:
        file.touch()
    commands = {"rankscope": [sys.executable, "-c", FOLLOWER, str(folder)]}
    if "tail" not in missing:
        commands["tail -F"] = ["tail", "-qF", *map(str, files)]
    with Path(os.devnull).open("wb") as sink:
        running = {
            name: subprocess.Popen(command, stdout=sink, stderr=sink, env=environment())
            for name, command in commands.items()
        }
    try:
        _write_on(files, lines, rate, 2.0)  # let Python start before counting
        before = {name: cpu_seconds(process.pid) for name, process in running.items()}
        lasted = _write_on(files, lines, rate, seconds)
        return {
            name: (cpu_seconds(process.pid) - before[name]) / lasted * 100
            for name, process in running.items()
        }
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _write_on(files: Sequence[Path], lines: Sequence[str], rate: int, seconds: float) -> float:
    """Append to every file, as many times a second as `TICKS` says; return how long that took.

    Each line is a separate write, as by containerd's logger and by programs that flush each line;
    in a flood each file's lines of a tick are written at once.
    """
    begin = time.monotonic()
    at_once = max(1, rate // TICKS)
    whole = [("".join(lines[at : at + at_once])).encode() for at in range(0, len(lines), at_once)]
    sinks = [file.open("ab", buffering=0) for file in files]
    turn = 0
    while (lasted := time.monotonic() - begin) < seconds:
        while turn < lasted * rate / at_once:
            for sink in sinks:
                sink.write(whole[turn % len(whole)])
            turn += 1
        time.sleep(0.5 / TICKS)
    for sink in sinks:
        sink.close()
    return time.monotonic() - begin


def report(cost: NcclLogCost) -> str:
    """Write the figures and the goals."""
    lines = []
    for kind, speeds in cost.speeds.items():
        figures = ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items())
        lines.append(f"{kind} log, MB per CPU second: {figures}")
        ours = speeds["rankscope"]
        goals = (("rg -c", GOALS[kind]), ("rg -oN -r", EXTRACTION_GOAL), ("mtail", MTAIL_GOAL))
        for name, goal in goals:
            if name in speeds:
                lines.append(f"  {ours / speeds[name]:.3f}x {name}, goal at least {goal:g}x")
    lines.append(f"memory {cost.memory_mib:.1f} MiB, goal at most {MEMORY_GOAL_MIB:.0f} MiB")
    for kind, shares in cost.following_percent.items():
        figures = ", ".join(f"{name} {share:.3f} %" for name, share in shares.items())
        lines.append(
            f"following {FOLLOWED_FILES} {kind} logs of {LINES_PER_SECOND} lines a second:"
            f" {figures} of a core, goal at most tail's"
        )
    figures = ", ".join(f"{name} {share:.2f} %" for name, share in cost.flood_percent.items())
    lines.append(
        f"flood of {FLOOD_LINES_PER_SECOND} dense lines a second: {figures} of a core,"
        f" goal at most {FLOOD_GOAL_PERCENT:.1f} %"
    )
    lines.extend(f"{name} is not installed" for name in cost.missing)
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(measure()))
