"""From how many events on a port stands out from its peers: tables of just below and just above."""

import numpy as np
import pytest

from link_frames import TRAFFIC, Cluster
from rankscope_analyzers.links.counters import analyze
from rankscope_analyzers.links.skew import skew

BYTES = 1e12


def stands_out(events, peers, least=1.0, spread=0.0):
    """Return True if a port is an outlier among peers of which each has about so many events."""
    usual = np.full(len(peers) + 1, 0.0)
    usual[0], usual[1:] = events, peers
    found = skew(
        usual, np.full(len(usual), BYTES), np.zeros(len(usual), int), np.full(len(usual), least)
    )
    assert not found.outlier[1:].any()
    return bool(found.outlier[0])


@pytest.mark.parametrize(
    ("ports", "below", "above"), [(4, 19.5, 20.5), (8, 9.3, 9.7), (64, 4.8, 5.1)]
)
def test_the_fewer_peers_the_larger_is_the_factor_it_takes(ports, below, above):
    peers = [1000.0] * (ports - 1)
    assert not stands_out(below * 1000, peers)
    assert stands_out(above * 1000, peers)


@pytest.mark.parametrize(("events", "out"), [(5, False), (6, True)])
def test_six_events_where_peers_have_none_are_no_chance(events, out):
    assert stands_out(events, [0.0] * 7) is out


@pytest.mark.parametrize(("events", "out"), [(9, False), (10, True)])
def test_fewer_events_than_the_least_are_not_judged(events, out):
    assert stands_out(events, [0.0] * 7, least=10) is out


def test_peers_that_differ_among_themselves_make_nobody_an_outlier():
    unlike = [300.0, 1000.0, 3000.0] * 5
    assert stands_out(7_000, [1000.0] * 15)
    assert not stands_out(7_000, unlike)
    assert stands_out(60_000, unlike)


def test_a_port_is_compared_over_the_bytes_that_it_carried():
    events, exposure = np.array([8000.0, *[1000.0] * 15]), np.full(16, BYTES)
    groups, least = np.zeros(16, int), np.ones(16)
    assert skew(events, exposure, groups, least).outlier[0]
    exposure[0] = 8 * BYTES
    found = skew(events, exposure, groups, least)
    assert not found.outlier.any()
    assert found.expected[0] == pytest.approx(8000)


def test_events_come_one_by_one_unless_it_is_said_otherwise():
    events, exposure = np.array([20.0, *[3.0] * 15]), np.full(16, BYTES)
    groups, least = np.zeros(16, int), np.ones(16)
    assert skew(events, exposure, groups, least).outlier[0]
    assert not skew(events, exposure, groups, least, grain=2.0).outlier.any()


def test_ports_without_peers_are_never_outliers():
    events, exposure = np.array([1e9, 1.0, 2.0]), np.full(3, BYTES)
    assert not skew(events, exposure, np.array([-1, -1, 0]), np.ones(3)).outlier.any()


def rails(nodes, *low, share=0.5, traffic=TRAFFIC, gpus=8):
    """Return whose traffic is called too little where these ports carry a share of it."""
    frame = Cluster(nodes, seed=3).frame
    frame = frame[~(frame["rank"] % 8 >= gpus)].reset_index(drop=True)
    sent = frame["transmit_bytes"].astype(float)
    for (node, device), rows in frame.groupby(["node", "device"]).groups.items():
        part = traffic / TRAFFIC * (share if (node, device) in low else 1.0)
        sent[rows] = sent[rows[0]] + part * (sent[rows] - sent[rows[0]])
    found = analyze(frame.assign(transmit_bytes=sent))
    return [(f.where.nodes, *f.where.devices) for f in found if f.kind == "asymmetric_rail"]


@pytest.mark.parametrize(
    ("share", "named"), [(0.6, True), (0.64, True), (0.78, False), (0.9, False)]
)
def test_a_rail_with_less_than_seven_tenths_of_its_siblings_traffic_is_asymmetric(share, named):
    found = rails(2, ("node0", "mlx5_2"), share=share)
    assert found == [(("node0",), "mlx5_2")] * named


@pytest.mark.parametrize(("gpus", "named"), [(2, False), (3, True)])
def test_it_takes_two_siblings_to_say_which_rail_is_odd(gpus, named):
    assert bool(rails(2, ("node0", "mlx5_1"), gpus=gpus)) is named


@pytest.mark.parametrize(("traffic", "named"), [(40e6, False), (60e6, True)])
def test_rails_that_no_job_uses_are_not_compared(traffic, named):
    assert bool(rails(2, ("node0", "mlx5_2"), traffic=traffic)) is named


@pytest.mark.parametrize(("low", "together"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_rail_that_is_low_on_most_nodes_is_one_finding(low, together):
    nodes = tuple(f"node{node}" for node in range(low))
    found = rails(4, *((node, "mlx5_2") for node in nodes))
    assert found == [(nodes, "mlx5_2")] if together else [((node,), "mlx5_2") for node in nodes]
