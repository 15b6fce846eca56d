"""Of two findings that explain a third one, the one nearer to the fault is its cause."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rankscope_analyzers.fusion.incidents import fuse
from test_incidents import EVERYTHING, PLACES, seen, slow

# Of each symptom, what explains it, from what is felt to what is broken. Kinds of a line stand
# side by side; each is nearer to the fault than those of the lines above.
LADDERS = {
    "ras_lag": (
        "partition_imbalance",
        "gpu_compute data_loader storage_checkpoint host_transient network_link",
    ),
    "gpu_compute": (
        "cpu_starved cpu_pressure clock_low",
        "memory_pressure cpu_throttled power_cap rank_stopped rank_was_stopped",
        "power_limit_differs power_brake thermal_slowdown gpu_pcie_degraded nvlink_degraded"
        " device_unhealthy gpu_recovery_needed ib_errors",
        "row_remap_failed ecc_uncorrected gpu_unresponsive host_kernel",
        "gpu_lost host_memory",
        "driver",
        "gpu_hardware gpu_memory nvlink_fabric",
        "pcie node_reboot",
    ),
    "network_link": (
        "gdr_missing asymmetric_rail",
        "socket_fallback channels_differ",
        "ib_errors gpu_pcie_degraded",
        "retransmission environment_differs fabric_unhealthy",
        "congestion errors",
        "rate_below_maximum pci_link_degraded flapping",
        "link_down nvlink_fabric",
        "network_nic",
        "pcie",
    ),
    "data_loader": (
        "workers_starved io_pressure",
        "nfs_slow memory_pressure",
        "loader_worker_died",
        "shm_full pids_exhausted",
        "storage oom_kill",
    ),
    "io_pressure": ("memory_pressure nfs_slow", "storage host_kernel", "host_memory"),
    "missing_rank": (
        "pod_failed pod_pending",
        "crash_loop image_not_pulled container_not_created loader_worker_died",
        "attempt_failed disk_full shm_full pids_exhausted",
        "app oom_kill cuda_out_of_memory pod_preempted gpu_unresponsive",
        "node_pressure gpu_lost",
        "driver",
        "node_not_ready",
        "pcie node_reboot",
        "node_leaving",
    ),
    "ras_missing": ("missing_rank", "rank_stopped pod_failed", "crash_loop", "device_unhealthy"),
    "pod_failed": ("crash_loop", "replica_group_lost", "node_pressure", "node_not_ready"),
    "gpu_recovery_needed": ("row_remap_pending ecc_uncorrected", "gpu_lost", "driver"),
    "checkpoint_overdue": ("checkpoint_failed", "checkpoint_store_full"),
    "loss_diverging": ("loss_not_finite", "learning_rate_changed", "batch_changed"),
    "hang": ("ras_lag", "collective_timeout init_incomplete ras_missing", "channels_differ"),
}
PAIRS = [
    (symptom, felt, broken)
    for symptom, lines in LADDERS.items()
    for above, below in pairwise(lines)
    for felt in above.split()
    for broken in below.split()
]


@pytest.mark.parametrize(("symptom", "felt", "broken"), PAIRS)
def test_the_cause_is_what_is_nearest_to_the_fault(symptom, felt, broken):
    # Of equals, the one whose sentence sorts first would be chosen.
    others = [seen(felt, summary="a"), seen(broken, summary="b")]
    found = fuse([slow(symptom)], others, PLACES, EVERYTHING)
    (incident,) = [one for one in found.incidents if one.timing]
    assert incident.cause.kind == broken


@pytest.mark.parametrize(
    ("symptom", "cause"),
    [
        ("collective_timeout", "gpu_compute"),
        ("ras_lag", "partition_imbalance"),
        ("checkpoint_not_loaded", "checkpoint_overwritten"),
        ("power_low", "clock_low"),
        ("temperature_high", "power_cap"),
    ],
)
def test_what_a_fault_makes_visible_is_part_of_its_incident(symptom, cause):
    (incident,) = fuse([slow(symptom)], [seen(cause)], PLACES, EVERYTHING).incidents
    assert (incident.cause.kind, incident.timing.kind) == (cause, symptom)
