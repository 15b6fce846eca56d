"""Frames of port counters with holes, resets and odd values: what is read, and how often."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from link_frames import NOISE, PERIOD, SAMPLES, START, Cluster, named_ports
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_analyzers.links import frame
from rankscope_analyzers.links.counters import analyze
from rankscope_analyzers.links.frame import LinkFrameError, column_of, read_ports
from rankscope_analyzers.links.quantities import FLAPS, QUANTITIES


def test_a_reset_counter_is_no_flood_of_events():
    cluster = Cluster(4, 19)
    rows = cluster.rows("node0", "mlx5_0")
    late = rows & (cluster.frame["t_unix_seconds"] > START + 300)
    for column in NOISE:
        cluster.frame.loc[late, column] -= cluster.frame.loc[late, column].min()
    assert analyze(cluster.frame) == ()


def test_values_that_are_no_counts_are_not_known_and_cost_nothing_else():
    cluster = Cluster(4, 20)
    frame = cluster.frame.astype({"symbol_error": object})
    rows = cluster.rows("node1", "mlx5_1")
    frame.loc[rows, "symbol_error"] = "N/A (no PMA)"
    frame.loc[cluster.rows("node1", "mlx5_2"), "cnp_handled"] = -1
    frame.loc[cluster.rows("node1", "mlx5_3"), "cnp_sent"] = math.inf
    frame.loc[frame.index[5], "t_unix_seconds"] = np.nan
    frame = pd.concat([frame, frame.iloc[:20]])  # repeated rows
    assert analyze(frame) == ()
    cluster.frame = frame
    cluster.add(cluster.rows("node0", "mlx5_0"), "packet_seq_err", 4.0)
    assert named_ports(analyze(cluster.frame)) == [("retransmission", ("node0",), "mlx5_0")]


def test_a_port_with_one_sample_or_without_peers_is_not_judged():
    cluster = Cluster(2, 21)
    alone = cluster.frame[cluster.rows("node0", "mlx5_0")].copy()
    alone["out_of_sequence"] *= 1000
    assert analyze(alone) == ()
    assert analyze(cluster.frame[cluster.frame["t_unix_seconds"] == START]) == ()
    assert analyze(cluster.frame.iloc[:0]) == ()


def test_a_missing_column_is_named():
    with pytest.raises(LinkFrameError, match=r"\['device'\]"):
        analyze(Cluster(1).frame.drop(columns="device"))


def test_without_names_of_ranks_gpus_or_jobs_ports_are_still_compared():
    cluster = Cluster(4, 24)
    cluster.add(cluster.rows("node0", "mlx5_3"), "out_of_sequence", 3.0)
    bare = cluster.frame.drop(columns=["job_id", "rank", "gpu"])
    (found,) = analyze(bare)
    assert found.where.ranks == ()
    assert found.summary.startswith("mlx5_3 port 1 of node node0 has ")


def test_a_port_of_several_ranks_names_them_all():
    cluster = Cluster(4, 25)
    cluster.add(cluster.rows("node0", "mlx5_3"), "out_of_sequence", 3.0)
    second = cluster.frame[cluster.rows("node0", "mlx5_3")].copy()
    second["rank"] = 99.0
    (found,) = analyze(pd.concat([cluster.frame, second]))
    assert found.where.ranks == (3, 99)


def test_counters_read_at_different_times_are_added_all_the_same():
    cluster = Cluster(2, 27)
    rows = cluster.rows("node0", "mlx5_3")
    times = cluster.frame["t_unix_seconds"]
    for column, last in (
        ("out_of_sequence", None),
        ("packet_seq_err", -1),
        ("roce_adp_retrans", -2),
    ):
        if column not in cluster.frame:
            cluster.frame[column] = 0.0
        cluster.add(rows, column, 200.0)
        if last is not None:
            inner = (times > START) & (times != cluster.times[last])
            cluster.frame.loc[rows & inner, column] = np.nan
    (found,) = analyze(cluster.frame)
    assert named_ports([found]) == [("retransmission", ("node0",), "mlx5_3")]
    assert found.since_unix_seconds == START


@pytest.mark.parametrize("seed", range(10))
def test_holes_odd_values_and_missing_columns_cost_what_they_hide_only(seed):
    random = np.random.default_rng(seed)
    cluster = Cluster(2, seed, burst=float(random.random()))
    frame = cluster.frame
    counters = [*NOISE, "transmit_bytes", "state", "rate_bytes_per_second", "link_flaps"]
    for column in counters:
        frame[column] = frame[column].astype(float)
        frame.loc[random.random(len(frame)) < random.uniform(0, 0.5), column] = np.nan
        odd = random.choice([-1, math.inf, 2.0**64, 255])
        frame.loc[random.random(len(frame)) < random.choice([0, 0.05]), column] = odd
    dropped = random.choice(counters, 3, replace=False)
    for found in analyze(frame.drop(columns=list(dropped))):
        assert math.isfinite(found.since_unix_seconds)
        assert "nan" not in found.summary
        assert not set(dropped) & {name for e in found.evidence for name in e.source.split("+")}


def test_the_order_of_rows_does_not_matter():
    cluster = Cluster(4, 26)
    cluster.add(cluster.rows("node0", "mlx5_3"), "out_of_sequence", 3.0)
    shuffled = cluster.frame.sample(frac=1, random_state=1)
    assert analyze(shuffled) == analyze(cluster.frame)


def test_increases_are_added_over_resets():
    frame = pd.DataFrame(
        {
            "t_unix_seconds": range(5),
            "node": "a",
            "device": "d",
            "port": 1,
            "x": [10, 15, np.nan, 2, 4],
        }
    )
    assert read_ports(frame).increase("x").tolist() == [5 + 2 + 2]


def test_series_of_the_agent_become_the_columns_that_are_read():
    reachable = set()
    labels = {"type", "event", "direction"}
    values = {
        "type": {c for q in QUANTITIES for c in q.columns},
        "event": {c for q in QUANTITIES for c in q.columns},
        "direction": {"receive", "transmit", "down"},
    }
    for metric in CATALOGUE:
        choices = [name for name in metric.labels if name in labels] or [""]
        for name in choices:
            for value in values.get(name, {""}):
                reachable.add(column_of(metric.name, {name: value}))
    assert {c for q in QUANTITIES for c in q.columns} | set(FLAPS) <= reachable
    assert column_of("rankscope_steps_total", {}) is None


def test_the_frames_of_these_tests_are_long_enough_to_judge():
    assert (SAMPLES - 1) * PERIOD == 600


def test_however_many_ports_stand_out_a_counter_is_gone_through_once(monkeypatch):
    """A leaf switch that restarts takes the links of an eighth of a job at once."""
    cluster = Cluster(16)
    for node in ("node3", "node7"):
        cluster.add(cluster.rows(node), "link_flaps", 0.05, since=60)
        cluster.add(cluster.rows(node), "out_of_sequence", 5.0)
        cluster.set(cluster.rows(node, "mlx5_5"), "state", 1.0, since=300)
    looked_up = Counter()

    class Ceilings(dict):
        def get(self, column, default):
            looked_up[column] += 1
            return super().get(column, default)

    monkeypatch.setattr(frame, "CEILINGS", Ceilings(frame.CEILINGS))
    found = analyze(cluster.frame)
    assert {one.kind for one in found} == {"flapping", "retransmission", "link_down"}
    assert len(found) > 20
    assert set(looked_up.values()) == {1}
