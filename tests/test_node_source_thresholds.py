"""When a node's sources are asked again, and what of them counts: at each limit and beyond."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.contract.job_names import JobNameError
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.evidence import ras_report
from rankscope_agent.sources.evidence.node_evidence import NodeEvidence
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.flight_recorder.budget import period
from rankscope_agent.sources.gpus.readings import READINGS
from rankscope_agent.sources.nccl_ras.client import RasError
from rankscope_agent.sources.pods.command_line import parse_command
from rankscope_agent.sources.pods.job_owners import JobOwners
from rankscope_agent.sources.training.checkpoint_writers import CheckpointWriters
from rankscope_agent.sources.training.reported import Reading, Signal
from rankscope_agent.sources.training.reported_totals import SignalTotals
from rankscope_agent.sources.training.spans import Span
from standing_clock import Clock

NS = 10**9


@pytest.mark.parametrize(
    ("core_seconds", "seconds"),
    [(0.01, 15), (0.15, 15), (0.16, 30), (0.3, 30), (2.4, 240), (9.6, 960), (9.7, 960), (99, 960)],
)
def test_flight_recorders_are_asked_as_often_as_a_hundredth_of_a_core_allows(core_seconds, seconds):
    assert period(core_seconds) == seconds


@pytest.mark.parametrize(("later", "questions"), [(2.9, 1), (3.0, 2), (-1.0, 2)])
def test_ras_is_asked_again_after_three_seconds(monkeypatch, later, questions):
    asked = []

    def ask(*of):
        asked.append(of)
        raise RasError("none")

    monkeypatch.setattr(ras_report, "ask", ask)
    clock = Clock()
    reports = RasReports(ListenAddress("localhost", 28028), clock)
    reports.report()
    clock.now += later
    reports.report()
    assert len(asked) == questions


class Rings:
    """Rings of no rank; counts the looks at them."""

    looks = 0

    def rings_of(self, jobs):
        self.looks += 1
        return ()


@pytest.mark.parametrize(("later", "looks"), [(4.9, 1), (5.0, 2), (-1.0, 2)])
def test_the_parts_of_one_question_go_by_one_look_at_the_rings(later, looks):
    rings, clock = Rings(), Clock()
    evidence = NodeEvidence(rings, None, Path("/"), None, (), None, clock)
    evidence.part("kernel", "team/job")
    clock.now += later
    evidence.part("kernel", "team/job")
    assert rings.looks == looks


def written(target, at):
    """Return a checkpoint that was written to a path of its own, at a time of its own."""
    return Span(1, at * NS, NS // 2, 0, 0, at, target, 8, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(("between", "shared"), [(255, True), (256, False)])
def test_writes_are_compared_with_the_newest_256(between, shared):
    writers = CheckpointWriters()
    writers.add(0, "pod", [written(1, 1)])
    writers.add(0, "pod", [written(2 + number, 10 + number) for number in range(between)])
    found = writers.add(1, "pod", [written(1, 1)])
    assert (set(found), writers.paths) == (({0, 1}, 1) if shared else (set(), 0))


@pytest.mark.parametrize(("others", "total"), [(7, 12 + 7), (8, 10 + 8)])
def test_counts_of_eight_processes_of_a_rank_may_still_change(others, total):
    totals = SignalTotals()

    def note(count, created):
        totals.note({Signal.LOSSES: Reading(count, 0, 0)}, created)

    note(10, 1)
    for number in range(others):
        note(1, 2 + number)
    note(12, 1)
    assert totals.count(Signal.LOSSES) == total


def readings(metric, **answers):
    """Return what a GPU that answers so has on the page beside a metric, as (metric, labels)."""
    device = SimpleNamespace(**{name: lambda value=value: value for name, value in answers.items()})
    (reading,) = [one for one in READINGS if metric in one.metrics]
    return {(found, labels): value for found, labels, value in reading.take(device)}


@pytest.mark.parametrize(("degrees", "counts"), [(200, True), (201, False), (255, False)])
def test_no_gpu_is_hotter_than_200_degrees(degrees, counts):
    found = readings(metrics.GPU_TEMPERATURE, temperature=degrees)
    assert list(found.values()) == [degrees] * counts
    for margin in (degrees, -degrees):
        found = readings(metrics.GPU_TEMPERATURE_MARGIN, temperature_margin=margin)
        assert list(found.values()) == [margin] * counts


@pytest.mark.parametrize(("lanes", "counts"), [(32, True), (33, False), (63, False)])
def test_no_link_has_more_than_32_lanes(lanes, counts):
    found = readings(metrics.GPU_PCIE_WIDTH, pcie_link=(5, lanes))
    assert list(found.values()) == [5, lanes] * counts


@pytest.mark.parametrize(
    ("state", "name"), [(0, ""), (1, "not_started"), (2, "in_progress"), (3, "completed"), (4, "")]
)
def test_states_of_the_fabric_are_those_of_nvml(state, name):
    found = readings(metrics.GPU_FABRIC_STATE, fabric=(state, 0, 0))
    assert [labels for _, labels in found] == [(name, "success")] * bool(name)


@pytest.mark.parametrize(
    ("health", "unhealthy"),
    [(0 << 8, None), (1 << 8, 0), (2 << 8, 1), (15 << 8, 1), (1 << 12, None)],
)
def test_an_incorrect_configuration_stands_in_four_bits_of_the_fabrics_health(health, unhealthy):
    found = readings(metrics.GPU_FABRIC_STATE, fabric=(3, 0, health))
    assert found.get((metrics.GPU_FABRIC_UNHEALTHY, ("configuration",))) == unhealthy


@pytest.mark.parametrize(("later", "taken"), [(599.0, False), (600.0, True)])
def test_a_job_is_its_users_for_ten_minutes_after_the_last_sign_of_life(tmp_path, later, taken):
    clock = Clock()
    owners = JobOwners(tmp_path, clock)
    owners.check_process("job", 1000, "")
    clock.now += later
    try:
        owners.check_process("job", 2000, "")
    except JobNameError:
        assert not taken
    else:
        assert taken


@pytest.mark.parametrize(("given", "kept"), [(256, 256), (257, 256)])
def test_256_arguments_of_256_characters_are_kept_of_a_command(given, kept):
    command = parse_command(b"\0".join([b"x" * 300] * 8 + [b"x"] * (given - 8)))
    assert command == (("x" * 256,) * 8 + ("x",) * (kept - 8))
