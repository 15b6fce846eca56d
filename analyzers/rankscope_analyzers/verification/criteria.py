"""Every criterion for a job that runs well, one row each; `docs/verify.md` describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope_analyzers.verification import checkpoint_criterion, nccl_criteria, rank_criteria
from rankscope_analyzers.verification.evidence import Evidence
from rankscope_analyzers.verification.identifiers import ALWAYS, CHECKPOINT
from rankscope_analyzers.verification.judgement import Judgement

PAGE = "docs/verify.md"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion: its identifier, what it states about a good job, and its function."""

    id: str
    title: str
    judge: Callable[[Evidence], Judgement]

    @property
    def always(self) -> bool:
        """Return True if nothing is proven without it."""
        return self.id in ALWAYS

    @property
    def page(self) -> str:
        """Return the page that describes it."""
        return f"{PAGE}#{self.id}"


CRITERIA: Sequence[Criterion] = (
    Criterion("world-size", "All ranks are present", rank_criteria.world_size),
    Criterion("nccl-start", "NCCL has come up", nccl_criteria.initialization),
    Criterion("transport", "Data takes the fast path", nccl_criteria.transport),
    Criterion("channels", "Ranks use the same number of channels", nccl_criteria.channels),
    Criterion("steps", "Steps are as fast as expected", rank_criteria.steps),
    Criterion("utilization", "GPUs are busy", rank_criteria.utilization),
    Criterion("straggler", "No rank delays the others", rank_criteria.straggler),
    Criterion(CHECKPOINT, "A first checkpoint exists", checkpoint_criterion.checkpoint),
)


@dataclass(frozen=True, slots=True)
class Result:
    """A criterion and its result."""

    criterion: Criterion
    judgement: Judgement

    def as_object(self) -> Mapping[str, Any]:
        """Return JSON-ready values."""
        return {
            "id": self.criterion.id,
            "title": self.criterion.title,
            **self.judgement.as_object(),
            "page": self.criterion.page,
        }


def results(evidence: Evidence, left_out: Sequence[str] = ()) -> Iterator[Result]:
    """Yield the result of each criterion.

    Args:
        evidence: of a job.
        left_out: identifiers of criteria that are not wanted.
    """
    for criterion in CRITERIA:
        if criterion.id not in left_out:
            yield Result(criterion, criterion.judge(evidence))
