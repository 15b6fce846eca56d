"""Which driver statistics are exported: an allow-list, because a port has hundreds.

Names of mlx5: the kernel's Documentation/networking/device_drivers/ethernet/mellanox/mlx5. Those of
bnxt_en, ice and ena: their *_ethtool.c.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from rankscope_agent.contract.metrics import netdev as metrics
from rankscope_agent.contract.model import Metric, Sample

MICROSECONDS = 1e-6

_DIRECTIONS = {"rx": "receive", "tx": "transmit"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """Names with one meaning; groups `direction` and `priority` become labels.

    Args:
        factor: converts values to base units.
    """

    names: re.Pattern[str]
    metric: Metric
    factor: float


def _pattern(names: str, metric: Metric, factor: float = 1) -> Pattern:
    return Pattern(re.compile(names), metric, factor)


_RXTX = r"(?P<direction>rx|tx)"
_PRIO = r"(?P<priority>[0-7])"

PATTERNS: tuple[Pattern, ...] = (
    _pattern(rf"{_RXTX}_prio{_PRIO}_pause", metrics.PFC_FRAMES),  # mlx5
    _pattern(rf"{_RXTX}_pfc_ena_frames_pri{_PRIO}", metrics.PFC_FRAMES),  # bnxt_en
    _pattern(rf"{_RXTX}_priority_{_PRIO}_xoff(?:\.nic)?", metrics.PFC_FRAMES),  # ice
    _pattern(rf"port\.{_RXTX}_priority_{_PRIO}_xoff", metrics.PFC_FRAMES),  # i40e
    _pattern(rf"{_RXTX}_prio{_PRIO}_pause_duration", metrics.PFC_SECONDS, MICROSECONDS),
    _pattern(rf"pfc_pri{_PRIO}_{_RXTX}_duration_us", metrics.PFC_SECONDS, MICROSECONDS),
    _pattern(
        rf"{_RXTX}_(?P<priority>global)_pause_duration", metrics.PFC_SECONDS, MICROSECONDS
    ),  # mlx5, without priorities (802.3x)
    _pattern(rf"rx_prio{_PRIO}_(?:buf_)?discards?", metrics.PFC_DISCARDS),
    _pattern(rf"{_RXTX}_pause_ctrl_phy", metrics.PAUSE_FRAMES),
    _pattern(rf"{_RXTX}_pause_frames", metrics.PAUSE_FRAMES),  # bnxt_en
    _pattern(r"tx_pause_storm_(?P<level>warning|error)_events", metrics.PAUSE_STORMS),
    _pattern(
        r"(?P<limit>bw_in|bw_out|pps|conntrack|linklocal)_allowance_exceeded", metrics.LIMITED
    ),
)

PHY_NAMES = frozenset(
    (
        "link_down_events_phy",
        "rx_discards_phy",
        "tx_discards_phy",
        "tx_errors_phy",
        "rx_crc_errors_phy",
        "rx_symbol_err_phy",
        "rx_pcs_symbol_err_phy",
        "rx_corrected_bits_phy",
        "rx_in_range_len_errors_phy",
        "rx_oversize_pkts_phy",
        "rx_out_of_buffer",
        "rx_buffer_passed_thres_phy",
        "rx_steer_missed_packets",
        "outbound_pci_stalled_rd",
        "outbound_pci_stalled_wr",
        "module_unplug",
        "module_bad_shorted",
        "module_high_temp",
        "rx_fcs_err_frames",
        "rx_total_discard_pkts",
        "tx_total_discard_pkts",
        "rx_crc_errors.nic",
        "rx_dropped.nic",
        "port.rx_dropped",
        "rx_missed",
    )
)
"""Statistics that become `PHY_EVENTS` under their own names."""

PAUSES = (metrics.PFC_FRAMES, metrics.PFC_SECONDS)

FROM_THE_START = frozenset((metrics.PAUSE_STORMS.name, metrics.LIMITED.name))
"""Series that are exported even if zero, if the driver has them."""

ALWAYS_SHOWN = frozenset(("link_down_events_phy", "rx_discards_phy"))


def pauses(statistics: Mapping[str, int]) -> Iterator[str]:
    """Yield the names of pauses that a driver has counted."""
    for name, value in statistics.items():
        if value and any(one.metric in PAUSES and one.names.fullmatch(name) for one in PATTERNS):
            yield name


def labelled(
    device: str, statistics: Mapping[str, int], also: Collection[str] = ()
) -> Iterator[Sample]:
    """Yield the series of a driver's statistics; those not in the list are left out.

    Of several names with one meaning the largest value counts, which never falls.

    Args:
        device: the interface.
        statistics: by name.
        also: names that are shown even if zero.
    """
    found: dict[tuple[str, tuple[str, ...]], tuple[int, Sample]] = {}
    for name, value in statistics.items():
        sample = _sample(device, name, value)
        if sample is None:
            continue
        shown = value or sample.metric.name in FROM_THE_START or name in ALWAYS_SHOWN
        key = (sample.metric.name, sample.labels)
        if (shown or name in also) and (key not in found or value > found[key][0]):
            found[key] = value, sample
    yield from (sample for _, sample in found.values())


def _sample(device: str, name: str, value: int) -> Sample | None:
    if name in PHY_NAMES:
        return Sample(metrics.PHY_EVENTS, (device, name), value)
    for pattern in PATTERNS:
        match = pattern.names.fullmatch(name)
        if match is not None:
            labels = match.groupdict()
            if "direction" in labels:
                labels["direction"] = _DIRECTIONS[labels["direction"]]
            amount = value * pattern.factor
            return pattern.metric.sample(amount, device=device, **labels)
    return None
