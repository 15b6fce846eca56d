"""Links that flap, are down, or run below their maximum: by state, not by events. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from rankscope_analyzers.findings.finding import Evidence, Finding, Severity
from rankscope_analyzers.links.findings import Link, finding, link
from rankscope_analyzers.links.frame import Ports
from rankscope_analyzers.links.quantities import FLAPS
from rankscope_analyzers.numeric.arrays import Booleans, Floats, Integers
from rankscope_analyzers.numeric.peers import peer_median

ACTIVE = 4.0  # IB_PORT_ACTIVE of the kernel's ib_verbs.h
ACTIVE_WITH_ERRORS = 5.0

FLAPS_TO_PAGE = 3
"""Link losses in one window that justify a page: each one stops the job for seconds (NCCL retries
for some 20 s), and the next may end it."""

BELOW = 0.99
"""Rates come in steps of a factor of two; one per cent allows for rounding."""

GIGABIT = 1e9 / 8


def analyze(ports: Ports, groups: Integers) -> Iterator[Finding]:
    """Yield findings from states, the most severe first."""
    gone = _is_gone(ports)
    yield from _gone(ports, gone)
    yield from _down(ports, gone)
    yield from _flapping(ports, groups)
    yield from _slow(ports, groups)
    yield from _pci(ports, groups)


def _is_gone(ports: Ports) -> Booleans:
    """Mark ports (P,) whose device is gone: lost, and without a state since then."""
    lost = ports.latest("lost") > 0
    return np.asarray(lost & (ports.newest("lost") > ports.newest("state")))


def _gone(ports: Ports, gone: Booleans) -> Iterator[Finding]:
    """Yield ports whose device is gone."""
    for row in np.flatnonzero(gone):
        about = link(ports, (int(row),))
        evidence = Evidence("lost", 1.0, 0.0, "state", "1 is gone")
        since = ports.newest("state")[row]
        first = ports.times[ports.samples_of(int(row))[0]]
        phrase = "is gone: its adapter has left the PCI bus, or its driver has given it up"
        severity = _severity(about)
        start = float(since) if np.isfinite(since) else float(first)
        yield finding("link_down", severity, about, phrase, (evidence,), start)


def _severity(about: Link) -> Severity:
    return "page" if about.where.ranks or about.where.gpus else "ticket"


def _down(ports: Ports, gone: Booleans) -> Iterator[Finding]:
    """Yield ports that are down but were up in this window, or are up on most other nodes."""
    latest = ports.latest("state")
    active = np.isin(latest, (ACTIVE, ACTIVE_WITH_ERRORS))
    known = np.isfinite(latest)
    up_elsewhere = _up_elsewhere(ports, known, active)
    for row in np.flatnonzero(known & ~active & ~gone):
        since = _left_active(ports, int(row))
        usual = up_elsewhere[row]
        if since is None and not usual:
            continue
        about = link(ports, (int(row),))
        evidence = Evidence("state", float(latest[row]), ACTIVE, "state", "4 is active, 1 is down")
        start = float(ports.times[ports.samples_of(int(row))[0]]) if since is None else since
        phrase = "is down" + (" although the same port is up on other nodes" if usual else "")
        severity = _severity(about)
        yield finding("link_down", severity, about, phrase, (evidence,), start)


def _left_active(ports: Ports, row: int) -> float | None:
    """Return when a port was last active, None if it never was."""
    mine = ports.samples_of(row)
    states = ports.samples["state"].to_numpy(np.float64)[mine]
    up = np.flatnonzero(np.isin(states, (ACTIVE, ACTIVE_WITH_ERRORS)))
    return float(ports.times[mine][up[-1]]) if len(up) else None


def _up_elsewhere(ports: Ports, known: Booleans, active: Booleans) -> Booleans:
    """Mark ports (P,) that are down while most of the same name on the job's nodes are active."""
    rails = pd.factorize(pd.MultiIndex.from_frame(ports.table[["job_id", "device", "port"]]))[0]
    others = np.bincount(rails[known], minlength=ports.count)[rails] - 1
    up = np.bincount(rails[known & active], minlength=ports.count)[rails]
    return np.asarray(known & ~active & (up > 0.5 * others))


def _flapping(ports: Ports, groups: Integers) -> Iterator[Finding]:
    """Yield ports that lost their link more often than peers: a switch restart affects all."""
    grown = [ports.increase(column) for column in FLAPS if ports.has(column)]
    if not grown:
        return
    flaps = np.fmax.reduce(grown)
    for row in np.flatnonzero(flaps > 0):
        peers = (groups == groups[row]) & np.isfinite(flaps)
        peers[row] = False
        usual = float(np.median(flaps[peers])) if peers.any() else 0.0
        if flaps[row] <= usual:
            continue
        count = int(flaps[row])
        about = link(ports, (int(row),))
        evidence = Evidence(
            "+".join(c for c in FLAPS if ports.has(c)),
            count,
            usual,
            "flaps",
            "losses of the link while watched, compared with the median of its peers",
        )
        times = "once" if count == 1 else f"{count} times"
        severity: Severity = "page" if count >= FLAPS_TO_PAGE and about.where.ranks else "ticket"
        phrase = f"lost its link {times}" + (
            f", its peers {usual:.0f} times" if peers.any() else ""
        )
        yield finding(
            "flapping", severity, about, phrase, (evidence,), _first_flap(ports, int(row))
        )


