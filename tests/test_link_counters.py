"""Links that stand out from their peers, named; healthy jobs, however noisy, left alone."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from link_frames import NOISE, PERIOD, RATE, SAMPLES, START, STORAGE, Cluster
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_analyzers.links import frame
from rankscope_analyzers.links.counters import analyze
from rankscope_analyzers.links.frame import LinkFrameError, column_of, read_ports
from rankscope_analyzers.links.quantities import FLAPS, QUANTITIES

SEEDS = range(2)


def named(findings):
    return [(f.kind, f.where.nodes, f.where.devices[0]) for f in findings]


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
    assert named(others) == [("asymmetric_rail", ("node2",), "mlx5_5")], "which carries nothing now"
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


def test_a_port_that_carries_less_than_its_siblings_is_an_asymmetric_rail():
    cluster = Cluster(4, 4)
    cluster.scale(cluster.rows("node3", "mlx5_2"), 0.4)
    (found,) = analyze(cluster.frame)
    assert named([found]) == [("asymmetric_rail", ("node3",), "mlx5_2")]
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
    assert named(analyze(cluster.frame)) == [("flapping", ("node0",), "mlx5_0")]


def test_a_link_that_goes_down_is_named_with_its_time():
    cluster = Cluster(4, 11)
    cluster.set(cluster.rows("node1", "mlx5_4"), "state", 1.0, since=450.0)
    (found,) = analyze(cluster.frame)
    assert (found.kind, found.severity, found.where.ranks) == ("link_down", "page", (12,))
    assert found.since_unix_seconds == pytest.approx(START + 450, abs=PERIOD)


def test_a_link_that_was_never_up_is_named_if_its_like_are_up():
    cluster = Cluster(4, 12)
    cluster.set(cluster.rows("node1", "mlx5_4"), "state", 1.0)
    assert named(analyze(cluster.frame)) == [("link_down", ("node1",), "mlx5_4")]


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
    assert named(analyze(cluster.frame)) == [("rate_below_maximum", ("node0",), "mlx5_7")]


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
    assert named(analyze(frame)) == [("rate_below_maximum", ("node0",), "mlx5_7")]


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
    assert named(analyze(frame)) == [("rate_below_maximum", ("node0",), "mlx5_0")]


def test_a_pci_link_with_half_its_lanes_is_named_unless_all_are_so():
    cluster = Cluster(4, 18)
    cluster.set(cluster.rows("node3", "mlx5_1"), "pci_link_ratio", 0.5)
    assert named(analyze(cluster.frame)) == [("pci_link_degraded", ("node3",), "mlx5_1")]
    cluster.set(cluster.rows(), "pci_link_ratio", 0.5)
    assert analyze(cluster.frame) == ()


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
    assert named(analyze(cluster.frame)) == [("retransmission", ("node0",), "mlx5_0")]


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


def test_jobs_are_not_each_others_peers():
    quiet, busy = Cluster(4, 22), Cluster(4, 23)
    for column in ("cnp_handled", "ecn_marked", "cnp_sent"):
        busy.add(busy.rows(), column, 100 * NOISE[column])
    busy.frame["job_id"] = "team/other"
    busy.frame["node"] = "other-" + busy.frame["node"]
    assert analyze(pd.concat([quiet.frame, busy.frame])) == ()


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
    assert named([found]) == [("retransmission", ("node0",), "mlx5_3")]
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


def test_a_port_without_peers_is_compared_with_none():
    cluster = Cluster(1)
    alone = cluster.frame[cluster.rows(device=STORAGE)].copy()
    later = alone["t_unix_seconds"] > START + 100
    alone.loc[later, "link_flaps"] = 2.0
    alone.loc[later, "pci_link_ratio"] = 0.5
    summaries = {one.kind: one.summary for one in analyze(alone)}
    assert summaries["flapping"].endswith("lost its link 2 times")
    assert summaries["pci_link_degraded"].endswith("has a PCI link of 50% of its bandwidth")
