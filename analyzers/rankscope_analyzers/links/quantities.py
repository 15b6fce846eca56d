"""Quantities that are compared between ports: counters with one meaning, and their thresholds.

A rate below its floor cannot hold up a job, whatever its peers have; above it, the skew against
peers decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract.metrics.rdma import LINK_ERRORS, RETRANSMISSION_EVENTS, TIMEOUT_EVENTS

LinkFault = Literal[
    "retransmission",
    "congestion",
    "errors",
    "flapping",
    "link_down",
    "rate_below_maximum",
    "pci_link_degraded",
    "asymmetric_rail",
]


@dataclass(frozen=True, slots=True)
class Quantity:
    """Counters that are added up and compared.

    Args:
        kind: of the finding for an outlier.
        name: of the sum in sentences.
        columns: counters of the frame; those present are added.
        unit: unit of the sum.
        floor_per_second: rate below which it is not reported.
        least: smallest increase that is judged.
        grain: smallest portion of it (`skew`).
    """

    kind: LinkFault
    name: str
    columns: tuple[str, ...]
    unit: str
    floor_per_second: float
    least: float
    grain: float = 1.0


LEAST_EVENTS = 10.0
"""Fewer events are chance: with 2 expected, 10 occur by chance once in 20,000 windows (Poisson)."""

RETRANSMISSIONS = Quantity(
    "retransmission",
    "lost and repeated packets",
    RETRANSMISSION_EVENTS,
    "events",
    # NCCL's default InfiniBand timeout (NCCL_IB_TIMEOUT=20) is some 4 s: one loss that waits for it
    # in 20 s takes a fifth of the time.
    0.05,
    LEAST_EVENTS,
)
TIMEOUTS = Quantity(
    "retransmission",
    "packets lost and missed by timeout only",
    # Each costs seconds where a sequence error costs a round trip, and must not be hidden by those.
    TIMEOUT_EVENTS,
    "events",
    0.05,  # as above
    LEAST_EVENTS,
)

QUANTITIES: tuple[Quantity, ...] = (
    RETRANSMISSIONS,
    TIMEOUTS,
    Quantity(
        "congestion",
        "congestion notifications",
        ("cnp_handled", "cnp_sent", "ecn_marked"),
        "packets",
        # A congestion-free port has none; DCQCN's fast recovery takes some 50 of its 55 us timers,
        # so a few hundred per second keep a sender below its rate permanently.
        100.0,
        1000.0,
    ),
    Quantity(
        "congestion",
        "ticks without credit to send",
        ("transmit_wait_ticks",),
        "ticks",
        # A tick is some 20 ns on current adapters: a million per second are 2 % of the time.
        1e6,
        1e6,
    ),
    Quantity(
        "congestion",
        "time paused by the peer",
        ("pfc_pause_seconds_receive",),
        "seconds",
        0.01,  # one per cent of the time
        0.1,
        # A pause frame stops a port for 65,535 quanta of 512 bits at most: 3.4 ms at 10 Gbit/s,
        # less on faster links.
        0.0034,
    ),
    Quantity(
        "congestion",
        "pause frames from the peer",
        ("pfc_pause_frames_receive",),
        "frames",
        100.0,
        1000.0,
    ),
    Quantity(
        "errors",
        "link errors",
        LINK_ERRORS,
        "events",
        # 10 per hour: a bit error rate of 1e-12, which the specification allows, gives more on a
        # fast link, but error correction hides those; the errors counted here got through.
        10 / 3600,
        LEAST_EVENTS,
    ),
)

FLAPS = ("link_flaps", "link_downed", "carrier_down")
"""Counters of the same events: the largest counts, they are not added."""
