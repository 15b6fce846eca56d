"""How much of a job's logs is read for the reasons of a failure: at each limit and beyond it."""

from __future__ import annotations

import signal

import pytest

from rankscope_agent.contract.failures import causes, messages, summaries
from rankscope_agent.contract.failures.log import FailureLog, FailureSigns
from rankscope_agent.contract.failures.messages import classify
from rankscope_agent.contract.failures.tracebacks import TracebackReader

START = "Traceback (most recent call last):"
FAULT = b"Segmentation fault (core dumped)"


def log():
    signs = FailureSigns()
    return FailureLog("job.log", signs), signs


def shown(*texts):
    one, signs = log()
    for text in texts:
        one.feed(text)
    one.finish()
    return [sign.meaning.cause for sign in signs.signs]


@pytest.mark.parametrize(("before", "found"), [(4096 - len(FAULT), 1), (4096, 0)])
def test_4096_bytes_of_a_line_are_looked_at(before, found):
    assert len(shown(b" " * before + FAULT + b"\n")) == found


def test_4096_bytes_of_a_line_are_looked_at_whatever_its_prefix_says():
    prefix = b"(actor pid=7 \\n  File ) "
    assert shown(prefix + FAULT + b"\n") == shown(FAULT + b"\n")
    assert shown(prefix + b" " * 4096 + FAULT + b"\n") == []


@pytest.mark.parametrize(("known", "opened"), [(19_999, True), (20_000, False)])
def test_20_000_writers_of_tracebacks_are_told_apart(known, opened):
    one, _ = log()
    one._tracebacks._readers = dict.fromkeys(range(known))
    one.feed(f"[rank7]: {START}\n".encode())
    assert (len(one._tracebacks._readers) > known) == opened


@pytest.mark.parametrize(("lines", "opened"), [(20_000, True), (20_001, False)])
def test_a_traceback_ends_after_20_000_lines_of_silence(lines, opened):
    one, _ = log()
    one.feed(f'[rank7]: {START}\n[rank7]:   File "a.py", line 1, in f\n'.encode())
    one._line = 1 + lines
    one.feed(b"step\n")
    assert one._tracebacks.is_open == opened


def test_400_characters_of_a_message_are_kept():
    one, signs = log()
    one.feed(FAULT + b" " + b"x" * 1000 + b"\n")
    assert [len(sign.text) for sign in signs.signs] == [400]


@pytest.mark.parametrize(("tagged", "lines"), [(True, 40), (False, 3)])
def test_so_many_lines_after_an_exception_may_be_of_its_message(tagged, lines):
    reader = TracebackReader(tagged=tagged)
    for words in (START, '  File "train.py", line 1, in f', "    f()", "RuntimeError: it failed"):
        assert reader.feed(words) is None
    taken = 0
    while taken < 100 and reader.feed(f"line {taken}") is None:
        taken += 1
    assert taken == lines


@pytest.mark.parametrize(
    ("wrappers", "cause"), [(3, causes.MISSING_IMPORT), (4, causes.USER_EXCEPTION)]
)
def test_four_exceptions_are_looked_at_that_a_text_names(wrappers, cause):
    around = "".join(f"Wrapped{number}Error: " for number in range(wrappers + 1))
    assert classify(f"{around}ImportError: no module").cause == cause


@pytest.mark.parametrize(
    ("size", "cause"), [(256 << 10, causes.MISSING_IMPORT), ((256 << 10) + 1, None)]
)
def test_256_kib_of_a_line_are_looked_at_that_holds_a_whole_traceback(size, cause):
    begin = START.encode() + b'\\n  File \\"a.py\\", line 1, in f\\n'
    end = b"ImportError: no module"
    line = begin + b"x" * (size - len(begin) - len(end) - 2) + b"\\n" + end
    assert (shown(line + b"\n") == [cause]) is (cause is not None)


@pytest.mark.parametrize(("known", "beyond"), [(19_999, 0), (20_000, 1)])
def test_20_000_signs_of_failures_are_kept(known, beyond):
    one, signs = log()
    signs.signs.extend([None] * known)
    one.feed(FAULT + b"\n")
    assert (len(signs.signs), signs.beyond_limits) == (20_000, beyond)


NAMES = ("HUP", "INT", "ILL", "ABRT", "BUS", "FPE", "KILL", "SEGV", "TERM")
SIGNALS = {int(getattr(signal, f"SIG{name}")): f"SIG{name}" for name in NAMES}


def test_numbers_and_names_of_signals_are_those_of_linux():
    assert SIGNALS == messages.SIGNAL_NAMES
    assert messages.SIGNALS.keys() == SIGNALS.keys()
    words = {signal.strsignal(number): -number for number in (6, 7, 9, 11, 15)}
    words |= {SIGNALS[number]: -number for number in (6, 7, 9, 11, 15)}
    assert words | {"Out Of Memory": -9} == summaries._SIGNAL_NAMES


def test_signals_of_crashes_are_crashes_and_a_kill_is_one():
    found = {name: messages.classify_exit(-number).cause for number, name in SIGNALS.items()}
    crashes = {name for name, cause in found.items() if cause == causes.NATIVE_CRASH}
    assert crashes == {"SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV"}
    assert (found["SIGKILL"], found["SIGTERM"]) == (causes.KILLED, causes.PREEMPTED)
