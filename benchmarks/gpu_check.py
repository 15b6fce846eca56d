"""Checks the GPU collector on this machine: values against nvidia-smi, and the duration of calls.

Only for machines with an NVIDIA GPU; elsewhere it reports that there is none. Changing values are
compared with a tolerance, as the two programs cannot read at the same moment.
"""

from __future__ import annotations

import csv
import io
import shutil
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Metric, Sample, Scrape, Snapshot
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_agent.sources.gpus.nvidia import NvidiaLibrary
from rankscope_agent.sources.gpus.nvml import Device, NvmlError
from rankscope_agent.sources.gpus.session import Session

LOOKS = 30
PAUSE_SECONDS = 0.2
"""Seconds between two looks, so that the driver's own samples advance."""

TIMEOUT_SECONDS = 60.0
MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Query:
    """A field of nvidia-smi and our series for the same value.

    Args:
        scale: nvidia-smi's unit to ours.
        tolerance: fraction by which a changing value may differ, `slack` an amount in our unit.
        if_nonzero: our series is left out while it is 0.
    """

    name: str
    metric: Metric
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    tolerance: float = 0.0
    slack: float = 0.0
    if_nonzero: bool = False


MOVES = 0.1

QUERIES: tuple[Query, ...] = (
    Query("utilization.gpu", metrics.GPU_UTILIZATION, (), 0.01, MOVES, 0.1),
    Query("memory.total", metrics.GPU_MEMORY_TOTAL, (), MEBI, 0, MEBI),
    Query("memory.used", metrics.GPU_MEMORY_USED, (), MEBI, MOVES, MEBI),
    Query("clocks.current.sm", metrics.GPU_CLOCK, ("sm",), 1e6, MOVES, 30e6),
    Query("clocks.current.memory", metrics.GPU_CLOCK, ("memory",), 1e6, 0, 0),
    Query("clocks.max.sm", metrics.GPU_CLOCK_MAX, ("sm",), 1e6),
    Query("power.draw.average", metrics.GPU_POWER, (), 1, MOVES, 5),
    Query("enforced.power.limit", metrics.GPU_POWER_LIMIT, ("enforced",), 1, 0, 0.01),
    Query("power.default_limit", metrics.GPU_POWER_LIMIT, ("default",), 1, 0, 0.01),
    Query("temperature.gpu", metrics.GPU_TEMPERATURE, ("core",), 1, 0, 3),
    Query("temperature.memory", metrics.GPU_TEMPERATURE, ("memory",), 1, 0, 3),
    Query("temperature.gpu.tlimit", metrics.GPU_TEMPERATURE_MARGIN, (), 1, 0, 3),
    Query("pcie.link.gen.current", metrics.GPU_PCIE_GENERATION),
    Query("pcie.link.gen.max", metrics.GPU_PCIE_GENERATION_MAX),
    Query("pcie.link.width.current", metrics.GPU_PCIE_WIDTH),
    Query("pcie.link.width.max", metrics.GPU_PCIE_WIDTH_MAX),
    Query(
        "ecc.errors.corrected.aggregate.total", metrics.GPU_ECC_ERRORS, ("corrected", "aggregate")
    ),
    Query(
        "ecc.errors.uncorrected.aggregate.total",
        metrics.GPU_ECC_ERRORS,
        ("uncorrected", "aggregate"),
    ),
    Query("remapped_rows.correctable", metrics.GPU_REMAPPED_ROWS, ("corrected",), if_nonzero=True),
    Query("remapped_rows.uncorrectable", metrics.GPU_REMAPPED_ROWS, ("uncorrected",)),
    *(
        Query(
            f"clocks_event_reasons_counters.{name}",
            metrics.GPU_CLOCK_EVENT_SECONDS,
            (reason,),
            1e-6,
            MOVES,
            2,
        )
        for name, reason in (
            ("sw_power_cap", "sw_power_cap"),
            ("sw_thermal_slowdown", "sw_thermal_slowdown"),
            ("hw_thermal_slowdown", "hw_thermal_slowdown"),
            ("hw_power_brake_slowdown", "hw_power_brake"),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One value of a GPU from both, None if one does not report it."""

    gpu: str
    query: Query
    ours: float | None
    theirs: float | None

    @property
    def agrees(self) -> bool:
        """Return True if both report the same, or neither reports it."""
        if self.ours is None and self.query.if_nonzero:
            return not self.theirs
        if self.ours is None or self.theirs is None:
            return self.ours is self.theirs
        allowed = self.query.tolerance * abs(self.theirs) + self.query.slack
        return abs(self.ours - self.theirs) <= allowed


@dataclass(slots=True)
class GpuCheck:
    """The results; `calls` are seconds of each call by its name."""

    compared: Sequence[Compared] = ()
    calls: Mapping[str, Sequence[float]] = field(default_factory=dict)
    page: str = ""
    missing: str = ""


class _NoAnswer(Exception):  # noqa: N818 - a state of nvidia-smi, whose words are the argument
    """nvidia-smi does not know a field, or has no driver."""


class _TimedDevice:
    """A device that measures how long its calls take; stands for `Device`."""

    def __init__(self, device: Device, calls: dict[str, list[float]]) -> None:
        self._device = device
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._device, name)

        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self._calls[name].append(time.perf_counter() - begin)

        return timed


class _TimedLibrary(NvidiaLibrary):
    """NVIDIA's library, with timed devices."""

    def __init__(self, pynvml: Any, procfs: Path, calls: dict[str, list[float]]) -> None:
        super().__init__(pynvml, procfs, Path("/sys"))
        self._calls = calls

    def device(self, index: int) -> Device:
        return cast(Device, _TimedDevice(super().device(index), self._calls))


def measure(looks: int = LOOKS) -> GpuCheck:
    """Look at the GPUs of this machine; without any, report what is missing."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return GpuCheck(missing="nvidia-smi is not here")
    import pynvml  # an optional dependency

    calls: dict[str, list[float]] = defaultdict(list)
    session = Session(
        _TimedLibrary(pynvml, Path("/proc"), calls),
        TIMEOUT_SECONDS,
        TIMEOUT_SECONDS,
        time.monotonic,
    )
    samples: tuple[Sample, ...] = ()
    try:
        for _ in range(looks):
            samples = tuple(session.read())
            time.sleep(PAUSE_SECONDS)
        table = _ask(program)
    except (NvmlError, _NoAnswer) as error:
        return GpuCheck(missing=str(error))
    scrape = Scrape("nvml", True, 0.0, samples, "", None)
    page = render(Snapshot("here", time.time(), (scrape,)), TEXT, None).decode()
    return GpuCheck(tuple(compare(samples, table)), dict(calls), page)


def _ask(program: str) -> str:
    names = ",".join(query.name for query in QUERIES)
    command = [program, f"--query-gpu=uuid,{names}", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode:
        raise _NoAnswer(f"{' '.join(command)} says {done.stdout.strip()}")
    return done.stdout


def compare(samples: Sequence[Sample], table: str) -> Iterator[Compared]:
    """Compare our samples with nvidia-smi's table: a line per GPU, uuid and then `QUERIES`."""
    ours = {(s.metric.name, s.labels[1:2], s.labels[3:]): s.value for s in samples}
    for row in csv.reader(io.StringIO(table), skipinitialspace=True):
        for query, text in zip(QUERIES, row[1:], strict=True):
            mine = ours.get((query.metric.name, (row[0],), query.labels))
            number = float(mine) if isinstance(mine, int | float) else None
            yield Compared(row[0], query, number, _number(text, query))


def _number(text: str, query: Query) -> float | None:
    """Read a value; `[N/A]` and the like are none."""
    try:
        return float(text) * query.scale
    except ValueError:
        return None


def report(check: GpuCheck) -> str:
    """Return the differences, the durations of calls, and the page."""
    if check.missing:
        return f"no GPU to look at: {check.missing}"
    differing = [one for one in check.compared if not one.agrees]
    lines = [f"{len(check.compared)} values compared with nvidia-smi's, {len(differing)} differ"]
    lines += [
        f"  {one.gpu} {one.query.name}: {one.ours} here, {one.theirs} there" for one in differing
    ]
    lines.append("calls, median and longest:")
    for name, seconds in sorted(check.calls.items(), key=lambda item: -statistics.median(item[1])):
        median, longest = statistics.median(seconds) * 1e6, max(seconds) * 1e6
        lines.append(f"  {name:26} {median:9.1f} us {longest:9.1f} us  ({len(seconds)} calls)")
    return "\n".join([*lines, "the page:", check.page])
