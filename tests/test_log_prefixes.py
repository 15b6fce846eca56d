"""Prefixes of launchers, runtimes and pipelines, as every parser of logs takes them off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope_agent.contract.failures.log import FailureLog
from rankscope_agent.contract.failures.signs import FailureSigns
from rankscope_agent.contract.kernel.lines import is_kernel
from rankscope_agent.contract.log_text.prefixes import split, unix_seconds
from rankscope_agent.contract.nccl.writers import line_of
from rankscope_agent.sources.nccl_log.step_lines.prefix import words_begin

MAX_RANK = 1 << 20

AGENT = Path(__file__).parents[1] / "agent" / "rankscope_agent"

# Prefix, the rank it names, whether that is of the node, whether it tells a time.
PREFIXES = (
    (b"2026-02-15T17:37:45.123456789Z stdout F ", None, False, True),
    (b"2026-02-15T17:37:45.123456789+01:00 stderr P:tag ", None, False, True),
    (b"2026-02-15T17:37:45Z ", None, False, True),
    (b"[pod/train-0/worker] ", None, False, False),
    (b"trainer-1  | ", None, False, False),
    (b"(RayTrainWorker pid=4711, ip=10.0.0.7) ", None, False, False),
    (b"[1,7]<stdout>:", 7, False, False),
    (b"[1,7]<stderr>: ", 7, False, False),
    (b"[rank3]: ", 3, False, False),
    (b"[default2]:", 2, True, False),
    (b"[default2]:[rank10]: ", 10, False, False),
    (b"12: ", 12, False, False),
    (b"    7: ", 7, False, False),
    (b"P1  7: ", 7, False, False),
    (b"[prterun-gpu-01-4011@1,7]<stdout>:", 7, False, False),
    (b"[1,mpirank:7,algo-1]<stderr>:", 7, False, False),
    (b"Sun Nov 29 02:11:04 2026[1,7]<stderr>:", 7, False, False),
    (b"2026-02-15T17:37:45.123Z\t", None, False, True),
    (b"Feb 15 17:37:45 gpu-07 python3[33]: ", None, False, False),
    (b"Feb  5 17:37:45.106121 gpu-07 python3[33]: ", None, False, False),
    (b"2026-02-15T17:37:45+0000 gpu-07 python3[33]: ", None, False, True),
    (b"2026-02-15T17:37:45.123456+00:00 gpu-07 python3[33]: ", None, False, True),
)
WORDS = b"iteration 5/ 10 | lm loss: 3.1"


@pytest.mark.parametrize(("prefix", "rank", "local", "timed"), PREFIXES)
def test_a_prefix_is_taken_off_and_says_who_wrote_the_line(prefix, rank, local, timed):
    found, words = split(prefix + WORDS)
    assert words == WORDS
    assert (found.rank, found.local, found.time is not None) == (rank, local, timed)


@pytest.mark.parametrize("prefix", [prefix for prefix, *_ in PREFIXES])
def test_words_about_steps_begin_behind_the_same_prefixes(prefix):
    assert words_begin(prefix + WORDS) == len(prefix)


def test_indentation_is_kept_as_it_tells_frames_from_messages():
    _, words = split(b'[rank1]:   File "train.py", line 3, in main')
    assert words == b'  File "train.py", line 3, in main'


def test_a_rank_beyond_all_jobs_is_no_rank():
    assert split(b"[rank%d]: x" % MAX_RANK)[0].rank is None
    assert split(b"[rank%d]: x" % (MAX_RANK - 1))[0].rank == MAX_RANK - 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1970-01-01T00:01:00Z", 60.0),
        (b"[1970-01-01 00:01:00,250] [INFO]", 60.25),
        (b"1970/01/01 00:01:00", 60.0),
        (b"1970-01-01T01:01:00.5+01:00", 60.5),
        (b"1970-01-01T00:00:30-0000", 30.0),
        (b"1970-13-01T00:00:30Z", None),
        (b"Feb 15 17:37:45", None),
        (b"2099-12-31T23:59:59Z", 4_102_444_799.0),
        (b"2100-01-01T00:00:00Z", None),
        (b"9999-12-31T23:59:59-12:00", None),
        (b"1970-01-01T00:00:00+00:01", None),
        (b"0001-01-01T00:00:00+12:00", None),
    ],
)
def test_times_are_read_in_all_forms_and_without_a_zone_as_utc(text, seconds):
    assert unix_seconds(text) == seconds


TRACEBACK = """\
2026-02-15T17:37:45+0000 gpu-07 python3[33]: [rank1]: Traceback (most recent call last):
2026-02-15T17:37:45+0000 gpu-07 python3[33]: [rank1]:   File "/app/train.py", line 3, in main
2026-02-15T17:37:45+0000 gpu-07 python3[33]: [rank1]:     step()
2026-02-15T17:37:45+0000 gpu-07 python3[33]: [rank1]: torch.OutOfMemoryError: CUDA out of memory.
"""


def test_a_failure_is_found_in_what_journalctl_prints_with_full_times():
    signs = FailureSigns()
    log = FailureLog("journal", signs)
    log.feed(TRACEBACK.encode())
    log.finish()
    (found,) = signs.signs
    assert found.frame == "/app/train.py:3, in main"
    when = unix_seconds(b"2026-02-15T17:37:45Z")
    assert (found.location.rank, found.location.time) == (1, when)


def test_the_kernels_tag_in_syslog_leaves_a_line_to_the_kernel():
    for time in ("Feb 15 17:37:45", "2026-02-15T17:37:45+0000", "2026-02-15T17:37:45.1+00:00"):
        assert is_kernel(f"{time} gpu-07 kernel: ")
        assert not is_kernel(f"{time} gpu-07 trainer[33]: ")


def test_nobody_else_spells_a_prefix():
    """Streams, Ray's processes and torch's ranks stand in `prefixes` alone."""
    marks = re.compile(r"std\(\?:out\|err\)|pid=\\d|\\\[rank\(|\\\[rank\"")
    spelled = {
        str(path.relative_to(AGENT))
        for path in AGENT.rglob("*.py")
        if marks.search(path.read_text())
    }
    assert spelled == {"contract/log_text/prefixes.py"}


@pytest.mark.parametrize(("length", "kernel"), [(200, True), (201, False)])
def test_what_stands_before_a_kernels_message_has_200_characters_at_most(length, kernel):
    assert is_kernel("x" * length) is kernel


@pytest.mark.parametrize(("tags", "begin"), [(2, 404), (3, 404)])
def test_prefixes_are_looked_for_in_512_bytes_of_a_line(tags, begin):
    tag = b"[" + b"a" * 200 + b"]"
    assert words_begin(tag * tags + b"loss: 1") == begin


@pytest.mark.parametrize(("before", "looked_at"), [(1000, 1000), (1024, 1024), (5000, 1024)])
def test_a_kibibyte_is_looked_at_before_a_record_for_who_prints_it(before, looked_at):
    text = b"\n" + b"a" * before + b"NCCL INFO"
    start = 1 + before
    assert start - line_of(text, start) == looked_at
