"""Links of a job that are worse than their peers: losses, congestion, errors, flaps, rates.

Pure: a frame of port counters in (`frame` defines its columns), findings out. A port is compared
with the other ports of its job, on its own node and on others, per byte that it carried. A port
without data is neither judged nor mentioned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

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
    best: dict[int, tuple[float, Quantity, Floats, Floats]] = {}
    seconds = ports.durations
    for quantity in (quantity for quantity in QUANTITIES if quantity.kind == kind):
        if not any(map(ports.has, quantity.columns)):
            continue
        events = _sum(ports, quantity.columns)
        least = np.maximum(quantity.least, quantity.floor_per_second * seconds)
        compared = skew(events, exposure, groups, least, quantity.grain)
        for row in np.flatnonzero(compared.outlier):
            excess = events[row] / max(compared.expected[row], least[row])
            if excess > best.get(int(row), (0.0,))[0]:
                best[int(row)] = (float(excess), quantity, events, compared.expected)
    for rows in _rails(ports, best) if best else ():
        yield _describe(ports, rows, *best[rows[0]][1:])


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


def _describe(
    ports: Ports, rows: tuple[int, ...], quantity: Quantity, events: Floats, expected: Floats
) -> Finding:
    observed = float(np.median(events[list(rows)]))
    usual = float(np.median(expected[list(rows)]))
    columns = [column for column in quantity.columns if ports.has(column)]
    evidence = [
        Evidence(
            "+".join(columns),
            observed,
            usual,
            quantity.unit,
            f"{quantity.name} while watched, compared with its peers for the same traffic",
        )
    ]
    evidence += _parts(ports, rows, columns, quantity)
    seconds = float(np.median(ports.durations[list(rows)]))
    than = f"{observed / usual:.1f}x the" if usual >= 1 else "far more"
    phrase = (
        f"has {than} {quantity.name} {'of' if usual >= 1 else 'than'} its peers"
        f" ({_number(observed)} {quantity.unit} against {_number(usual)} in {seconds:.0f} s)"
    )
    since = min(_since(ports, row, columns, expected[row]) for row in rows)
    kind: LinkFault = quantity.kind if len(rows) == 1 else "asymmetric_rail"
    return finding(kind, "ticket", link(ports, rows), phrase, tuple(evidence), since)


def _parts(
    ports: Ports, rows: tuple[int, ...], columns: Sequence[str], quantity: Quantity
) -> Iterator[Evidence]:
    """Yield the counters that a sum consists of, largest first."""
    if len(columns) < 2:
        return
    grown = {column: ports.increase(column) for column in columns}
    amounts = {
        column: float(np.nanmedian(values[list(rows)]))
        for column, values in grown.items()
        if np.isfinite(values[list(rows)]).any()
    }
    for column in sorted(amounts, key=lambda name: -amounts[name]):
        others = np.delete(grown[column], rows)
        others = others[np.isfinite(others)]
        usual = float(np.median(others)) if len(others) else float("nan")
        if amounts[column] > 0:
            meaning = "one of these counters, compared with its median elsewhere"
            yield Evidence(column, amounts[column], usual, quantity.unit, meaning)


def _since(ports: Ports, row: int, columns: Sequence[str], expected: float) -> float:
    """Return the start of the first interval in which a port had more than its share.

    If its counters were read at different times, no interval may have all of it; then the first.
    """
    grown: dict[tuple[float, float], float] = defaultdict(float)
    for column in columns:
        for start, end, amount in zip(*ports.steps_of(row, column), strict=True):
            grown[float(start), float(end)] += float(amount)
    seconds = float(ports.durations[row])
    # Half-way between its peers' rate and its own: above chance before the fault, below the fault.
    fast = (expected + sum(grown.values())) / 2 / seconds
    first = min(start for start, _ in grown)
    above = (start for (start, end), amount in grown.items() if amount > fast * (end - start))
    return min(above, default=first)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
