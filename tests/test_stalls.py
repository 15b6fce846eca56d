"""Where ranks stand: asked of their worker servers, given by the agent, read again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flight_servers import answer_with, dump, entry, serving
from rankscope_agent.contract import flight_dump, stalls, thread_stacks
from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.sources.stalls import stall_source
from rankscope_agent.sources.stalls.process import parse, process_state, wanted_share
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.sources.training import files
from rankscope_agent.sources.training.reader import RingStepSource
from ring_writer import NS, RingWriter

KEPT_CALLS = 8
MAX_PENDING = 32
MAX_TEXT = 256
MAX_FRAMES = 64
NOW = 1_800_000_000.0
TEXT = """Current thread 0x00007fd8f5ffb6c0 (most recent call first):
  <no Python frame>

Thread 0x00007fd920000001 [pt_data_pin] (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Thread 0x00007fd92044eb80 (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/me/train \x1b[31m.py", line 26 in work
"""
STACK = (
    Frame("all_reduce", "/x/torch/distributed/distributed_c10d.py", 3252),
    Frame("work", "/home/me/train  [31m.py", 26),
)


def test_the_programs_own_thread_comes_last_and_is_taken():
    assert thread_stacks.training_thread(TEXT) == STACK


@pytest.mark.parametrize("depth", [1, 70])
def test_a_thread_in_which_ray_trains_is_taken_instead(depth):
    runner = "/x/ray/train/v2/_internal/execution/worker_group/thread_runner.py"
    threads = (
        (f'  File "{runner}", line 68 in _monitor_target\n',),
        ('  File "/home/me/work.py", line 24 in train\n',)
        + ('  File "/x/y.py", line 1 in z\n',) * depth
        + (f'  File "{runner}", line 37 in _run_target\n',),
        ('  File "/x/ray/_private/worker.py", line 1069 in main_loop\n',),
    )
    head = "Thread 0x00007fd92044eb80 (most recent call first):\n"
    text = "\n".join(head + "".join(frames) for frames in threads)
    stack = thread_stacks.training_thread(text)
    assert stack[0] == Frame("train", "/home/me/work.py", 24)
    assert {frame.function for frame in stack} <= {"train", "z", "_run_target"}


@pytest.mark.parametrize("text", ["", "garbage\n" * 1000, "Thread 0x1 (most recent call first):"])
def test_other_texts_have_no_frames(text):
    assert thread_stacks.training_thread(text) == ()


def test_stacks_are_bounded():
    endless = TEXT + '  File "a", line 1 in b\n' * 10_000
    assert len(thread_stacks.training_thread(endless)) == MAX_FRAMES


def served(body, text=TEXT):
    """Answer as a worker server with a recorder and stacks does."""

    def answer(connection, request):
        if request.startswith(b"GET /handler/ "):
            connection.sendall(answer_with(b'["fr_trace_json", "dump_traceback"]'))
        elif b"/fr_trace_json" in request:
            connection.sendall(answer_with(body))
        else:
            connection.sendall(answer_with(text.encode()))

    return answer


def source(rings: Path, clock=lambda: NOW, procfs: Path = Path("/proc")) -> StallSource:
    return StallSource(RingStepSource(rings, rings / "none", "n1", clock), procfs, clock)


def quiet_ring(rings, name="7-8.ring", seconds=30.0, **header):
    ring = RingWriter(rings, name, created_unix_ns=round((NOW - 100) * NS), **header)
    ring.step(start_unix_ns=round((NOW - seconds - 0.1) * NS))
    return ring


def test_a_quiet_rank_is_asked_for_its_collectives_and_its_stack(tmp_path):
    quiet_ring(tmp_path, rank=3)
    at = round((NOW - 29) * NS)
    body = dump(entry(1, at), entry(2, at + 5, retired=False))
    with serving(tmp_path / "7-8.sock", served(body)):
        (found,) = source(tmp_path).stalls("team/job")
    assert (found.rank, found.world_size, found.stepped) == (3, 4, True)
    assert found.quiet_seconds == pytest.approx(30.0)
    assert found.stack == STACK
    (group,) = found.groups
    assert (group.name, group.description, group.enqueued) == ("0", "default_pg", 2)
    assert [(one.sequence, one.shape, one.done) for one in group.calls] == [
        (1, "3 Float", True),
        (2, "3 Float", False),
    ]
    assert stalls.read(json.loads(json.dumps(stalls.as_object(found)))) == found


def test_groups_of_both_backends_of_a_rank_are_told(tmp_path):
    """The recorder of NCCL has more entries; what the rank waits in is a barrier of gloo."""
    quiet_ring(tmp_path, rank=3)
    at = round((NOW - 29) * NS)
    trained = dump(*(entry(n, at, profiling_name="nccl:all_reduce") for n in (1, 2, 3)))
    waits = dump(entry(1, at, profiling_name="gloo:barrier", retired=False))

    def answer(connection, request):
        if request.startswith(b"GET /handler/ "):
            connection.sendall(answer_with(b'["dump_nccl_trace_json", "fr_trace_json"]'))
        else:
            connection.sendall(answer_with(waits if b"/fr_trace_json" in request else trained))

    with serving(tmp_path / "7-8.sock", answer):
        (found,) = source(tmp_path).stalls("team/job")
    assert [one.key for one in found.groups] == [("0", "nccl"), ("0", "gloo")]
    assert [one.calls[-1].done for one in found.groups] == [True, False]


def test_a_rank_that_goes_on_is_left_alone_and_a_quiet_one_is_not_asked_twice(tmp_path):
    quiet_ring(tmp_path, "7-8.ring", 1.0, rank=0)
    quiet_ring(tmp_path, "7-9.ring", 30.0, rank=1)
    with (
        serving(tmp_path / "7-8.sock", served(dump())) as healthy,
        serving(tmp_path / "7-9.sock", served(dump(entry(1, 1)))) as quiet,
    ):
        looks = source(tmp_path)
        assert [one.rank for one in looks.stalls(None)] == [1]
        asked = len(quiet)
        assert [one.rank for one in looks.stalls(None)] == [1]
    assert healthy == []
    assert asked == len(quiet) > 0


def test_long_steps_have_more_time(tmp_path):
    ring = RingWriter(tmp_path, "7-8.ring", created_unix_ns=round((NOW - 100) * NS))
    ring.step(start_unix_ns=round((NOW - 50) * NS), step_ns=20 * NS)
    assert source(tmp_path).stalls(None) == ()
    assert len(source(tmp_path, lambda: NOW + 20).stalls(None)) == 1


def test_ended_ranks_and_other_jobs_are_left_out(tmp_path):
    quiet_ring(tmp_path, "7-8.ring").end()
    quiet_ring(tmp_path, "7-9.ring", job_id="team/other")
    assert source(tmp_path).stalls("team/job") == ()
    assert len(source(tmp_path).stalls(None)) == 1


def test_where_locks_do_not_work_a_rank_whose_next_process_trains_does_not_stand(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "is_held", lambda descriptor: None)
    before = RingWriter(tmp_path, "1-1.ring", pid=1, created_unix_ns=round((NOW - 300) * NS))
    before.step(start_unix_ns=round((NOW - 299) * NS))
    before.end()
    after = RingWriter(tmp_path, "2-2.ring", pid=2, created_unix_ns=round((NOW - 100) * NS))
    after.step(start_unix_ns=round((NOW - 1) * NS))
    for ring, ago in ((before, 298), (after, 0)):
        os.utime(ring.path, (NOW - ago, NOW - ago))
    assert source(tmp_path).stalls(None) == ()
    (found,) = source(tmp_path, lambda: NOW + 10).stalls(None)
    assert found.quiet_seconds < 12


def hangs_up(connection, _):
    connection.sendall(b"no http")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "it has no worker server"),
        (hangs_up, "ends after"),
        (served(b"[]"), "no object"),
        (served(dump(version="3.1")), "expected 2.x"),
    ],
)
def test_why_nothing_came_of_a_rank_is_said(tmp_path, answer, why):
    quiet_ring(tmp_path)
    if answer is None:
        (found,) = source(tmp_path).stalls(None)
    else:
        with serving(tmp_path / "7-8.sock", answer):
            (found,) = source(tmp_path).stalls(None)
    assert why in found.recorder
    assert (found.groups, found.stack) == ((), ())


def test_the_process_that_holds_the_ring_is_known_with_its_state(tmp_path):
    (tmp_path / "rings").mkdir()
    ring = quiet_ring(tmp_path / "rings")
    status = next((tmp_path / "rings").glob("*.ring")).stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    process = tmp_path / "proc" / "77"
    process.mkdir(parents=True)
    lock = f"1: FLOCK  ADVISORY  WRITE 77 {device} 0 EOF\n"
    (tmp_path / "proc" / "locks").write_text(lock)
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"77 (py) thon) D 1 77 77 0 -1 4194304 1 0 0 0 {3 * ticks} {ticks} 0 0 20 0 1\n"
    (process / "stat").write_text(stat)
    (found,) = source(tmp_path / "rings", procfs=tmp_path / "proc").stalls(None)
    assert (found.state, found.cpu_seconds) == ("D", 4.0)
    ring.end()


@pytest.mark.parametrize("text", ["", "77 (x", "77 (x) S 1 2", "77 (x) S " + "y " * 40])
def test_other_texts_tell_no_state(text):
    assert parse(text).cpu_seconds is None


def real(**changes):
    time_ns = round(time.time()) * NS
    read = flight_dump.read(dump(entry(1, time_ns), entry(2, time_ns, retired=False)))
    whole = stalls.RankStall(
        *("job", 1, 4, NOW, 60.0, True, "S", 1.0),
        *(stalls.groups_of(read), "", STACK, ""),
    )
    return json.loads(json.dumps(stalls.as_object(whole))) | changes


def batch(number, *names, done, seq=0, message=True):
    """Give a batch of NCCL: only the entry that ends it ever gets a state."""
    common = {"is_p2p": message, "p2p_seq_id": number if message else 0}
    common["collective_seq_id"] = seq if message else number
    parts = [entry(1, 10 * number, profiling_name=name, retired=False) for name in names]
    last = entry(1, 10 * number + 5, profiling_name="nccl:coalesced", retired=done)
    return [one | common for one in (*parts, last)]


def numbered(*entries):
    return [one | {"record_id": at} for at, one in enumerate(entries)]


def calls_of(entries):
    (group,) = stalls.groups_of(flight_dump.read(dump(*numbered(*entries))))
    return [(one.operation, one.sequence, one.done) for one in group.calls]


def test_operations_of_a_batch_are_done_when_the_batch_is():
    """batch_isend_irecv of a pipeline: its sends and receives are "scheduled" for ever."""
    done = batch(1, "nccl:send 0->1", "nccl:recv 0<-1", done=True)
    waits = batch(2, "nccl:send 0->1", "nccl:recv 0<-1", done=False)
    assert calls_of([*done, *waits]) == [
        ("nccl:send 0->1", 1, True),
        ("nccl:recv 0<-1", 1, True),
        ("nccl:coalesced", 1, True),
        ("nccl:send 0->1", 2, False),
        ("nccl:recv 0<-1", 2, False),
        ("nccl:coalesced", 2, False),
    ]


def test_a_batch_of_collectives_that_is_done_hides_no_later_one():
    done = batch(1, "nccl:_broadcast_oop", "nccl:_broadcast_oop", done=True, message=False)
    waits = entry(2, 30, profiling_name="nccl:all_reduce", retired=False)
    assert [done for *_, done in calls_of([*done, waits])] == [True, True, True, False]


def test_what_is_kept_of_a_group_is_bounded():
    entries = [entry(n, n, retired=n > 500) for n in range(1, 1001)]
    (group,) = stalls.groups_of(flight_dump.read(dump(*entries)))
    assert len(group.calls) == MAX_PENDING + KEPT_CALLS
    assert (group.enqueued, group.calls[0].sequence) == (1000, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "a b"},
        {"rank": -1},
        {"rank": True},
        {"state": "DD"},
        {"taken_unix_seconds": "now"},
        {"groups": [{}]},
        {"groups": None},
        {"stack": [{"function": 1, "file": "", "line": 1}]},
        {"world_size": 1 << 40},
    ],
)
def test_what_no_agent_sends_is_refused(changes):
    stalls.read(real())
    with pytest.raises((LookupError, TypeError, ValueError)):
        stalls.read(real(**changes))


def test_hostile_texts_are_made_harmless():
    found = stalls.read(real(recorder="\x1b[2J" + "x" * 10_000))
    assert found.recorder.isprintable()
    assert len(found.recorder) <= MAX_TEXT


def seen_process(procfs, ticks, **threads):
    """Write what the kernel says of a process: its ticks, of threads what they ran and waited."""
    place = procfs / "77"
    place.mkdir(exist_ok=True)
    (place / "stat").write_text(f"77 (python) R {' '.join(['0'] * 10)} {ticks} 0 0 0\n")
    for name, (ran, waited) in threads.items():
        (place / "task" / name[1:]).mkdir(parents=True, exist_ok=True)
        (place / "task" / name[1:] / "schedstat").write_text(f"{ran} {waited} 5\n")
    return process_state(procfs, 77)


@pytest.mark.parametrize(
    ("ticks", "thread", "share"),
    [
        (10, (100_000_000, 800_000_000), 0.9),  # computes, where others leave it a tenth
        (10, (100_000_000, 0), 0.1),
        (70, (100_000_000, 0), 0.7),  # in many threads
        (0, (0, 0), 0.0),
    ],
)
def test_a_program_that_is_ready_to_run_wants_a_processor_however_little_it_gets(
    tmp_path, ticks, thread, share
):
    before = seen_process(tmp_path, 50, t77=(1, 1), t78=(10**9, 10**9))
    after = seen_process(
        tmp_path, 50 + ticks, t77=tuple(one + 1 for one in thread), t78=(10**9, 10**9), t79=(9, 9)
    )
    assert wanted_share(before, after, 1.0) == pytest.approx(share)


def test_what_nobody_counts_is_unknown(tmp_path):
    known = seen_process(tmp_path, 50)
    assert wanted_share(known, process_state(tmp_path, 78), 1.0) is None
    assert wanted_share(known, known, 1.0) == 0.0


def test_cpu_time_is_taken_over_half_a_second(tmp_path, monkeypatch):
    now, ticks = [100.0], os.sysconf("SC_CLK_TCK")
    seen_process(tmp_path, 0, t77=(0, 0))

    def sleep(seconds):
        now[0] += seconds
        seen_process(tmp_path, round(ticks * seconds), t77=(round(seconds * NS), 0))

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(stall_source, "time", clock)
    rings = tmp_path / "rings"
    rings.mkdir()
    ring = quiet_ring(rings)
    status = ring.path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    (tmp_path / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE 77 {device} 0 EOF\n")
    (found,) = source(rings, procfs=tmp_path).stalls(None)
    assert (found.cpu_seconds, found.cpu_share) == (0.5, 1.0)
    ring.end()
