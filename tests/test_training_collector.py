"""The training collector on rings of fake processes: totals, and the newest values of ranks."""

from __future__ import annotations

import pytest

from collected_page import CREATED, Page, collector
from rankscope_agent.contract.metrics import reported
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.settings.command_line import parse_config
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training.read_turns import ReadTurns
from ring_writer import NS, ExtensionWriter, RingWriter

BUCKETS_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0)


def test_totals_and_newest_values_of_a_rank(tmp_path):
    writer = RingWriter(tmp_path, rank=3)
    writer.step(5)
    writer.step(step_ns=250_000_000, data_ns=50_000_000, sync_ns=0, samples=32)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.STEPS, 3) == 6
    assert page.rank(metrics.STEP_SECONDS, 3) == 0.75
    assert page.rank(metrics.DATA_SECONDS, 3) == 0.1
    assert page.rank(metrics.COMPUTE_SECONDS, 3) == 0.36
    assert page.rank(metrics.SYNC_SECONDS, 3) == 0.15
    assert page.rank(metrics.SAMPLES, 3) == 5 * 8 + 32
    assert page.rank(metrics.LAST_STEP, 3) == 5
    assert page.rank(metrics.LAST_STEP_SECONDS, 3) == 0.25
    assert page.rank(metrics.LAST_DATA_SECONDS, 3) == 0.05
    assert page.rank(metrics.LAST_COMPUTE_SECONDS, 3) == 0.06
    assert page.rank(metrics.LAST_STEP_TIMESTAMP, 3) == pytest.approx(CREATED + 0.85)
    assert page.rank(metrics.RANK_ALIVE, 3) == 1
    assert page.rank(metrics.RECORDS_LOST, 3) == 0
    assert page.value(metrics.RINGS) == 1
    writer.end()


def test_the_rest_of_steps_is_a_total_of_its_own_and_no_compute(tmp_path):
    extension, writer = ExtensionWriter(tmp_path), RingWriter(tmp_path, rank=3)
    for seq in (1, 2):
        extension.write(seq, other_ns=20_000_000)
    writer.step(3, compute_ns=60_000_000)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.OTHER_SECONDS, 3) == 0.04
    assert page.rank(metrics.COMPUTE_SECONDS, 3) == 0.14
    writer.end()


def test_where_a_rank_runs_stands_on_one_series(tmp_path):
    writer = RingWriter(tmp_path, rank=1, local_rank=-1, world_size=-1)
    writer.step(flags=0)
    assert Page(collector(tmp_path)).labels(metrics.RANK_INFO) == [
        ("team/job", "1", "gpu-07", "unknown", "unknown", *[""] * 8, "torchrun", "none")
    ]
    writer.end()


