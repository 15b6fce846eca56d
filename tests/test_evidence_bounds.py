"""Limits of what is kept of a job that stands: the last that is taken and the first that is not."""

from __future__ import annotations

import gzip
import json
import os
from types import SimpleNamespace

import pytest

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.sources.evidence import ras_report, saved_evidence
from rankscope_agent.sources.evidence.hang_recorder import HangRecorder
from rankscope_agent.sources.evidence.kernel_lines import kernel_lines
from rankscope_agent.sources.evidence.log_tails import LogTails, last_lines
from rankscope_agent.sources.evidence.process_states import process_state
from rankscope_agent.sources.evidence.ras_report import RasReports
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence
from rankscope_agent.sources.evidence.stalled_jobs import StalledJob, StalledJobs
from rankscope_agent.sources.kernel_log.kmsg import KmsgSource
from rankscope_agent.sources.kernel_log.records import Batch, Record
from ring_writer import NS
from standing_jobs import NOW, Clock, evidence_of, standing_ring

MEBI = 1 << 20


class Jobs:
    """Jobs that stand, one or more at each look."""

    def __init__(self, *looks):
        self.looks = [list(look) for look in looks]

    def at(self, now):
        return self.looks.pop(0)


class Evidence:
    """What a node knows, which is nothing here; says which jobs were asked about."""

    def __init__(self):
        self.asked = []

    def part(self, name, job_id):
        self.asked.append(job_id)
        return {}

    def steps(self, job_id, until_unix_seconds):
        return {}


class Waits:
    """An event that is set after some waits, and says how long those were to be."""

    def __init__(self, waits):
        self.left, self.seconds = waits, []

    def wait(self, seconds):
        self.seconds.append(seconds)
        self.left -= 1
        return self.left < 0


def keeper(folder, jobs, evidence, clock=None, **changes):
    return HangRecorder(
        "n1", jobs, evidence, lambda: "", SavedEvidence(folder), clock or Clock(), **changes
    )


def test_jobs_are_looked_for_every_ten_seconds_and_a_page_is_taken_again_after_five(
    tmp_path, monkeypatch
):
    waits = Waits(2)
    monkeypatch.setattr("threading.Event", lambda: waits)
    keeper(tmp_path, Jobs([StalledJob("team/job", NOW)]), Evidence()).run()
    assert waits.seconds == [10, 5, 10]


def test_what_is_kept_has_the_form_of_version_1(tmp_path, monkeypatch):
    monkeypatch.setattr("threading.Event", lambda: Waits(2))
    keeper(tmp_path, Jobs([StalledJob("team/job", NOW)]), Evidence()).run()
    (kept,) = (tmp_path / "hangs").iterdir()
    assert json.loads(gzip.decompress(kept.read_bytes()))["format_version"] == 1


@pytest.mark.parametrize(("after", "taken"), [(3599.0, 1), (3600.0, 2), (-1.0, 2)])
def test_a_job_that_stands_anew_is_taken_again_an_hour_later(tmp_path, after, taken):
    clock, evidence = Clock(), Evidence()
    standing = ([StalledJob("a", since)] for since in (NOW - 60, NOW - 61))
    kept = keeper(tmp_path, Jobs(*standing), evidence, clock, apart=0.0)
    kept.look()
    clock.now += after
    kept.look()
    assert len(evidence.asked) == taken * 6


@pytest.mark.parametrize(("others", "again"), [(255, 0), (256, 1)])
def test_256_jobs_are_known_to_have_been_taken(tmp_path, others, again):
    clock, evidence = Clock(), Evidence()
    first = StalledJob("first", NOW)
    rest = [StalledJob(f"job-{number}", NOW) for number in range(others)]
    kept = keeper(tmp_path, Jobs([first], rest, [first]), evidence, clock, apart=0.0)
    for _ in range(3):
        clock.now += 1.0
        kept.look()
    assert evidence.asked.count("first") == 6 * (1 + again)


def name(number):
    return f"{1_800_000_000 + number}-00000000"


def with_sizes(folder, sizes):
    (folder / "hangs").mkdir()
    for number, size in enumerate(sizes):
        with (folder / "hangs" / f"{name(number)}.json.gz").open("wb") as sink:
            sink.truncate(size)


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ([100] * 15, 16),
        ([100] * 16, 16),
        ([4 * MEBI] * 7 + [4 * MEBI - 4096], 9),
        ([4 * MEBI] * 8, 8),
    ],
    ids=["sixteen", "seventeen", "32 MiB", "more than 32 MiB"],
)
def test_sixteen_are_kept_on_disk_of_32_mebibytes_together(tmp_path, sizes, left):
    with_sizes(tmp_path, sizes)
    kept = SavedEvidence(tmp_path)
    assert kept.put(name(99), {"a": 1})
    assert len(kept.names()) == left
    assert kept.get(name(99)) == {"a": 1}


@pytest.mark.parametrize(("size", "taken"), [(4 * MEBI, True), (4 * MEBI + 1, False)])
def test_one_has_four_mebibytes_at_most(tmp_path, monkeypatch, size, taken):
    monkeypatch.setattr(saved_evidence.gzip, "compress", lambda *_: bytes(size))
    assert SavedEvidence(tmp_path).put(name(0), {}) is taken


