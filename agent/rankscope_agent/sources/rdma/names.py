"""The meaning of RDMA counter files: a table, and rules for names that it does not list.

Meanings and widths of `counters`: InfiniBand Architecture Specification volume 1, 16.1.3.5
(PortCounters). Names of `hw_counters`: the alloc_hw_*_stats functions of the kernel's drivers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rankscope_agent.contract.metrics import rdma as metrics
from rankscope_agent.contract.model import Metric

Folder = Literal["counters", "counters_ext", "hw_counters"]

FOLDERS: tuple[Folder, ...] = ("counters", "counters_ext", "hw_counters")
"""Directories of a port with counters; if two count the same, the first one is used."""

WORD_BYTES = 4
"""port_xmit_data and the like count words of four bytes."""

LIFESPAN = "lifespan"  # not a counter: for how many milliseconds the driver caches the values

NIBBLE, BYTE, SHORT, WORD = 0xF, 0xFF, 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Rule:
    """The conversion of one counter file.

    Args:
        metric: its series.
        labels: values of the labels after device and port.
        factor: multiplies the number in the file.
        always: whether to export it even while it is zero, because alerts and dashboards use it.
        ceiling: the value at which it stops by the specification; None if it wraps or is wide
            enough.
        derived: whether it can be computed from other counters, so that it is exported on request
            only.
    """

    metric: Metric
    labels: tuple[str, ...] = ()
    factor: int = 1
    always: bool = False
    ceiling: int | None = None
    derived: bool = False


def _error(name: str, ceiling: int, *, always: bool = False) -> Rule:
    return Rule(metrics.PORT_ERRORS, (name,), always=always, ceiling=ceiling)


_COUNTERS: Mapping[str, Rule] = {
    "port_xmit_data": Rule(metrics.TRANSMIT_BYTES, (), WORD_BYTES, True, WORD),
    "port_rcv_data": Rule(metrics.RECEIVE_BYTES, (), WORD_BYTES, True, WORD),
    "port_xmit_packets": Rule(metrics.TRANSMIT_PACKETS, (), 1, True, WORD),
    "port_rcv_packets": Rule(metrics.RECEIVE_PACKETS, (), 1, True, WORD),
    "unicast_xmit_packets": Rule(metrics.CAST_PACKETS, ("transmit", "unicast"), derived=True),
    "unicast_rcv_packets": Rule(metrics.CAST_PACKETS, ("receive", "unicast"), derived=True),
    "multicast_xmit_packets": Rule(metrics.CAST_PACKETS, ("transmit", "multicast")),
    "multicast_rcv_packets": Rule(metrics.CAST_PACKETS, ("receive", "multicast")),
    "port_xmit_wait": Rule(metrics.TRANSMIT_WAIT, (), 1, True, WORD),
    "link_downed": Rule(metrics.LINK_DOWNED, (), 1, True, BYTE),
    "link_error_recovery": Rule(metrics.LINK_RECOVERIES, (), 1, True, BYTE),
    "symbol_error": _error("symbol_error", SHORT, always=True),
    "port_rcv_errors": _error("port_rcv_errors", SHORT, always=True),
    "port_xmit_discards": _error("port_xmit_discards", SHORT, always=True),
    "local_link_integrity_errors": _error("local_link_integrity_errors", NIBBLE, always=True),
    "port_rcv_discards": _error("port_rcv_discards", SHORT),
    "port_rcv_remote_physical_errors": _error("port_rcv_remote_physical_errors", SHORT),
    "port_rcv_switch_relay_errors": _error("port_rcv_switch_relay_errors", SHORT),
    "port_xmit_constraint_errors": _error("port_xmit_constraint_errors", BYTE),
    "port_rcv_constraint_errors": _error("port_rcv_constraint_errors", BYTE),
    "excessive_buffer_overrun_errors": _error("excessive_buffer_overrun_errors", NIBBLE),
    "VL15_dropped": _error("VL15_dropped", SHORT),
}

_COUNTERS_EXT: Mapping[str, Rule] = {
    "port_xmit_data_64": Rule(metrics.LEGACY_BYTES, ("transmit",), WORD_BYTES),
    "port_rcv_data_64": Rule(metrics.LEGACY_BYTES, ("receive",), WORD_BYTES),
    "port_xmit_packets_64": Rule(metrics.LEGACY_PACKETS, ("transmit", "all")),
    "port_rcv_packets_64": Rule(metrics.LEGACY_PACKETS, ("receive", "all")),
    "port_unicast_xmit_packets": Rule(metrics.LEGACY_PACKETS, ("transmit", "unicast")),
    "port_unicast_rcv_packets": Rule(metrics.LEGACY_PACKETS, ("receive", "unicast")),
    "port_multicast_xmit_packets": Rule(metrics.LEGACY_PACKETS, ("transmit", "multicast")),
    "port_multicast_rcv_packets": Rule(metrics.LEGACY_PACKETS, ("receive", "multicast")),
}

RETRANSMISSIONS: tuple[str, ...] = (
    # mlx5
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "roce_adp_retrans",
    # EFA
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "rx_drops",
    # bnxt_re
    "to_retransmits",
    "seq_err_naks_rcvd",
    "rnr_naks_rcvd",
    "missing_resp",
    "oos_drop_count",
    # rxe
    "rcvd_seq_err",
    "rcvd_rnr_err",
    "retry_exceeded_err",
)
"""Hardware counters that increase when packets are lost and retransmitted: exported from the start,
by each driver that has them."""


def _congestion(kind: str) -> Rule:
    return Rule(metrics.CONGESTION, (kind,), always=True)


_HW_COUNTERS: Mapping[str, Rule] = {
    **{name: Rule(metrics.HW_EVENTS, (name,), always=True) for name in RETRANSMISSIONS},
    # DCQCN: the notification point is the receiver, the reaction point the sender.
    "np_cnp_sent": _congestion("cnp_sent"),
    "np_ecn_marked_roce_packets": _congestion("ecn_marked"),
    "rp_cnp_handled": _congestion("cnp_handled"),
    "rp_cnp_ignored": Rule(metrics.CONGESTION, ("cnp_ignored",)),
    # bnxt_re and irdma count the same under other names.
    "tx_cnp_pkts": _congestion("cnp_sent"),
    "rx_cnp_pkts": _congestion("cnp_handled"),
    "rx_ecn_marked_pkts": _congestion("ecn_marked"),
    "cnpSent": _congestion("cnp_sent"),
    "cnpHandled": _congestion("cnp_handled"),
    "cnpIgnored": Rule(metrics.CONGESTION, ("cnp_ignored",)),
    "RxECNMrkd": _congestion("ecn_marked"),
    # Drivers without the specification's port counters count traffic here.
    "tx_bytes": Rule(metrics.TRANSMIT_BYTES, (), always=True),
    "rx_bytes": Rule(metrics.RECEIVE_BYTES, (), always=True),
    "tx_pkts": Rule(metrics.TRANSMIT_PACKETS, (), always=True),
    "rx_pkts": Rule(metrics.RECEIVE_PACKETS, (), always=True),
    "sent_pkts": Rule(metrics.TRANSMIT_PACKETS, (), always=True),
    "rcvd_pkts": Rule(metrics.RECEIVE_PACKETS, (), always=True),
    "link_downed": Rule(metrics.LINK_DOWNED, (), always=True),
}

_TABLES: Mapping[Folder, Mapping[str, Rule]] = {
    "counters": _COUNTERS,
    "counters_ext": _COUNTERS_EXT,
    "hw_counters": _HW_COUNTERS,
}

_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}")
_RESOURCE = re.compile(r"(active|watermark|max)_")


def rule_for(folder: Folder, name: str) -> Rule | None:
    """Return the conversion of a counter file; None if its name cannot be a label."""
    known = _TABLES[folder].get(name)
    return known or own_name(name)


def own_name(name: str) -> Rule | None:
    """Return the conversion of a counter under its driver's name; None if that is no label."""
    if not _LABEL.fullmatch(name):
        return None
    if _RESOURCE.match(name):
        return Rule(metrics.HW_RESOURCES, (name,))
    return Rule(metrics.HW_BYTES if name.endswith("_bytes") else metrics.HW_EVENTS, (name,))
