"""Series of RDMA ports (InfiniBand, RoCE, EFA, Omni-Path), from /sys/class/infiniband."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

PORT = ("device", "port")

RETRANSMISSION_EVENTS = (
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "retrans_pkts",
    "retrans_timeout_events",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "rnr_naks_rcvd",
    "rcvd_seq_err",
    "rcvd_rnr_err",
)
"""Drivers' names for packets that were lost and retransmitted."""

TIMEOUT_EVENTS = ("local_ack_timeout_err", "retrans_timeout_events", "roce_adp_retrans_to")
"""Those of them that were detected by timeout only."""

LINK_ERRORS = (
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_recoveries",
    "port_xmit_discards",
    "rx_crc_errors_phy",
    "rx_symbol_err_phy",
    "rx_pcs_symbol_err_phy",
    "rx_discards_phy",
)
"""Names used by ports and drivers for errors of the link itself."""

PHYSICAL, VIRTUAL = "physical", "virtual"
"""Functions of adapters. A virtual one is up while a pod uses it: its state says nothing of a
link."""

DEVICE_INFO = Metric(
    "rankscope_rdma_device_info",
    "gauge",
    "Always 1; identity, firmware and PCI location of an RDMA device, and whether it is a physical"
    " function or a virtual one (SR-IOV, subfunctions).",
    ("device", "firmware", "board_id", "hca_type", "node_guid", "pci", "numa_node", "function"),
)
DEVICE_LOST = Metric(
    "rankscope_rdma_device_lost",
    "gauge",
    "1 while an RDMA device that the agent has seen is gone, because its adapter has left the PCI"
    " bus or its driver has given it up, else absent.",
    ("device", "pci"),
)
PORT_INFO = Metric(
    "rankscope_rdma_port_info",
    "gauge",
    "Always 1; link layer, lanes and speed of the port, and its network interface.",
    (*PORT, "link_layer", "width", "speed", "netdev"),
)
PORT_STATE = Metric(
    "rankscope_rdma_port_state",
    "gauge",
    "Logical state: 1 down, 2 initialising, 3 armed, 4 active, 5 active with errors.",
    PORT,
)
PORT_PHYSICAL_STATE = Metric(
    "rankscope_rdma_port_physical_state",
    "gauge",
    "Physical state: 2 polling, 3 disabled, 4 training, 5 link up, 6 recovering, 7 phy test.",
    PORT,
)
PORT_RATE = Metric(
    "rankscope_rdma_port_rate_bytes_per_second",
    "gauge",
    "Negotiated rate of the link; for the device of a bond that of all links which carry traffic.",
    PORT,
)
GPUDIRECT = Metric(
    "rankscope_gpudirect_rdma",
    "gauge",
    "1 if RDMA adapters can reach NVIDIA GPUs' memory in this way, else 0: peer_memory"
    " (nvidia_peermem is loaded), dma_buf (open driver, Linux 5.12 or newer).",
    ("way",),
)
TRANSMIT_BYTES = Metric(
    "rankscope_rdma_port_transmit_bytes_total", "counter", "Bytes sent by the port.", PORT
)
RECEIVE_BYTES = Metric(
    "rankscope_rdma_port_receive_bytes_total", "counter", "Bytes received by the port.", PORT
)
TRANSMIT_PACKETS = Metric(
    "rankscope_rdma_port_transmit_packets_total", "counter", "Packets sent by the port.", PORT
)
RECEIVE_PACKETS = Metric(
    "rankscope_rdma_port_receive_packets_total", "counter", "Packets received by the port.", PORT
)
CAST_PACKETS = Metric(
    "rankscope_rdma_port_cast_packets_total",
    "counter",
    "Packets by direction and cast (unicast, multicast), a subset of the port's packets.",
    (*PORT, "direction", "cast"),
)
TRANSMIT_WAIT = Metric(
    "rankscope_rdma_port_transmit_wait_ticks_total",
    "counter",
    "Ticks in which the port had data to send but no credits (InfiniBand).",
    PORT,
)
LINK_DOWNED = Metric(
    "rankscope_rdma_link_downed_total",
    "counter",
    "Times the link failed its error recovery and went down, according to the port's counter,"
    " which stops at 255.",
    PORT,
)
LINK_RECOVERIES = Metric(
    "rankscope_rdma_link_recoveries_total",
    "counter",
    "Times the link recovered from errors without going down, according to the port's counter,"
    " which stops at 255.",
    PORT,
)
LINK_FLAPS = Metric(
    "rankscope_rdma_link_flaps_total",
    "counter",
    "Times the port left the active state since the agent started, as observed or as counted by"
    " the port.",
    PORT,
)
PORT_ERRORS = Metric(
    "rankscope_rdma_port_errors_total",
    "counter",
    "Errors of the port by type, which is the name of the counter.",
    (*PORT, "type"),
)
HW_EVENTS = Metric(
    "rankscope_rdma_hw_events_total",
    "counter",
    "Events counted by the adapter, under the driver's names: retransmissions, CQE errors and"
    " others.",
    (*PORT, "event"),
)
HW_BYTES = Metric(
    "rankscope_rdma_hw_bytes_total",
    "counter",
    "Bytes that the adapter counts separately, under the driver's names.",
    (*PORT, "type"),
)
HW_RESOURCES = Metric(
    "rankscope_rdma_hw_resources",
    "gauge",
    "Objects in use and their high-water marks, under the driver's names.",
    (*PORT, "type"),
)
CONGESTION = Metric(
    "rankscope_rdma_congestion_packets_total",
    "counter",
    "Congestion control: notifications sent, handled and ignored; packets received with ECN marks.",
    (*PORT, "type"),
)
HW_AGE = Metric(
    "rankscope_rdma_hw_max_age_seconds",
    "gauge",
    "How long the driver caches hardware counters before it queries the adapter again (--once"
    " only).",
    PORT,
)
LEGACY_BYTES = Metric(
    "rankscope_rdma_legacy_bytes_total",
    "counter",
    "Bytes according to the 64-bit counters of older drivers (counters_ext).",
    (*PORT, "direction"),
)
LEGACY_PACKETS = Metric(
    "rankscope_rdma_legacy_packets_total",
    "counter",
    "Packets according to the 64-bit counters of older drivers (counters_ext).",
    (*PORT, "direction", "cast"),
)
DEVICE_EVENTS = Metric(
    "rankscope_rdma_device_events_total",
    "counter",
    "Events that a driver counts for the whole device, under its own names.",
    ("device", "event"),
)
SATURATED = Metric(
    "rankscope_rdma_saturated",
    "gauge",
    "1 while a counter is at the maximum of its 4, 8, 16 or 32 bits and can no longer count.",
    (*PORT, "type"),
)
UNREADABLE = Metric(
    "rankscope_rdma_unreadable_counters",
    "gauge",
    "Counters of the port that are no longer read because reading them failed, and its state,"
    " physical state and rate while they cannot be read.",
    PORT,
)
LEFT_OFF = Metric(
    "rankscope_rdma_counters_left_off",
    "gauge",
    "Counters of the port that are not exported because there are too many or because their"
    " names do not fit a label.",
    PORT,
)
PORTS_LEFT_OFF = Metric(
    "rankscope_rdma_ports_left_off",
    "gauge",
    "RDMA ports that are not read because there are too many.",
)
