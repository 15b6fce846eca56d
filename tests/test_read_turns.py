"""However much there is to read of rings, a run ends in time, and it is the greedy who wait."""

from __future__ import annotations

import itertools
import os
from functools import partial

import pytest

from collected_page import Clock, Page
from counted_reading import SECONDS_OF_BYTE, Reading
from known_pods import pods_named_after_their_namespace
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.settings.command_line import parse_config
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training import totals
from rankscope_agent.sources.training.collector import TURN_RECORDS, TrainingCollector
from rankscope_agent.sources.training.format import RECORD_SIZE
from rankscope_agent.sources.training.read_turns import ReadTurns
from ring_volumes import volume
from ring_writer import NS, PAGE, RingWriter, SpanWriter, record_bytes

PODS_RESCAN_SECONDS = 5.0
CPU_SECONDS, SECONDS = 0.1, 1.0
CAPACITY, SPANS = 1024, 1024
LARGEST_TURN = (TURN_RECORDS + 2 * CAPACITY) * RECORD_SIZE + 64 * SPANS
"""Bytes read in a turn at most: records, what tells where a ring that was overwritten begins, and
the spans beside it."""


class Greedy:
    """A pod whose rings, and the spans beside them, are written anew again and again."""

    def __init__(self, root, uid: str, rings: int) -> None:
        directory = volume(root, uid)
        self._writers = [
            RingWriter(directory, f"{n}-1.ring", rank=n, job_id="x", capacity=CAPACITY)
            for n in range(rings)
        ]
        self._spans = [SpanWriter(directory, f"{n}-1.span") for n in range(rings)]
        self._laps = itertools.count()
        for spans in self._spans:
            spans.write(1, start_ns=NS)

    def write_all_anew(self) -> None:
        lap = next(self._laps)
        first = lap * CAPACITY + 1
        whole = b"".join(record_bytes(seq) for seq in range(first, first + CAPACITY))
        for writer in self._writers:
            os.pwrite(writer.descriptor, whole, PAGE)
        for spans in self._spans:
            spans.write(lap + 2, start_ns=NS)

    def end(self) -> None:
        for writer in self._writers:
            writer.end()


@pytest.fixture
def reading(monkeypatch):
    return Reading(monkeypatch)


@pytest.fixture
def greedy(tmp_path):
    pods = [Greedy(tmp_path, f"greedy-{number:02}", 4) for number in range(16)]
    yield pods
    for pod in pods:
        pod.end()


def made(tmp_path, clock, turns: ReadTurns) -> TrainingCollector:
    names = pods_named_after_their_namespace()
    return TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", clock, names, turns)


def pages(rings: TrainingCollector, clock: Clock, reading: Reading, greedy: list[Greedy]):
    """Yield what run after run gives, with the seconds that reading took in it."""
    while True:
        for pod in greedy:
            pod.write_all_anew()
        clock.now += PODS_RESCAN_SECONDS + 1
        before = reading.seconds
        page = Page(rings)
        yield page, reading.seconds - before


def test_rings_that_are_rewritten_all_the_time_make_no_run_longer_than_it_may_be(
    tmp_path, reading, greedy
):
    clock = Clock()
    honest = RingWriter(volume(tmp_path, "team-1"), job_id="job", capacity=64)
    rings = made(tmp_path, clock, reading.turns())
    next(pages(rings, clock, reading, greedy))  # opens the rings, which is another budget's
    most = CPU_SECONDS + LARGEST_TURN * SECONDS_OF_BYTE
    for number in range(1, 9):
        honest.step()
        page, seconds = next(pages(rings, clock, reading, greedy))
        assert seconds <= most
        assert page.rank(metrics.STEPS, 0, "team/job") == number
    honest.end()


def test_a_pod_that_reads_little_is_read_before_the_others_of_its_namespace(
    tmp_path, reading, greedy
):
    clock = Clock()
    quiet = RingWriter(volume(tmp_path, "greedy-quiet"), job_id="quiet", capacity=64)
    rings = made(tmp_path, clock, reading.turns())
    runs = pages(rings, clock, reading, greedy)
    next(runs)
    for number in range(1, 9):
        quiet.step()
        page, _ = next(runs)
        assert page.rank(metrics.STEPS, 0, "greedy/quiet") == number
    quiet.end()


def test_a_job_that_comes_while_others_are_rewritten_is_read_at_the_look_that_opens_it(
    tmp_path, reading, greedy
):
    clock = Clock()
    rings = made(tmp_path, clock, reading.turns())
    runs = pages(rings, clock, reading, greedy)
    for _ in range(8):
        next(runs)
    late = RingWriter(volume(tmp_path, "zeal-1"), job_id="late", capacity=64)
    late.step(5)
    page, _ = next(runs)
    assert page.rank(metrics.STEPS, 0, "zeal/late") == 5
    late.end()


def test_of_one_pod_all_rings_have_their_turn_before_one_has_another_run(
    tmp_path, monkeypatch, reading, greedy
):
    monkeypatch.setattr(totals, "LONGEST_WAIT_RUNS", 0)  # they are never read to their end
    clock = Clock()
    rings = made(tmp_path, clock, reading.turns())
    runs = pages(rings, clock, reading, greedy)
    page, _ = next(runs)
    steps = dict.fromkeys(page.labels(metrics.RANK_ALIVE), 0)
    for _ in range(40):
        page, _ = next(runs)
        steps = {labels: page.value(metrics.STEPS, *labels) for labels in steps}
    assert min(steps.values()) > 0
    assert max(steps.values()) <= 4 * min(steps.values())


def test_files_that_take_long_to_read_end_a_run_too(tmp_path, monkeypatch, greedy):
    clock, reading = Clock(), Reading(monkeypatch, 1e-6)
    rings = made(tmp_path, clock, ReadTurns(lambda: 0.0, reading))
    runs = pages(rings, clock, reading, greedy)
    next(runs)
    for _ in range(3):
        _, seconds = next(runs)
        assert CPU_SECONDS < seconds <= SECONDS + LARGEST_TURN * 1e-6


@pytest.mark.parametrize(("words", "shown"), [((), None), (("--once",), 50)])
def test_an_agent_that_runs_once_reads_whole_rings_in_its_only_run(
    tmp_path, monkeypatch, words, shown
):
    """Totals are left out until a ring has been read, and nothing would read the rest."""
    monkeypatch.setattr(training, "TURN_RECORDS", 16)
    slow = Reading(monkeypatch, seconds_of_byte=2.0 / (50 * RECORD_SIZE))
    monkeypatch.setattr(training, "ReadTurns", partial(ReadTurns, slow, slow))
    places = [f"--path.ring-dir={tmp_path}", f"--path.kubelet={tmp_path / 'kubelet'}"]
    config = parse_config([*places, *words], {}, ("training",), "0")
    writer = RingWriter(tmp_path, capacity=64)
    writer.step(50)
    assert Page(training.create(config, PodDirectory())).rank(metrics.STEPS) == shown
    writer.end()
