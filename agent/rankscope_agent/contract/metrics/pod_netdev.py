"""Series of network interfaces in the network namespaces of training pods.

They carry the job, empty if unknown: MTUs are compared between the pods of a job.
"""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

INTERFACE = ("job_id", "pod_uid", "device")

INFO = Metric(
    "rankscope_pod_nic_info",
    "gauge",
    "Always 1; kind of an interface inside a training pod (veth, macvlan, ipvlan; hardware for an"
    " adapter or virtual function that was moved into the pod).",
    (*INTERFACE, "kind"),
)
UP = Metric(
    "rankscope_pod_nic_up",
    "gauge",
    "1 while the operational state of an interface inside a training pod is up, else 0.",
    INTERFACE,
)
MTU = Metric(
    "rankscope_pod_nic_mtu_bytes",
    "gauge",
    "Largest packet of an interface inside a training pod.",
    INTERFACE,
)
SPEED = Metric(
    "rankscope_pod_nic_speed_bytes_per_second",
    "gauge",
    "Negotiated speed of an interface inside a training pod; absent where it has none.",
    INTERFACE,
)
RECEIVE_BYTES = Metric(
    "rankscope_pod_nic_receive_bytes_total",
    "counter",
    "Bytes that an interface inside a training pod received; RDMA traffic is not seen here.",
    INTERFACE,
)
TRANSMIT_BYTES = Metric(
    "rankscope_pod_nic_transmit_bytes_total",
    "counter",
    "Bytes that an interface inside a training pod sent; RDMA traffic is not seen here.",
    INTERFACE,
)
ERRORS = Metric(
    "rankscope_pod_nic_errors_total",
    "counter",
    "Frames that an interface inside a training pod received or sent with errors.",
    (*INTERFACE, "direction"),
)
DROPPED = Metric(
    "rankscope_pod_nic_dropped_total",
    "counter",
    "Frames that an interface inside a training pod dropped while receiving or sending.",
    (*INTERFACE, "direction"),
)
LEFT_OFF = Metric(
    "rankscope_pod_nics_left_off",
    "gauge",
    "Interfaces of training pods that are not exported, for their number or their names.",
)
