"""How much of a pod's logs is read for its failures, and how long for: at each limit and beyond."""

from __future__ import annotations

import pytest

from failed_jobs import agent_end, table, traceback
from rankscope_agent.contract.failures import causes
from rankscope_agent.sources.nccl_log.failures import PodFailures, Progress, pieces

NOW = 1_800_000_000.0
START = "Traceback (most recent call last):"
VALUE_ERROR = "ValueError: sample 17 is damaged"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
FAILURE = traceback(1, VALUE_ERROR).encode()
NONE = Progress(0, 0.0)
TRAINED = Progress(10, 0.0)
KIBI = 1024


def lines(size):
    """Return so many bytes of lines that say nothing."""
    return b"\n".rjust(size, b".")


def marked(*texts, progress=TRAINED, log="0.log"):
    pod = PodFailures()
    pod.mark(log, NOW, progress)
    for text in texts:
        pod.feed(log, text, NOW)
    return pod


def found(pod, seconds=0.0, progress=TRAINED, *, ended=True, alive=False):
    return [one.cause for one in pod.settle(NOW + seconds, progress, ended=ended, alive=alive)]


@pytest.mark.parametrize(("after", "judged"), [(4.9, False), (5.0, True)])
def test_a_failure_is_judged_when_nothing_was_added_for_five_seconds(after, judged):
    pod = marked(FAILURE, table(1, {0: -15, 1: 1}).encode())
    assert bool(found(pod, after, ended=False)) == judged


@pytest.mark.parametrize(
    ("lines_since", "cause"), [(2, causes.GPU_OOM), (3, causes.USER_EXCEPTION)]
)
def test_three_lines_about_steps_prove_that_an_exception_was_survived(lines_since, cause):
    later = Progress(10 + lines_since, 0.0)
    pod = marked(traceback(1, OOM).encode())
    pod.mark("0.log", NOW + 60, later)
    pod.feed("0.log", FAILURE, NOW + 60)
    assert found(pod, 61, later) == [cause]


@pytest.mark.parametrize(
    ("step_seconds", "silence", "told"),
    [(1.0, 119.0, False), (1.0, 120.0, True), (20.0, 199.0, False), (20.0, 200.0, True)],
)
def test_steps_have_stopped_after_two_minutes_or_ten_steps_of_silence(step_seconds, silence, told):
    pod = marked(FAILURE)
    progress = Progress(10, step_seconds)
    assert bool(found(pod, silence, progress, ended=False, alive=True)) == told


@pytest.mark.parametrize(("trained", "told"), [(2, False), (3, True)])
def test_steps_that_were_never_seen_to_go_on_have_not_stopped(trained, told):
    progress = Progress(trained, 1.0)
    pod = marked(FAILURE, progress=progress)
    assert bool(found(pod, 120.0, progress, ended=False, alive=True)) == told


@pytest.mark.parametrize(("between", "told"), [(4096 - len(FAILURE) - 1, True), (4096, False)])
def test_4096_bytes_before_a_mark_are_read(between, told):
    pod = PodFailures()
    pod.feed("0.log", b".\n" + FAILURE + lines(between), NOW)
    pod.mark("0.log", NOW, TRAINED)
    assert bool(found(pod)) == told


@pytest.mark.parametrize(("more", "told"), [(0, True), (1, False)])
def test_256_kibibytes_after_a_mark_are_read(more, told):
    pod = marked(lines(256 * KIBI - len(FAILURE) + more), FAILURE)
    assert bool(found(pod)) == told


def flooded(size):
    """Return a pod whose marks were followed by so many bytes at one time, and one mark more."""
    pod = PodFailures()
    for piece in (256 * KIBI,) * (size // (256 * KIBI)) + (size % (256 * KIBI),):
        pod.mark("0.log", NOW, NONE)
        pod.feed("0.log", lines(piece) if piece else b"", NOW)
    pod.mark("0.log", NOW, NONE)
    return pod


@pytest.mark.parametrize(("more", "told"), [(0, True), (1, False)])
def test_a_mebibyte_of_one_pod_is_read_at_once(more, told):
    pod = flooded(1024 * KIBI - len(FAILURE) + more)
    pod.feed("0.log", FAILURE, NOW)
    assert bool(found(pod)) == told


@pytest.mark.parametrize(("seconds", "told"), [(0.9, False), (1.0, True)])
def test_16_kibibytes_of_one_pod_are_read_each_second_from_then_on(seconds, told):
    pod = flooded(1024 * KIBI)
    pod.feed("0.log", FAILURE + lines(16 * KIBI - len(FAILURE)), NOW + seconds)
    assert bool(found(pod, 2.0)) == told


@pytest.mark.parametrize(("marks", "begun"), [(63, 63), (64, 64), (65, 64), (200, 64)])
def test_64_marks_of_one_reading_begin_a_piece(marks, begun):
    text = FAILURE * marks
    parts = list(pieces(text))
    assert (len(parts), b"".join(part for _, part in parts)) == (begun, text)


@pytest.mark.parametrize(("before", "proven"), [(511, True), (512, False)])
def test_512_signs_of_failures_of_one_pod_are_kept(before, proven):
    pod = marked(b"Segmentation fault (core dumped)\n" * before, agent_end(1, 1).encode())
    assert bool(found(pod, 5.0, ended=False)) == proven


@pytest.mark.parametrize(("others", "told"), [(255, True), (256, False)])
def test_256_writers_of_one_pods_tracebacks_are_told_apart(others, told):
    started = "".join(f"[rank{rank}]: {START}\n" for rank in range(1, 1 + others))
    pod = marked(started.encode(), traceback(0, "StopIteration").encode())
    assert bool(found(pod)) == told


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r.\n"], ids=["LF", "CRLF", "bars"])
def test_of_two_ranks_the_one_that_raised_first_is_named_although_reading_paused_between(line_end):
    pod = PodFailures()
    before = b"Segmentation fault\n" + 900 * (b"words" + line_end)
    silence = 37 * KIBI * b"filler\n"
    end = agent_end(0, 1).encode()
    for text in (before, traceback(3, VALUE_ERROR).encode(), silence, b".\n", FAILURE, end):
        for is_marked, piece in pieces(text):
            if is_marked:
                pod.mark("0.log", NOW, NONE)
            pod.feed("0.log", piece, NOW)
    settled = pod.settle(NOW + 5, NONE, ended=False, alive=True)
    assert [one.rank for one in settled] == [3]
