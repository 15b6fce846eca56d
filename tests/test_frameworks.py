"""Real jobs of two and four ranks, written in the usual ways, with a slow rank: who is named?"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from probe_jobs.framework_steps import BEFORE_EXEC, FAIL_AT, OVERFLOW_EVERY, STEPS
from probe_jobs.nurseries import Nurseries
from probe_jobs.ways import (
    NOBODY,
    SLOW_RANK,
    WAYS,
    named,
    records_in,
    run,
    verdict_on,
)
from rankscope_analyzers import cli
from running_agent import running_agent

FLAG_SKIPPED = 1 << 3
ALL_STEPS = [*range(1, STEPS)]  # the first step only starts the clock
BY_NAME = {str(way): way for way in WAYS}

# Loops that can be slow in two ways are tried with one of them; `benchmarks frameworks` tries both.
# Of a rank that waits for its CPU test_cpu_wait.py is about.
LEFT_OUT = {"hf_trainer", "accelerate-data", "lightning", "starved-cpu"}

Job = Callable[[str, int], Path]


def records(folder: Path) -> pd.DataFrame:
    return records_in(folder / "rings")


@pytest.fixture(scope="module")
def job(nurseries: Nurseries, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Give a function that runs a job with a slow rank, once, and returns where its rings are."""

    @cache
    def folder(name: str, slow_rank: int) -> Path:
        rings = tmp_path_factory.mktemp("job") / "rings"
        ended = run(BY_NAME[name], slow_rank, nurseries, rings)
        assert [process.code for process in ended] == [0] * len(ended), ended
        return rings.parent

    return folder


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in LEFT_OUT])
def test_the_slow_rank_is_named_however_the_job_is_written(job: Job, name: str) -> None:
    way, rows = BY_NAME[name], records(job(name, SLOW_RANK))
    assert set(rows["timing_source"]) == {"wall"}
    newest = rows[rows["rank"] < way.ranks].groupby("rank").tail(len(ALL_STEPS))
    assert newest.groupby("rank")["step"].apply(list).tolist() == [ALL_STEPS] * way.ranks
    verdict = verdict_on(rows, way.ranks)
    assert named(verdict) == (way.cause, (SLOW_RANK,)), verdict
    assert verdict.cause is not None
    # A rank that was slow before a restart of its job, and is so after it, was slow since then.
    since = verdict.cause.since_unix_seconds
    assert rows["t_start_unix_seconds"].min() <= since <= newest["t_start_unix_seconds"].max()


@pytest.mark.parametrize("name", ["fsdp2", "two_optimizers", "two_dimensions", "hf_trainer"])
def test_nobody_is_named_while_all_ranks_take_equally_long(job: Job, name: str) -> None:
    """While other programs take the CPUs, ranks do wait for them, and one of them most."""
    cause = verdict_on(records(job(name, NOBODY)), BY_NAME[name].ranks).cause
    assert cause is None or cause.kind == "host_transient", cause


@pytest.mark.parametrize(
    ("name", "dp_groups", "tp_groups"),
    [("two_dimensions", [0, 1, 0, 1], [0, 0, 1, 1]), ("tensor_parallel", [0, 1], [0, 0])],
)
def test_ranks_know_with_whom_they_share_a_layer(
    job: Job, name: str, dp_groups: list[int], tp_groups: list[int]
) -> None:
    places = records(job(name, SLOW_RANK)).drop_duplicates("rank").sort_values("rank")
    assert places["dp_group"].tolist() == dp_groups
    assert places["tp_group"].tolist() == tp_groups
    assert set(places["pp_stage"]) == {0}


def test_steps_that_the_scaler_skips_are_marked_on_all_ranks(job: Job) -> None:
    rows = records(job("scaler", SLOW_RANK))
    skipped = rows[(rows["flags"] & FLAG_SKIPPED) != 0]
    expected = [step for step in ALL_STEPS if (step + 1) % OVERFLOW_EVERY == 0]
    assert skipped.groupby("rank")["step"].apply(list).tolist() == [expected] * 2


def test_a_program_that_another_took_over_from_keeps_its_records(job: Job) -> None:
    rows = records(job("execs", SLOW_RANK))
    expected = [*range(1, BEFORE_EXEC), *ALL_STEPS]
    assert rows.groupby("rank")["step"].apply(list).tolist() == [expected] * 2


def test_an_elastic_restart_is_another_attempt(job: Job) -> None:
    steps = records(job("elastic", SLOW_RANK)).groupby(["attempt", "rank"])["step"].max()
    # Rank 0 broke before it could end its step; the other had all gradients and ended its own.
    assert steps.loc[0].tolist() == [FAIL_AT - 2, FAIL_AT - 1]
    assert steps.loc[1].tolist() == [STEPS - 1] * 2


def test_ranks_that_left_a_shrunk_job_are_neither_judged_nor_missed(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = job("shrink", SLOW_RANK)
    ranks = records(folder).groupby("attempt")["rank"].unique()
    assert [sorted(attempt) for attempt in ranks] == [[0, 1, 2, 3], [0, 1]]
    with running_agent(folder) as agent:
        assert cli.main(["diagnose", "--agent", agent.url, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["shrink"]
    assert (said["verdict"]["class"], said["verdict"]["ranks"]) == ("gpu_compute", [SLOW_RANK])
    assert [rank["rank"] for rank in said["ranks"]] == [0, 1]
    of_ranks = [sentence for sentence in said["unobserved"] if "rank" in sentence]
    assert of_ranks == ["data time is not measured on 2 of 2 ranks"]