def test_what_was_never_measured_is_absent_not_zero(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(3, data_ns=-1, compute_ns=-1, sync_ns=-1, samples=0xFFFFFFFF, flags=0)
    page = Page(collector(tmp_path))
    for metric in (
        metrics.DATA_SECONDS,
        metrics.COMPUTE_SECONDS,
        metrics.SYNC_SECONDS,
        metrics.OTHER_SECONDS,
        metrics.SAMPLES,
        metrics.LAST_DATA_SECONDS,
        metrics.LAST_COMPUTE_SECONDS,
        metrics.SYNC_TIME,
    ):
        assert page.labels(metric) == []
    assert page.rank(metrics.STEPS) == 3
    assert page.value(metrics.STEP_LATENCY, "team/job").count == 3
    writer.end()


def test_a_total_that_was_measured_once_stays_when_the_newest_value_goes(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step()
    writer.step(data_ns=-1)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.DATA_SECONDS) == 0.01
    assert page.rank(metrics.LAST_DATA_SECONDS) is None
    writer.end()


def test_a_ring_without_records_shows_a_rank_that_has_not_stepped(tmp_path):
    writer = RingWriter(tmp_path)
    page = Page(collector(tmp_path))
    assert (page.rank(metrics.STEPS), page.rank(metrics.RANK_ALIVE)) == (0, 1)
    assert page.rank(metrics.LAST_STEP) is None
    writer.end()


def test_histograms_hold_the_steps_of_all_ranks_of_a_job(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    writers[0].step(3, step_ns=20_000_000, data_ns=0, compute_ns=0, sync_ns=5_000_000)
    writers[1].step(1, step_ns=200 * NS, data_ns=0, compute_ns=0, sync_ns=-1)
    page = Page(collector(tmp_path))
    latency = page.value(metrics.STEP_LATENCY, "team/job")
    assert dict(latency.buckets)[0.005] == 0
    assert dict(latency.buckets)[0.02] == 3
    assert dict(latency.buckets)[120.0] == 3
    assert (latency.count, latency.sum) == (4, 200.06)
    sync = page.value(metrics.SYNC_TIME, "team/job")
    assert (sync.count, sync.sum, dict(sync.buckets)[0.005]) == (3, 0.015, 3)
    assert len(BUCKETS_SECONDS) + 1 <= 12
    for writer in writers:
        writer.end()


def test_an_agent_restart_neither_loses_nor_repeats_a_record(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(5)
    first = collector(tmp_path)
    Page(first)
    writer.step(6)  # while no agent runs
    second = collector(tmp_path)
    assert Page(second).rank(metrics.STEPS) == writer.seq == 11
    writer.step(2)
    assert Page(second).rank(metrics.STEPS) == writer.seq == 13
    assert Page(second).rank(metrics.STEP_SECONDS) == pytest.approx(1.3)
    writer.end()


class Pieces(ReadTurns):
    """Gives each ring one turn in a run, as an agent does that has just been started."""

    def take(self, rings, read):
        for ring in rings:
            read(ring)


def test_totals_appear_once_all_is_counted_that_rings_held_when_the_agent_was_started(tmp_path):
    """Else Prometheus takes the steps of hours for steps of the minute in which they are read."""
    held = {0: 1300, 1: 700, 2: 5}
    writers = [RingWriter(tmp_path, f"{n}.ring", rank=n, capacity=2048) for n in held]
    for writer, steps in zip(writers, held.values(), strict=True):
        writer.step(steps)
    rings = collector(tmp_path, turns=Pieces())
    pages = [Page(rings) for _ in range(3)]
    of_ranks = [[page.rank(metrics.STEPS, rank) for rank in held] for page in pages]
    assert of_ranks == [[None, None, 5], [None, 700, 5], [1300, 700, 5]]
    assert [page.rank(metrics.STEP_SECONDS) for page in pages] == [None, None, 130.0]
    of_job = [page.value(metrics.STEP_LATENCY, "team/job") for page in pages]
    assert of_job[:2] == [None, None]
    assert of_job[2].count == 2005
    samples = [page.value(metrics.JOB_SAMPLES, "team/job") for page in pages]
    assert samples == [None, None, 8 * 2005]
    assert [page.rank(metrics.RANK_ALIVE) for page in pages] == [1, 1, 1]
    writers[0].step(1000)
    page = Page(rings)
    assert page.rank(metrics.STEPS) == 1812, "what is new counts as it is read"
    assert page.value(metrics.STEP_LATENCY, "team/job").count == 2005 + 512
    for writer in writers:
        writer.end()


@pytest.mark.parametrize(("runs", "shown"), [(60, False), (61, True)])
def test_totals_of_rings_that_are_never_read_to_their_end_appear_after_a_minute(
    tmp_path, runs, shown
):
    writer = RingWriter(tmp_path, capacity=2048)
    rings = collector(tmp_path, turns=Pieces())
    writer.step(600)
    for _ in range(runs):
        page = Page(rings)
        writer.step(600)
    assert (page.rank(metrics.STEPS) is not None) is shown
    assert (page.value(metrics.STEP_LATENCY, "team/job") is not None) is shown
    writer.end()


def test_totals_go_on_round_the_ring(tmp_path):
    writer = RingWriter(tmp_path)
    rings = collector(tmp_path)
    for count in (10, 16, 5, 16):
        writer.step(count)
        page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RECORDS_LOST)) == (47, 0)
    writer.end()


def test_records_overwritten_before_they_were_read_are_counted_exactly(tmp_path):
    writer = RingWriter(tmp_path)
    rings = collector(tmp_path)
    writer.step(4)
    Page(rings)
    writer.step(20)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RECORDS_LOST)) == (20, 4)
    writer.end()


def test_it_is_made_of_the_agents_settings(tmp_path):
    argv = ["--path.ring-dir", str(tmp_path), "--path.kubelet", str(tmp_path / "kubelet")]
    config = parse_config([*argv, "--node-name", "gpu-01"], {}, ("training",), "0")
    writer = RingWriter(tmp_path, node="")
    (info,) = Page(training.create(config, PodDirectory())).labels(metrics.RANK_INFO)
    assert info[2] == "gpu-01"
    writer.end()


@pytest.mark.parametrize(("flags", "exported"), [((), None), (("600",), 600.0)])
def test_an_objective_for_checkpoints_is_exported_only_if_one_is_set(tmp_path, flags, exported):
    made = collector(tmp_path)
    assert Page(made).value(reported.CHECKPOINT_OBJECTIVE) is None
    set_to = [f"--training.checkpoint-objective={seconds}" for seconds in flags]
    places = [f"--path.ring-dir={tmp_path}", f"--path.kubelet={tmp_path}"]
    config = parse_config([*set_to, *places], {}, ("training",), "0")
    page = Page(training.create(config, PodDirectory()))
    assert page.value(reported.CHECKPOINT_OBJECTIVE) == exported
