"""Series of the node's network interfaces, their PCI links, and the node's TCP."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

NIC = ("device",)

INFO = Metric(
    "rankscope_nic_info",
    "gauge",
    "Always 1; kind and location of a network interface, and the bond it belongs to.",
    (*NIC, "kind", "pci", "numa_node", "bond", "mtu"),
)
UP = Metric(
    "rankscope_nic_up", "gauge", "1 while the interface's operational state is up, else 0.", NIC
)
SPEED = Metric(
    "rankscope_nic_speed_bytes_per_second",
    "gauge",
    "Negotiated speed of the link; absent while it is down.",
    NIC,
)
CARRIER_CHANGES = Metric(
    "rankscope_nic_carrier_changes_total",
    "counter",
    "Times the carrier came up or was lost (down), as counted by the kernel.",
    (*NIC, "direction"),
)
LAST_CHANGE = Metric(
    "rankscope_nic_last_change_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last saw the interface's state or carrier change.",
    NIC,
)
RECEIVE_BYTES = Metric(
    "rankscope_nic_receive_bytes_total",
    "counter",
    "Bytes received through the kernel, which does not see RDMA traffic.",
    NIC,
)
TRANSMIT_BYTES = Metric(
    "rankscope_nic_transmit_bytes_total",
    "counter",
    "Bytes sent through the kernel, which does not see RDMA traffic.",
    NIC,
)
ERRORS = Metric(
    "rankscope_nic_errors_total",
    "counter",
    "Frames received or sent with errors.",
    (*NIC, "direction"),
)
DROPPED = Metric(
    "rankscope_nic_dropped_total",
    "counter",
    "Frames dropped while receiving or sending.",
    (*NIC, "direction"),
)
ERROR_DETAILS = Metric(
    "rankscope_nic_error_details_total",
    "counter",
    "Errors under the kernel's names, such as rx_crc_errors and rx_missed_errors.",
    (*NIC, "type"),
)
ADDRESSES = Metric(
    "rankscope_nic_addresses",
    "gauge",
    "Addresses that other nodes can reach, by family (ipv4, ipv6); link-local addresses are not"
    " counted.",
    (*NIC, "family"),
)
FASTEST_MODE = Metric(
    "rankscope_nic_fastest_mode_bytes_per_second",
    "gauge",
    "Speed of the fastest link mode that the port offers with its present cable.",
    NIC,
)
FEC_BLOCKS = Metric(
    "rankscope_nic_fec_blocks_total",
    "counter",
    "Blocks with bit errors that forward error correction repaired (corrected) or lost"
    " (uncorrectable).",
    (*NIC, "result"),
)
LINK_PAUSE_FRAMES = Metric(
    "rankscope_nic_link_pause_frames_total",
    "counter",
    "Pause frames for the whole link, which the kernel counts for every driver.",
    (*NIC, "direction"),
)
ADAPTER_INFO = Metric(
    "rankscope_adapter_info",
    "gauge",
    "Always 1; driver and firmware of an adapter.",
    ("pci", "driver", "firmware"),
)
ADAPTER_HEALTH_ERRORS = Metric(
    "rankscope_adapter_health_errors_total",
    "counter",
    "Errors that an adapter's health reporters have reported since its driver was loaded.",
    ("pci",),
)
ADAPTER_UNHEALTHY = Metric(
    "rankscope_adapter_unhealthy",
    "gauge",
    "1 while a health reporter of an adapter is in the error state and has not recovered, else"
    " absent.",
    ("pci", "reporter"),
)
PFC_FRAMES = Metric(
    "rankscope_nic_pfc_pause_frames_total",
    "counter",
    "Pause frames of priority flow control, by priority and direction.",
    (*NIC, "priority", "direction"),
)
PFC_SECONDS = Metric(
    "rankscope_nic_pfc_pause_seconds_total",
    "counter",
    "Time for which priority flow control paused a priority; priority `global` is the whole link"
    " (802.3x).",
    (*NIC, "priority", "direction"),
)
PFC_DISCARDS = Metric(
    "rankscope_nic_priority_discards_total",
    "counter",
    "Frames of a priority that were dropped for lack of buffers.",
    (*NIC, "priority"),
)
PAUSE_FRAMES = Metric(
    "rankscope_nic_pause_frames_total",
    "counter",
    "Pause frames for the whole link (not by priority).",
    (*NIC, "direction"),
)
PAUSE_STORMS = Metric(
    "rankscope_nic_pause_storm_events_total",
    "counter",
    "Times the adapter paused its peer for so long that it raised a warning (warning) or gave"
    " up (error).",
    (*NIC, "level"),
)
PHY_EVENTS = Metric(
    "rankscope_nic_phy_events_total",
    "counter",
    "Errors and events of the port, under the driver's names.",
    (*NIC, "type"),
)
LIMITED = Metric(
    "rankscope_nic_allowance_exceeded_total",
    "counter",
    "Packets queued or dropped because a limit of the cloud instance was reached.",
    (*NIC, "limit"),
)
BOND_SLAVES = Metric(
    "rankscope_nic_bond_slaves",
    "gauge",
    "Interfaces of a bond: all of them (configured) and those with a link (active).",
    (*NIC, "state"),
)
ECN_INFO = Metric(
    "rankscope_nic_ecn_info",
    "gauge",
    "Always 1; priorities with RoCE congestion control enabled, by role (np, rp).",
    (*NIC, "role", "priorities"),
)
LEFT_OFF = Metric(
    "rankscope_nics_left_off",
    "gauge",
    "Interfaces that are not exported individually but are summed up as device=other.",
)
PCI_LINK_RATIO = Metric(
    "rankscope_pci_link_ratio",
    "gauge",
    "Bandwidth of an adapter's PCI link relative to the maximum that it supports.",
    ("pci",),
)
PCI_LINK_WIDTH = Metric(
    "rankscope_pci_link_width",
    "gauge",
    "Lanes of an adapter's PCI link in use (current) and available (max), where they differ.",
    ("pci", "value"),
)
PCI_LINK_SPEED = Metric(
    "rankscope_pci_link_transfers_per_second",
    "gauge",
    "Transfer rate of an adapter's PCI lanes (current) and the highest supported rate (max),"
    " where they differ.",
    ("pci", "value"),
)
AER_ERRORS = Metric(
    "rankscope_pci_aer_errors_total",
    "counter",
    "PCI errors that an adapter reported, by severity and type.",
    ("pci", "severity", "type"),
)
AER_LAST = Metric(
    "rankscope_pci_aer_last_error_timestamp_seconds",
    "gauge",
    "Unix time at which the agent last saw a new PCI error of an adapter.",
    ("pci",),
)
TCP_SENT = Metric(
    "rankscope_tcp_sent_segments_total",
    "counter",
    "TCP segments sent in the node's own network namespace.",
)
TCP_RETRANSMITTED = Metric(
    "rankscope_tcp_retransmitted_segments_total",
    "counter",
    "TCP segments retransmitted in the node's own network namespace.",
)
TCP_EVENTS = Metric(
    "rankscope_tcp_events_total",
    "counter",
    "Events that slow TCP down in the node's own network namespace: timeouts, lost SYNs, full"
    " listen queues.",
    ("event",),
)
