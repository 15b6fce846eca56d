"""Series from NCCL Inspector's measurements of collectives."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

# A process has no job_id there: its pod and its rank in the largest communicator identify it.
INSPECTOR_RANK = ("pod_uid", "world_rank", "op", "timing_source")
INSPECTOR_GPU = ("uuid", "op", "scope")

INSPECTOR_OPERATIONS = Metric(
    "rankscope_nccl_inspector_operations_total",
    "counter",
    "Operations of the rank that NCCL Inspector recorded and the agent read.",
    INSPECTOR_RANK,
)
INSPECTOR_SECONDS = Metric(
    "rankscope_nccl_inspector_operation_seconds_total",
    "counter",
    "Duration of these operations, including the wait for peers: the rank that waits least"
    " holds up the others.",
    INSPECTOR_RANK,
)
INSPECTOR_BYTES = Metric(
    "rankscope_nccl_inspector_message_bytes_total",
    "counter",
    "Message bytes of these operations.",
    INSPECTOR_RANK,
)
INSPECTOR_GPU_SECONDS = Metric(
    "rankscope_nccl_inspector_gpu_operation_seconds",
    "gauge",
    "Mean duration of the GPU's operations with the largest messages when Inspector last wrote"
    " its file.",
    INSPECTOR_GPU,
)
INSPECTOR_GPU_BANDWIDTH = Metric(
    "rankscope_nccl_inspector_gpu_bus_bandwidth_bytes_per_second",
    "gauge",
    "Bus bandwidth of these operations; highest on the rank that the others wait for.",
    INSPECTOR_GPU,
)
INSPECTOR_FILES = Metric(
    "rankscope_nccl_inspector_files", "gauge", "Inspector files that the agent is reading."
)
INSPECTOR_LEFT_OFF = Metric(
    "rankscope_nccl_inspector_files_left_off",
    "gauge",
    "Inspector files that are not read because there are too many.",
)
INSPECTOR_REFUSED = Metric(
    "rankscope_nccl_inspector_files_refused",
    "gauge",
    "Inspector files that are not read: with several hard links, of a GPU that their pod is not"
    " known to hold, or of a GPU of which another file is read.",
)
INSPECTOR_DROPPED = Metric(
    "rankscope_nccl_inspector_dropped_operations_total",
    "counter",
    "Operations that Inspector overwrote before it wrote them to its file.",
)
INSPECTOR_SKIPPED = Metric(
    "rankscope_nccl_inspector_skipped_bytes_total",
    "counter",
    "Bytes of Inspector files that the agent skipped because the files grew faster than it may"
    " read.",
)
INSPECTOR_UNPARSED = Metric(
    "rankscope_nccl_inspector_unparsed_lines_total",
    "counter",
    "Lines of Inspector files that are not valid records, including incomplete lines.",
)
