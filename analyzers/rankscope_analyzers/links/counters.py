"""Links of a job that are worse than their peers: losses, congestion, errors, flaps, rates.

Pure: a frame of port counters in (`frame` defines its columns), findings out. A port is compared
with the other ports of its job, on its own node and on others, per byte that it carried. A port
without data is neither judged nor mentioned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.links import rails as link_rails
from rankscope_analyzers.links import states as link_states
from rankscope_analyzers.links.findings import finding, link
from rankscope_analyzers.links.frame import Ports, read_ports
from rankscope_analyzers.links.quantities import QUANTITIES, LinkFault, Quantity
from rankscope_analyzers.links.skew import skew
from rankscope_analyzers.numeric.arrays import Floats, Integers

RAIL_SHARE = 0.5
"""Share of a rail's ports that must stand out for the rail itself to be faulty."""

RAIL_NODES = 3
"""Minimum number of nodes on which the same adapter must stand out to name the rail."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """The quantity in which a port stands out most, and its amounts.

    Args:
        quantity: which.
        events: how much the port had.
        expected: how much at the rate of its peers.
    """

    quantity: Quantity
    events: float
    expected: float


def analyze(frame: pd.DataFrame) -> tuple[Finding, ...]:
    """Return what is wrong with the links in a frame, job by job.

    Raises:
        LinkFrameError: a column that is needed is missing.
    """
    ports = read_ports(frame)
    if ports.count == 0:
        return ()
    groups = peer_groups(ports)
    found = [*link_states.analyze(ports, groups), *link_rails.analyze(ports, groups)]
    exposure = _exposure(ports)
    for kind in dict.fromkeys(quantity.kind for quantity in QUANTITIES):
        found += _outliers(ports, groups, exposure, kind)
    return tuple(found)


def peer_groups(ports: Ports) -> Integers:
    """Number the groups of peers: ports of one job that do the same work.

    A port for storage, or of a GPU that the job does not use, has different traffic.
    """
    keys = ports.table["job_id"] + "\0" + pd.Series(ports.roles(), index=ports.table.index)
    return pd.factorize(keys)[0].astype(np.int64)


def _outliers(
    ports: Ports, groups: Integers, exposure: Floats, kind: LinkFault
) -> Iterator[Finding]:
    """Yield the ports that stand out in a kind of fault, by the quantity that shows it most."""
    best: dict[int, Outlier] = {}
    most: dict[int, float] = {}
    seconds = ports.durations
    for quantity in (quantity for quantity in QUANTITIES if quantity.kind == kind):
        if not any(map(ports.has, quantity.columns)):
            continue
        events = _sum(ports, quantity.columns)
        least = np.maximum(quantity.least, quantity.floor_per_second * seconds)
        compared = skew(events, exposure, groups, least, quantity.grain)
        for row in np.flatnonzero(compared.outlier):
            shown = Outlier(quantity, float(events[row]), float(compared.expected[row]))
            excess = shown.events / max(shown.expected, least[row])
            if excess > most.get(int(row), 0.0):
                most[int(row)], best[int(row)] = excess, shown
    for rows in _rails(ports, best) if best else ():
        yield _describe(ports, {row: best[row] for row in rows})


def _sum(ports: Ports, columns: Sequence[str]) -> Floats:
    """Return the increase of several counters together, NaN where none of them is known."""
    grown = [ports.increase(column) for column in columns if ports.has(column)]
    if not grown:
        return np.full(ports.count, np.nan)
    known = np.isfinite(grown).any(axis=0)
    return np.where(known, np.nansum(grown, axis=0), np.nan)


def _exposure(ports: Ports) -> Floats:
    """Return the denominator of event rates: bytes carried if the frame has them, else seconds.

    A port that carries next to nothing is judged by time: per byte, its first event would already
    make it an outlier.
    """
    seconds = ports.durations
    carried = _sum(ports, ("transmit_bytes", "receive_bytes"))
    typical = np.nanmedian(carried) if np.isfinite(carried).any() else 0.0
    if not typical > 0:
        return seconds
    usual = typical * seconds / max(float(np.median(seconds)), 1e-9)
    return np.where(np.isfinite(carried), np.maximum(carried, usual), usual)


def _rails(ports: Ports, rows: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yield outliers, combining those of one adapter on most nodes of a job into a rail."""
    table = ports.table
    by_rail: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row in rows:
        port = table.iloc[row]
        by_rail[port["job_id"], port["device"], port["port"]].append(row)
    sizes = table.groupby(["job_id", "device", "port"]).size()
    for rail, members in by_rail.items():
        if len(members) >= max(RAIL_NODES, RAIL_SHARE * int(sizes[rail])):
            yield tuple(members)
        else:
            yield from ((row,) for row in members)


