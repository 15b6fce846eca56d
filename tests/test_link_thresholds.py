"""From how many events, and from which rates on, a link is worth a word: near misses and hits."""

import numpy as np
import pandas as pd
import pytest

from rankscope_analyzers.links.counters import analyze
from rankscope_analyzers.links.skew import skew

RATE = 50e9
TEN_MINUTES = 600.0


def frame(seconds=TEN_MINUTES, nodes=1, **odd):
    """Return ports of which nothing is wrong, read three times.

    Args:
        odd: columns of port mlx5_1 of node0: how much a counter grew until the second look, or
            (first, second, third) value.
    """
    rows = []
    for node in range(nodes):
        for gpu in range(8):
            for look in range(3):
                row = {
                    "t_unix_seconds": 1.7e9 + seconds * look / 2,
                    "node": f"node{node}",
                    "device": f"mlx5_{gpu}",
                    "port": "1",
                    "job_id": "team/job",
                    "rank": float(8 * node + gpu),
                    "gpu": f"GPU-{node}-{gpu}",
                    "model": "MT_0000000838",
                    "state": 4.0,
                    "rate_bytes_per_second": RATE,
                    "transmit_bytes": 1e9 * seconds * look,
                    "receive_bytes": 1e9 * seconds * look,
                }
                for column, value in odd.items():
                    values = value if isinstance(value, tuple) else (0.0, value, value)
                    mine = (node, gpu) == (0, 1)
                    row[column] = values[look] if mine else values[0]
                rows.append(row)
    return pd.DataFrame(rows)


def kinds(found):
    return [(one.kind, one.where.devices) for one in found]


@pytest.mark.parametrize(
    ("kind", "column", "seconds", "below", "above"),
    [
        ("retransmission", "out_of_sequence", TEN_MINUTES, 29, 31),
        ("retransmission", "out_of_sequence", 60.0, 9, 10),
        ("retransmission", "local_ack_timeout_err", TEN_MINUTES, 29, 31),
        ("retransmission", "local_ack_timeout_err", 60.0, 9, 10),
        ("congestion", "cnp_handled", TEN_MINUTES, 59_000, 61_000),
        ("congestion", "cnp_handled", 5.0, 990, 1010),
        ("congestion", "transmit_wait_ticks", TEN_MINUTES, 590e6, 610e6),
        ("congestion", "transmit_wait_ticks", 0.5, 990e3, 1010e3),
        ("congestion", "pfc_pause_seconds_receive", 1800.0, 17.5, 18.5),
        ("congestion", "pfc_pause_seconds_receive", 60.0, 0.59, 0.61),
        ("congestion", "pfc_pause_seconds_receive", 5.0, 0.09, 0.11),
        ("congestion", "pfc_pause_frames_receive", TEN_MINUTES, 59_000, 61_000),
        ("congestion", "pfc_pause_frames_receive", 5.0, 990, 1010),
        ("errors", "symbol_error", TEN_MINUTES, 9, 10),
        ("errors", "symbol_error", 7200.0, 19, 21),
    ],
)
def test_so_many_events_of_a_port_are_worth_a_word(kind, column, seconds, below, above):
    assert analyze(frame(seconds, **{column: below})) == ()
    assert kinds(analyze(frame(seconds, **{column: above}))) == [(kind, ("mlx5_1",))]


@pytest.mark.parametrize(
    ("column", "ceiling", "kind"),
    [
        ("link_downed", 255, "flapping"),
        ("link_recoveries", 255, "errors"),
        ("symbol_error", 65_535, "errors"),
        ("port_rcv_errors", 65_535, "errors"),
        ("port_xmit_discards", 65_535, "errors"),
        ("local_link_integrity_errors", 15, "errors"),
        ("excessive_buffer_overrun_errors", 15, "errors"),
        ("transmit_wait_ticks", 2**32 - 1, "congestion"),
    ],
)
def test_a_counter_that_stands_where_it_cannot_go_on_says_nothing(column, ceiling, kind):
    assert kinds(analyze(frame(**{column: ceiling - 1}))) == [(kind, ("mlx5_1",))]
    assert analyze(frame(**{column: ceiling})) == ()


@pytest.mark.parametrize(("part", "told"), [(0.985, True), (0.995, False)])
def test_rates_are_rounded_by_less_than_a_hundredth(part, told):
    slow = frame(rate_bytes_per_second=(RATE, part * RATE, part * RATE))
    assert kinds(analyze(slow)) == [("rate_below_maximum", ("mlx5_1",))] * told


@pytest.mark.parametrize(("flaps", "severity"), [(1, "ticket"), (2, "ticket"), (3, "page")])
def test_somebody_is_woken_by_the_third_loss_of_a_link(flaps, severity):
    (found,) = analyze(frame(link_flaps=flaps))
    assert (found.kind, found.severity) == ("flapping", severity)


@pytest.mark.parametrize(("state", "told"), [(3.0, True), (4.0, False), (5.0, False), (6.0, True)])
def test_a_port_that_is_active_is_not_down_though_it_has_errors(state, told):
    assert kinds(analyze(frame(state=(4.0, state, state)))) == [("link_down", ("mlx5_1",))] * told


@pytest.mark.parametrize(
    ("nodes", "many", "together"), [(4, 2, False), (4, 3, True), (8, 3, False), (8, 4, True)]
)
def test_an_adapter_that_stands_out_on_most_of_three_nodes_or_more_is_a_rail(nodes, many, together):
    ports = frame(nodes=nodes, cnp_handled=0.0)
    odd = ports["node"].isin([f"node{node}" for node in range(many)]) & (
        ports["device"] == "mlx5_6"
    )
    late = ports["t_unix_seconds"] > 1.7e9
    ports.loc[odd & late, "cnp_handled"] = 1e6
    found = [(one.kind, len(one.where.nodes)) for one in analyze(ports)]
    assert found == ([("asymmetric_rail", many)] if together else [("congestion", 1)] * many)


@pytest.mark.parametrize(("ports", "told"), [(2, False), (3, True)])
def test_it_takes_two_siblings_to_say_which_port_of_a_node_carries_too_little(ports, told):
    few = frame()
    few.loc[few["device"] == "mlx5_1", "transmit_bytes"] *= 0.5
    few = few[few["device"].isin([f"mlx5_{port}" for port in range(ports)])]
    assert kinds(analyze(few)) == [("asymmetric_rail", ("mlx5_1",))] * told


@pytest.mark.parametrize(
    ("low", "idle", "told"), [(4, 0, True), (4, 1, True), (3, 3, True), (3, 4, False)]
)
def test_a_rail_carries_too_little_when_half_of_its_ports_do(low, idle, told):
    ports = frame(nodes=max(low + idle, 5))
    node = ports["node"].str.removeprefix("node").astype(int)
    ports.loc[(node < low) & (ports["device"] == "mlx5_1"), "transmit_bytes"] *= 0.5
    ports.loc[(node >= low) & (node < low + idle), "transmit_bytes"] = 0.0
    found = [(one.kind, len(one.where.nodes)) for one in analyze(ports)]
    assert found == [("asymmetric_rail", low)] * told


@pytest.mark.parametrize(("events", "out"), [(39_000, False), (41_000, True)])
def test_however_few_its_peers_a_port_with_twenty_times_their_trouble_stands_out(events, out):
    found = skew(np.array([events, 2000.0, 2000.0]), np.full(3, 1e12), np.zeros(3, int), np.ones(3))
    assert found.outlier.tolist() == [out, False, False]
