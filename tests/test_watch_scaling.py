"""What each GPU of a job gets done on more GPUs, compared with its own runs on fewer."""

import json

import numpy as np
import pytest

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import job_work, training
from rankscope_analyzers.goodput.model_work import Throughput, throughput
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.watch.scaling import Scaling

DAY = 86400.0


def ran(scaling, gpus, per_gpu, at, *, since=None, unit="tokens", job="llm/job"):
    """Take two looks at a run, the second one long enough after the first."""
    for now, begin in ((at, at - 240.0), (at + 300.0, at + 60.0 if since is None else since)):
        scaling.add(job, Throughput(unit, gpus * per_gpu, begin), gpus, now)


def series(scaling, shown=("llm/job",)):
    return {(one.metric, *one.labels[1:]): one.value for one in scaling.samples(shown)}


def test_a_job_is_compared_with_its_own_run_on_the_fewest_gpus():
    scaling = Scaling()
    ran(scaling, 8, 100.0, 0.0)
    assert series(scaling) == {(metrics.JOB_THROUGHPUT, "8", "tokens"): 100.0}
    ran(scaling, 64, 92.0, DAY)
    ran(scaling, 256, 80.0, 2 * DAY)
    found = series(scaling)
    curve = [found[metrics.JOB_THROUGHPUT, size, "tokens"] for size in ("8", "64", "256")]
    assert curve == [100.0, 92.0, 80.0]
    assert found[(metrics.JOB_SCALING,)] == 0.8
    ran(scaling, 64, 70.0, 3 * DAY)
    assert series(scaling)[(metrics.JOB_SCALING,)] == 0.92, "the best minutes count"
    assert not series(scaling, ())


def test_minutes_in_which_the_job_had_another_size_count_for_neither():
    scaling = Scaling()
    ran(scaling, 16, 100.0, 0.0)
    ran(scaling, 8, 150.0, DAY, since=DAY - 1.0)
    assert set(series(scaling)) == {(metrics.JOB_THROUGHPUT, "16", "tokens")}
    ran(scaling, 8, 110.0, DAY, since=DAY)
    assert series(scaling)[metrics.JOB_THROUGHPUT, "8", "tokens"] == 110.0


def test_tokens_are_not_compared_with_samples():
    scaling = Scaling()
    ran(scaling, 8, 100.0, 0.0, unit="samples")
    ran(scaling, 16, 1e5, DAY)
    assert set(series(scaling)) == {(metrics.JOB_THROUGHPUT, "16", "tokens")}


def test_eight_sizes_are_remembered_and_the_smallest_one_always():
    scaling = Scaling()
    for number, gpus in enumerate((4, *range(8, 80, 8))):
        ran(scaling, gpus, 1.0, number * DAY)
    sizes = [int(key[1]) for key in series(scaling) if len(key) == 3]
    assert sizes == [4, 24, 32, 40, 48, 56, 64, 72]


@pytest.mark.parametrize(("later", "known"), [(30 * DAY - 301, 2), (30 * DAY + 301, 1)])
def test_runs_are_compared_for_thirty_days(later, known):
    scaling = Scaling()
    ran(scaling, 8, 1.0, 0.0, job="old")
    ran(scaling, 8, 1.0, later)
    assert len(scaling.kept()) == known


def test_jobs_beyond_five_hundred_are_forgotten_the_oldest_first():
    scaling = Scaling()
    for number in range(501):
        ran(scaling, 8, 1.0, float(number), job=str(number))
    assert set(scaling.kept()) == {str(number) for number in range(1, 501)}


def test_curves_outlive_a_watch():
    scaling, later = Scaling(), Scaling()
    ran(scaling, 8, 100.0, 0.0)
    later.restore(json.loads(json.dumps(scaling.kept())))
    ran(later, 16, 90.0, DAY)
    assert series(later)[(metrics.JOB_SCALING,)] == 0.9


@pytest.mark.parametrize(
    "bad",
    [
        {"a": [0.0, "tokens", {"0": 1.0}]},
        {"a": [0.0, "tokens", {"8": float("nan")}]},
        {"a": [0.0, "steps", {"8": 1.0}]},
        {"a": [0.0]},
        {"a": None},
    ],
)
def test_what_is_no_curve_is_not_restored(bad):
    with pytest.raises((TypeError, ValueError)):
        Scaling().restore(bad)


def counter(metric, node, rate):
    times = np.array([100.0, 130.0, 160.0])
    return Series(node, metric.name, {}, times, rate * times)


def test_tokens_are_what_a_job_gets_done_and_samples_where_there_are_none():
    samples = [counter(training.JOB_SAMPLES, node, 10.0) for node in "ab"]
    found = throughput({training.JOB_SAMPLES.name: samples})
    assert found == Throughput("samples", pytest.approx(20.0), 100.0)
    both = {
        training.JOB_SAMPLES.name: samples,
        job_work.JOB_TOKENS.name: [counter(job_work.JOB_TOKENS, "a", 5e4)],
    }
    assert throughput(both) == Throughput("tokens", pytest.approx(5e4), 100.0)
    assert throughput({}) is None


def test_a_job_may_begin_on_a_single_gpu():
    scaling = Scaling()
    ran(scaling, 1, 100.0, 0.0)
    ran(scaling, 4, 90.0, DAY)
    assert series(scaling)[(metrics.JOB_SCALING,)] == 0.9
