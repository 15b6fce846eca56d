"""Tracebacks behind prefixes that no table lists: their cause is found, and so is what follows."""

from __future__ import annotations

import json

import pytest

from failure_logs import VALUE_ERROR, attempts, verdict
from rankscope_agent.contract.failures import causes
from rankscope_agent.contract.failures.log import FailureLimits, FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.log_text.learned_prefixes import LearnedPrefixes

LINES = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 88, in main',
    "    step()",
    VALUE_ERROR,
)
PREFIXES = {
    " 3: ": 3,
    "P0  3: ": 3,
    "gpu-01: ": None,
    "10.0.0.7: ": None,
    "gpu-02: [rank9]: ": 9,
    "gpu-02: [default1]:[rank9]: ": 9,
    "[prterun-gpu-01-4011@1,3]<stderr>: ": 3,
    "[1,mpirank:3,algo-2]<stderr>:": 3,
    "Sun Nov 29 02:11:04 2026[1,3]<stderr>:": 3,
    "[3] ": 3,
    "[3@gpu-01] ": 3,
    "llm-worker-3 pytorch ": None,
    "[llm-worker-3] ": None,
    "[rank-3] ": 3,
    "2026-11-29 02:11:04.113 ": None,
    '2026-11-29T02:11:04Z {pod="x-3"} ': None,
    "2026-11-29T02:11:04.113Z\t": None,
    "[2026-11-29 02:11:04,113] [ERROR] ": None,
    "1796350467123 ": None,
    "[  12.345] ": None,
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_traceback_is_read_behind_whatever_precedes_each_of_its_lines(prefix):
    text = "".join(f"{prefix}{line}\n" for line in ("step 1", *LINES, "step 2"))
    (attempt,) = attempts(text)
    first = attempt.first
    assert (first.cause, first.rank) == (causes.USER_EXCEPTION, PREFIXES[prefix])
    assert (first.text, first.frame) == (VALUE_ERROR, "/app/train.py:88, in main")


def test_times_before_the_lines_may_differ():
    text = "".join(
        f"2026-11-29 02:11:0{second}.{'1' * (second + 1)} UTC {line}\n"
        for second, line in enumerate(LINES)
    )
    (attempt,) = attempts(text)
    assert attempt.first.text == VALUE_ERROR
    assert attempt.first.time == 1795918260.1


def test_writers_that_print_at_the_same_time_are_told_apart():
    oom = (*LINES[:3], "torch.OutOfMemoryError: CUDA out of memory.")
    lines = [
        f"llm-{pod} pytorch {text[at]}" for at in range(4) for pod, text in ((3, oom), (4, LINES))
    ]
    (attempt,) = attempts("\n".join(lines))
    found = [attempt.first, *attempt.others]
    assert [one.cause for one in found] == [causes.GPU_OOM, causes.USER_EXCEPTION]
    assert {one.frame for one in found} == {"/app/train.py:88, in main"}


def test_a_message_before_a_traceback_is_no_prefix_of_its_other_lines():
    assert verdict("ERROR: it failed: " + "\n".join(LINES))[0] == causes.USER_EXCEPTION
    bar = "Epoch 0: 10%|#   | 100/1000 [00:10<01:30, 10.0it/s]"
    first, second = ("\n".join((*LINES[:3], f"ValueError: {n}")) for n in (1, 2))
    (attempt,) = attempts(f"{bar}{first}\nstep\n{bar}{second}\n")
    assert [attempt.first.text, attempt.others[0].text] == ["ValueError: 1", "ValueError: 2"]


def test_what_follows_a_traceback_that_goes_no_further_is_read():
    start = f"gpu-01: {LINES[0]}\n"
    end = "slurmstepd: error: *** JOB 12 ON gpu-03 CANCELLED AT 2026-11-21T02:14:00 DUE TO {} ***\n"
    assert verdict(start + end.format("TIME LIMIT"))[0] == causes.DEADLINE
    assert verdict(LINES[0] + "\n" + LINES[1] + "\n" + end.format("PREEMPTION"))[0] == (
        causes.PREEMPTED
    )


@pytest.mark.parametrize("prefix", ["", "gpu-01: "])
def test_a_traceback_without_a_frame_is_quoted(prefix):
    signs = FailureSigns()
    log = FailureLog("job.log", signs)
    log.feed(f"{prefix}{LINES[0]}\n".encode())
    log.finish()
    assert [quote.text for quote in signs.quotes.values()] == [
        "a traceback of which the log lacks the end"
    ]


@pytest.mark.parametrize("size", [7, 1 << 16])
def test_lines_in_json_are_read_from_their_text(size):
    lines = [json.dumps({"textPayload": line, "severity": "ERROR"}) for line in LINES]
    (attempt,) = attempts("\n".join(lines) + "\n", size=size)
    assert (attempt.first.text, attempt.first.frame) == (VALUE_ERROR, "/app/train.py:88, in main")
    spread = json.dumps([{"message": f"[rank3]: {line}"} for line in LINES], indent=2)
    assert verdict(spread) == (causes.USER_EXCEPTION, 3, [])


def test_of_an_exception_group_the_exceptions_in_it_count():
    text = """\
  + Exception Group Traceback (most recent call last):
  |   File "/app/t.py", line 3, in <module>
  |     main()
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/t.py", line 9, in f
    |     raise ValueError("x")
    | torch.OutOfMemoryError: CUDA out of memory.
    +------------------------------------
"""
    (attempt,) = attempts(text)
    assert (attempt.cause, attempt.others) == (causes.GPU_OOM, ())
    assert attempt.first.frame == "/app/t.py:9, in f"
    (attempt,) = attempts("".join(text.splitlines(keepends=True)[:4]))
    assert (attempt.cause, attempt.first.text[:15]) == (causes.UNKNOWN, "ExceptionGroup:")


def test_a_table_behind_a_prefix_is_read():
    table = (
        "Traceback (most recent call last):",
        '  File "/usr/bin/torchrun", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-21_02:14:00",
        "  host      : gpu-07",
        "  rank      : 5 (local_rank: 1)",
        "  exitcode  : -11 (pid: 3)",
        "=" * 60,
    )
    text = "".join(f"gpu-07: {line}\n" for line in table)
    assert verdict(text) == (causes.NATIVE_CRASH, 5, [])


@pytest.mark.parametrize(("length", "learned"), [(256, True), (257, False)])
def test_256_bytes_before_a_traceback_are_learnt(length, learned):
    prefixes = LearnedPrefixes()
    prefixes.learn(b"a" * length)
    assert bool(prefixes.split(b"a" * length + b"words")[0]) is learned


@pytest.mark.parametrize(("lengths", "learned"), [(7, True), (8, False)])
def test_prefixes_of_eight_lengths_are_learnt(lengths, learned):
    prefixes = LearnedPrefixes()
    for length in range(1, lengths + 1):
        prefixes.learn(b"a" * length)
    prefixes.learn(b"host: ........")
    assert bool(prefixes.split(b"host: ........words")[0]) is learned


@pytest.mark.parametrize(("known", "learned"), [(4095, True), (4096, False)])
def test_4096_prefixes_are_learnt(known, learned):
    prefixes = LearnedPrefixes()
    for pod in range(known):
        prefixes.learn(b"pod-%05d " % pod)
    prefixes.learn(b"pod-last! ")
    assert bool(prefixes.split(b"pod-last! words")[0]) is learned


def test_a_log_of_prefixes_alone_is_read_within_its_limits():
    signs = FailureSigns()
    log = FailureLog("job.log", signs, FailureLimits(writers=20))
    for number in range(6000):
        log.feed(b"%s%d: Traceback (most recent call last):\n" % (b"[" * (number % 250), number))
    assert len(log._tracebacks._readers) <= 20
    assert len(log._tracebacks._learned._known) <= 4096
    assert len(log._tracebacks._begun) == 1
    log.finish()
    assert signs.signs == []
