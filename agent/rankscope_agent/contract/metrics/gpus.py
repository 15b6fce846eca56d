"""Series about GPUs, the same from NVML, dcgm-exporter and a simulation.

Every GPU series carries `gpu` (the driver's index), `uuid` and `pci`; everything else about a GPU
is on `rankscope_gpu_info`. No name is specific to a vendor.
"""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

GPU = ("gpu", "uuid", "pci")
MIG = (*GPU, "gpu_instance", "compute_instance", "mig_profile")

GPU_INFO = Metric(
    "rankscope_gpu_info",
    "gauge",
    "Always 1; identity and driver of the GPU; it stays when the GPU is lost.",
    (*GPU, "vendor", "model", "serial", "driver", "vbios", "mig"),
)
GPU_LOST = Metric(
    "rankscope_gpu_lost",
    "gauge",
    "1 if the driver has lost the GPU (fallen off the bus), 0 if it answers; absent if unknown.",
    GPU,
)
GPU_UNRESPONSIVE = Metric(
    "rankscope_gpu_unresponsive",
    "gauge",
    "1 if the state of the GPU is unknown: a call hangs, every call fails, the driver is not"
    " loaded or does not name it, or the readings are stale.",
    GPU,
)
GPU_UTILIZATION = Metric(
    "rankscope_gpu_utilization_ratio",
    "gauge",
    "Share of the last second or less in which any kernel ran, however little it did.",
    GPU,
)
GPU_MEMORY_ACTIVITY = Metric(
    "rankscope_gpu_memory_activity_ratio",
    "gauge",
    "Share of the last second or less in which memory was read or written.",
    GPU,
)
GPU_MEMORY_TOTAL = Metric(
    "rankscope_gpu_memory_total_bytes",
    "gauge",
    "The GPU's memory, including the part that the driver reserves.",
    GPU,
)
GPU_MEMORY_USED = Metric(
    "rankscope_gpu_memory_used_bytes", "gauge", "Memory in use by processes.", GPU
)
GPU_CLOCK = Metric(
    "rankscope_gpu_clock_hertz", "gauge", "Current clock, by domain: sm, memory.", (*GPU, "domain")
)
GPU_CLOCK_MAX = Metric(
    "rankscope_gpu_clock_max_hertz", "gauge", "Highest clock of the domain.", (*GPU, "domain")
)
GPU_CLOCK_EVENT = Metric(
    "rankscope_gpu_clock_event_active",
    "gauge",
    "1 if the clock is now reduced for this reason; rare reasons appear once they have occurred.",
    (*GPU, "reason"),
)
GPU_CLOCK_EVENT_SECONDS = Metric(
    "rankscope_gpu_clock_event_seconds_total",
    "counter",
    "Time since the driver was loaded in which the clock was reduced for this reason.",
    (*GPU, "reason"),
)
GPU_POWER = Metric(
    "rankscope_gpu_power_watts", "gauge", "Power draw, averaged over a second where supported.", GPU
)
GPU_POWER_LIMIT = Metric(
    "rankscope_gpu_power_limit_watts",
    "gauge",
    "Power limit: the one enforced now and the board's default.",
    (*GPU, "kind"),
)
GPU_ENERGY = Metric(
    "rankscope_gpu_energy_joules_total", "counter", "Energy since the driver was loaded.", GPU
)
GPU_TEMPERATURE = Metric(
    "rankscope_gpu_temperature_celsius", "gauge", "Temperature of core or memory.", (*GPU, "sensor")
)
GPU_TEMPERATURE_MARGIN = Metric(
    "rankscope_gpu_temperature_margin_celsius",
    "gauge",
    "How much hotter the GPU may get before its clock is reduced.",
    GPU,
)
GPU_PSTATE = Metric(
    "rankscope_gpu_pstate",
    "gauge",
    "Performance state, from 0 (fastest) to 15 (slowest); from dcgm-exporter.",
    GPU,
)
GPU_ECC_ERRORS = Metric(
    "rankscope_gpu_ecc_errors_total",
    "counter",
    "Memory errors, corrected or not; aggregate counts survive reboots, volatile ones do not.",
    (*GPU, "kind", "scope"),
)
GPU_SRAM_THRESHOLD = Metric(
    "rankscope_gpu_sram_ecc_threshold_exceeded",
    "gauge",
    "1 if SRAM errors have reached the count at which the vendor replaces the GPU.",
    GPU,
)
GPU_REMAPPED_ROWS = Metric(
    "rankscope_gpu_remapped_rows",
    "gauge",
    "Memory rows replaced by spare rows, by the kind of error that caused it.",
    (*GPU, "cause"),
)
GPU_REMAP_PENDING = Metric(
    "rankscope_gpu_row_remap_pending",
    "gauge",
    "1 if rows are waiting for a reset to be remapped.",
    GPU,
)
GPU_REMAP_FAILURE = Metric(
    "rankscope_gpu_row_remap_failure", "gauge", "1 if a row could not be remapped.", GPU
)
GPU_ENGINE_UTILIZATION = Metric(
    "rankscope_gpu_engine_utilization_ratio",
    "gauge",
    "Share of time in which an engine was busy: graphics, encoder, decoder; from dcgm-exporter.",
    (*GPU, "engine"),
)
GPU_MEMORY_FREE = Metric(
    "rankscope_gpu_memory_free_bytes",
    "gauge",
    "Memory neither used nor reserved; from dcgm-exporter, which may not export the total.",
    GPU,
)
GPU_LAST_XID = Metric(
    "rankscope_gpu_last_xid",
    "gauge",
    "Code of the newest Xid that dcgm-exporter saw, however old; 0 if it saw none.",
    GPU,
)
GPU_RETIRED_PAGES = Metric(
    "rankscope_gpu_retired_pages",
    "gauge",
    "Memory pages retired, on GPUs without row remapping.",
    (*GPU, "cause"),
)
GPU_RETIRED_PENDING = Metric(
    "rankscope_gpu_retired_pages_pending",
    "gauge",
    "1 if pages are waiting for a reset to be retired.",
    GPU,
)
GPU_RECOVERY_ACTION = Metric(
    "rankscope_gpu_recovery_action",
    "gauge",
    "Always 1; action is what the driver now asks for, none if nothing.",
    (*GPU, "action"),
)
GPU_PCIE_GENERATION = Metric(
    "rankscope_gpu_pcie_link_generation", "gauge", "Current PCIe generation; lower when idle.", GPU
)
GPU_PCIE_GENERATION_MAX = Metric(
    "rankscope_gpu_pcie_link_generation_max",
    "gauge",
    "Highest PCIe generation that GPU and slot support.",
    GPU,
)
GPU_PCIE_WIDTH = Metric("rankscope_gpu_pcie_link_width", "gauge", "PCIe lanes in use.", GPU)
GPU_PCIE_WIDTH_MAX = Metric(
    "rankscope_gpu_pcie_link_width_max", "gauge", "PCIe lanes that GPU and slot support.", GPU
)
GPU_PCIE_REPLAYS = Metric(
    "rankscope_gpu_pcie_replays_total", "counter", "PCIe packets that were retransmitted.", GPU
)
GPU_PCIE_ERRORS = Metric(
    "rankscope_gpu_pcie_errors_total",
    "counter",
    "PCIe errors seen by the GPU; a type appears once it has occurred.",
    (*GPU, "type"),
)
GPU_PCIE_TRANSMIT = Metric(
    "rankscope_gpu_pcie_transmit_bytes_total", "counter", "Bytes the GPU sent over PCIe.", GPU
)
GPU_PCIE_RECEIVE = Metric(
    "rankscope_gpu_pcie_receive_bytes_total", "counter", "Bytes the GPU received over PCIe.", GPU
)
GPU_NVLINK_TRANSMIT = Metric(
    "rankscope_gpu_nvlink_transmit_bytes_total", "counter", "Data sent over all NVLinks.", GPU
)
GPU_NVLINK_RECEIVE = Metric(
    "rankscope_gpu_nvlink_receive_bytes_total", "counter", "Data received over all NVLinks.", GPU
)
GPU_NVLINK_ERRORS = Metric(
    "rankscope_gpu_nvlink_errors_total",
    "counter",
    "NVLink errors of all links by type.",
    (*GPU, "type"),
)
GPU_NVLINKS_UP = Metric(
    "rankscope_gpu_nvlinks_up",
    "gauge",
    "NVLinks that are up; 0 only of a GPU whose links are all connected (SXM, HGX) or were up"
    " before.",
    GPU,
)
GPU_NVLINK_LINK_UP = Metric(
    "rankscope_gpu_nvlink_link_up",
    "gauge",
    "1 if the link is up; only links that were seen down while others were up, and of a card whose"
    " links bridges connect (PCIe, NVL) only those that were up before.",
    (*GPU, "link"),
)
GPU_NVLINK_LINK_ERRORS = Metric(
    "rankscope_gpu_nvlink_link_errors_total",
    "counter",
    "NVLink errors of one link; only links and types that have had errors.",
    (*GPU, "link", "type"),
)
GPU_NVLINK_LINK_SHARE = Metric(
    "rankscope_gpu_nvlink_link_traffic_ratio",
    "gauge",
    "Traffic of one link relative to that of the median link; only links that were seen to"
    " deviate.",
    (*GPU, "link"),
)
GPU_FABRIC_STATE = Metric(
    "rankscope_gpu_fabric_state",
    "gauge",
    "Always 1; state and status of the GPU's registration with the NVLink fabric.",
    (*GPU, "state", "status"),
)
GPU_FABRIC_UNHEALTHY = Metric(
    "rankscope_gpu_fabric_unhealthy",
    "gauge",
    "1 if this health check of the NVLink fabric fails; only checks that the fabric supports.",
    (*GPU, "check"),
)
GPU_SM_ACTIVE = Metric(
    "rankscope_gpu_sm_active_ratio",
    "gauge",
    "Share of time and multiprocessors that were busy since the agent's last reading.",
    GPU,
)
GPU_SM_OCCUPANCY = Metric(
    "rankscope_gpu_sm_occupancy_ratio",
    "gauge",
    "Share of warp slots in use; from dcgm-exporter.",
    GPU,
)
GPU_TENSOR_ACTIVE = Metric(
    "rankscope_gpu_tensor_active_ratio",
    "gauge",
    "Share of time in which the tensor cores were busy.",
    GPU,
)
GPU_DRAM_ACTIVE = Metric(
    "rankscope_gpu_dram_active_ratio", "gauge", "Share of the memory bandwidth in use.", GPU
)
MIG_INFO = Metric(
    "rankscope_gpu_instance_info",
    "gauge",
    "Always 1; the UUID of a MIG device, by which pods hold it; it stays when the GPU is lost.",
    (*MIG, "mig_uuid"),
)
MIG_MEMORY_TOTAL = Metric(
    "rankscope_gpu_instance_memory_total_bytes", "gauge", "Memory of a MIG device.", MIG
)
MIG_MEMORY_USED = Metric(
    "rankscope_gpu_instance_memory_used_bytes", "gauge", "Memory in use in a MIG device.", MIG
)
MIG_MEMORY_FREE = Metric(
    "rankscope_gpu_instance_memory_free_bytes", "gauge", "Free memory in a MIG device.", MIG
)
MIG_SM_ACTIVE = Metric(
    "rankscope_gpu_instance_sm_active_ratio",
    "gauge",
    "Share of time and multiprocessors that were busy in a MIG GPU instance.",
    MIG,
)
GPU_XIDS = Metric(
    "rankscope_gpu_xid_events_total",
    "counter",
    "Xid errors that the driver has reported to the agent since the agent started.",
    (*GPU, "xid"),
)
GPU_XID_TIMESTAMP = Metric(
    "rankscope_gpu_xid_last_event_timestamp_seconds",
    "gauge",
    "Unix time of the newest such Xid.",
    (*GPU, "xid"),
)
GPU_EVENTS = Metric(
    "rankscope_gpu_driver_events_total",
    "counter",
    "Events other than Xids that the driver has reported to the agent since the agent started.",
    (*GPU, "event"),
)
UNSUPPORTED = Metric(
    "rankscope_unsupported",
    "gauge",
    "Always 1; readings that the GPU or its driver does not provide, and why.",
    (*GPU, "reading", "reason"),
)
NVML_CALL_ERRORS = Metric(
    "rankscope_nvml_call_errors_total",
    "counter",
    "Failed calls to the GPU driver's library, other than unsupported ones.",
    ("call", "code"),
)
NVML_OPENED = Metric(
    "rankscope_nvml_opened_total",
    "counter",
    "Times the agent has opened the GPU driver's library: once at the start, and again after"
    " each loss of it.",
)
DCGM_SERIES_IGNORED = Metric(
    "rankscope_dcgm_series_ignored",
    "gauge",
    "Series on dcgm-exporter's page that were ignored, by reason.",
    ("reason",),
)
