"""Rails that carry less traffic than their siblings, on one node or everywhere. Pure.

The ports that serve GPUs of one node carry about the same in ring and tree collectives. If one
carries much less, its traffic has moved to another one, which then carries twice as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.links.findings import finding, link
from rankscope_analyzers.links.frame import Ports
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.peers import peer_median

LEAST_SHARE = 0.7
"""Fraction of its siblings' traffic below which a rail is asymmetric: trees and uneven message
sizes stay within some 20 %."""

LEAST_BYTES_PER_SECOND = 50e6
"""Siblings that carry less are not used by a job, and their shares are meaningless."""

LEAST_SIBLINGS = 2
"""With a single sibling it is unknown which of the two is faulty."""

RAIL_SHARE = 0.5
"""Share of a rail's ports that must carry too little for the whole rail to be faulty."""


def analyze(ports: Ports, groups: Integers) -> Iterator[Finding]:
    """Yield ports and whole rails that carry too little."""
    if not ports.has("transmit_bytes"):
        return
    sent = ports.increase("transmit_bytes")
    shares, siblings = _shares(ports, groups, sent)
    elsewhere = _elsewhere(ports, shares)
    with np.errstate(invalid="ignore"):
        little = shares < LEAST_SHARE
        # If the same adapter carries as little on the other nodes, that is the job's pattern.
        odd = little & ~(elsewhere < LEAST_SHARE)
    for row in np.flatnonzero(odd):
        yield _describe(ports, (int(row),), sent, siblings)
    for rows in _whole_rails(ports, little & ~odd):
        yield _describe(ports, rows, sent, siblings)


def _shares(ports: Ports, groups: Integers, sent: Floats) -> tuple[Floats, Floats]:
    """Return each port's share of its siblings' traffic, and that traffic (P,)."""
    shares, siblings = np.full(ports.count, np.nan), np.full(ports.count, np.nan)
    seconds = ports.durations
    serves = ports.roles() == "serves"
    nodes = ports.table["node"].to_numpy()
    for node in np.unique(nodes.astype(str)):
        members = np.flatnonzero((nodes == node) & serves & np.isfinite(sent))
        for row in members:
            others = members[(members != row) & (groups[members] == groups[row])]
            if len(others) < LEAST_SIBLINGS:
                continue
            usual = float(np.median(sent[others]))
            if usual >= LEAST_BYTES_PER_SECOND * max(seconds[row], 1e-9):
                shares[row], siblings[row] = sent[row] / usual, usual
    return shares, siblings


def _elsewhere(ports: Ports, shares: Floats) -> Floats:
    """Return the median share of the same adapter on other nodes of the job, NaN without any."""
    found = np.full(ports.count, np.nan)
    for members in _rails(ports).values():
        found[members] = peer_median(shares[None, members])[0]
    return found


def _rails(ports: Ports) -> dict[tuple[str, str, str], list[int]]:
    rails: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row, port in enumerate(ports.table.itertuples(index=False)):
        rails[str(port.job_id), str(port.device), str(port.port)].append(row)
    return rails


def _whole_rails(ports: Ports, little: Booleans) -> Iterator[tuple[int, ...]]:
    """Yield the rails that carry too little on most nodes."""
    for members in _rails(ports).values():
        low = tuple(row for row in members if little[row])
        if len(low) >= max(2, RAIL_SHARE * len(members)):
            yield low


def _describe(ports: Ports, rows: tuple[int, ...], sent: Floats, siblings: Floats) -> Finding:
    chosen = list(rows)
    observed, usual = float(np.median(sent[chosen])), float(np.median(siblings[chosen]))
    evidence = Evidence(
        "transmit_bytes",
        observed,
        usual,
        "bytes",
        "sent while watched, compared with the other GPU ports of its node",
    )
    phrase = f"carries {observed / usual:.0%} of what the other rails of its node carry"
    if len(rows) > 1:
        phrase = phrase.replace("its node carry", "its nodes carry")
    starts = [float(ports.times[ports.samples_of(row)[0]]) for row in rows]
    return finding("asymmetric_rail", "ticket", link(ports, rows), phrase, (evidence,), min(starts))
