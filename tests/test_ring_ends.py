"""When the process that writes a ring ended, as the kernel tells it."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from pathlib import Path

import pytest

from collected_page import Clock, Page, collector
from rankscope_agent.contract.metrics import training as metrics
from rankscope_agent.sources.training import ends
from rankscope_agent.sources.training.ends import EndWatch
from ring_writer import RingWriter


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    descriptor = os.open(path, os.O_RDONLY)
    yield path, descriptor
    os.close(descriptor)


def test_the_last_close_by_a_writer_counts_and_no_readers(file):
    path, descriptor = file
    now = [10.0]
    watch = EndWatch(lambda: now[0])
    number = watch.add(descriptor)
    path.read_bytes()
    assert watch.closed_at(number) is None
    path.write_bytes(b"1")
    assert watch.closed_at(number) == 10.0
    now[0] = 11.0
    path.write_bytes(b"2")
    assert watch.closed_at(number) == 11.0
    watch.remove(number)
    assert watch.closed_at(number) is None


def test_ends_are_told_apart_although_nobody_asks_in_between(tmp_path):
    times = []
    watch = EndWatch()
    files = []
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"")
        files.append(os.open(tmp_path / name, os.O_RDONLY))
    numbers = [watch.add(descriptor) for descriptor in files]
    for name in ("a", "b"):
        times.append(time.time())
        (tmp_path / name).write_bytes(b"1")
        time.sleep(0.3)
    a, b = (watch.closed_at(number) for number in numbers)
    assert times[0] <= a < times[1] <= b
    for descriptor in files:
        os.close(descriptor)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "ring-ends"]


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_nothing_is_left_of_a_watch_that_nobody_has():
    gc.collect()
    for thread in threads():
        thread.join(10)
    before = descriptors()
    watch = EndWatch()
    assert descriptors() == before + 2
    (thread,) = threads()
    del watch
    thread.join(10)
    assert not thread.is_alive()
    assert descriptors() == before


def test_without_watches_the_moment_of_the_look_is_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(ends.os, "eventfd", refuse)
    writer, clock = RingWriter(tmp_path, rank=3), Clock()
    writer.step()
    collecting = collector(tmp_path, clock=clock)
    assert Page(collecting).labels(metrics.RANK_ENDED) == []
    writer.end()
    clock.now += 5.0
    assert Page(collecting).rank(metrics.RANK_ENDED, 3) == clock.now


def test_the_end_of_a_rank_stays_known_and_that_of_its_next_process_is_another(tmp_path):
    writer = RingWriter(tmp_path, rank=3)
    writer.step()
    collecting = collector(tmp_path)
    assert Page(collecting).labels(metrics.RANK_ENDED) == []
    before = time.time()
    writer.end()
    ended = Page(collecting).rank(metrics.RANK_ENDED, 3)
    assert before <= ended <= time.time()
    assert Page(collecting).rank(metrics.RANK_ENDED, 3) == ended
    again = RingWriter(tmp_path, "again.ring", rank=3, created_unix_ns=2 * 10**18)
    again.step()
    assert Page(collecting).labels(metrics.RANK_ENDED) == []
    again.end()


def test_an_end_before_the_first_look_is_not_known(tmp_path):
    writer = RingWriter(tmp_path, rank=3)
    writer.step()
    writer.end()
    page = Page(collector(tmp_path))
    assert page.rank(metrics.RANK_ALIVE, 3) == 0
    assert page.labels(metrics.RANK_ENDED) == []
