"""The results of a fabric check, as text, as JSON and as an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from rankscope_analyzers.fabric import judge
from rankscope_analyzers.fabric.judge import Fault, Split
from rankscope_analyzers.fabric.measured import Measured
from rankscope_analyzers.text.name_lists import ranks_named
from rankscope_analyzers.text.sanitize import visible

SLOW, UNDECIDED = 2, 3
SHOWN_FAULTS = 20

_PHRASES: Mapping[str, str] = {
    "sends": "{who} sends {measured}, others {usual}",
    "receives": "{who} receives {measured}, others {usual}",
    "link": "the link from {who} carries {measured}, others {usual}",
    "echo": "messages of {who} and their echoes take {measured}, of others {usual}",
    "computes": "the GPU of {who} computes {measured}, others {usual}",
    "copies": "the GPU of {who} copies {measured} from or to the host, others {usual}",
    "sums": "all-reduces of {measured} gave wrong sums",
}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What was measured, and the conclusions.

    Args:
        faults: what is slow or wrong, the worst first.
        below: True if the usual rate of a link is below the requested one.
        minimum: the requested bytes per second, None for none.
    """

    measured: Measured
    faults: tuple[Fault, ...]
    below: bool
    minimum: float | None

    @property
    def split(self) -> Split | None:
        """The parts into which links fall, the slow one below `minimum`; None with faults."""
        found = None if self.faults else judge.split(self.measured)
        due = self.minimum is None or (found is not None and found.slow_rate < self.minimum)
        return found if due else None

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing is slow, 2 if something is, 3 if that cannot be decided."""
        if self.faults or self.below:
            return SLOW
        if self.split is not None:
            return UNDECIDED
        return 0 if judge.comparable(self.measured) or self.minimum is not None else UNDECIDED


def conclude(measured: Measured, minimum: float | None) -> Conclusion:
    """Judge what was measured.

    Args:
        measured: of all ranks.
        minimum: bytes per second that a link must usually carry, None for no such demand.
    """
    usual = judge.usual_rate(measured)
    below = minimum is not None and (usual is None or usual < minimum)
    return Conclusion(measured, judge.faults(measured), below, minimum)


def as_object(found: Conclusion) -> Mapping[str, Any]:
    """Return JSON-ready values."""
    measured = found.measured
    ranks, ring = len(measured.hosts), measured.ring()
    return {
        "ranks": ranks,
        "hosts": list(measured.hosts),
        "backend": measured.backend,
        "all_reduce": [
            {
                "message_bytes": one.message_bytes,
                "seconds": one.seconds,
                "algorithm_bytes_per_second": one.algorithm_bandwidth(),
                "bus_bytes_per_second": one.bus_bandwidth(ranks),
                "correct": one.correct,
            }
            for one in measured.reductions
        ],
        "links": [
            {"from": source, "to": target, "bytes_per_second": rate}
            for (source, target), rate in sorted(measured.rates.items())
        ],
        "round_trips": [
            {"from": source, "to": target, "seconds": seconds}
            for (source, target), seconds in sorted(measured.round_trips.items())
        ],
        "ring": None if ring is None else {"bytes_per_second": ring.rate, "seconds": ring.seconds},
        "devices": {
            str(rank): {
                "flops": one.flops,
                "to_device_bytes_per_second": one.to_device,
                "to_host_bytes_per_second": one.to_host,
            }
            for rank, one in sorted(measured.devices.items())
        },
        "faults": [
            {
                "kind": one.kind,
                "ranks": list(one.ranks),
                "hosts": [measured.hosts[rank] for rank in one.ranks],
                "measured": one.measured,
                "usual": one.usual,
            }
            for one in found.faults
        ],
        "below_minimum": found.below,
        "split": None if found.split is None else asdict(found.split),
        "comparable": judge.comparable(measured),
    }


def table(measured: Measured) -> Table:
    """Return the all-reduces for people."""
    drawn = Table(title="all-reduce", title_justify="left", box=None)
    for name in ("message", "time", "algorithm bandwidth", "bus bandwidth"):
        drawn.add_column(name, justify="right")
    for one in measured.reductions:
        drawn.add_row(
            _size(one.message_bytes),
            _time(one.seconds),
            _rate(one.algorithm_bandwidth()),
            _rate(one.bus_bandwidth(len(measured.hosts))),
        )
    return drawn


def lines(found: Conclusion) -> Iterator[str]:
    """Yield the conclusions as sentences."""
    measured = found.measured
    usual = judge.usual_rate(measured)
    if usual is not None:
        yield f"{len(measured.rates)} links measured; the middle one carries {_rate(usual)}."
    ring = measured.ring()
    if ring is not None:
        yield (
            f"The ring of all ranks carries {_rate(ring.rate)} at its slowest link;"
            f" a small message goes round in {_time(ring.seconds)}."
        )
    for fault in found.faults[:SHOWN_FAULTS]:
        yield f"Slow: {_sentence(fault, measured.hosts)}."
    if len(found.faults) > SHOWN_FAULTS:
        yield f"{len(found.faults) - SHOWN_FAULTS} more are in --json."
    if found.below and found.minimum is not None:
        yield f"Slow: links carry less than the {_rate(found.minimum)} that were asked for."
    if not judge.comparable(measured):
        yield (
            f"{len(measured.hosts)} ranks cannot be distinguished: start {judge.COMPARABLE} or"
            " more, or say by --minimum what a link must carry."
        )
    elif found.split is not None:
        parts = found.split
        yield (
            f"Undecided: {parts.slow} links between hosts carry {_rate(parts.slow_rate)} and"
            f" {parts.fast} carry {_rate(parts.fast_rate)}. That is no single rank or link: look at"
            " what the slow ones have in common (--json lists all links)."
        )
    elif not found.faults and not found.below:
        yield "No rank or link is slow."


def _sentence(fault: Fault, hosts: Sequence[str]) -> str:
    if fault.kind == "link":
        who = " to ".join(f"rank {rank} ({visible(hosts[rank])})" for rank in fault.ranks)
    else:
        named = ", ".join(dict.fromkeys(visible(hosts[rank]) for rank in fault.ranks))
        who = f"{ranks_named(fault.ranks)} ({named})"
    written = {"echo": _time, "computes": _operations, "sums": _size}.get(fault.kind, _rate)
    return _PHRASES[fault.kind].format(
        who=who, measured=written(fault.measured), usual=written(fault.usual)
    )


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second * 8 / 1e9:.3g} Gbit/s"


def _operations(per_second: float) -> str:
    return f"{per_second / 1e12:.3g} TFLOP/s"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _size(count: float) -> str:
    return f"{count / (1 << 20):.3g} MiB" if count >= 1 << 20 else f"{count / 1024:.3g} KiB"
