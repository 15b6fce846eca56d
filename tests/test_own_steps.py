"""A user's own pattern of lines about steps: what is taken, what it finds, and what it may cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_agent.settings.step_pattern import parse_step_pattern
from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_state import from_json, to_json

NOW = 1_795_000_000.0
PATTERN = (
    r"update (?P<step>\d{1,12}) .*objective=(?P<loss>\S{1,24})"
    r"(?: in (?P<milliseconds>[\d.]{1,12})ms)?(?: (?P<tokens_per_second>\d{1,12}) tok/s)?"
)


def own(pattern: str = PATTERN) -> OwnLines:
    return OwnLines(parse_step_pattern(pattern))


def fed(*lines: str, pattern: str = PATTERN) -> StepLog:
    log = StepLog(own(pattern))
    log.feed("".join(f"{line}\n" for line in lines).encode(), NOW, None)
    return log


def test_a_pattern_gives_the_values_of_its_groups() -> None:
    log = fed(
        "2026-11-23 04:00:00 INFO update 41 of 99: objective=2.5 in 120.0ms 3456 tok/s",
        "update 42 of 99: objective=nan",
    )
    known = log.facts.frameworks["own"]
    assert (known.step, known.loss, known.nonfinite_losses, known.lines) == (42, None, 1, 2)
    assert (known.step_seconds, known.tokens_per_second) == (0.12, 3456.0)
    assert log.facts.refused == 0


def test_a_line_of_the_users_pattern_is_no_other_framework_s() -> None:
    line = "loop: Epoch: 0, Batch: 10, Loss: 0.51"
    log = fed(line, pattern=r"loop: Epoch: \d{1,9}, Batch: (?P<step>\d{1,9})")
    assert list(log.facts.frameworks) == ["own"]
    assert list(fed(line.removeprefix("loop: ")).facts.frameworks) == ["pytorch"]


def test_lines_that_only_begin_like_it_are_passed_over() -> None:
    log = fed("update of the packages", "update 41 without more", "no update 3 objective = 2")
    assert not log.facts.frameworks


@pytest.mark.parametrize(("seconds", "marks"), [(0.049, 1), (0.051, 0)])
def test_a_pattern_is_given_up_after_three_lines_of_more_than_50_ms(seconds, marks) -> None:
    times = iter(seconds * number for number in range(6))
    lines = OwnLines(parse_step_pattern(PATTERN), lambda: next(times))
    for _ in range(3):
        assert lines.read(b"update 41 of 99: objective=2.5", 0) is not None
    assert len(lines.marks) == marks


def test_what_it_found_outlives_the_agent() -> None:
    log = fed("update 41 of 99: objective=2.5 3456 tok/s")
    again = from_json(to_json(log), own())
    again.feed(b"update 42 of 99: objective=2.4\n", NOW + 1, None)
    known = again.facts.frameworks["own"]
    assert (known.step, known.loss, known.lines, known.tokens_per_second) == (42, 2.4, 2, 3456.0)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"step (?P<step>\d+", "not a regular expression"),
        (r"step (\d+)", "a group named step or loss"),
        (r"step (?P<step>\d+) (?P<epoch>\d+)", "others of loss"),
        (r"step (?P<seconds>\d+)", "a group named step or loss"),
        (r"s(?P<step>\d+)", "begins with 3 plain characters"),
        (r"(?P<step>\d+) steps", "begins with 3 plain characters"),
        (r"step (?P<step>(\d+)+)", "inside others"),
        (r"step (?P<step>(?:a|aa)+)", "inside repetitions"),
        (r"step (?P<step>\d+)(?=x)", "characters, classes"),
        (r"step (?P<step>\d+) (?P=step)", "characters, classes"),
        (r"step (?P<step>\d+).*.*.*", "at most three repetitions"),
        (r"step (?P<step>\d)" + "a?" * 28, "at most three"),
        (r"step (?P<step>\d+).*.*a?", "at most three"),  # of 512 characters each
        (r"(?i)step (?P<step>\d+)", r"no \(\?i\).* as your program prints them"),
        (r"(?i:step) (?P<step>\d+)", "begins with 3 plain characters"),
        ("step (?P<step>.)" + "x" * 400, "at most 400 ASCII"),
        ("étape (?P<step>.)", "at most 400 ASCII"),
    ],
    ids=range(17),
)
def test_a_pattern_that_says_nothing_or_may_take_long_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_step_pattern(pattern)


def test_after_the_first_characters_a_pattern_may_leave_the_case_open() -> None:
    log = fed("STEP 5: LOSS=2.5", "STEP 6: loss=2.4", pattern=r"STEP (?P<step>\d+)(?i:: loss=)")
    assert (log.facts.frameworks["own"].step, log.facts.frameworks["own"].lines) == (6, 2)


def test_no_pattern_is_none() -> None:
    assert parse_step_pattern("") is None
    assert OwnLines(None).marks == ()


@pytest.mark.parametrize(
    "pattern",
    [
        r"step (?P<step>\d+).*.*x",
        r"step (?P<step>\d)" + "a?" * 20 + "b",
        r"step (?P<loss>\S+) \S+ \S+x",
    ],
    ids=["three of any number", "many optional parts", "classes that hold the same"],
)
def test_the_worst_lines_of_patterns_that_are_taken_come_to_an_end(pattern: str) -> None:
    parsed = parse_step_pattern(pattern)
    assert parsed is not None
    for filling in (b"1", b"a", b"1 ", b" "):
        line = b"step " + filling * 100_000
        assert OwnLines(parsed).read(line, 0) is None


def test_a_pattern_that_takes_long_three_times_is_asked_no_more() -> None:
    parsed = parse_step_pattern(PATTERN)
    ticks = iter(float(tick) for tick in range(100))
    lines = OwnLines(parsed, clock=lambda: next(ticks))
    line = b"update 41 of 99: objective=2.5"
    assert [lines.read(line, 0) is not None for _ in range(4)] == [True, True, True, False]
    assert lines.marks == ()
    log = StepLog(lines)
    log.feed(line + b"\n", NOW, None)
    assert not log.facts.frameworks


@given(st.binary(max_size=600))
def test_whatever_a_line_holds_nothing_raises(rest: bytes) -> None:
    log = StepLog(own())
    log.feed(b"update " + rest + b"\n", NOW, None)
    known = log.facts.frameworks.get("own")
    assert known is None or known.lines >= 1
