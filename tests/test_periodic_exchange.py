"""Jobs that exchange in every n-th step only, as local SGD and DiLoCo do."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed
from rankscope_analyzers.stragglers.periodic_exchange import PeriodicExchanges
from simulated_jobs import START_UNIX_SECONDS, findings


def local_sgd(every, slow=None, factor=1.5, kind="compute", steps=400, ranks=4, exchange=0.02):
    """Return the records of ranks that wait for each other in every n-th of their steps only."""
    random, now, rows = np.random.default_rng(every), np.zeros(ranks), []
    for step in range(steps):
        parts = {"compute": np.full(ranks, 0.2), "data": np.full(ranks, 0.02)}
        parts["compute"] *= 1 + 0.01 * np.abs(random.standard_normal(ranks))
        if slow is not None:
            parts[kind][slow] += 0.2 * (factor - 1)
        began, now = now, now + parts["compute"] + parts["data"] + 0.002
        sync = np.zeros(ranks)
        if step % every == every - 1:
            sync = now.max() + exchange - now
            now = now + sync
        rows += [
            {
                "step": step,
                "rank": rank,
                "node": "n1",
                "gpu": rank,
                "t_start_unix_seconds": START_UNIX_SECONDS + began[rank],
                "step_seconds": now[rank] - began[rank],
                "data_seconds": parts["data"][rank],
                "compute_seconds": parts["compute"][rank],
                "sync_seconds": sync[rank],
                "other_seconds": 0.002,
                "timing_source": "wall",
            }
            for rank in range(ranks)
        ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("every", [5, 10, 32, 60])
@pytest.mark.parametrize(("kind", "named"), [("compute", "gpu_compute"), ("data", "data_loader")])
def test_the_slow_rank_is_named_though_others_wait_for_it_in_few_steps(every, kind, named):
    (found,) = findings(local_sgd(every, slow=2, kind=kind))
    assert (found.kind, found.where.ranks) == (named, (2,))


@pytest.mark.parametrize("every", [5, 10, 60])
def test_nobody_is_named_if_all_are_alike(every):
    assert findings(local_sgd(every)) == []


def test_nobody_is_named_if_none_waits():
    assert findings(local_sgd(every=1000, slow=2)) == []


def test_exchanges_that_take_long_are_no_pauses_once_they_are_known_to_be_periodic():
    rows = local_sgd(every=40, exchange=8.0)
    fourth = rows.loc[rows["step"] == 150, "t_start_unix_seconds"].max()
    frozen = feed.detect_latest(FrameTable(rows), Layout(4, 1, 1, 0, wall=True)).incidents
    assert [one.kind for one in frozen] == ["host_transient"] * len(frozen)
    assert frozen
    assert max(one.since for one in frozen) < fourth


def test_an_exchange_that_does_not_come_again_says_nothing_of_waits():
    known = PeriodicExchanges()
    waits = np.array([[[4.0], [0.0]]])
    assert [known.add(counter, waits) for counter in (10, 20, 30, 40)] == [
        False,
        False,
        False,
        True,
    ]
    assert known.waits_per_step(60).tolist() == [[[0.4], [0.0]]]
    assert known.waits_per_step(61) is None
    assert not known.add(47, waits)
    assert known.waits_per_step(47) is None
