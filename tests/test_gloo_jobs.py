"""Recorded gloo jobs that were judged wrongly once, numbers alone: FAULT_RANK.

Their ranks stand in a ring, in which each receives from the next higher one. Of a slow hop either
end is a right answer.
"""

from pathlib import Path

import pandas as pd
import pytest

from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis

RECORDED = {
    path.stem.partition("_")[0]: path
    for path in sorted((Path(__file__).parent / "fixtures" / "gloo_jobs").glob("*.parquet"))
}


def cause(name):
    rows = pd.read_parquet(RECORDED[name]).assign(node="node", timing_source="wall")
    rows["gpu"] = rows["rank"]
    found = diagnosis(JobRecords("job", rows, None, (), live=True)).verdict.cause
    return found and (found.kind, found.where.ranks)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slow-link-from-the-start", ("network_link", (3, 0))),
        ("slow-link-one-direction", ("network_link", (0,))),
        ("rare-pauses-among-short-stalls", ("host_transient", (1,))),
        ("input-of-all-workers", ("storage_checkpoint", ())),
    ],
)
def test_the_answer_that_is_known_is_given(name, expected):
    """The rank that pauses does so for 0.3 s every 30 steps, while both stall for a moment often.

    Of a link that is slow in one direction only the receiver is late: no other end is named. The
    workers of all loaders become slow together, and now one rank waits for them, now another.
    """
    assert cause(name) == expected
