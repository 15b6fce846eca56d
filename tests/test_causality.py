"""Which of several findings that could explain a symptom is called its cause: the deepest."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from test_incidents import causes, judged, seen, slow

SLOW_GPU = (
    "clock_low cpu_pressure cpu_starved",
    "cpu_throttled memory_pressure power_cap rank_stopped rank_was_stopped",
    "device_unhealthy gpu_pcie_degraded gpu_recovery_needed ib_errors nvlink_degraded"
    " power_brake power_limit_differs thermal_slowdown",
    "ecc_uncorrected gpu_unresponsive host_kernel row_remap_failed",
    "gpu_lost host_memory",
    "driver",
    "gpu_hardware gpu_memory nvlink_fabric",
    "node_reboot pcie",
)
SLOW_INPUT = (
    "cpu_pressure cpu_starved io_pressure workers_starved",
    "cpu_throttled memory_pressure nfs_slow",
    "gpu_pcie_degraded pids_exhausted shm_full",
    "host_kernel oom_kill storage",
)
SLOW_LINK = (
    "asymmetric_rail gdr_missing",
    "channels_differ socket_fallback",
    "gpu_pcie_degraded ib_errors nvlink_degraded",
    "environment_differs fabric_unhealthy retransmission",
    "congestion errors",
    "flapping pci_link_degraded rate_below_maximum",
    "link_down nvlink_fabric",
    "network_nic",
    "pcie",
)
NO_RANK = (
    "pod_failed pod_pending",
    "container_not_created crash_loop image_not_pulled",
    "attempt_failed device_unhealthy disk_full gpu_recovery_needed ib_errors pids_exhausted"
    " shm_full",
    "app ecc_uncorrected gpu_unresponsive host_kernel oom_kill pod_preempted row_remap_failed",
    "gpu_lost host_memory",
    "driver",
    "gpu_hardware gpu_memory nvlink_fabric",
    "node_reboot pcie",
)
HANG = (
    "ras_lag",
    "collective_timeout init_incomplete ras_missing",
    "missing_rank",
    "channels_differ pod_failed rank_stopped",
    "crash_loop",
    "attempt_failed device_unhealthy gpu_recovery_needed ib_errors",
    "app ecc_uncorrected fabric_unhealthy gpu_unresponsive host_kernel oom_kill pod_preempted"
    " retransmission row_remap_failed",
    "errors gpu_lost host_memory",
    "driver flapping",
    "gpu_hardware gpu_memory link_down nvlink_fabric",
    "network_nic",
    "node_reboot pcie",
)
FULL_DISK = ("io_pressure", "nfs_slow", "disk_full", "storage")

SYMPTOMS = {
    "gpu_compute": SLOW_GPU,
    "data_loader": SLOW_INPUT,
    "storage_checkpoint": FULL_DISK,
    "network_link": SLOW_LINK,
    "missing_rank": NO_RANK,
    "hang": HANG,
}
"""What explains each symptom, the kinds that are nearest to it first."""


def pairs():
    for symptom, tiers in SYMPTOMS.items():
        for shallow, deep in pairwise(tiers):
            for both in product(shallow.split(), deep.split()):
                yield pytest.param(symptom, *both, id=f"{symptom}-{'-'.join(both)}")


@pytest.mark.parametrize(("symptom", "shallow", "deep"), list(pairs()))
def test_of_two_findings_that_explain_a_symptom_the_deeper_one_is_its_cause(symptom, shallow, deep):
    for order in ((shallow, deep), (deep, shallow)):
        found = judged([slow(symptom)], [seen(kind) for kind in order])
        assert causes(found)[0] == deep
