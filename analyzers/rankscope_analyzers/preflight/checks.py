"""Every check of manifests, nodes and a pod, one row each; `docs/preflight.md` describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rankscope_analyzers.preflight import (
    attachment_checks,
    budget_check,
    configured_checks,
    endurance_checks,
    launch_checks,
    master_check,
    memory_checks,
    nccl_pool_check,
    network_checks,
    placement_checks,
    pod_checks,
    pool_checks,
    storage_checks,
    variable_checks,
)
from rankscope_analyzers.preflight.job import Job
from rankscope_analyzers.preflight.outcome import Outcome, outcome_of
from rankscope_analyzers.preflight.pool import Pool
from rankscope_analyzers.preflight.surroundings import Surroundings

PAGE = "docs/preflight.md"

Subject = TypeVar("Subject")
"""The subject of a check: a job, the nodes of a pool, or the pod that it runs in."""


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject]):
    """A check: its identifier, which is its section of the page as well, and its function."""

    id: str
    title: str
    conclude: Callable[[Subject], Outcome]

    @property
    def page(self) -> str:
        """Return the page that describes the check."""
        return f"{PAGE}#{self.id}"


CHECKS: Sequence[Check[Job]] = (
    Check("secondary-interface", "A fast network is attached", network_checks.secondary_interface),
    Check(
        "attachment-definition", "The network is defined", attachment_checks.attachment_definition
    ),
    Check(
        "attachment-master",
        "Nodes have the parent interfaces of networks",
        master_check.attachment_master,
    ),
    Check(
        "address-ranges",
        "Networks assign separate addresses",
        attachment_checks.address_ranges,
    ),
    Check("pod-addresses", "No two pods share an address", attachment_checks.pod_addresses),
    Check(
        "fabric-addresses", "A network belongs to the fabric", configured_checks.fabric_addresses
    ),
    Check("single-network", "Gradients have their own network", network_checks.single_network),
    Check("socket-interface", "NCCL_SOCKET_IFNAME fits", network_checks.socket_interface),
    Check("rdma-transport", "RDMA is not switched off", network_checks.rdma_transport),
    Check("rdma-devices", "RDMA devices are usable", network_checks.rdma_devices),
    Check("gpudirect", "GPUDirect RDMA is not switched off", network_checks.gpudirect),
    Check("fabric-budget", "The fabric carries a step", budget_check.fabric_budget),
    Check("host-network-dns", "Names resolve with hostNetwork", network_checks.host_network_dns),
    Check("sidecar", "No service mesh between ranks", placement_checks.sidecar),
    Check("shared-memory", "Shared memory is large enough", memory_checks.shared_memory),
    Check("locked-memory", "Memory can be locked", memory_checks.locked_memory),
    Check("numa", "CPUs and memory can be pinned", memory_checks.numa),
    Check("nccl-variables", "NCCL knows the variables", variable_checks.nccl_variables),
    Check("nccl-debug", "NCCL logs its transports", variable_checks.nccl_debug),
    Check(
        "equal-environment",
        "All ranks have the same environment",
        variable_checks.equal_environment,
    ),
    Check("mpi-environment", "mpirun passes variables on", variable_checks.mpi_environment),
    Check("algorithm-tuning", "Topology comes before tuning", variable_checks.algorithm_first),
    Check("progress-visible", "Running is not taken for healthy", variable_checks.hang_detection),
    Check("one-zone", "Ranks stay in one zone", placement_checks.zone),
    Check("few-racks", "Ranks stay in few racks", placement_checks.rack),
    Check("eviction", "Autoscalers leave ranks alone", placement_checks.eviction),
    Check("checkpoint-volume", "Checkpoints outlive the node", storage_checks.checkpoint_volume),
    Check("restart-budget", "The job survives faults", endurance_checks.restart_budget),
    Check("elastic-bounds", "Elastic bounds hold the pods", endurance_checks.elastic_bounds),
    Check("termination-grace", "A last checkpoint has time", endurance_checks.termination_grace),
    Check("gpu-count", "One process for each GPU", launch_checks.gpu_count),
    Check("rendezvous-host", "The rendezvous host exists", launch_checks.rendezvous_host),
    Check("job-project", "The job has a project", configured_checks.job_project),
)


POOL_CHECKS: Sequence[Check[Pool]] = (
    Check("agents", "Every agent answers", pool_checks.agents),
    Check("gpu-kind", "All nodes have the same GPUs", pool_checks.gpu_kind),
    Check("driver", "All nodes have the same driver", pool_checks.driver),
    Check("gpu-state", "Every GPU answers", pool_checks.gpu_state),
    Check("memory-rows", "No memory is waiting for repair", pool_checks.memory_rows),
    Check("memory-errors", "Memory has no uncorrected errors", pool_checks.memory_errors),
    Check("xids", "No recent GPU errors", pool_checks.xids),
    Check("pcie", "PCI links have full width and speed", pool_checks.pcie),
    Check("rdma-ports", "RDMA ports are up", pool_checks.rdma_ports),
    Check("port-rate", "RDMA ports have the same rate", pool_checks.port_rate),
    Check("peer-memory", "Adapters can access GPU memory", pool_checks.peer_memory),
    Check("firmware", "Adapters have the same firmware", pool_checks.firmware),
    Check("nccl-version", "A job has one NCCL", nccl_pool_check.nccl_version),
    Check("clocks", "Clocks are kept", pool_checks.clocks),
)

POD_CHECKS: Sequence[Check[Surroundings]] = (
    Check("pod-shared-memory", "Shared memory is large enough", pod_checks.shared_memory),
    Check("pod-locked-memory", "Memory can be locked", pod_checks.locked_memory),
    Check("pod-interfaces", "NCCL_SOCKET_IFNAME fits", pod_checks.interfaces),
    Check("pod-rdma", "RDMA devices can be opened", pod_checks.rdma),
    Check("pod-gpus", "One process for each GPU", pod_checks.gpu_count),
)


@dataclass(frozen=True, slots=True)
class Result:
    """A check and its outcome."""

    check: Check[Any]
    outcome: Outcome

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "id": self.check.id,
            "title": self.check.title,
            **self.outcome.as_object(),
            "page": self.check.page,
        }


def results(
    subject: Subject, checks: Sequence[Check[Subject]], left_out: Sequence[str] = ()
) -> Iterator[Result]:
    """Yield the result of each check.

    Args:
        subject: to be checked.
        checks: of such subjects.
        left_out: identifiers of checks that are not wanted.
    """
    for check in checks:
        if check.id not in left_out:
            yield Result(check, outcome_of(partial(check.conclude, subject)))


def pod_results(pod: Surroundings, left_out: Sequence[str] = ()) -> Iterator[Result]:
    """Yield the results of the checks of a pod from within, and of those that variables decide."""
    yield from results(pod, POD_CHECKS, left_out)
    by_variables = [check for check in CHECKS if check.id in pod_checks.FROM_VARIABLES]
    yield from results(pod_checks.as_job(pod), by_variables, left_out)
