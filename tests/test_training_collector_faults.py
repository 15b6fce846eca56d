"""The training collector on hostile files, failing reads, exhausted budgets, missing sources."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from collected_page import CREATED_NS, Clock, Page, collector
from counted_reading import turns_of_bytes
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.contract.model import HistogramValue
from rankscope_agent.sources.collector import NoData, scrape
from rankscope_agent.sources.training import collector as training
from rankscope_agent.sources.training.collector import TrainingCollector
from rankscope_agent.sources.training.format import REASONS, RECORD_SIZE
from ring_writer import NS, RingWriter, SpanWriter, header_page, record_bytes


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


def test_a_full_ring_is_read_over_several_runs_if_the_budget_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "TURN_RECORDS", 16)
    writers = [RingWriter(tmp_path, f"{r}.ring", rank=r, capacity=64) for r in range(3)]
    for writer in writers:
        writer.step(50)
    rings = collector(tmp_path, turns=turns_of_bytes(monkeypatch, 40 * RECORD_SIZE))
    pages = [Page(rings) for _ in range(6)]
    sums = [sum(page.rank(metrics.STEPS, rank) or 0 for rank in range(3)) for page in pages]
    assert sums == sorted(sums), "a rank's appear once its ring has been read"
    assert (sums[0], sums[-1]) == (0, 150)
    assert set(sums) <= {0, 50, 100, 150}
    for writer in writers:
        writer.end()


def test_a_ring_that_uses_up_the_budget_does_not_starve_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "TURN_RECORDS", 16)
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in range(3)]
    for age, writer in enumerate(writers):
        writer.step()
        os.utime(writer.path, (1000 + age, 1000 + age))
    rings = collector(tmp_path, turns=turns_of_bytes(monkeypatch, 16 * RECORD_SIZE))
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
    assert counts["geometry"] is None
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

    monkeypatch.setattr("rankscope_agent.sources.training.cursor.os.pread", failing)
    page = Page(rings)
    assert page.rank(metrics.STEPS, 1) == 1
    assert page.value(metrics.RINGS_REJECTED, "unreadable") == 1
    for writer in writers:
        writer.end()


def test_a_rank_whose_ring_is_read_no_longer_is_neither_alive_nor_at_a_step(tmp_path, monkeypatch):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    rings = collector(tmp_path)
    for writer in writers:
        writer.step()
    assert Page(rings).rank(metrics.RANK_ALIVE, 0) == 1
    bad = (tmp_path / "0.ring").stat().st_ino
    pread = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, size, offset)

    with monkeypatch.context() as broken:
        broken.setattr("rankscope_agent.sources.training.cursor.os.pread", failing)
        for writer in writers:
            writer.step()
        Page(rings)
    page = Page(rings)
    assert page.value(metrics.RINGS_REJECTED, "unreadable") == 1
    for state in (metrics.RANK_ALIVE, metrics.LAST_STEP, metrics.LAST_STEP_TIMESTAMP):
        assert page.labels(state) == [(page.labels(metrics.STEPS)[0][0], "1")]
    assert (page.rank(metrics.STEPS, 0), page.rank(metrics.STEPS, 1)) == (1, 2)
    for writer in writers:
        writer.end()


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "new"])
def test_a_ring_whose_lock_cannot_be_asked_for_costs_no_other_ring(tmp_path, monkeypatch, followed):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    rings = collector(tmp_path)
    if followed:
        Page(rings)
    for age, writer in enumerate(writers):
        writer.step()
        os.utime(writer.path, (2000 - age, 2000 - age))
    bad = (tmp_path / "0.ring").stat().st_ino
    flock = fcntl.flock

    def stale(descriptor: int, operation: int) -> None:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.ESTALE, "Stale file handle")
        flock(descriptor, operation)

    monkeypatch.setattr("rankscope_agent.sources.training.locks.fcntl.flock", stale)
    for _ in range(2):
        page = Page(rings)
        assert page.rank(metrics.STEPS, 1) == 1
        assert page.value(metrics.RINGS_REJECTED, "unreadable") == 1
    monkeypatch.undo()
    for writer in writers:
        writer.end()


def test_a_file_of_spans_that_cannot_be_read_costs_no_ring(tmp_path, monkeypatch):
    writer = RingWriter(tmp_path)
    writer.step(2)
    bad = SpanWriter(tmp_path).path.stat().st_ino
    pread = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, size, offset)

    monkeypatch.setattr("rankscope_agent.sources.training.companion_file.os.pread", failing)
    page = Page(collector(tmp_path))
    assert page.rank(metrics.STEPS) == 2
    assert page.value(metrics.RINGS_REJECTED, "unreadable") == 1
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
    assert page.labels(metrics.RINGS_REJECTED) == []


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
