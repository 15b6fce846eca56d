"""Real two-rank jobs, written in the usual ways, with a slow rank: who does the verdict name?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from probe_jobs.frameworks import FAIL_AT, STEPS
from probe_jobs.running import JOBS, Nursery, run_script
from rankscope_agent.model import STEP_COLUMNS
from rankscope_agent.rings.reader import RingStepSource
from rankscope_analyzers.diagnosis import diagnose
from rankscope_analyzers.sources import JobRecords
from rankscope_analyzers.verdict import Verdict

SLOW_RANK = 1
NOBODY = -1


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    running = Nursery(tmp_path_factory.mktemp("nursery"))
    yield running
    running.close()


def records_in(rings: Path) -> pd.DataFrame:
    """Read the rings as an agent does that is asked for its step records."""
    rows = RingStepSource(rings, rings / "kubelet", "node").steps(None, 0.0)
    return pd.DataFrame(list(rows), columns=list(STEP_COLUMNS))


def verdict_on(records: pd.DataFrame) -> Verdict:
    assert records["job_id"].nunique() == 1
    (verdict,) = diagnose([JobRecords("job", records, 2, (), live=True)])
    return verdict


def named(verdict: Verdict) -> tuple[str, tuple[int, ...]] | None:
    return verdict.cause and (verdict.cause.kind, verdict.cause.subject.ranks)


@pytest.mark.parametrize(
    "way", ["ddp", "fsdp2", "manual", "accumulation", "two_optimizers", "compiled"]
)
def test_the_slow_rank_is_named_however_the_job_is_written(
    nursery: Nursery, tmp_path: Path, way: str
) -> None:
    ended = nursery.run(tmp_path, "frameworks.py", way, str(SLOW_RANK), ranks=2)
    assert [one.code for one in ended] == [0, 0]
    records = records_in(tmp_path)
    # The first step only starts the clock.
    assert records.groupby("rank")["step"].apply(list).tolist() == [[*range(1, STEPS)]] * 2
    assert set(records["timing_source"]) == {"wall"}
    assert named(verdict_on(records)) == ("gpu_compute", (SLOW_RANK,))


@pytest.mark.parametrize("way", ["fsdp2", "two_optimizers"])
def test_nobody_is_named_while_both_ranks_take_equally_long(
    nursery: Nursery, tmp_path: Path, way: str
) -> None:
    ended = nursery.run(tmp_path, "frameworks.py", way, str(NOBODY), ranks=2)
    assert [one.code for one in ended] == [0, 0]
    assert named(verdict_on(records_in(tmp_path))) is None


def test_the_slow_rank_is_named_after_an_elastic_restart(tmp_path: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [str(JOBS / "frameworks.py"), "elastic", str(SLOW_RANK)]
    # torch 2.13 keeps the launcher's store over a restart, so that gloo may read where the dead
    # ranks listened and give up (in 3 of 6 runs): each attempt gets a store of its own.
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "RANKSCOPE_JOB_ID": "a/b"}
    ended = run_script([*launch, "--max-restarts=1", *script], tmp_path, **own)
    assert ended.code == 0, ended.errors
    records = records_in(tmp_path)
    steps = records.groupby(["attempt", "rank"])["step"].max()
    # Rank 0 broke before it could end its step; the other had all gradients and ended its own.
    assert steps.loc[0].tolist() == [FAIL_AT - 2, FAIL_AT - 1]
    assert steps.loc[1].tolist() == [STEPS - 1] * 2
    verdict = verdict_on(records)
    assert named(verdict) == ("gpu_compute", (SLOW_RANK,))
    newest = records[records["attempt"] == 1]
    assert verdict.cause is not None
    assert verdict.cause.since_unix_seconds >= newest["t_start_unix_seconds"].min()
