"""Log lines: their form, and how few of them a failing collector makes."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from rankscope_agent.serving import logging_setup
from rankscope_agent.sources.collector import log_failure, scrape

MAX_FIELD_CHARACTERS = 16_384
MAX_REMEMBERED = 256


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Failing:
    def __init__(self, text):
        self.text = text

    def collect(self):
        raise OSError(self.text)


@pytest.fixture
def log():
    """Log into a text with the agent's format and its repeat filter, under a clock of our own."""
    root, clock, stream = logging.getLogger(), Clock(), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging_setup.LineFormatter())
    handler.addFilter(logging_setup.RepeatFilter(clock))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lambda: stream.getvalue().splitlines(), clock
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_record_is_one_line_of_keys_and_values(log):
    lines, _ = log
    logging.getLogger("a.b").warning("ring %s: 3 of 4 records\nare bad", "x=1")
    (line,) = lines()
    assert re.match(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=warning logger=a\.b ", line)
    assert line.endswith(' msg="ring x=1: 3 of 4 records\\nare bad"')


@pytest.mark.parametrize("text", ['quote " and \\', "\x1b[31mred", "line\u2028end", "", "a=b"])
def test_no_text_can_break_out_of_its_field(log, text):
    lines, _ = log
    logging.getLogger("x").warning("%s", text)
    (line,) = lines()
    assert line.isprintable()
    assert json.loads(line.split(" msg=")[1]) == text


def test_a_traceback_stays_on_the_line(log):
    lines, _ = log
    scrape("training", Failing("gone"), None)
    (line,) = lines()
    assert 'msg="collector training failed: OSError: gone"' in line
    assert 'traceback="Traceback (most recent call last):\\n' in line


def test_a_line_has_an_end(log):
    lines, _ = log
    logging.getLogger("x").warning("x" * 10_000_000)
    assert len(lines()[0]) < 2 * MAX_FIELD_CHARACTERS


def test_the_same_failure_is_logged_at_once_and_then_once_a_minute(log):
    lines, clock = log
    for _ in range(150):
        scrape("training", Failing("gone"), None)
        clock.now += 1
    assert len(lines()) == 3


def test_a_changed_failure_is_logged_at_once_but_a_grown_number_is_no_change(log):
    lines, _ = log
    for text in ("still running after 10 s", "still running after 11 s", "no such file"):
        log_failure("training", text)
    assert [line.split("failed: ")[1] for line in lines()] == [
        'still running after 10 s"',
        'no such file"',
    ]


def test_collectors_that_fail_alike_are_both_logged(log):
    lines, _ = log
    log_failure("one", "gone")
    log_failure("two", "gone")
    assert len(lines()) == 2


def test_a_failure_that_never_reads_the_same_cannot_flood_the_log(log):
    lines, _ = log
    for number in range(5000):
        log_failure("training", f"bad byte {''.join(chr(97 + int(c)) for c in str(number))}")
    assert len(lines()) == MAX_REMEMBERED


def test_other_records_are_never_held_back(log):
    lines, _ = log
    for _ in range(3):
        logging.getLogger("x").info("listening")
    assert len(lines()) == 3


def test_set_up_obeys_the_level():
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    try:
        for handler in before:  # set_up closes what it replaces
            root.removeHandler(handler)
        logging_setup.set_up("warning", stream)
        logging.getLogger("x").info("quiet")
        logging.getLogger("x").warning("loud")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert [line.split("msg=")[1] for line in stream.getvalue().splitlines()] == ["loud"]