def _first_flap(ports: Ports, row: int) -> float:
    steps = (ports.steps_of(row, column) for column in FLAPS)
    return min(float(starts[grown > 0][0]) for starts, _, grown in steps if (grown > 0).any())


def _slow(ports: Ports, groups: Integers) -> Iterator[Finding]:
    """Yield ports that could be faster according to their maximum, their own past, or their peers.

    A port that is not active reports the lowest rate of its type, which is meaningless.
    """
    state = ports.latest("state")
    down = np.isfinite(state) & ~np.isin(state, (ACTIVE, ACTIVE_WITH_ERRORS))
    latest = np.where(down, np.nan, ports.latest("rate_bytes_per_second"))
    own = np.fmax(
        ports.largest("rate_bytes_per_second"), ports.largest("max_rate_bytes_per_second")
    )
    could = np.fmax(own, _peers_maximum(ports, groups, latest))
    with np.errstate(invalid="ignore"):
        slow = (latest > 0) & (latest < BELOW * could)
    for row in np.flatnonzero(slow):
        evidence = Evidence(
            "rate_bytes_per_second",
            float(latest[row]),
            float(could[row]),
            "bytes per second",
            "rate of the link, compared with its maximum",
        )
        phrase = f"runs at {_gigabits(latest[row])} of {_gigabits(could[row])} Gb/s"
        since = _since_below(ports, int(row), "rate_bytes_per_second", float(could[row]))
        about = link(ports, (int(row),))
        yield finding("rate_below_maximum", "ticket", about, phrase, (evidence,), since)


def _pci(ports: Ports, groups: Integers) -> Iterator[Finding]:
    """Yield adapters whose PCI link has fewer lanes or less speed than their peers'."""
    latest = ports.latest("pci_link_ratio")
    like = _peers_maximum(ports, groups, latest)
    could = np.fmax(ports.largest("pci_link_ratio"), like)
    could = np.where(np.isfinite(like), could, 1.0)
    with np.errstate(invalid="ignore"):
        slow = latest < BELOW * could
    for row in np.flatnonzero(slow):
        evidence = Evidence(
            "pci_link_ratio",
            float(latest[row]),
            float(could[row]),
            "ratio",
            "bandwidth of the PCI link as a part of the adapter's largest",
        )
        phrase = f"has a PCI link of {latest[row]:.0%} of its bandwidth"
        if np.isfinite(like[row]):
            phrase += f", its peers {could[row]:.0%}"
        since = _since_below(ports, int(row), "pci_link_ratio", float(could[row]))
        about = link(ports, (int(row),))
        yield finding("pci_link_degraded", "ticket", about, phrase, (evidence,), since)


def _peers_maximum(ports: Ports, groups: Integers, values: Floats) -> Floats:
    """Return the rate of comparable ports (P,), NaN for a port without any.

    Peers of one model can all do what the best of them does. If the model is unknown, ports with
    the same name on all nodes are comparable, and their median counts.
    """
    table = ports.table
    named = (table["model"] != "").to_numpy(np.bool_)
    names = np.where(named, table["model"], table["device"] + "\0" + table["port"])
    alike = pd.factorize(pd.MultiIndex.from_arrays([names, groups]))[0]
    found = np.full(ports.count, np.nan)
    for members in _members(np.where(np.isfinite(values), alike, -1)):
        if len(members) > 1 and named[members[0]]:
            found[members] = values[members].max()
        elif len(members) > 1:
            found[members] = peer_median(values[None, members])[0]
    return found


def _members(groups: Integers) -> Iterator[Integers]:
    """Yield the ports of each group; a negative number is no group."""
    order = np.argsort(groups, kind="stable")
    order = order[groups[order] >= 0]
    yield from np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)


def _since_below(ports: Ports, row: int, column: str, could: float) -> float:
    """Return the start of the last period in which a value was below its maximum."""
    mine = ports.samples_of(row)
    values = ports.samples[column].to_numpy(np.float64)[mine]
    times = ports.times[mine]
    good = np.flatnonzero(values >= BELOW * could)
    first = int(good[-1]) + 1 if len(good) else 0
    return float(times[min(first, len(times) - 1)])


def _gigabits(bytes_per_second: float) -> str:
    return f"{bytes_per_second / GIGABIT:.0f}"
