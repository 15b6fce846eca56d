"""Series about the node's clients of parallel file systems, as counted by their kernel modules."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

CLIENT = ("type", "filesystem")

OPERATIONS = Metric(
    "rankscope_storage_client_operations_total",
    "counter",
    "Operations of the node's processes on a file system, by type (lustre, ceph) and kind: read,"
    " write, metadata.",
    (*CLIENT, "operation"),
)
SECONDS = Metric(
    "rankscope_storage_client_operation_seconds_total",
    "counter",
    "Time that these operations took; absent where the client counts none (Lustre before 2.13).",
    (*CLIENT, "operation"),
)
BYTES = Metric(
    "rankscope_storage_client_bytes_total",
    "counter",
    "Bytes that the node's processes read from a file system and wrote to it, by direction: read,"
    " write.",
    (*CLIENT, "direction"),
)