@pytest.mark.parametrize(("size", "left"), [(1 * MEBI, 4), (4 * MEBI // 3 + 1, 2)])
def test_four_mebibytes_are_held_in_memory(tmp_path, monkeypatch, size, left):
    (tmp_path / "hangs").write_text("a file in place of the directory")
    monkeypatch.setattr(saved_evidence.gzip, "compress", lambda *_: bytes(size))
    kept = SavedEvidence(tmp_path)
    for number in range(6):
        kept.put(name(number), {})
    assert kept.names() == [name(number) for number in range(6 - left, 6)]


def test_what_could_not_be_written_leaves_at_most_one_file(tmp_path):
    for number in range(3):
        (tmp_path / "hangs" / f"{name(number)}.json.gz").mkdir(parents=True)
        assert SavedEvidence(tmp_path).put(name(number), {})
    assert len(list((tmp_path / "hangs").glob("*.tmp"))) == 1


@pytest.mark.parametrize(("size", "read"), [(64 * MEBI, {"a": 1}), (64 * MEBI + 1, None)])
def test_one_unpacks_to_64_mebibytes_at_most(tmp_path, size, read):
    (tmp_path / "hangs").mkdir()
    text = b'{"a": 1}'.ljust(size)
    (tmp_path / "hangs" / f"{name(0)}.json.gz").write_bytes(gzip.compress(text, 1))
    assert SavedEvidence(tmp_path).get(name(0)) == read


class Ring:
    """A way to the kernel's log that gives these records."""

    name = "kmsg"

    def __init__(self, *texts):
        self.texts = texts

    def read(self, state):
        records = [Record(number, 1.0, text) for number, text in enumerate(self.texts)]
        return Batch(records, {}, 0)

    def close(self):
        pass


def test_the_newest_2000_lines_of_the_kernel_are_kept_of_1024_characters():
    ring = Ring(b"first", *[b"line"] * 1999, b"x" * 1025)
    found = kernel_lines([lambda: ring], 0.0)
    assert (len(found["lines"]), found["left_out"]) == (2000, 1)
    assert found["lines"][0].endswith(" line")
    assert found["lines"][-1].endswith(" " + "x" * 1024)


def test_the_newest_lines_of_the_kernels_log_are_kept_however_many_it_holds(tmp_path):
    lines = [b"4,%d,%d,-;line %d\n" % (number, number, number) for number in range(25_000)]
    lines.append(b"4,25000,25000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\n")
    (tmp_path / "kmsg").touch()
    reads = iter([*lines, b"", b""])
    ring = KmsgSource(os.open(tmp_path / "kmsg", os.O_RDONLY), lambda *_: next(reads))
    found = kernel_lines([lambda: ring], 0.0)
    assert (len(found["lines"]), found["left_out"]) == (2000, 23_001)
    assert "Xid" in found["lines"][-1]


@pytest.mark.parametrize(("size", "first"), [(2 * MEBI, "first"), (2 * MEBI + 1, "the end")])
def test_two_mebibytes_of_a_logs_end_are_read(tmp_path, size, first):
    log = tmp_path / "a.log"
    log.write_bytes(b"first\n" + b"the end".ljust(size - 7) + b"\n")
    (found,) = LogTails(tmp_path / "none", (log,)).of((), outside=True)
    assert found["lines"][0].strip() == first


@pytest.mark.parametrize(("logs", "read"), [(64, 64), (65, 64)])
def test_64_logs_are_read(tmp_path, logs, read):
    for number in range(logs):
        (tmp_path / f"{number}.log").write_text("line\n")
    tails = LogTails(tmp_path / "none", (tmp_path / "*.log",))
    assert len(tails.of((), outside=True)) == read


def test_of_more_logs_outside_of_pods_those_written_last_are_read(tmp_path):
    for number in range(70):
        log = tmp_path / f"job-{100 + number}.out"
        log.write_text(f"{number}\n")
        os.utime(log, (NOW + number, NOW + number))
    os.utime(tmp_path / "job-100.out", (NOW + 100, NOW + 100))
    found = LogTails(tmp_path / "none", (tmp_path / "*.out",)).of((), outside=True)
    assert [one["lines"] for one in found] == [["0"], *([str(n)] for n in range(7, 70))]


def test_2048_characters_are_kept_of_a_line():
    assert last_lines(b"x" * 2049 + b"\n") == ["x" * 2048]


@pytest.mark.parametrize(("ranks", "lines"), [(256, 256), (257, 257), (258, 257)])
def test_256_ranks_of_a_log_have_lines_of_their_own(ranks, lines):
    data = b"".join(b"[rank%d]: here\n" % rank for rank in range(ranks))
    assert len(last_lines(data, kept=1)) == lines


def test_the_newest_500_steps_of_a_rank_are_kept(tmp_path):
    ring = standing_ring(tmp_path, quiet=1000.0, capacity=1024)
    for step in range(510):
        ring.step(start_unix_ns=round((NOW - 600 + step) * NS))
    assert len(evidence_of(tmp_path, Clock()).steps("team/job", NOW - 60)["rows"]) == 500


@pytest.mark.parametrize(("ranks", "kept"), [(64, 64), (65, 64)])
def test_64_ranks_are_kept(tmp_path, ranks, kept):
    for rank in range(ranks):
        standing_ring(tmp_path, f"7-{rank}.ring", rank=rank, world_size=ranks)
    evidence = evidence_of(tmp_path, Clock())
    assert len(evidence.steps("team/job", NOW - 60)["rows"]) == kept
    assert len(evidence.part("processes", "team/job")["processes"]) == kept


@pytest.mark.parametrize(("before", "kept"), [(3590.0, 2), (3610.0, 1)])
def test_no_step_is_kept_of_an_hour_before_the_last_one(tmp_path, before, kept):
    ring = standing_ring(tmp_path, quiet=60.0 + before)
    ring.step(start_unix_ns=round((NOW - 60.1) * NS))
    assert len(evidence_of(tmp_path, Clock()).steps("team/job", NOW - 60)["rows"]) == kept


@pytest.mark.parametrize(("before", "kept"), [(599.0, 1), (601.0, 0)])
def test_the_kernels_log_of_ten_minutes_before_a_job_is_kept(tmp_path, monkeypatch, before, kept):
    standing_ring(tmp_path)  # of a process that began at NOW - 1000
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setattr("time.clock_gettime", lambda _: 1001.0 + before)
    found = evidence_of(tmp_path, Clock(), kernel=[lambda: Ring(b"line")])
    assert len(found.part("kernel", "team/job")["kernel"]["lines"]) == kept


@pytest.mark.parametrize(("threads", "left_out"), [(512, 0), (513, 1)])
def test_512_threads_of_a_process_are_listed(tmp_path, threads, left_out):
    place = tmp_path / "77"
    stat = "77 (python) S 1 77 77 0 -1 4194304 1 0 0 0 300 100 0 0 20 0 1\n"
    for thread in range(threads):
        (place / "task" / str(1000 + thread)).mkdir(parents=True)
        (place / "task" / str(1000 + thread) / "stat").write_text(stat)
    (place / "status").write_text("State:\tS (sleeping)\n")
    (place / "stat").write_text(stat)
    found = process_state(tmp_path, 77)
    assert (len(found["threads"]), found["threads_left_out"]) == (512, left_out)


@pytest.mark.parametrize(("before", "known"), [((16 << 10) - 11, True), (16 << 10, False)])
def test_16_kibibytes_of_a_processs_status_are_read(tmp_path, before, known):
    place = tmp_path / "77"
    place.mkdir()
    (place / "status").write_text("Groups:\t".ljust(before - 1) + "\nThreads:\t1\n")
    assert ("Threads" in process_state(tmp_path, 77)["status"]) is known


def test_ras_has_five_seconds_to_report(monkeypatch):
    given = []

    def ask(host, port, seconds, form):
        given.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(ras_report, "ask", ask)
    report = RasReports(ListenAddress("localhost", 28028), Clock()).report()
    assert given == [5]
    assert report["not_read"] == "localhost:28028 does not report within 5 s"


class Rings:
    def __init__(self, **changes):
        identity = SimpleNamespace(alive=True, job_id="team/job", rank=0)
        values = {"last_step_seconds": 1.0, "newest": 7, "active_unix_seconds": NOW}
        self.ring = SimpleNamespace(identity=identity, **values | changes)

    def rings_of(self, job_id):
        return [self.ring]


class Spans:
    def __init__(self, *spans):
        self.spans = spans

    def of_ring(self, ring):
        return self.spans


@pytest.mark.parametrize(
    ("ring", "seconds"),
    [
        ({}, 60),
        ({"last_step_seconds": 11.9}, 60),
        ({"last_step_seconds": 30.0}, 150),
        ({"newest": 0}, 600),
    ],
    ids=["usual", "of 12 s", "of 30 s", "before its first step"],
)
def test_a_job_stands_after_a_minute_or_five_of_its_steps(ring, seconds):
    jobs = StalledJobs(Rings(**ring), Spans())
    assert not list(jobs.at(NOW + seconds - 0.5))
    assert list(jobs.at(NOW + seconds)) == [StalledJob("team/job", NOW)]


def span(began, duration=None):
    return SimpleNamespace(
        start_unix_ns=(NOW + began) * 1e9,
        is_open=duration is None,
        duration_ns=(duration or 0) * NS,
    )


@pytest.mark.parametrize(
    ("one", "stands"),
    [
        (span(-1799), False),
        (span(-1800), True),
        (span(-400, 341), False),
        (span(-400, 339), True),
    ],
    ids=["open", "open for too long", "ended just now", "ended a minute ago"],
)
def test_a_job_in_a_checkpoint_of_half_an_hour_or_a_minute_after_it_does_not_stand(one, stands):
    jobs = StalledJobs(Rings(active_unix_seconds=NOW - 5000), Spans(one))
    assert bool(list(jobs.at(NOW))) is stands
