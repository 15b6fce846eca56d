"""What a simulated node reads: what such cards show under load, and what each fault makes of it."""

from __future__ import annotations

import pytest

from gpu_nodes import Clock, library, read, session_of
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.settings.simulation import parse_simulation
from rankscope_agent.sources.gpus.simulation import physics
from rankscope_agent.sources.gpus.simulation.ports import PortTree, port_files

MEBI = 1 << 20

# The load of GPU 0 is at its mean when a simulation begins, so the first page is exact.
# Watts, degrees and clocks under load: nvidia-smi of such cards; links and limits: data sheets.
CARDS = {
    "h100x8": {
        "memory_mib": 81559, "sm": 1980e6, "memory": 2619e6, "limit": 700, "watts": 629,
        "core": 59, "waiting": 55, "margin": 28, "links": 18, "link_bytes": 26.562e9, "pcie": 5,
    },
    "h200x8": {
        "memory_mib": 143771, "sm": 1980e6, "memory": 3201e6, "limit": 700, "watts": 628,
        "core": 52, "waiting": 47, "margin": 37, "links": 18, "link_bytes": 26.562e9, "pcie": 5,
    },
    "a100x8": {
        "memory_mib": 81920, "sm": 1410e6, "memory": 1593e6, "limit": 400, "watts": 371,
        "core": 58, "waiting": 53, "margin": None, "links": 12, "link_bytes": 25e9, "pcie": 4,
    },
    "l40sx4": {
        "memory_mib": 46068, "sm": 2520e6, "memory": 9001e6, "limit": 350, "watts": 312,
        "core": 63, "waiting": 58, "margin": 25, "links": 0, "link_bytes": 0, "pcie": 4,
    },
}  # fmt: skip


def two_pages(text, apart=100):
    """Return the first page of a node, and one some seconds later."""
    clock = Clock()
    session = session_of(library(text, clock), clock)
    before = read(session)
    clock.now += apart
    return before, read(session)


@pytest.mark.parametrize(("text", "card"), CARDS.items(), ids=CARDS)
def test_a_simulated_card_reads_like_one_under_load(text, card):
    page, _ = two_pages(text)
    assert page.value(metrics.GPU_MEMORY_TOTAL) == card["memory_mib"] * MEBI
    for domain in ("sm", "memory"):
        assert page.value(metrics.GPU_CLOCK, domain) == card[domain]
    assert page.value(metrics.GPU_CLOCK_MAX, "sm") == card["sm"]
    for limit in ("default", "enforced"):
        assert page.value(metrics.GPU_POWER_LIMIT, limit) == card["limit"]
    assert page.value(metrics.GPU_POWER) == card["watts"]
    assert page.value(metrics.GPU_TEMPERATURE, "core") == card["core"]
    assert page.value(metrics.GPU_TEMPERATURE_MARGIN) == card["margin"]
    assert (page.value(metrics.GPU_NVLINKS_UP) or 0) == card["links"]
    assert page.value(metrics.GPU_PCIE_GENERATION) == card["pcie"]
    assert page.value(metrics.GPU_PCIE_GENERATION_MAX) == card["pcie"]
    assert page.value(metrics.GPU_PCIE_WIDTH) == 16


@pytest.mark.parametrize(
    ("text", "reserved_mib"), [("h100x8", 479), ("h200x8", 614), ("a100x8", 618), ("l40sx4", 609)]
)
def test_a_job_has_86_per_cent_of_the_memory_that_the_driver_leaves(text, reserved_mib):
    page, _ = two_pages(text)
    left = CARDS[text]["memory_mib"] - reserved_mib
    used = page.value(metrics.GPU_MEMORY_USED)
    assert used == pytest.approx(0.86 * left * MEBI, abs=MEBI)


@pytest.mark.parametrize("text", ["h100x8", "h200x8", "a100x8"])
def test_links_carry_gradients_for_a_fifth_of_what_they_could(text):
    before, after = two_pages(text, 100)
    sent = [page.value(metrics.GPU_NVLINK_TRANSMIT) for page in (before, after)]
    could = CARDS[text]["links"] * CARDS[text]["link_bytes"]
    assert (sent[1] - sent[0]) / 100 == pytest.approx(0.22 * could, rel=1e-6)


def test_the_node_has_been_training_for_an_hour():
    page, _ = two_pages("h100x8")
    assert page.value(metrics.GPU_ENERGY) == pytest.approx(3600 * 629, rel=1e-6)


