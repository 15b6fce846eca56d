"""The last that is still taken and the first that is not, of each limit on turns and totals."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.read_turns import ReadTurns
from rankscope_agent.sources.training.scan_turns import ScanTurns
from rankscope_agent.sources.training.span_totals import SpanTotals
from rankscope_agent.sources.training.spans import Span, _is_plausible
from rankscope_agent.sources.training.starts import RankStart, Surroundings, _began
from rankscope_agent.sources.training.totals import Histogram
from ring_writer import NS, RingWriter
from standing_clock import Clock


@pytest.mark.parametrize("bound", [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0])
def test_durations_up_to_a_bound_are_in_its_bucket(bound):
    counts = Histogram()
    counts.observe([round(bound * NS), round(bound * NS) + 1])
    buckets = dict(counts.value().buckets)
    assert buckets[bound] == 1
    assert counts.value().count == 2


def test_the_first_page_waits_five_seconds_for_the_names_of_pods(tmp_path):
    waits = []
    pods = PodDirectory()
    pods.wait = waits.append
    collector = TrainingCollector(tmp_path / "none", tmp_path, "n", Clock(), pods)
    with pytest.raises(NoData):
        next(collector.collect())
    assert waits == [5.0]


def test_a_ring_may_give_512_records_in_its_turn(tmp_path):
    writer = RingWriter(tmp_path, capacity=1024)
    writer.step(1024)
    given = []

    class Turns(ReadTurns):
        def take(self, rings, read):
            for ring in rings:
                read(ring)
                given.append(ring.cursor.next_seq - 1)

    list(TrainingCollector(tmp_path, tmp_path / "kubelet", "n", Clock(), turns=Turns()).collect())
    assert given == [512]
    writer.end()


@pytest.mark.parametrize(("cpu", "waited", "read"), [(0.04, 0.0, 3), (0.0, 0.4, 3), (0.03, 0.2, 4)])
def test_a_run_reads_for_a_tenth_of_a_second_of_cpu_time_and_a_second_in_all(cpu, waited, read):
    clock, cpu_clock, served = Clock(), Clock(), []
    ring = SimpleNamespace(holder=("u", ""))

    def serve(one):
        clock.now, cpu_clock.now = clock.now + waited, cpu_clock.now + cpu
        return not served.append(one)

    ReadTurns(cpu_clock, clock).take([SimpleNamespace(ring=ring, turn=0)], serve)
    assert len(served) == read


@pytest.mark.parametrize("turns", [ReadTurns(Clock(), Clock()), ScanTurns(Clock(), Clock())])
def test_a_charge_below_a_microsecond_is_forgotten(turns):
    turns._charged = {"a": 2.1e-6, "b": 1.9e-6}
    turns.take([], None, *([1.0] if isinstance(turns, ScanTurns) else []))
    assert turns._charged == {"a": 1.05e-6}


def span(seq=1, **changed):
    fields = {"start_unix_ns": NS, "duration_ns": NS, "blocked_ns": 0, "size": 0, "step": 1}
    fields |= {"target": 0, "flags": 8, "kind": 1, "outcome": 1, "reserved": 0, "reserved_too": 0}
    return Span(seq=seq, check=4 * seq + 1, **fields | changed)


@pytest.mark.parametrize(("size", "known"), [(1 << 60, True), ((1 << 60) + 1, False)])
def test_no_checkpoint_is_larger_than_an_exbibyte(size, known):
    assert _is_plausible(span(size=size), 0) is known


@pytest.mark.parametrize(("others", "writes"), [(63, 64), (64, 66)])
def test_64_spans_are_known_when_a_processs_next_ring_repeats_them(others, writes):
    totals = SpanTotals()
    totals.add([span(1 + number) for number in range(others + 1)], 1)
    totals.add([span(1)], 2)
    assert totals.writes == writes


@pytest.mark.parametrize(("step", "told"), [(0xFFFFFFFE, 0xFFFFFFFE), (0xFFFFFFFF, 0)])
def test_the_step_of_a_checkpoint_may_be_unknown(step, told):
    totals = SpanTotals()
    totals.add([span(step=step)], 1)
    assert totals.last_success_step(1) == told


@pytest.mark.parametrize(
    ("began", "known"), [(998.0, True), (997.9, False), (1102.0, True), (1102.1, False)]
)
def test_a_process_may_seem_to_start_two_seconds_before_its_pod_or_after_its_ring(began, known):
    start = RankStart()
    start._begin(began, 1100 * NS)
    assert _began(start, Surroundings(pod_created=1000.0)) == (began if known else None)
