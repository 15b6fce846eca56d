"""Ports that stand out from their peers, named; healthy jobs, however noisy, left alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from link_frames import NOISE, PERIOD, START, STORAGE, Cluster, named_ports
from rankscope_analyzers.links.counters import analyze

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [1, 2, 4, 16])
def test_healthy_ports_are_left_alone(nodes, seed):
    assert analyze(Cluster(nodes, seed).frame) == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fabric_that_is_busy_everywhere_makes_nobody_an_outlier(seed):
    cluster = Cluster(4, seed)
    for column in ("cnp_handled", "cnp_sent", "ecn_marked", "transmit_wait_ticks"):
        cluster.add(cluster.rows(), column, 50 * NOISE[column])
    assert analyze(cluster.frame) == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [1, 2, 8])
@pytest.mark.parametrize(
    ("kind", "column", "rate"),
    [
        ("retransmission", "out_of_sequence", 2.0),
        ("retransmission", "local_ack_timeout_err", 1.0),
        ("congestion", "cnp_handled", 5000.0),
        ("congestion", "transmit_wait_ticks", 9e6),
        ("congestion", "pfc_pause_seconds_receive", 0.2),
        ("errors", "symbol_error", 1.0),
        ("errors", "port_rcv_errors", 0.5),
    ],
)
def test_one_port_that_stands_out_is_named_and_nobody_else(kind, column, rate, nodes, seed):
    cluster = Cluster(nodes, seed)
    cluster.add(cluster.rows("node0", "mlx5_3"), column, rate)
    (found,) = analyze(cluster.frame)
    assert (found.kind, found.where.nodes, found.where.devices[0]) == (kind, ("node0",), "mlx5_3")
    assert "mlx5_3 port 1 of node node0" in found.summary
    assert found.where.gpus == ("GPU-0-3",)
    assert found.where.ranks == (3,)
    assert found.job_id == "team/job"
    assert column in {name for e in found.evidence for name in e.source.split("+")}
    assert found.evidence[0].observed > 3 * found.evidence[0].expected


def test_the_sentence_says_who_what_and_beside_what():
    cluster = Cluster(4, 1)
    cluster.add(cluster.rows("node2", "mlx5_5"), "out_of_sequence", 3.0)
    (found,) = analyze(cluster.frame)
    assert found.summary.startswith("mlx5_5 port 1 of node node2 (GPU GPU-2-5, rank 21) has ")
    assert "lost and repeated packets" in found.summary
    assert " in 600 s)" in found.summary


def test_a_fault_that_begins_later_has_its_own_begin():
    cluster = Cluster(4, 2)
    cluster.add(cluster.rows("node1", "mlx5_0"), "out_of_sequence", 5.0, since=300.0)
    (found,) = analyze(cluster.frame)
    assert found.since_unix_seconds == pytest.approx(START + 300, abs=2 * PERIOD)


def test_a_storage_port_is_compared_with_its_like_only():
    cluster = Cluster(4, 3)
    cluster.add(cluster.rows("node1", STORAGE), "out_of_sequence", 2.0)
    (found,) = analyze(cluster.frame)
    assert (found.where.devices[0], found.where.gpus) == (STORAGE, ())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_congested_as_a_whole_is_named_port_by_port(seed):
    cluster = Cluster(8, seed)
    cluster.add(cluster.rows("node4"), "pfc_pause_seconds_receive", 0.3)
    found = analyze(cluster.frame)
    assert {f.where.nodes for f in found} == {("node4",)}
    assert {f.where.devices[0] for f in found} >= {f"mlx5_{index}" for index in range(8)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rail_whose_switch_is_congested_is_one_finding(seed):
    cluster = Cluster(8, seed)
    cluster.add(cluster.rows(device="mlx5_6"), "cnp_handled", 4000.0)
    (found,) = analyze(cluster.frame)
    assert (found.kind, found.where.devices[0], len(found.where.nodes)) == (
        "asymmetric_rail",
        "mlx5_6",
        8,
    )
    assert found.summary.startswith("rail mlx5_6 (8 nodes; ranks 6, 14, 22, 30, 38, 46, 54, 62) ")


def test_a_rail_whose_drivers_count_different_things_is_described_by_what_most_of_them_count():
    cluster = Cluster(8, 3)
    packets, ticks = ["cnp_handled", "cnp_sent", "ecn_marked"], ["transmit_wait_ticks"]
    for node in range(8):
        rows = cluster.rows(f"node{node}", "mlx5_6")
        shown, rate, absent = (packets, 4e3, ticks) if node < 3 else (ticks, 9e6, packets)
        cluster.add(rows, shown[0], rate)
        cluster.frame.loc[cluster.rows(f"node{node}"), absent] = np.nan
    (found,) = analyze(cluster.frame)
    assert (found.kind, len(found.where.nodes)) == ("asymmetric_rail", 8)
    assert "ticks without credit to send" in found.summary
    assert "nan" not in found.summary
    names = {one.source: one.observed / one.expected for one in found.evidence}
    assert names["transmit_wait_ticks"] > 4
    assert names["cnp_handled+cnp_sent+ecn_marked"] > 4
    assert found.since_unix_seconds == START


def test_a_port_that_carries_less_than_its_siblings_is_an_asymmetric_rail():
    cluster = Cluster(4, 4)
    cluster.scale(cluster.rows("node3", "mlx5_2"), 0.4)
    (found,) = analyze(cluster.frame)
    assert named_ports([found]) == [("asymmetric_rail", ("node3",), "mlx5_2")]
    assert found.evidence[0].observed / found.evidence[0].expected == pytest.approx(0.4, abs=0.05)


def test_a_rail_that_carries_less_on_every_node_is_one_finding():
    cluster = Cluster(4, 5)
    cluster.scale(cluster.rows(device="mlx5_2"), 0.4)
    (found,) = analyze(cluster.frame)
    assert found.where.nodes == ("node0", "node1", "node2", "node3")


def test_a_storage_port_that_carries_little_is_no_rail():
    cluster = Cluster(4, 6)
    cluster.scale(cluster.rows(device=STORAGE), 0.1)
    assert analyze(cluster.frame) == ()


def test_ports_of_gpus_that_the_job_does_not_use_are_no_rails():
    cluster = Cluster(4, 6)
    for index in range(4, 8):
        rows = cluster.rows(device=f"mlx5_{index}")
        cluster.scale(rows, 0.01)
        cluster.frame.loc[rows, "rank"] = np.nan
    assert analyze(cluster.frame) == ()


def test_ports_of_a_job_that_stands_still_have_no_shares():
    cluster = Cluster(2, 7)
    cluster.scale(cluster.rows(), 1e-4)
    cluster.scale(cluster.rows("node0", "mlx5_1"), 0.0)
    assert analyze(cluster.frame) == ()


def test_jobs_are_not_each_others_peers():
    quiet, busy = Cluster(4, 22), Cluster(4, 23)
    for column in ("cnp_handled", "ecn_marked", "cnp_sent"):
        busy.add(busy.rows(), column, 100 * NOISE[column])
    busy.frame["job_id"] = "team/other"
    busy.frame["node"] = "other-" + busy.frame["node"]
    assert analyze(pd.concat([quiet.frame, busy.frame])) == ()