def test_parts_of_a_card_work_as_in_a_well_tuned_step():
    before, page = two_pages("h100x8")
    assert page.value(metrics.GPU_SM_ACTIVE) == 0.88
    assert page.value(metrics.GPU_TENSOR_ACTIVE) == pytest.approx(0.62, abs=0.011)
    assert page.value(metrics.GPU_DRAM_ACTIVE) == pytest.approx(0.41)
    assert before.value(metrics.GPU_MEMORY_ACTIVITY) == pytest.approx(0.41)
    got, sent = (
        page.value(metric) - before.value(metric)
        for metric in (metrics.GPU_PCIE_RECEIVE, metrics.GPU_PCIE_TRANSMIT)
    )
    assert sorted((got / 100, sent / 100)) == pytest.approx([0.36e9, 1.2e9])
    core, memory = (page.value(metrics.GPU_TEMPERATURE, one) for one in ("core", "memory"))
    assert core - memory in {5, 6}  # what is read is in whole degrees


def test_a_partitioned_card_has_seven_devices_with_an_eighth_of_its_memory_each():
    page, _ = two_pages("a100x1-mig")
    totals = [s.value for s in page.samples if s.metric == metrics.MIG_MEMORY_TOTAL]
    assert totals == [81920 // 8 * MEBI] * 7


@pytest.mark.parametrize(("text", "card"), CARDS.items(), ids=CARDS)
def test_a_card_that_waits_for_a_slow_one_is_cooler(text, card):
    page, _ = two_pages(f"{text}:thermal@3")
    assert page.value(metrics.GPU_TEMPERATURE, "core") == card["waiting"]


@pytest.mark.parametrize(
    ("model", "fault", "clock", "watts", "of_peers", "celsius"),
    [
        ("h100x8", "thermal", 1215e6, 278, 498.194, 88),
        ("h100x8", "power-cap", 1425e6, 359.79, 535.09, 59),
        ("h200x8", "thermal", 1215e6, 277.63, 497.428, 81),
    ],
)
def test_a_slowed_card_draws_less_and_its_peers_wait(model, fault, clock, watts, of_peers, celsius):
    page, _ = two_pages(f"{model}:{fault}@0")
    assert page.value(metrics.GPU_CLOCK, "sm") == clock
    assert page.value(metrics.GPU_POWER) == pytest.approx(watts, abs=0.01)
    assert page.value(metrics.GPU_TEMPERATURE, "core") == celsius
    waiting, _ = two_pages(f"{model}:{fault}@1")
    assert waiting.value(metrics.GPU_POWER) == pytest.approx(of_peers, abs=0.01)


def test_a_fault_changes_what_it_is_about_and_nothing_else():
    hot, _ = two_pages("h100x8:thermal@0")
    assert hot.value(metrics.GPU_POWER_LIMIT, "enforced") == 700
    assert hot.value(metrics.GPU_ECC_ERRORS, "corrected", "aggregate") == 0
    assert set(hot.of(metrics.GPU_NVLINK_ERRORS).values()) == {0}
    _, later = two_pages("h100x8:thermal@0")
    assert not any(later.of(metrics.GPU_XIDS).values())


@pytest.mark.parametrize(
    ("text", "reasons", "counting"),
    [
        ("thermal", {"hw_slowdown", "hw_thermal_slowdown"}, {"hw_thermal_slowdown"}),
        ("power-cap", {"sw_power_cap"}, {"sw_power_cap"}),
        ("healthy", set(), set()),
    ],
)
def test_a_slowed_card_says_why_and_has_done_so_for_ten_minutes(text, reasons, counting):
    page, _ = two_pages(f"h100x8:{text}")
    active = page.of(metrics.GPU_CLOCK_EVENT, 5)
    assert {reason for (reason,), value in active.items() if value} == reasons
    seconds = page.of(metrics.GPU_CLOCK_EVENT_SECONDS, 5)
    assert {reason: value for (reason,), value in seconds.items() if value} == dict.fromkeys(
        counting, 600
    )


@pytest.mark.parametrize(("text", "xid"), [("xid79", "79"), ("ecc-storm", "92"), ("nvlink", "74")])
def test_what_goes_wrong_is_reported_by_its_number(text, xid):
    _, page = two_pages(f"h100x8:{text}")
    assert page.value(metrics.GPU_XIDS, xid, gpu=5) == 1
    assert page.of(metrics.GPU_XIDS, 0).get((xid,), 0) == 0


def test_two_in_a_thousand_memory_errors_of_a_storm_are_not_corrected():
    page, _ = two_pages("h100x8:ecc-storm")
    corrected, uncorrected = (
        page.value(metrics.GPU_ECC_ERRORS, kind, "aggregate", gpu=5)
        for kind in ("corrected", "uncorrected")
    )
    assert (corrected, uncorrected) == (40 * 600, 48)
    _, page = two_pages("h100x8:ecc-storm")
    assert page.value(metrics.GPU_EVENTS, "single_bit_ecc_error_storm", gpu=5) == 1


def test_a_bad_link_carries_less_and_counts_what_it_sends_again():
    before, after = two_pages("h100x8:nvlink", 10)
    errors = after.of(metrics.GPU_NVLINK_ERRORS, 5)
    assert {kind: value for (kind,), value in errors.items() if value} == {
        "crc_flit": 15 * 610, "replay": 15 * 610 // 2, "recovery": 15 * 610 // 100,
    }  # fmt: skip
    assert after.of(metrics.GPU_NVLINK_LINK_SHARE, 5) == {("3",): pytest.approx(0.3, abs=0.001)}
    sent = [page.value(metrics.GPU_NVLINK_TRANSMIT, gpu=5) for page in (before, after)]
    assert (sent[1] - sent[0]) / 10 == pytest.approx(0.22 * 26.562e9 * 17.3, rel=1e-6)


@pytest.mark.parametrize(
    ("elapsed", "away"),
    [(4.9, False), (5, True), (14.9, True), (15, False), (64.9, False), (65, True), (75, False)],
)
def test_the_driver_is_away_for_ten_seconds_of_every_minute(elapsed, away):
    assert physics.away(elapsed) is away


def number(files, name):
    return int(files[name])


def per_second(text, port, name):
    """Return by how much a counter grows in a second, some way into the simulation."""
    simulation = parse_simulation(text)
    return (
        number(port_files(simulation, port, 310), name)
        - number(port_files(simulation, port, 300), name)
    ) / 10


@pytest.mark.parametrize(
    ("text", "port", "gigabit", "share"),
    [
        ("h100x8", 0, 400, 0.3),
        ("h200x8", 8, 400, 0.3),
        ("a100x8", 8, 200, 0.3),
        ("l40sx2", 1, 200, 0.3),
        ("h100x8", 2, 400, 0.3 / 20),
        ("h100x8:congestion@4", 4, 400, 0.3 * 0.45),
        ("h100x8:thermal", 0, 400, 0.3 * 0.61),
    ],
    ids=["h100", "h200", "a100", "l40s", "for storage", "congested", "of a slow job"],
)
def test_ports_carry_their_part_of_the_gradients(text, port, gigabit, share):
    words = per_second(text, port, "counters/port_xmit_data")
    assert words * 4 == pytest.approx(share * gigabit * 1e9 / 8, rel=1e-5)
    packets = per_second(text, port, "counters/port_xmit_packets")
    assert words * 4 / packets == pytest.approx(4154, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "ports"), [("h100x8", 9), ("h200x8", 9), ("a100x8", 9), ("l40sx2", 2)]
)
def test_a_node_has_as_many_adapters_as_such_nodes_have(tmp_path, text, ports):
    PortTree(tmp_path, parse_simulation(text), Clock()).write()
    assert len(list((tmp_path / "class/infiniband").iterdir())) == ports


