"""Which of several findings that could explain a symptom is called its cause: the deepest."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from rankscope_analyzers.findings.finding import Where
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


STATE = "gpu_unresponsive gpu_recovery_needed device_unhealthy fabric_unhealthy"
LOSS = "retransmission congestion asymmetric_rail"
FALLBACK = "socket_fallback gdr_missing ib_errors"
STUCK = "collective_timeout init_incomplete ras_missing ras_lag"
GONE = "pod_failed crash_loop attempt_failed"
EFFECTS = {
    "gpu_lost": f"{STATE} {STUCK} {GONE}",
    "driver": f"{STATE} {STUCK} {GONE} gpu_lost",
    "gpu_hardware": f"{STATE} {STUCK} {GONE} gpu_lost",
    "gpu_memory": f"{STATE} {STUCK} {GONE} gpu_lost ecc_uncorrected row_remap_failed"
    " row_remap_pending",
    "nvlink_fabric": f"{STATE} {STUCK} {GONE} nvlink_degraded",
    "pcie": f"{STATE} {STUCK} {GONE} gpu_lost gpu_pcie_degraded",
    "node_reboot": f"{STATE} {STUCK} {GONE} gpu_lost",
    "gpu_unresponsive": f"{STUCK} {GONE} device_unhealthy",
    "link_down": f"{LOSS} {FALLBACK} {STUCK} errors flapping attempt_failed",
    "network_nic": f"{FALLBACK} {STUCK} link_down flapping attempt_failed",
    "pod_preempted": f"{STUCK} {GONE} pod_pending",
    "pod_failed": "job_ending",
    "crash_loop": f"{STUCK} pod_failed job_ending",
    "image_not_pulled": "init_incomplete pod_pending",
    "container_not_created": "init_incomplete pod_pending",
    "oom_kill": f"{STUCK} {GONE}",
    "app": f"{STUCK} {GONE} job_ending",
    "socket_fallback": "gdr_missing",
}
"""What a fault that is reported alone causes besides, on the ranks that it affects."""


def of_pods(kind):
    """Return a finding on rank 3, by its rank where that is what is known of it."""
    return seen(kind, where=Where(nodes=("gpu-0",), ranks=(3,)))


@pytest.mark.parametrize(
    ("cause", "effect"), [(cause, one) for cause, all_ in EFFECTS.items() for one in all_.split()]
)
def test_what_a_fault_causes_is_no_incident_beside_it(cause, effect):
    (incident,) = judged([], [of_pods(effect), of_pods(cause)]).incidents
    assert incident.cause.kind == cause
    assert effect in {finding.kind for finding in incident.findings}


CLOCKED = "clock_low power_low temperature_high"


@pytest.mark.parametrize(
    ("symptom", "cause", "effects"),
    [
        ("gpu_compute", "clock_low", "power_low"),
        ("gpu_compute", "power_cap", CLOCKED),
        ("gpu_compute", "power_limit_differs", f"{CLOCKED} power_cap"),
        ("gpu_compute", "power_brake", f"{CLOCKED} power_cap"),
        ("gpu_compute", "thermal_slowdown", f"{CLOCKED} power_cap"),
        ("gpu_compute", "host_memory", "io_pressure"),
        ("gpu_compute", "memory_pressure", "io_pressure"),
        ("gpu_compute", "cpu_throttled", "cpu_pressure cpu_starved workers_starved"),
        ("gpu_compute", "row_remap_failed", "gpu_recovery_needed"),
        ("gpu_compute", "ecc_uncorrected", "gpu_recovery_needed"),
        ("network_link", "environment_differs", FALLBACK),
        ("network_link", "flapping", f"{LOSS} errors {FALLBACK}"),
        ("network_link", "pci_link_degraded", LOSS),
        ("network_link", "rate_below_maximum", "asymmetric_rail congestion"),
        ("network_link", "errors", "ib_errors retransmission asymmetric_rail"),
        ("network_link", "congestion", "retransmission asymmetric_rail"),
        ("network_link", "retransmission", "ib_errors asymmetric_rail"),
        ("network_link", "fabric_unhealthy", "nvlink_degraded"),
        ("storage_checkpoint", "storage", "io_pressure nfs_slow disk_full"),
        ("storage_checkpoint", "nfs_slow", "io_pressure"),
    ],
)
def test_what_a_cause_of_slow_steps_brings_with_it_belongs_to_the_incident(symptom, cause, effects):
    for effect in effects.split():
        found = judged([slow(symptom)], [of_pods(effect), of_pods(cause)])
        assert causes(found) == [cause]
        assert not found.observations
