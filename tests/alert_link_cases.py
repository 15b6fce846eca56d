"""Series that bring about the alerts about links, adapters and pods' interfaces."""

from __future__ import annotations

from alert_series import (
    JOB,
    JOB_KNOWN,
    NODE,
    OTHER,
    PORT,
    finding,
)
from alert_timelines import Case, gauge

LINK_CASES: dict[str, Case] = {
    "RankscopeLinkFlapping": Case(
        (gauge(f"rankscope_rdma_port_recent_link_flaps{{{PORT}}}", 2, None, 1),)
    ),
    "RankscopeLinkErrors": Case(
        (gauge(f"rankscope_rdma_port_recent_errors{{{PORT}}}", 300, None, 100),)
    ),
    "RankscopeLinkRetransmission": Case(
        (gauge(f"rankscope_rdma_port_recent_retransmissions{{{PORT}}}", 300, None, 100),)
    ),
    "RankscopePfcStorm": Case(
        (gauge(f'rankscope_nic_recent_pause_ratio{{{NODE},device="eth2"}}', 0.2, None, 0.083),)
    ),
    "RankscopeLinkBelowMaximum": Case(
        (gauge(f'rankscope_pci_link_reduced_ratio{{{NODE},pci="0000:1d:00.0"}}', 0.5, None, 0.76),)
    ),
    "RankscopeAdapterUnhealthy": Case(
        (
            gauge(
                f'rankscope_adapter_unhealthy{{{NODE},pci="0000:1d:00.0",reporter="fw_fatal"}}',
                1,
                None,
            ),
        )
    ),
    "RankscopeNetworkSaturated": Case(
        (gauge(f"rankscope_rdma_port_busy_ratio{{{PORT}}}", 0.97, None, 0.94),)
    ),
    "RankscopePodInterface": Case(
        (
            gauge(
                f'rankscope_pod_nic_mtu_bytes{{{NODE},{JOB},pod_uid="p-1",device="net1"}}',
                9000,
                None,
            ),
            gauge(
                f'rankscope_pod_nic_mtu_bytes{{{OTHER},{JOB},pod_uid="p-2",device="net1"}}',
                1500,
                9000,
            ),
            *JOB_KNOWN,
        )
    ),
    "RankscopeLinkDown": finding("link_down"),
    "RankscopeLinkRateLow": finding("rate_below_maximum"),
    "RankscopeLinkCongestion": finding("congestion"),
    "RankscopeAsymmetricRail": finding("asymmetric_rail"),
}
