"""Numbers that were assigned elsewhere: by a driver, a protocol, a file format or a catalogue.

They are drawn like all others, because a wrong one is a fault. They are also counted separately:
the test for them is a comparison with their source, not a table of values just below and just
above. Numbers that are not listed here count as chosen by this project.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.mutants.population import Mutant

KERNEL, GPUS = "agent/rankscope_agent/contract/kernel/", "agent/rankscope_agent/sources/gpus/"
SOURCES = "agent/rankscope_agent/sources/"
INTAKE, WATCH = "analyzers/rankscope_analyzers/intake/", "analyzers/rankscope_analyzers/watch/"
CONTRACT, CHECKPOINTS = (
    "agent/rankscope_agent/contract/",
    "analyzers/rankscope_analyzers/checkpoints/",
)

ASSIGNED: Mapping[str, frozenset[str]] = {
    # NVIDIA's catalogues of Xids and SXids, and its decoding of NVLink 5 status words.
    f"{KERNEL}xid.py": frozenset(
        (
            *("FAMILIES", "RECOVERY_ACTIONS", "RECOVERY_CHANGED", "ROW_REMAP", "CLEAN_UP", "GSP"),
            *("CONTAINMENT", "NVLINK5"),
        )
    ),
    f"{KERNEL}xid_actions.py": frozenset(("_GROUPS",)),
    f"{KERNEL}sxid.py": frozenset(("MAY_BE_FATAL", "CORRECTED", "ALWAYS_FATAL", "OTHERS")),
    f"{KERNEL}nvlink5.py": frozenset(("BIT_RULES", "LINK_DOWN_RULES", "NUMBER_RULES", "_BUFFER")),
    # Field identifiers and codes of DCGM's and NVML's headers.
    f"{GPUS}dcgm.py": frozenset(("GPU_FIELDS", "SMALLEST_BLANK", "INT32_BLANKS", "INT64_BLANK")),
    f"{GPUS}nvml.py": frozenset(
        (
            *("CODE_NAMES", "EVENT_NAMES", "UNSUPPORTED_CODES", "NVLINK_COUNTERS", "GONE_CODES"),
            *("SUCCESS", "UNINITIALIZED", "NOT_SUPPORTED", "NO_PERMISSION", "NOT_FOUND"),
            *("DRIVER_NOT_LOADED", "TIMEOUT", "LIBRARY_NOT_FOUND", "FUNCTION_NOT_FOUND"),
            *("GPU_IS_LOST", "RESET_REQUIRED", "LIB_RM_VERSION_MISMATCH", "NOT_READY", "UNKNOWN"),
            *("CLOCK_SM", "CLOCK_MEMORY", "ALL_LINKS", "EVENT_XID"),
        )
    ),
    f"{GPUS}nvidia.py": frozenset(("VALUE_MEMBERS", "MAX_MIG_DEVICES")),
    f"{GPUS}reader.py": frozenset(("SM_ACTIVE_ID",)),
    f"{GPUS}nvlink.py": frozenset(("BYTE_FIELDS",)),
    f"{GPUS}readings.py": frozenset(
        (
            *("FIELDS", "RECOVERY_FIELD", "RECOVERY_ACTIONS", "ACTIVITY_METRICS", "BLANKS"),
            *("FABRIC_STATES", "FABRIC_CHECKS", "(CONFIGURATION_SHIFT, CONFIGURATION_MASK)"),
            *("CLOCK_EVENT_BITS", "RARE_CLOCK_EVENT_BITS"),
        )
    ),
    # The kernel's interfaces: ioctls and netlink messages, columns of /proc, structs and states.
    f"{SOURCES}netdev/ethtool.py": frozenset(
        (
            *("SIOCETHTOOL", "(GET_STRINGS, GET_STATISTICS, GET_SET_SIZES)", "STATISTICS_SET"),
            *("NAME_BYTES", "INTERFACE_NAME_BYTES"),
        )
    ),
    f"{SOURCES}netdev/ethtool_netlink.py": frozenset(
        ("(PAUSE_GET, FEC_GET)", "WITH_STATISTICS", "SPEED_UNKNOWN")
    ),
    f"{SOURCES}netdev/netlink.py": frozenset(("LINK_64",)),
    f"{SOURCES}netdev/namespace.py": frozenset(("(CAP_SYS_ADMIN, CAP_SYS_PTRACE)",)),
    f"{SOURCES}netdev/devlink.py": frozenset(("HEALTHY",)),
    f"{SOURCES}netdev/tables.py": frozenset(("_DEV_COLUMNS", "_TX_OFFSET")),
    f"{SOURCES}host/clock.py": frozenset(("STA_UNSYNC", "STA_NANO", "TIME_ERROR")),
    f"{SOURCES}host/tables.py": frozenset(("_SOFTNET_COLUMNS",)),
    f"{SOURCES}kernel_log/syslog_call.py": frozenset(("READ_ALL", "SIZE_BUFFER")),
    f"{SOURCES}kernel_log/reboots.py": frozenset(("RECORD_BYTES", "RUN_LEVEL")),
    f"{SOURCES}kernel_log/records.py": frozenset(("FACILITY_BITS",)),
    f"{SOURCES}pods/process_scan.py": frozenset(("START_FIELD",)),
    f"{SOURCES}stalls/process.py": frozenset(("(STATE, USER_TICKS, SYSTEM_TICKS)",)),
    f"{SOURCES}rdma/values.py": frozenset(("ACTIVE", "ACTIVE_STATES")),
    f"{SOURCES}training/ends.py": frozenset(("IN_CLOSE_WRITE",)),
    # systemd's journal files.
    f"{SOURCES}kernel_log/journal.py": frozenset(
        ("COMPACT", "COMPRESSED", "(DATA, ENTRY, ENTRY_ARRAY)", "HEADER_BYTES")
    ),
    # Signals of Linux, work completions of InfiniBand, statuses of HTTP, wire types of protobuf.
    f"{CONTRACT}failures/summaries.py": frozenset(("_SIGNAL_NAMES",)),
    f"{CONTRACT}failures/messages.py": frozenset(("SIGNALS", "SIGNAL_NAMES")),
    f"{CONTRACT}nccl/warnings.py": frozenset(("WORK_COMPLETION",)),
    f"{INTAKE}object_watch.py": frozenset(("(OK, FORBIDDEN, NOT_FOUND, GONE)",)),
    f"{INTAKE}agent_client.py": frozenset(("UNAUTHORIZED", "FORBIDDEN")),
    f"{INTAKE}agent_connections.py": frozenset(("BUSY", "OK")),
    f"{INTAKE}cluster.py": frozenset(("FORBIDDEN",)),
    f"{INTAKE}kubernetes_api.py": frozenset(("OK",)),
    f"{INTAKE}named_objects.py": frozenset(("NOT_FOUND",)),
    f"{INTAKE}step_stream.py": frozenset(("BAD_REQUEST",)),
    f"{WATCH}cluster_lease.py": frozenset(("(NOT_FOUND, CONFLICT)",)),
    f"{WATCH}cluster_nodes.py": frozenset(("NOT_FOUND",)),
    f"{WATCH}config_map_store.py": frozenset(("(OK, NOT_FOUND, CONFLICT)",)),
    f"{SOURCES}pods/reflector.py": frozenset(("GONE",)),
    "agent/rankscope_agent/sources/pods/protobuf.py": frozenset(
        ("(VARINT, FIXED64, LENGTH, FIXED32)",)
    ),
    # Exit codes of shells, pickle's arguments.
    f"{CONTRACT}pod_reasons.py": frozenset(
        ("(NOT_EXECUTABLE, NOT_FOUND)", "SIGNALLED", "_MAX_SIGNAL")
    ),
    f"{CONTRACT}untrusted_pickle.py": frozenset(("ACTIONS",)),
    # Sizes of elements and digests in file formats, and the suffixes of Kubernetes' quantities.
    f"{CHECKPOINTS}torch_file.py": frozenset(("ELEMENT_BYTES", "LEGACY_MAGIC")),
    f"{CHECKPOINTS}safetensors_file.py": frozenset(("ELEMENT_BITS",)),
    f"{CHECKPOINTS}digest_list.py": frozenset(("ALGORITHMS",)),
    f"{CHECKPOINTS}zip_directory.py": frozenset(("_FULL", "MAX_COMMENT_BYTES")),
    "analyzers/rankscope_analyzers/workloads/quantities.py": frozenset(("FACTORS",)),
    # Figures in the vendors' data sheets of GPUs.
    "analyzers/rankscope_analyzers/goodput/peak_flops.py": frozenset(("MODELS",)),
}
"""Names by module."""


def is_assigned(mutant: Mutant) -> bool:
    """Return True if the number of a mutant was assigned elsewhere."""
    return mutant.name in ASSIGNED.get(mutant.path, ())
