"""What steps between two samples are counted with: the shares of the newest sample.

A probe that times what the device's training stream waits for does so only in some steps. Counters
of compute and sync would otherwise increase only in these, and divided by all steps give only part
of a step's time. Single records stay as they are: unmeasured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope_agent.sources.training.format import NOT_MEASURED, StepRecord


class SampledShares:
    """How a rank's newest sample divides the time of a step that is not spent on input.

    `compute` is None before the first sample.
    """

    __slots__ = ("compute", "sync")

    def __init__(self) -> None:
        self.compute: float | None = None
        self.sync = 0.0

    def completed(self, records: Sequence[StepRecord]) -> Iterator[StepRecord]:
        """Yield records in order, those between samples with these shares.

        Before the first sample there are none, and records stay unmeasured.
        """
        for record in records:
            busy = record.step_ns - max(record.data_ns, 0)
            if not record.sampled or busy <= 0:
                yield record
            elif record.compute_ns != NOT_MEASURED:
                self.compute, self.sync = record.compute_ns / busy, record.sync_ns / busy
                yield record
            elif self.compute is None:
                yield record
            else:
                yield record._replace(
                    compute_ns=round(self.compute * busy), sync_ns=round(self.sync * busy)
                )