def _describe(ports: Ports, outliers: Mapping[int, Outlier]) -> Finding:
    """Describe a port, or the ports of a rail, by the quantity in which most of them stand out.

    Drivers differ in what they count, so that the others may not have it at all.
    """
    shares = Counter(one.quantity for one in outliers.values())
    (quantity, _), *others = shares.most_common()
    rows = [row for row, one in outliers.items() if one.quantity == quantity]
    first = _evidence(ports, outliers, quantity)
    evidence = [first, *_parts(ports, rows, quantity)]
    evidence += [_evidence(ports, outliers, other) for other, _ in others]
    seconds = float(np.median(ports.durations[rows]))
    observed, usual = first.observed, first.expected
    than = f"{observed / usual:.1f}x the" if usual >= 1 else "far more"
    phrase = (
        f"has {than} {quantity.name} {'of' if usual >= 1 else 'than'} its peers"
        f" ({_number(observed)} {quantity.unit} against {_number(usual)} in {seconds:.0f} s)"
    )
    since = min(_since(ports, row, one) for row, one in outliers.items())
    kind: LinkFault = quantity.kind if len(outliers) == 1 else "asymmetric_rail"
    where = link(ports, tuple(outliers))
    return finding(kind, "ticket", where, phrase, tuple(evidence), since)


def _evidence(ports: Ports, outliers: Mapping[int, Outlier], quantity: Quantity) -> Evidence:
    """Return the usual amounts of the ports that stand out in a quantity."""
    shown = [one for one in outliers.values() if one.quantity == quantity]
    return Evidence(
        "+".join(_columns(ports, quantity)),
        float(np.median([one.events for one in shown])),
        float(np.median([one.expected for one in shown])),
        quantity.unit,
        f"{quantity.name} while watched, compared with its peers for the same traffic",
    )


def _columns(ports: Ports, quantity: Quantity) -> list[str]:
    return [column for column in quantity.columns if ports.has(column)]


def _parts(ports: Ports, rows: Sequence[int], quantity: Quantity) -> Iterator[Evidence]:
    """Yield the counters that a sum consists of, largest first."""
    columns = _columns(ports, quantity)
    if len(columns) < 2:
        return
    grown = {column: ports.increase(column) for column in columns}
    amounts = {
        column: float(np.nanmedian(values[rows]))
        for column, values in grown.items()
        if np.isfinite(values[rows]).any()
    }
    for column in sorted(amounts, key=lambda name: -amounts[name]):
        others = np.delete(grown[column], rows)
        others = others[np.isfinite(others)]
        usual = float(np.median(others)) if len(others) else float("nan")
        if amounts[column] > 0:
            meaning = "one of these counters, compared with its median elsewhere"
            yield Evidence(column, amounts[column], usual, quantity.unit, meaning)


def _since(ports: Ports, row: int, outlier: Outlier) -> float:
    """Return the start of the first interval in which a port had more than its share.

    If its counters were read at different times, no interval may have all of it; then the first.
    """
    grown: dict[tuple[float, float], float] = defaultdict(float)
    for column in outlier.quantity.columns:
        for start, end, amount in zip(*ports.steps_of(row, column), strict=True):
            grown[float(start), float(end)] += float(amount)
    seconds = float(ports.durations[row])
    # Half-way between its peers' rate and its own: above chance before the fault, below the fault.
    fast = (outlier.expected + sum(grown.values())) / 2 / seconds
    first = min(start for start, _ in grown)
    above = (start for (start, end), amount in grown.items() if amount > fast * (end - start))
    return min(above, default=first)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
