"""Links that are gone, down, flap or run below their rate are named, and no others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from link_frames import PERIOD, RATE, START, STORAGE, Cluster, named_ports
from rankscope_analyzers.links.counters import analyze


def vanished(cluster: Cluster, rows: pd.Series, since: float) -> None:
    """Let a device go: nothing is read of it any more, but that it is lost."""
    late = rows & (cluster.frame["t_unix_seconds"] >= START + since)
    counted = [
        c for c in cluster.frame.select_dtypes("number") if c not in {"t_unix_seconds", "rank"}
    ]
    cluster.frame.loc[late, counted] = np.nan
    cluster.frame["lost"] = np.where(late, 1.0, np.nan)


def test_a_device_that_is_gone_is_a_link_that_is_down():
    cluster = Cluster(4, 1)
    vanished(cluster, cluster.rows("node2", "mlx5_5"), 300.0)
    found, *others = analyze(cluster.frame)
    assert named_ports(others) == [("asymmetric_rail", ("node2",), "mlx5_5")], (
        "which carries nothing now"
    )
    assert (found.kind, found.severity, found.where.nodes) == ("link_down", "page", ("node2",))
    assert found.summary.startswith("mlx5_5 port 1 of node node2 (GPU GPU-2-5, rank 21) is gone: ")
    assert found.since_unix_seconds == pytest.approx(START + 300, abs=PERIOD)


def test_a_device_that_was_gone_and_is_back_is_not_down():
    cluster = Cluster(4, 1)
    rows = cluster.rows("node2", "mlx5_5")
    cluster.frame["lost"] = np.nan
    early = rows & (cluster.frame["t_unix_seconds"] < START + 60)
    cluster.frame.loc[early, "lost"] = 1.0
    cluster.frame.loc[early, "state"] = np.nan
    assert analyze(cluster.frame) == ()


def test_a_flapping_link_is_named_and_pages_where_ranks_stand_on_it():
    cluster = Cluster(4, 8)
    cluster.set(cluster.rows("node0", "mlx5_0"), "link_flaps", 3.0, since=200.0)
    (found,) = analyze(cluster.frame)
    assert (found.kind, found.severity) == ("flapping", "page")
    assert found.since_unix_seconds == pytest.approx(START + 200, abs=PERIOD)
    assert "lost its link 3 times" in found.summary


@pytest.mark.parametrize("column", ["link_flaps", "link_downed", "carrier_down"])
def test_a_port_flaps_by_whichever_counter_it_has(column):
    cluster = Cluster(4, 8)
    cluster.frame = cluster.frame.drop(columns=["link_flaps", "link_downed"])
    cluster.frame[column] = 3.0
    cluster.set(cluster.rows("node0", "mlx5_0"), column, 5.0, since=200.0)
    (found,) = analyze(cluster.frame)
    assert (found.kind, "2 times" in found.summary) == ("flapping", True)


def test_flaps_that_all_ports_share_are_a_switchs():
    cluster = Cluster(4, 9)
    cluster.set(cluster.rows(), "link_flaps", 1.0, since=200.0)
    assert analyze(cluster.frame) == ()


def test_a_counter_at_its_ceiling_is_unknown_and_flaps_are_seen_all_the_same():
    cluster = Cluster(4, 10)
    port = cluster.rows("node0", "mlx5_0")
    cluster.set(port, "link_downed", 255.0)
    cluster.set(port, "link_flaps", 1.0, since=100.0)
    assert named_ports(analyze(cluster.frame)) == [("flapping", ("node0",), "mlx5_0")]


def test_a_link_that_goes_down_is_named_with_its_time():
    cluster = Cluster(4, 11)
    cluster.set(cluster.rows("node1", "mlx5_4"), "state", 1.0, since=450.0)
    (found,) = analyze(cluster.frame)
    assert (found.kind, found.severity, found.where.ranks) == ("link_down", "page", (12,))
    assert found.since_unix_seconds == pytest.approx(START + 450, abs=PERIOD)


def test_a_link_that_was_never_up_is_named_if_its_like_are_up():
    cluster = Cluster(4, 12)
    cluster.set(cluster.rows("node1", "mlx5_4"), "state", 1.0)
    assert named_ports(analyze(cluster.frame)) == [("link_down", ("node1",), "mlx5_4")]


def test_ports_that_no_node_uses_are_no_faults():
    cluster = Cluster(4, 13)
    cluster.set(cluster.rows(device=STORAGE), "state", 1.0)
    assert analyze(cluster.frame) == ()


def test_a_link_at_half_its_rate_is_named_with_both_rates():
    cluster = Cluster(4, 14)
    cluster.set(cluster.rows("node2", "mlx5_7"), "rate_bytes_per_second", RATE / 2, since=300.0)
    (found,) = analyze(cluster.frame)
    assert found.kind == "rate_below_maximum"
    assert "runs at 200 of 400 Gb/s" in found.summary
    assert found.since_unix_seconds == pytest.approx(START + 300, abs=PERIOD)


def test_a_link_that_was_slow_from_the_start_is_known_by_its_like():
    cluster = Cluster(1, 15)
    cluster.set(cluster.rows("node0", "mlx5_7"), "rate_bytes_per_second", RATE / 2)
    assert named_ports(analyze(cluster.frame)) == [("rate_below_maximum", ("node0",), "mlx5_7")]


def test_the_best_of_a_model_says_what_the_others_could_do():
    cluster = Cluster(2, 15)
    for index in range(6):
        cluster.set(cluster.rows(device=f"mlx5_{index}"), "rate_bytes_per_second", RATE / 2)
    found = analyze(cluster.frame)
    assert {f.kind for f in found} == {"rate_below_maximum"}
    assert len(found) == 12


def test_without_a_model_most_ports_of_one_name_say_it():
    cluster = Cluster(4, 15)
    cluster.set(cluster.rows("node0", "mlx5_7"), "rate_bytes_per_second", RATE / 2)
    frame = cluster.frame.drop(columns="model")
    assert named_ports(analyze(frame)) == [("rate_below_maximum", ("node0",), "mlx5_7")]


def test_the_rate_of_a_port_that_is_down_says_nothing():
    cluster = Cluster(4, 15)
    for column, value in (("state", 1.0), ("rate_bytes_per_second", 1.25e9)):
        cluster.set(cluster.rows(device="mlx5_7"), column, value)
    assert analyze(cluster.frame) == ()


def test_a_model_of_another_rate_is_not_slow():
    assert analyze(Cluster(1, 16).frame) == ()  # the storage adapter has half the rate


def test_what_a_port_says_that_it_can_do_counts_without_peers():
    cluster = Cluster(1, 17)
    frame = cluster.frame[cluster.rows("node0", "mlx5_0")].copy()
    frame["max_rate_bytes_per_second"] = 2 * RATE
    assert named_ports(analyze(frame)) == [("rate_below_maximum", ("node0",), "mlx5_0")]


def test_a_pci_link_with_half_its_lanes_is_named_unless_all_are_so():
    cluster = Cluster(4, 18)
    cluster.set(cluster.rows("node3", "mlx5_1"), "pci_link_ratio", 0.5)
    assert named_ports(analyze(cluster.frame)) == [("pci_link_degraded", ("node3",), "mlx5_1")]
    cluster.set(cluster.rows(), "pci_link_ratio", 0.5)
    assert analyze(cluster.frame) == ()


def test_a_port_without_peers_is_compared_with_none():
    cluster = Cluster(1)
    alone = cluster.frame[cluster.rows(device=STORAGE)].copy()
    later = alone["t_unix_seconds"] > START + 100
    alone.loc[later, "link_flaps"] = 2.0
    alone.loc[later, "pci_link_ratio"] = 0.5
    summaries = {one.kind: one.summary for one in analyze(alone)}
    assert summaries["flapping"].endswith("lost its link 2 times")
    assert summaries["pci_link_degraded"].endswith("has a PCI link of 50% of its bandwidth")
