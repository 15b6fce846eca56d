"""Notes on jobs whose probes measure compute and sync in samples of the steps.

Faults are judged by the sampled steps. Their cost is the share of time that these lose, over the
whole time that a fault lasts. A rank that waits for copies computes longer by as much although none
of its kernels is slow; the finding says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope_analyzers.findings.finding import Evidence, Finding
from rankscope_analyzers.steps.records import SAMPLED
from rankscope_analyzers.text.wording import duration

COPIES_SHARE = 0.5
"""Fraction of a rank's excess compute that must be waiting for copies to call these the cause."""


def notes(records: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on how many steps have compute and sync, if they are sampled."""
    if "timing_source" not in records.columns:
        return
    taken = records["timing_source"].eq(SAMPLED)
    if taken.any():
        yield (
            f"compute and sync are sampled: {int(taken.sum())} of {len(records)} step records have"
            " them; faults are judged by these, and their cost is over all steps"
        )


def with_copies(finding: Finding, records: pd.DataFrame) -> Finding:
    """Return a finding of slow compute that says how much of it is waiting for copies.

    Args:
        finding: of any kind.
        records: of its job, in the columns of the trace contract.
    """
    culprits = finding.where.ranks
    if finding.kind != "gpu_compute" or not culprits or "copies_seconds" not in records.columns:
        return finding
    begin = -np.inf if finding.since_unix_seconds is None else finding.since_unix_seconds
    end = np.inf if finding.until_unix_seconds is None else finding.until_unix_seconds
    during = records[records["t_start_unix_seconds"].between(begin, end)]
    own, others = _medians(during, culprits[:1]), _medians(during, culprits, others=True)
    compute = finding.evidence[0]
    excess = compute.observed - compute.expected
    if not (np.isfinite(own) and np.isfinite(others) and excess > 0):
        return finding
    if own - others < COPIES_SHARE * excess:
        return finding
    sentence = (
        f"; it waits {duration(own)} a step for copies between host and device, the others"
        f" {duration(others)}"
    )
    meaning = "the training stream waits for copies of other streams, against the other ranks"
    added = Evidence("copies_seconds", own, others, "seconds", meaning)
    return replace(finding, summary=finding.summary + sentence, evidence=(*finding.evidence, added))


def _medians(records: pd.DataFrame, ranks: Sequence[int], *, others: bool = False) -> float:
    """Return the median time at copies of some ranks, or of all but these; NaN if unknown."""
    chosen = records["rank"].isin(list(ranks))
    values = records.loc[~chosen if others else chosen, "copies_seconds"]
    known = pd.to_numeric(values, errors="coerce").dropna()
    return float(known.median()) if len(known) else float("nan")
