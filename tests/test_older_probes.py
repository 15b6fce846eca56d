"""Files that probes of former versions wrote, read by this agent.

Each archive holds what one of them left of the same job: 12 batches in one process, `torch.save`
after the seventh. `records` knows rings alone, `extension` what lies beside records, and `spans`
checkpoints, but nothing that training reports of itself.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from collected_page import Page, collector
from rankscope_agent.contract.metrics import reported, training

RECORDED = Path(__file__).parent / "fixtures" / "older_probes"
JOB = "team/older"


@pytest.mark.parametrize("known", ["records", "extension", "spans"])
def test_what_an_older_probe_wrote_is_read_and_what_it_did_not_know_is_absent(
    tmp_path: Path, known: str
) -> None:
    with tarfile.open(RECORDED / f"{known}.tar.gz") as archive:
        # Not an argument, which Debian 12's Python 3.11.2 does not know.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    page = Page(collector(tmp_path))
    assert page.labels(training.RINGS_REJECTED) == []
    assert page.rank(training.STEPS, job=JOB) == 11
    assert (page.rank(training.OTHER_SECONDS, job=JOB) is not None) == (known != "records")
    writes = page.rank(training.CHECKPOINT_WRITES, job=JOB)
    assert writes == (1 if known == "spans" else None)
    assert (page.rank(reported.CHECKPOINT_STEP, job=JOB) == 6) == (known == "spans")
    for metric in (reported.DEAD_WORKERS, reported.LEARNING_RATE, reported.LOSS):
        assert page.rank(metric, job=JOB) is None
