"""The training collector on rings of fake processes: totals, restarts, endings, hostile files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope_agent import metrics
from rankscope_agent.collector import NoData, scrape
from rankscope_agent.collectors import training
from rankscope_agent.collectors.training import TrainingCollector
from rankscope_agent.config import parse_config
from rankscope_agent.model import HistogramValue, Metric, Sample
from rankscope_agent.ring_format import REASONS
from rankscope_agent.training_totals import BUCKETS_SECONDS
from ring_writer import HEADER_FIELDS, NS, RingWriter, header_page, record_bytes

CREATED_NS = HEADER_FIELDS["created_unix_ns"]
CREATED = CREATED_NS / NS


class Clock:
    def __init__(self) -> None:
        self.now = CREATED + 10

    def __call__(self) -> float:
        return self.now


class Page:
    """What one run of the collector gave, by metric and labels."""

    def __init__(self, collector: TrainingCollector) -> None:
        self.samples: list[Sample] = list(collector.collect())
        self.series = {(s.metric, s.labels): s.value for s in self.samples}
        assert len(self.series) == len(self.samples), "a series came twice"

    def value(self, metric: Metric, *labels: str) -> float | HistogramValue | None:
        return self.series.get((metric, labels))

    def rank(self, metric: Metric, rank: int = 0, job: str = "team/job") -> object:
        return self.value(metric, job, str(rank))

    def labels(self, metric: Metric) -> list[tuple[str, ...]]:
        return [labels for found, labels in self.series if found is metric]


def collector(tmp_path: Path, clock: Clock | None = None) -> TrainingCollector:
    return TrainingCollector(tmp_path, tmp_path / "kubelet", "gpu-01", clock or Clock())


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
    assert page.rank(metrics.LAST_SYNC_SECONDS, 3) == 0
    assert page.rank(metrics.LAST_STEP_TIMESTAMP, 3) == pytest.approx(CREATED + 0.85)
    assert page.rank(metrics.RANK_ALIVE, 3) == 1
    assert page.rank(metrics.RECORDS_LOST, 3) == 0
    assert page.value(metrics.RINGS) == 1
    writer.end()


def test_where_a_rank_runs_stands_on_one_series(tmp_path):
    writer = RingWriter(tmp_path, rank=1, local_rank=-1, world_size=-1)
    writer.step(flags=0)
    assert Page(collector(tmp_path)).labels(metrics.RANK_INFO) == [
        ("team/job", "1", "gpu-07", "unknown", "unknown", "", "torchrun", "none")
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
        metrics.SAMPLES,
        metrics.LAST_DATA_SECONDS,
        metrics.LAST_COMPUTE_SECONDS,
        metrics.LAST_SYNC_SECONDS,
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


def test_a_restarted_process_goes_on_with_the_ranks_counters(tmp_path):
    rings = collector(tmp_path)
    first = RingWriter(tmp_path, "1.ring", attempt=0)
    first.step(10)
    Page(rings)
    first.step(2)
    first.end()
    second = RingWriter(tmp_path, "2.ring", attempt=1, created_unix_ns=CREATED_NS + NS)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.RANK_ALIVE)) == (12, 1)
    assert page.rank(metrics.LAST_STEP) is None
    second.step(3, attempt=1)
    page = Page(rings)
    assert (page.rank(metrics.STEPS), page.rank(metrics.LAST_STEP)) == (15, 2)
    assert Page(collector(tmp_path)).rank(metrics.STEPS) == 15
    second.end()


def test_two_live_rings_of_one_rank_give_one_set_of_series(tmp_path):
    old = RingWriter(tmp_path, "1.ring")
    new = RingWriter(tmp_path, "2.ring", created_unix_ns=CREATED_NS + NS, local_rank=2)
    rings = collector(tmp_path)
    for _ in range(3):
        new.step(2)
        old.step(3)
        page = Page(rings)
    assert page.rank(metrics.STEPS) == 15
    assert page.rank(metrics.LAST_STEP) == 5
    assert [labels[3] for labels in page.labels(metrics.RANK_INFO)] == ["2"]
    new.end()
    assert [Page(rings).rank(metrics.RANK_ALIVE) for _ in range(3)] == [0, 0, 0]
    old.end()


def test_the_newest_process_says_whether_the_rank_lives(tmp_path):
    old = RingWriter(tmp_path, "1.ring")
    new = RingWriter(tmp_path, "2.ring", created_unix_ns=CREATED_NS + NS)
    rings = collector(tmp_path)
    old.end()
    assert [Page(rings).rank(metrics.RANK_ALIVE) for _ in range(3)] == [1, 1, 1]
    new.end()


def test_an_ended_jobs_series_go_after_ten_minutes(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    writer = RingWriter(tmp_path)
    writer.step(3)
    Page(rings)
    writer.end()
    page = Page(rings)
    assert (page.rank(metrics.RANK_ALIVE), page.rank(metrics.STEPS)) == (0, 3)
    clock.now += 599
    assert Page(rings).rank(metrics.STEPS) == 3
    clock.now += 1
    page = Page(rings)
    assert page.rank(metrics.STEPS) is None
    assert page.labels(metrics.STEP_LATENCY) == []


def test_a_restarted_agent_does_not_bring_back_a_job_that_ended_long_ago(tmp_path):
    clock = Clock()
    writer = RingWriter(tmp_path)
    writer.step(3)
    writer.end()
    clock.now += 3600
    assert Page(collector(tmp_path, clock)).labels(metrics.STEPS) == []


def test_an_ended_jobs_series_go_too_when_its_file_is_gone(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    writer = RingWriter(tmp_path)
    writer.step()
    Page(rings)
    writer.path.unlink()
    writer.end()
    assert Page(rings).rank(metrics.RANK_ALIVE) == 0
    clock.now += 600
    assert Page(rings).labels(metrics.STEPS) == []


def test_a_hung_job_stays_with_all_its_ranks(tmp_path):
    clock = Clock()
    rings = collector(tmp_path, clock)
    hung = RingWriter(tmp_path, "0.ring", rank=0)
    dead = RingWriter(tmp_path, "1.ring", rank=1)
    for writer in (hung, dead):
        writer.step(2)
    Page(rings)
    dead.end()
    clock.now += 7 * 86_400
    page = Page(rings)
    assert (page.rank(metrics.RANK_ALIVE, 0), page.rank(metrics.RANK_ALIVE, 1)) == (1, 0)
    hung.end()


def test_records_written_just_before_the_end_are_counted(tmp_path):
    rings = collector(tmp_path)
    writer = RingWriter(tmp_path)
    writer.step()
    Page(rings)
    writer.step(4)
    writer.end()
    assert Page(rings).rank(metrics.STEPS) == 5
    assert Page(rings).rank(metrics.STEPS) == 5


def test_a_full_ring_is_read_over_several_runs_if_the_budget_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MAX_RECORDS", 40)
    writers = [RingWriter(tmp_path, f"{r}.ring", rank=r, capacity=64) for r in range(3)]
    for writer in writers:
        writer.step(50)
    rings = collector(tmp_path)
    pages = [Page(rings) for _ in range(5)]
    sums = [sum(page.rank(metrics.STEPS, rank) for rank in range(3)) for page in pages]
    assert sums == [40, 80, 120, 150, 150]
    for writer in writers:
        writer.end()


def test_a_ring_that_uses_up_the_budget_does_not_starve_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MAX_RECORDS", 16)
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in range(3)]
    for age, writer in enumerate(writers):
        writer.step()
        os.utime(writer.path, (1000 + age, 1000 + age))
    rings = collector(tmp_path)
    for _ in range(4):
        writers[1].step(16)
        page = Page(rings)
    assert (page.rank(metrics.STEPS, 0), page.rank(metrics.STEPS, 2)) == (1, 1)
    for writer in writers:
        writer.end()


def test_ranks_remembered_are_bounded_and_the_first_ended_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "MAX_RANKS", 3)
    clock = Clock()
    rings = collector(tmp_path, clock)
    alive = RingWriter(tmp_path, "alive.ring", job_id="alive")
    for number in range(6):
        clock.now += 1
        writer = RingWriter(tmp_path, f"{number}.ring", job_id=f"job-{number}")
        writer.step()
        Page(rings)
        writer.end()
    jobs = {labels[0] for labels in Page(rings).labels(metrics.STEPS)}
    assert jobs == {"alive", "job-4", "job-5"}
    alive.end()


def test_corrupt_records_are_counted_and_left_out(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(2)
    writer.step(step_ns=-1)
    writer.step(data_ns=2**62)
    writer.step()
    page = Page(collector(tmp_path))
    assert (page.rank(metrics.STEPS), page.value(metrics.RECORDS_CORRUPT)) == (3, 2)
    writer.end()


def test_hostile_files_beside_a_good_ring_cost_nothing_but_their_count(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(4)
    (tmp_path / "noise.ring").write_bytes(os.urandom(5000))
    (tmp_path / "ones.ring").write_bytes(b"\xff" * 5120)
    (tmp_path / "future.ring").write_bytes(header_page(version=2) + bytes(1024))
    (tmp_path / "swapped.ring").write_bytes(header_page(byte_order_mark=0x04030201))
    (tmp_path / "label.ring").write_bytes(header_page(job_id="x\ny") + bytes(1024))
    (tmp_path / "cut.ring").write_bytes(header_page() + bytes(1000))
    (tmp_path / "link.ring").symlink_to(writer.path)
    os.mkfifo(tmp_path / "fifo.ring")
    (tmp_path / "folder.ring").mkdir()
    page = Page(collector(tmp_path))
    assert page.rank(metrics.STEPS) == 4
    counts = {reason: page.value(metrics.RINGS_REJECTED, reason) for reason in REASONS}
    assert {reason: count for reason, count in counts.items() if count} == {
        "magic": 2,
        "version": 1,
        "byte_order": 1,
        "identity": 1,
        "truncated": 1,
        "symlink": 1,
        "not_regular": 2,
    }
    assert counts["geometry"] == 0
    writer.end()


def test_a_ring_truncated_and_unlinked_while_it_is_followed_stops_nothing(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    rings = collector(tmp_path)
    for writer in writers:
        writer.step(2)
    Page(rings)
    os.truncate(writers[0].path, 0)
    Page(rings)
    writers[0].path.unlink()
    for writer in writers:
        writer.step(3)
    page = Page(rings)
    assert (page.rank(metrics.STEPS, 0), page.rank(metrics.STEPS, 1)) == (5, 5)
    for writer in writers:
        writer.end()


def test_a_ring_that_fails_to_be_read_is_counted_and_the_others_go_on(tmp_path, monkeypatch):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    rings = collector(tmp_path)
    Page(rings)
    for writer in writers:
        writer.step()
    bad = (tmp_path / "0.ring").stat().st_ino
    pread = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(5, "Input/output error")
        return pread(descriptor, size, offset)

    monkeypatch.setattr("rankscope_agent.ring_cursor.os.pread", failing)
    page = Page(rings)
    assert page.rank(metrics.STEPS, 1) == 1
    assert page.value(metrics.RINGS_REJECTED, "unreadable") == 1
    for writer in writers:
        writer.end()


def test_a_forged_record_far_ahead_harms_its_own_rank_only(tmp_path):
    honest = RingWriter(tmp_path, "0.ring", rank=0)
    forged = RingWriter(tmp_path, "1.ring", rank=1)
    rings = collector(tmp_path)
    Page(rings)
    forged.write_slot(1, record_bytes(1 + 2**40))
    honest.step(3)
    page = Page(rings)
    assert page.rank(metrics.STEPS, 0) == 3
    assert page.rank(metrics.RECORDS_LOST, 1) > 0
    honest.end()
    forged.end()


def test_an_empty_directory_is_a_success_without_rings(tmp_path):
    page = Page(collector(tmp_path))
    assert page.value(metrics.RINGS) == 0
    assert page.value(metrics.RECORDS_CORRUPT) == 0
    assert page.labels(metrics.RINGS_REJECTED) == [(reason,) for reason in REASONS]


def test_without_any_directory_there_is_no_data_and_a_hint(tmp_path):
    rings = TrainingCollector(tmp_path / "none", tmp_path / "kubelet", "gpu-01", Clock())
    with pytest.raises(NoData, match=r"RANKSCOPE_RING_DIR or --path\.ring-dir"):
        list(rings.collect())


def test_a_path_that_is_no_directory_is_told_as_such(tmp_path):
    (tmp_path / "file").write_text("")
    rings = TrainingCollector(tmp_path / "file", tmp_path / "kubelet", "gpu-01", Clock())
    with pytest.raises(NoData, match=r"cannot be read \(not_regular\)"):
        list(rings.collect())


def test_a_directory_that_appears_later_is_found(tmp_path):
    rings = TrainingCollector(tmp_path / "late", tmp_path / "kubelet", "gpu-01", Clock())
    assert not scrape("training", rings, None).success
    (tmp_path / "late").mkdir()
    writer = RingWriter(tmp_path / "late")
    writer.step()
    assert Page(rings).rank(metrics.STEPS) == 1
    writer.end()


def test_a_pods_volume_is_enough(tmp_path):
    volume = tmp_path / "kubelet/pods/uid-a/volumes/kubernetes.io~empty-dir/rankscope"
    volume.mkdir(parents=True)
    writer = RingWriter(volume, node="trainer-0")
    writer.step()
    rings = TrainingCollector(tmp_path / "none", tmp_path / "kubelet", "gpu-01", Clock())
    (info,) = Page(rings).labels(metrics.RANK_INFO)
    assert (info[2], info[5]) == ("gpu-01", "uid-a")
    writer.end()


def test_it_is_made_of_the_agents_settings(tmp_path):
    argv = ["--path.ring-dir", str(tmp_path), "--path.kubelet", str(tmp_path / "kubelet")]
    config = parse_config([*argv, "--node-name", "gpu-01"], {}, ("training",), "0")
    writer = RingWriter(tmp_path, node="")
    (info,) = Page(training.create(config)).labels(metrics.RANK_INFO)
    assert info[2] == "gpu-01"
    writer.end()


def test_eight_ranks_stay_within_the_series_budget_of_a_node(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in range(8)]
    for writer in writers:
        writer.step()
    series = sum(
        len(s.value.buckets) + 3 if isinstance(s.value, HistogramValue) else 1
        for s in Page(collector(tmp_path)).samples
    )
    assert series < 200
    for writer in writers:
        writer.end()