def test_a_congested_port_waits_and_is_notified():
    assert per_second("h100x8", 4, "counters/port_xmit_wait") == 1500
    assert per_second("h100x8:congestion@4", 4, "counters/port_xmit_wait") == 9_001_500
    files = port_files(parse_simulation("h100x8:congestion@4"), 4, 10)
    notified = number(files, "hw_counters/np_ecn_marked_roce_packets")
    assert notified == 5200 * 610
    assert number(files, "hw_counters/np_cnp_sent") == notified // 3


@pytest.mark.parametrize(
    ("elapsed", "state", "lost"),
    [(0, "4: ACTIVE", 20), (23, "4: ACTIVE", 20), (24, "1: DOWN", 21), (29, "1: DOWN", 21),
     (30, "4: ACTIVE", 21), (53, "4: ACTIVE", 21), (54, "1: DOWN", 22)],
)  # fmt: skip
def test_a_flapping_port_is_down_for_six_seconds_of_thirty(elapsed, state, lost):
    files = port_files(parse_simulation("h100x8:flap@1"), 1, elapsed)
    assert files["state"] == f"{state}\n"
    assert number(files, "counters/link_downed") == lost


@pytest.mark.parametrize(("count", "taken"), [(1, True), (16, True), (17, False), (0, False)])
def test_a_node_has_one_to_sixteen_cards(count, taken):
    if taken:
        assert parse_simulation(f"h100x{count}").count == count
        return
    with pytest.raises(ValueError, match="expected 1 to 16 GPUs"):
        parse_simulation(f"h100x{count}")


@pytest.mark.parametrize("text", ["h100x8", "l40sx4"])
def test_a_card_moves_12_hundred_megabytes_a_second_over_its_bus_while_it_works(text):
    before, after = two_pages(text, 100)
    received = [page.value(metrics.GPU_PCIE_RECEIVE) for page in (before, after)]
    assert (received[1] - received[0]) / 100 == pytest.approx(1.2e9)
