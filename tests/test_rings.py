"""Ranks and step records on demand, out of rings that may be anything."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from known_pods import pods_of
from rankscope_agent.contract.model import STEP_COLUMNS, StepRow
from rankscope_agent.sources.training.reader import RingStepSource
from ring_writer import HEADER_FIELDS, NS, RingWriter, header_page, record_bytes

FLAG_CPU_WAIT = 1 << 6
CREATED = HEADER_FIELDS["created_unix_ns"] / NS
VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"


def source(tmp_path: Path, now: float = CREATED) -> RingStepSource:
    return RingStepSource(tmp_path, tmp_path / "kubelet", "gpu-01", lambda: now, pods_of("team"))


def column(rows: list[StepRow], name: str) -> list[object]:
    return [row[STEP_COLUMNS.index(name)] for row in rows]


def test_a_node_without_rings_has_no_ranks_and_no_steps(tmp_path):
    nothing = source(tmp_path / "none")
    assert nothing.ranks() == ()
    assert list(nothing.steps(None, 0.0)) == []


def test_a_record_becomes_a_row_in_the_order_of_the_columns(tmp_path):
    writer = RingWriter(tmp_path, rank=3, local_rank=1)
    writer.step(
        start_unix_ns=1_700_000_000_123_456_789,
        step_ns=1_234_567_891,
        data_ns=1,
        step=41,
        attempt=2,
        flags=0b100010,
    )
    (row,) = source(tmp_path).steps(None, 0.0)
    assert dict(zip(STEP_COLUMNS, row, strict=True)) == {
        "job_id": "team/job",
        "step": 41,
        "rank": 3,
        "node": "gpu-07",
        "gpu": 1,
        "t_start_unix_seconds": 1_700_000_000.123457,
        "step_seconds": 1.234567891,
        "data_seconds": 1e-9,
        "compute_seconds": 0.06,
        "sync_seconds": 0.03,
        "dp_group": 0,
        "tp_group": 3,
        "pp_stage": 0,
        "attempt": 2,
        "samples": 8,
        "flags": 1 << 5,
        "timing_source": "wall",
        "cpu_wait_seconds": None,
        "other_seconds": None,
        "microbatches": None,
        "checkpoint_seconds": None,
        "evaluation_seconds": None,
        "copies_seconds": None,
        "host_late_seconds": None,
        "loader_seconds": None,
    }
    writer.end()


def test_what_is_left_of_a_step_is_a_wait_for_cpus_where_the_probe_counted_it(tmp_path):
    writer = RingWriter(tmp_path)
    times = {"step_ns": 100, "data_ns": 10, "compute_ns": 50, "sync_ns": 30}
    writer.step(**times, flags=2 | FLAG_CPU_WAIT)
    writer.step(**times | {"data_ns": -1}, flags=2 | FLAG_CPU_WAIT)
    writer.step(**times | {"sync_ns": 60}, flags=2 | FLAG_CPU_WAIT)
    writer.step(**times, flags=2)
    writer.step(**times | {"compute_ns": -1, "sync_ns": -1}, flags=FLAG_CPU_WAIT)
    rows = list(source(tmp_path).steps(None, 0.0))
    assert column(rows, "cpu_wait_seconds") == [10e-9, 20e-9, 0.0, None, None]
    writer.end()


def test_groups_of_a_ring_are_those_of_its_rows_and_its_rank(tmp_path):
    writer = RingWriter(tmp_path, rank=6, dp_group=3, tp_group=4, pp_stage=2)
    writer.step()
    rows = list(source(tmp_path).steps(None, 0.0))
    named = [column(rows, name) for name in ("dp_group", "tp_group", "pp_stage")]
    assert named == [[2], [3], [1]]
    (rank,) = source(tmp_path).ranks()
    assert (rank.dp_group, rank.tp_group, rank.pp_stage) == (2, 3, 1)
    writer.end()


def test_what_was_not_measured_is_none_not_zero(tmp_path):
    writer = RingWriter(tmp_path, local_rank=-1)
    writer.step(data_ns=-1, compute_ns=-1, sync_ns=-1, samples=0xFFFFFFFF, flags=0)
    (row,) = source(tmp_path).steps(None, 0.0)
    named = dict(zip(STEP_COLUMNS, row, strict=True))
    assert named["data_seconds"] is named["compute_seconds"] is named["sync_seconds"] is None
    assert named["samples"] is named["gpu"] is None
    assert named["timing_source"] == "none"
    writer.end()


def test_a_rank_is_described_by_its_ring(tmp_path):
    writer = RingWriter(tmp_path, rank=2, local_rank=0, attempt=1)
    writer.step()
    (rank,) = source(tmp_path).ranks()
    assert (rank.job_id, rank.rank, rank.local_rank, rank.attempt) == ("team/job", 2, 0, 1)
    assert (rank.node, rank.timing_source, rank.launcher) == ("gpu-07", "wall", "torchrun")
    assert (rank.pid, rank.world_size, rank.alive) == (4242, 4, True)
    writer.end()
    (rank,) = source(tmp_path).ranks()
    assert not rank.alive


def test_a_launcher_of_no_known_word_does_not_become_a_label(tmp_path):
    RingWriter(tmp_path, launcher="free-text").end()
    (rank,) = source(tmp_path).ranks()
    assert (rank.launcher, rank.timing_source) == ("other", "none")


def test_of_a_restarted_rank_the_newest_process_is_told(tmp_path):
    for attempt, name in ((1, "new.ring"), (0, "old.ring")):
        created = HEADER_FIELDS["created_unix_ns"] + attempt * NS
        RingWriter(tmp_path, name, attempt=attempt, pid=10 + attempt, created_unix_ns=created).end()
    (rank,) = source(tmp_path).ranks()
    assert (rank.attempt, rank.pid) == (1, 11)


@pytest.mark.parametrize(("seconds", "pids"), [(30.0, [12, 13]), (30.1, [10, 11])])
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_process_beside_ranks_that_go_on_has_replaced_none(tmp_path, seconds, pids, world_size):
    for rank in range(2):
        trainer = RingWriter(tmp_path, f"{rank}.ring", rank=rank, world_size=2, pid=10 + rank)
        trainer.step(1, start_unix_ns=round((CREATED + 60) * NS), step_ns=NS)
    joined = round((CREATED + 61 - seconds) * NS)
    for rank in range(2):
        engine = {"rank": rank, "world_size": world_size, "pid": 12 + rank}
        RingWriter(tmp_path, f"engine-{rank}.ring", created_unix_ns=joined, **engine)
    assert [rank.pid for rank in source(tmp_path, CREATED + 62).ranks()] == pids


def test_ranks_that_left_a_job_when_it_shrank_are_not_told(tmp_path):
    for rank in range(4):
        RingWriter(tmp_path, f"{rank}.ring", rank=rank, world_size=4).end()
    later = HEADER_FIELDS["created_unix_ns"] + NS
    for rank in range(2):
        name = f"{rank}-again.ring"
        RingWriter(tmp_path, name, rank=rank, world_size=2, created_unix_ns=later).end()
    ranks = source(tmp_path).ranks()
    assert [(rank.rank, rank.world_size) for rank in ranks] == [(0, 2), (1, 2)]


def test_a_job_that_ended_is_told_for_ten_minutes(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(10)
    writer.end()
    ended = CREATED + 1.1
    assert len(source(tmp_path, ended + 599).ranks()) == 1
    assert source(tmp_path, ended + 601).ranks() == ()


def test_a_hung_job_is_told_with_all_its_ranks_however_long_it_hangs(tmp_path):
    hung = RingWriter(tmp_path, "0.ring", rank=0)
    RingWriter(tmp_path, "1.ring", rank=1).end()
    ranks = source(tmp_path, CREATED + 10**6).ranks()
    assert [(rank.rank, rank.alive) for rank in ranks] == [(0, True), (1, False)]
    hung.end()


def test_steps_come_oldest_first_for_one_rank_after_the_other(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (1, 0)]
    for writer in writers:
        writer.step(40)
        writer.end()
    rows = list(source(tmp_path).steps(None, 0.0))
    assert column(rows, "rank") == [0] * 16 + [1] * 16
    assert column(rows, "step") == [*range(24, 40), *range(24, 40)]


def test_steps_of_all_processes_of_a_rank_come_in_their_order(tmp_path):
    later = HEADER_FIELDS["created_unix_ns"] + 9 * NS
    for name, created, attempt in (("b.ring", later, 1), ("a.ring", later - NS, 0)):
        writer = RingWriter(tmp_path, name, created_unix_ns=created, attempt=attempt)
        writer.step(2, attempt=attempt)
        writer.end()
    assert column(list(source(tmp_path).steps(None, 0.0)), "attempt") == [0, 0, 1, 1]


def test_steps_of_one_job_are_told_from_those_of_another(tmp_path):
    for job in ("team/a", "team/b"):
        writer = RingWriter(tmp_path, f"{job[-1]}.ring", job_id=job)
        writer.step(3)
        writer.end()
    assert column(list(source(tmp_path).steps("team/b", 0.0)), "job_id") == ["team/b"] * 3
    assert list(source(tmp_path).steps("team/c", 0.0)) == []


@pytest.mark.parametrize("since_step", [0, 1, 100, 3000, 4094, 4095, 4096, 5000])
def test_since_leaves_out_exactly_the_steps_that_began_earlier(tmp_path, since_step):
    writer = RingWriter(tmp_path, capacity=4096)
    writer.step(4096)
    writer.end()
    since = CREATED + since_step / 10
    rows = list(source(tmp_path).steps(None, since))
    assert column(rows, "step") == list(range(max(0, since_step - 1), 4096))


@pytest.mark.parametrize(
    ("step_seconds", "before", "last"),
    [
        (1.0, 300.0, 63),  # 64 steps
        (0.1, 300.0, 199),  # 20 seconds
        (0.001, 300.0, 4095),  # no more than so many
        (1.0, 40.0, 38),
        (1.0, 0.0, -1),
    ],
)
def test_the_start_of_a_ring_is_as_long_as_a_pace_takes_to_show(
    tmp_path, step_seconds, before, last
):
    writer = RingWriter(tmp_path, capacity=8192)
    first = HEADER_FIELDS["created_unix_ns"] + NS
    for number in range(8000 if step_seconds < 0.01 else 300):
        writer.step(start_unix_ns=first + int(number * step_seconds * NS))
    writer.end()
    found = column(list(source(tmp_path).starts("team/job", CREATED + before)), "step")
    assert found == list(range(last + 1))
    assert list(source(tmp_path).starts("another/job", CREATED + before)) == []


def test_what_is_left_of_a_ring_that_went_round_has_the_earliest_start_that_is_known(tmp_path):
    writer = RingWriter(tmp_path, capacity=4096)
    writer.step(5000)
    writer.end()
    found = column(list(source(tmp_path).starts(None, CREATED + 1e6)), "step")
    assert (found[0], len(found)) == (5000 - 4096, 200)


@pytest.mark.parametrize(("pause", "attempts"), [(60.0, [0, 1]), (1900.0, [1])])
def test_the_start_of_a_former_job_of_the_same_name_is_not_this_ones(tmp_path, pause, attempts):
    begin = HEADER_FIELDS["created_unix_ns"]
    for number in range(2):
        created = begin + int(number * (10 + pause) * NS)
        writer = RingWriter(tmp_path, f"{number}.ring", attempt=number, created_unix_ns=created)
        for step in range(10):
            writer.step(start_unix_ns=created + step * NS, attempt=number)
        writer.end()
    rows = list(source(tmp_path, CREATED + 1e5).starts(None, CREATED + 1e5))
    assert sorted(set(column(rows, "attempt"))) == attempts


def test_asking_again_since_the_newest_moment_repeats_that_record_only(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(5, start_unix_ns=1_700_000_000_123_456_789)
    rows = list(source(tmp_path).steps(None, 0.0))
    since = rows[-1][STEP_COLUMNS.index("t_start_unix_seconds")]
    assert list(source(tmp_path).steps(None, since)) == rows
    writer.end()


def test_a_clock_set_back_during_the_job_hides_no_step(tmp_path):
    writer = RingWriter(tmp_path, capacity=8192)
    writer.step(3000)
    back = HEADER_FIELDS["created_unix_ns"] + 2950 * NS // 10
    for number in range(3000):
        writer.step(start_unix_ns=back + number * NS // 10)
    writer.end()
    rows = list(source(tmp_path).steps(None, CREATED + 298))
    assert column(rows, "step") == [*range(2979, 3000), *range(3030, 6000)]


@pytest.mark.parametrize("since", [-1e308, 1e308, float("inf"), float("-inf")])
def test_absurd_moments_raise_nothing(tmp_path, since):
    writer = RingWriter(tmp_path)
    writer.step(3)
    writer.end()
    assert len(list(source(tmp_path).steps(None, since))) == (3 if since < 0 else 0)


def test_a_bad_ring_has_no_ranks_and_no_steps_and_the_good_one_has(tmp_path):
    writer = RingWriter(tmp_path, "good.ring")
    writer.step()
    (tmp_path / "bad.ring").write_bytes(header_page(rank=7))
    (tmp_path / "noise.ring").write_bytes(os.urandom(9000))
    (tmp_path / "link.ring").symlink_to(tmp_path / "good.ring")
    os.mkfifo(tmp_path / "fifo.ring")
    assert [rank.rank for rank in source(tmp_path).ranks()] == [0]
    assert len(list(source(tmp_path).steps(None, 0.0))) == 1
    writer.end()


def test_corrupt_records_are_not_handed_out(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(3)
    writer.write_slot(2, record_bytes(2, step_ns=-7))
    assert column(list(source(tmp_path).steps(None, 0.0)), "step") == [0, 2]
    writer.end()


def test_rings_of_pods_are_read_with_the_agents_node(tmp_path):
    volume = tmp_path / "kubelet" / "pods" / "uid-a" / VOLUME
    volume.mkdir(parents=True)
    writer = RingWriter(volume, node="trainer-0")
    writer.step()
    (rank,) = source(tmp_path).ranks()
    assert (rank.node, rank.pod_uid, rank.pod_namespace) == ("gpu-01", "uid-a", "team")
    assert column(list(source(tmp_path).steps(None, 0.0)), "node") == ["gpu-01"]
    writer.end()


def test_a_ring_that_goes_between_the_look_and_the_reading_ends_the_answer_in_peace(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1, 2)]
    for writer in writers:
        writer.step(2)
    rows = source(tmp_path).steps(None, 0.0)
    first = next(rows)
    writers[1].path.unlink()
    os.truncate(writers[2].path, 0)
    rest = list(rows)
    assert column([first, *rest], "rank") == [0, 0]
    for writer in writers:
        writer.end()


def test_a_ring_put_in_the_place_of_another_is_not_told_under_its_name(tmp_path):
    writers = [RingWriter(tmp_path, f"{rank}.ring", rank=rank) for rank in (0, 1)]
    for writer in writers:
        writer.step()
    rows = source(tmp_path).steps(None, 0.0)
    first = next(rows)
    other = RingWriter(tmp_path, "1.ring", rank=9, job_id="other")
    other.step()
    assert column([first, *rows], "rank") == [0]
    for writer in (*writers, other):
        writer.end()


def test_an_answer_that_nobody_finishes_reading_leaves_no_descriptor(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(5)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    rows = source(tmp_path).steps(None, 0.0)
    next(rows)
    rows.close()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
    writer.end()


def test_an_answer_ends_although_its_writer_never_does(tmp_path):
    writer = RingWriter(tmp_path)
    writer.step(16)
    for seen, _ in enumerate(source(tmp_path).steps(None, 0.0), start=1):
        writer.step()
        assert seen <= 16
    writer.end()


def test_many_threads_get_the_same_answer_while_the_ring_is_written(tmp_path):
    writer = RingWriter(tmp_path, capacity=4096)
    writer.step(1000)
    rings, answers = source(tmp_path), []

    def ask() -> None:
        answers.append(column(list(rings.steps(None, 0.0)), "step")[:1000])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    writer.step(500)
    for thread in threads:
        thread.join(timeout=60)
    assert answers == [list(range(1000))] * 4
    writer.end()


@pytest.mark.parametrize(("seconds", "told"), [(299.0, None), (301.0, 301.0), (-301.0, -301.0)])
def test_a_clock_more_than_five_minutes_from_its_nodes_is_told(tmp_path, seconds, told):
    ring = RingWriter(tmp_path)
    ring.step(start_unix_ns=round((CREATED + seconds - 1) * NS), step_ns=NS)
    os.utime(ring.path, (CREATED, CREATED))
    (rank,) = source(tmp_path).ranks()
    assert rank.clock_ahead_seconds == told
    ring.end()


def test_processes_of_128_live_ranks_are_found(tmp_path):
    rings = [RingWriter(tmp_path, f"{number}.ring", rank=number) for number in range(129)]
    assert len(source(tmp_path).holders(())) == 128
    for ring in rings:
        ring.end()
