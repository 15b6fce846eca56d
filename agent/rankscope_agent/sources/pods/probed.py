"""What the probes of a node announce, by which other collectors tell what they need not report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rankscope_agent.contract.job_names import without_step


@dataclass(frozen=True, slots=True)
class Probed:
    """What is known from rings.

    Args:
        ranks: all ranks (job, rank), whose series come from their rings.
        attempts: how often torchrun has restarted jobs' processes, by job.
        loaded: UIDs of the pods in whose volume a probe has written anything.
        sizes: numbers of ranks that a job has according to its living ranks, by job.
    """

    ranks: frozenset[tuple[str, int]] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    loaded: frozenset[str] = frozenset()
    sizes: Mapping[str, Collection[int]] = field(default_factory=dict)

    def contradict(self, job_id: str, world_size: int | None) -> bool:
        """Return True if a job's ranks are of another number than a process's variables say.

        A task of srun or mpirun may spawn ranks, which inherit its variables: these number tasks.
        """
        # Ranks that tasks of a SLURM step spawn belong to the job as a whole.
        sizes = self.sizes.get(job_id) or self.sizes.get(without_step(job_id))
        return bool(sizes) and world_size not in (sizes or ())
