"""Divides what there is among those that want more of it."""

from __future__ import annotations

from collections.abc import Mapping


def fair_shares(wanted: Mapping[str, float], available: float) -> Mapping[str, float]:
    """Return what each one gets: all that it wants, or as much as all others that lack some.

    Also known as max-min fairness.

    Args:
        wanted: by name, 0 or more.
        available: to all together.
    """
    shares, left = {}, available
    smallest_first = sorted(wanted, key=lambda name: wanted[name])
    for served, name in enumerate(smallest_first):
        shares[name] = min(wanted[name], left / (len(wanted) - served))
        left -= shares[name]
    return shares
