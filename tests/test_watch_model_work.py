"""Tokens, epochs and FLOPs of jobs in the watch: each counted once, and summed up by project."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import gpus, job_work
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.observed import gathered as put_together
from rankscope_analyzers.watch.computed import Computed
from rankscope_analyzers.watch.memory import NoWatch
from watched_goodput import RANKS, RECORDS, job, look, started

H100 = "NVIDIA H100 80GB HBM3"


def computing():
    """Return series of a job of which each token takes 3e10 FLOPs, on four H100."""
    times = np.arange(1000.0, 1000.0 + 121.0, 30.0)
    ones, tokens = np.ones(len(times)), 2e4 * (times - 1000.0)
    return put_together(
        [
            Series("node", job_work.JOB_TOKENS.name, {"job_id": "job"}, times, tokens),
            Series("node", job_work.JOB_EPOCHS.name, {"job_id": "job"}, times, tokens / 1e6),
            Series(
                "node",
                job_work.JOB_MODEL_FLOPS.name,
                {"job_id": "job", "per": "token"},
                times,
                3e10 * ones,
            ),
            *(
                Series("node", gpus.GPU_INFO.name, {"uuid": uuid, "model": H100}, times, ones)
                for uuid in map(str, range(RANKS))
            ),
        ]
    )


def look_at_computing(goodput, now, since=0.0):
    found = computing()
    seen = put_together(
        replace(one, times=one.times[chosen], values=one.values[chosen])
        for one in found.all()
        for chosen in [(one.times <= now) & (one.times >= since)]
    )
    places = {rank: RankLocation(rank, "node", uuid=str(rank)) for rank in range(RANKS)}
    one = JobReport("job", None, None, (), (), places, (), (), now)
    shown = RECORDS[RECORDS.t_start_unix_seconds + RECORDS.step_seconds <= now]
    assert not goodput.look(Gathered((job(records=shown),), JobEvidence(seen)), [one], now)


def test_a_job_says_how_much_it_computes_and_its_project_how_many_tokens(tmp_path):
    goodput, memory = started(tmp_path / "sums")
    memory.begin(NoWatch(), None)
    look_at_computing(goodput, 1060.0)
    look_at_computing(goodput, 1090.0)
    assert memory.end(NoWatch(), None, changed=True)
    goodput.announce()
    found = {(one.metric, *one.labels): one.value for one in goodput.samples()}
    assert found[metrics.JOB_FLOPS, "job", "program"] == pytest.approx(6e14)
    assert found[metrics.JOB_PEAK_FLOPS, "job", "bf16"] == RANKS * 989.5e12
    mfu = found[metrics.JOB_MFU, "job", "program", "bf16"]
    assert mfu == pytest.approx(6e14 / (RANKS * 989.5e12))
    assert found[metrics.PROJECT_TOKENS, "", ""] == pytest.approx(2e4 * 30)
    assert found[metrics.PROJECT_EPOCHS, "", ""] == pytest.approx(0.6)
    look_at_computing(goodput, 1120.0, since=1060.0)
    goodput.announce()
    found = {(one.metric, *one.labels): one.value for one in goodput.samples()}
    per_gpu = found[metrics.JOB_THROUGHPUT, "job", str(RANKS), "tokens"]
    assert per_gpu == pytest.approx(2e4 / RANKS)
    assert "job" in goodput.kept()["scaling"]
    goodput, memory = started(tmp_path / "sums")
    memory.begin(NoWatch(), None)
    look_at_computing(goodput, 1120.0)
    goodput.announce()
    found = {(one.metric, *one.labels): one.value for one in goodput.samples()}
    assert found[metrics.PROJECT_TOKENS, "", ""] == pytest.approx(2e4 * 30)
    assert found[metrics.PROJECT_EPOCHS, "", ""] == pytest.approx(0.6)
    look(goodput, 1120.0, ())
    assert metrics.JOB_MFU not in {one.metric for one in goodput.samples()}


def test_tokens_count_on_over_restarts_of_an_agent_and_once_each():
    times = np.array([10.0, 20.0, 30.0])
    for values, grown in (([5, 7, 9], 2), ([5, 9, 3], 3), ([1, 1, 1], 0)):
        found = Computed()
        several = [
            Series("n", job_work.JOB_TOKENS.name, {}, times[:end], np.array(values[:end], float))
            for end in (2, 3, 3)
        ]
        for one in several:
            found.add(("p", ""), "job", {one.name: [one]}, (), 1, 30.0)
        assert [one.value for one in found.sums()] == ([grown] if grown else [])
    with pytest.raises(ValueError, match="are not sums"):
        found.restore([["p", "", float("nan")]])


def test_what_a_job_repeats_after_a_restart_is_no_further_epoch():
    found = Computed()

    def look(job: str, *values: float) -> list[float]:
        several = [
            Series(f"n{node}", job_work.JOB_EPOCHS.name, {}, np.array([10.0]), np.array([value]))
            for node, value in enumerate(values)
        ]
        found.add(("p", ""), job, {job_work.JOB_EPOCHS.name: several}, (), 1, 10.0)
        return [one.value for one in found.sums() if one.metric is metrics.PROJECT_EPOCHS]

    assert look("job", 1.0, 1.5) == []  # what it made before it was watched
    assert look("job", 1.75, 1.5) == [0.25]
    assert look("job", 1.0) == [0.25]  # back at its checkpoint
    assert look("job", 2.0) == [0.5]
    assert look("other", 7.0) == [0.5]
    assert look("other", 8.0) == [1.5]
    found.forget(["job"])
    assert look("job", 5.0) == [1.5]
    later = Computed()
    later.restore(json.loads(json.dumps(found.kept())))
    assert [one.value for one in later.sums()] == [1.5]
    later.restore([["p", "", 7.0]])  # kept before there were epochs
    assert [(one.metric, one.value) for one in later.sums()] == [(metrics.PROJECT_TOKENS, 7.0)]
    with pytest.raises(ValueError, match="are not sums"):
        later.restore([["p", "", 7.0, -1.0]])
