"""`rankscope fabric-check`: who is slow among equals, and a real slow link between four ranks."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import fabric_links
from benchmarks.running_jobs.launch import ForkServer

from installed import skip_without
from rankscope_analyzers import cli
from rankscope_analyzers.commands.fabric_check import size_bytes
from rankscope_analyzers.fabric import report
from rankscope_analyzers.fabric.judge import Fault, faults, settled
from rankscope_analyzers.fabric.measured import DeviceSpeed, Measured, Reduction

GBIT = 1e9 / 8


def measured(ranks=4, rates=None, trips=None, devices=None, reductions=()):
    """Return what equal ranks measure, with some of it changed."""
    links = list(itertools.permutations(range(ranks), 2))
    return Measured(
        hosts=[f"n{rank}" for rank in range(ranks)],
        backend="gloo",
        reductions=reductions,
        rates=dict.fromkeys(links, GBIT) | (rates or {}),
        round_trips=dict.fromkeys(links, 1e-4) | (trips or {}),
        devices=devices or {},
    )


def sends(rank, rate, ranks=4):
    return {(rank, other): rate for other in range(ranks) if other != rank}


def receives(rank, rate, ranks=4):
    return {(other, rank): rate for other in range(ranks) if other != rank}


def echoing(seconds):
    """Return four ranks with slow echoes, of which those of rank 3 take so long."""
    links = itertools.permutations(range(4), 2)
    return measured(trips={link: seconds if 3 in link else 0.02 for link in links})


BUSY = {
    link: megabits * 1e6 / 8
    for link, megabits in {
        (0, 1): 328, (0, 2): 933, (0, 3): 739, (1, 0): 189, (1, 2): 686, (1, 3): 934,
        (2, 0): 190, (2, 1): 851, (2, 3): 469, (3, 0): 191, (3, 1): 659, (3, 2): 709,
    }.items()
}  # fmt: skip
"""What four ranks measured on a machine that was busy with other things; rank 0 received slowly."""


def kinds(found):
    return [(fault.kind, fault.ranks) for fault in faults(found)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (measured(), []),
        (measured(rates=sends(2, 0.49 * GBIT)), [("sends", (2,))]),
        (measured(rates=sends(2, 0.51 * GBIT)), []),
        (measured(rates=receives(1, 0.2 * GBIT)), [("receives", (1,))]),
        (
            measured(rates=sends(0, 0.2 * GBIT) | receives(0, 0.2 * GBIT)),
            [("sends", (0,)), ("receives", (0,))],
        ),
        (measured(rates={(3, 1): 0.3 * GBIT}), [("link", (3, 1))]),
        (measured(trips=dict.fromkeys([*sends(3, 0), *receives(3, 0)], 0.01)),
         [("echo", (3,))]),
        (measured(trips=dict.fromkeys([*sends(3, 0), *receives(3, 0)], 0.0049)), []),
        (measured(ranks=8, rates=sends(2, 0.1 * GBIT, 8) | sends(5, 0.3 * GBIT, 8)),
         [("sends", (2,)), ("sends", (5,))]),
        (measured(rates={(3, 1): 0.45 * GBIT, (0, 1): 0.6 * GBIT, (1, 2): 0.65 * GBIT}), []),
        (measured(rates={(3, 1): 0.35 * GBIT, (0, 1): 0.6 * GBIT, (1, 2): 0.65 * GBIT}),
         [("link", (3, 1))]),
        (measured(rates=receives(0, 0.19 * GBIT) | {(2, 1): 0.4 * GBIT, (2, 3): 0.6 * GBIT}),
         [("receives", (0,))]),
        (measured(rates=BUSY), [("receives", (0,))]),
        (measured(rates=receives(0, 0.19 * GBIT) | {(0, 1): 0.3 * GBIT}), [("receives", (0,))]),
        (measured(ranks=8, rates=receives(0, 0.19 * GBIT, 8) | {(3, 1): 0.3 * GBIT}),
         [("receives", (0,)), ("link", (3, 1))]),
        (measured(ranks=8, rates=sends(2, 0.45 * GBIT, 8) | sends(5, 0.7 * GBIT, 8)), []),
        (measured(ranks=2, rates={(0, 1): 0.1 * GBIT}), []),
        (measured(ranks=3, rates=sends(2, 0.1 * GBIT, 3)), [("sends", (2,))]),
        (echoing(0.079), []),
        (echoing(0.081), [("echo", (3,))]),
        (measured(reductions=[Reduction(4, 1.0, correct=False)]), [("sums", (0, 1, 2, 3))]),
    ],
)  # fmt: skip
def test_the_slow_one_is_named_and_nobody_else(given, named):
    assert kinds(given) == named


@pytest.mark.parametrize(
    ("speed", "named"),
    [
        (DeviceSpeed(0.84, 1.0, 1.0), [("computes", (1,))]),
        (DeviceSpeed(0.86, 0.86, 0.86), []),
        (DeviceSpeed(1.0, 0.84, 1.0), [("copies", (1,))]),
        (DeviceSpeed(1.0, 1.0, 0.84), [("copies", (1,))]),
    ],
)
def test_a_gpu_is_compared_with_the_others(speed, named):
    devices = dict.fromkeys(range(4), DeviceSpeed(1.0, 1.0, 1.0)) | {1: speed}
    assert kinds(measured(devices=devices)) == named
    assert kinds(measured(devices={0: DeviceSpeed(1.0, 1.0, 1.0), 1: speed})) == []


@pytest.mark.parametrize(
    ("now", "before", "enough"),
    [
        ({}, None, True),
        ({(3, 1): 0.7 * GBIT}, None, False),
        ({(3, 1): 0.7 * GBIT}, {(3, 1): 0.6 * GBIT}, False),
        (sends(2, 0.2 * GBIT), None, False),
        (sends(2, 0.2 * GBIT), sends(2, 0.2 * GBIT), True),
        (sends(2, 0.2 * GBIT), sends(2, 0.2 * GBIT) | {(3, 1): 0.3 * GBIT}, False),
        (sends(2, 0.2 * GBIT) | {(3, 1): 0.7 * GBIT}, sends(2, 0.2 * GBIT), False),
        (sends(2, 0.6 * GBIT), sends(2, 0.6 * GBIT), False),
    ],
)
def test_measuring_goes_on_until_two_looks_agree_and_nobody_else_is_doubtful(now, before, enough):
    earlier = None if before is None else measured(rates=before)
    assert settled(measured(rates=now), earlier) == enough


def test_a_sum_over_many_ranks_is_exact_in_float32():
    from rankscope_analyzers.fabric.measure import _addend  # it imports torch

    addends = np.array([_addend(rank) for rank in range(200_000)], dtype=np.float32)
    assert np.cumsum(addends, dtype=np.float32)[-1] == sum(map(_addend, range(200_000)))
    assert len(set(addends[:128])) == 128, "two ranks that change places are noticed"


def test_a_ring_is_as_fast_as_its_slowest_link_and_as_slow_as_all_of_them():
    ring = measured(rates={(3, 0): 0.4 * GBIT, (1, 0): 0.1 * GBIT}, trips={(0, 1): 1e-3}).ring()
    assert ring is not None
    assert (ring.rate, ring.seconds) == (0.4 * GBIT, pytest.approx((1e-3 + 3 * 1e-4) / 2))
    text = "\n".join(report.lines(report.conclude(measured(), None)))
    assert "ring of all ranks carries 1 Gbit/s at its slowest link" in text
    assert "goes round in 0.2 ms" in text
    assert replace(measured(), rates={(0, 1): GBIT}).ring() is None


def test_bus_bandwidth_is_what_each_link_carries():
    reduction = Reduction(1000, 0.5, correct=True)
    assert reduction.algorithm_bandwidth() == 2000
    assert reduction.bus_bandwidth(4) == 3000
    assert reduction.bus_bandwidth(2) == 2000


@pytest.mark.parametrize(
    ("given", "minimum", "code", "says"),
    [
        (measured(), None, 0, "No rank or link is slow."),
        (measured(rates=sends(2, 0.1 * GBIT)), None, 2,
         "Slow: rank 2 (n2) sends 0.1 Gbit/s, others 1 Gbit/s."),
        (measured(rates={(3, 1): 0.3 * GBIT}), None, 2,
         "Slow: the link from rank 3 (n3) to rank 1 (n1) carries 0.3 Gbit/s, others 1 Gbit/s."),
        (measured(), 1.1 * GBIT, 2, "links carry less than the 1.1 Gbit/s"),
        (measured(), 0.9 * GBIT, 0, "No rank or link is slow."),
        (measured(ranks=2), None, 3, "2 ranks cannot be distinguished"),
        (measured(ranks=2), 0.9 * GBIT, 0, "12"),
    ],
)  # fmt: skip
def test_the_answer_and_its_exit_code(given, minimum, code, says):
    found = report.conclude(given, minimum)
    assert found.exit_code == code
    if says != "12":
        assert says in "\n".join(report.lines(found))
    assert json.loads(json.dumps(report.as_object(found)))["below_minimum"] == found.below


def slow_among(ranks, slow, *, trunk=False):
    """Return ranks of which some are slow, or only what they exchange with the others."""
    rates = {
        (a, b): 0.1 * GBIT
        for a, b in itertools.permutations(range(ranks), 2)
        if (a in slow) != (b in slow) or (not trunk and a in slow)
    }
    return measured(ranks, rates)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (slow_among(4, {1, 2}), (10, 2)),
        (slow_among(8, {0, 1, 2, 3}), (44, 12)),
        (slow_among(8, {0, 1, 2, 3}, trunk=True), (32, 24)),
        (measured(rates=sends(1, 0.6 * GBIT) | receives(2, 0.6 * GBIT)), None),
        (replace(slow_among(4, {0, 1}, trunk=True), hosts=["a", "a", "b", "b"]), None),
    ],
)
def test_where_half_of_the_links_are_slow_nothing_is_called_well(given, parts):
    found = report.conclude(given, None)
    assert found.faults == ()
    said = "\n".join(report.lines(found))
    if parts is None:
        assert found.split is None
        return
    assert (found.split.slow, found.split.fast, found.exit_code) == (*parts, 3)
    assert f"{parts[0]} links between hosts carry 0.1 Gbit/s and {parts[1]} carry 1 Gbit/s" in said
    assert "No rank or link is slow." not in said
    assert report.as_object(found)["split"]["slow"] == parts[0]
    assert report.conclude(given, 0.05 * GBIT).exit_code == 0, "all carry what is due"


def test_a_host_that_writes_to_the_terminal_is_shown_as_text():
    given = replace(measured(rates=sends(2, 0.1 * GBIT)), hosts=["a", "b", "c\x1b[2J", "d"])
    (line,) = (one for one in report.lines(report.conclude(given, None)) if "Slow" in one)
    assert line.isprintable()


def test_faults_beyond_a_screen_are_counted():
    found = report.Conclusion(measured(), (Fault("sends", (1,), 1.0, 2.0),) * 30, False, None)
    lines = list(report.lines(found))
    assert sum(line.startswith("Slow:") for line in lines) == 20
    assert "10 more are in --json." in lines


def test_all_peers_are_measured_up_to_a_limit_and_beyond_it_spread_ones():
    measure = pytest.importorskip("rankscope_analyzers.fabric.measure", reason="needs torch")
    assert list(measure.offsets(4)) == [1, 2, 3]
    assert list(measure.offsets(33)) == list(range(1, 33))
    many = measure.offsets(4096)
    assert len(many) == 32
    assert many[0] == 1
    assert max(many) > 3900


@pytest.mark.parametrize(
    ("text", "size"), [("16M", 16 << 20), ("64k", 65536), ("4", 4), ("8G", 8 << 30)]
)
def test_sizes_have_units(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--sizes", "2"), "a size is a number of bytes from 4 to 8G"),
        (("--link-size", "9G"), "a size is a number of bytes from 4 to 8G"),
        (("--sizes", "1M,,"), "a size is a number of bytes"),
        (("--minimum", "0"), "expected Gbit/s above 0"),
        (("--seconds", "601"), "expected seconds above 0, at most 600"),
        ((), "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set"),
    ],
)
def test_wrong_calls_are_one_sentence(monkeypatch, capsys, flags, complaint):
    skip_without("torch", "measures with torch")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    try:
        code = cli.main(["fabric-check", *flags])
    except SystemExit as error:
        code = error.code
    assert code == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")),
    reason="network namespaces and token buckets take root, ip and tc",
)
def test_a_rank_behind_a_slow_link_is_named_among_four():
    skip_without("torch", "measures with torch")
    with ForkServer(probed=False) as server:
        found = fabric_links.checked(server, 2, "both")
    slow = {(fault["kind"], tuple(fault["ranks"])) for fault in found["faults"]}
    assert {("sends", (2,)), ("receives", (2,))} & slow
    assert found["hosts"] == [f"node-{rank}" for rank in range(4)]
    assert len(found["links"]) == len(found["round_trips"]) == 12
    assert [one["message_bytes"] for one in found["all_reduce"]] == [64 << 10, 1 << 20]
    assert all(one["correct"] for one in found["all_reduce"])
