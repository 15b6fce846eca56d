"""Native code that may end its process is called in a child, which says how it ended."""

import os
import signal
from pathlib import Path

import pytest

from rankscope_analyzers.steps.forked import ChildEndedError, numbers_of


def test_numbers_come_back_however_many_they_are():
    assert numbers_of(lambda: range(200_000)) == list(range(200_000))


def test_code_that_ends_its_process_ends_the_child_alone(capfd):
    def abort():
        os.write(2, b"terminate called\n")
        os.abort()

    with pytest.raises(ChildEndedError, match=r"^ended by SIGABRT$"):
        numbers_of(abort)
    assert capfd.readouterr() == ("", "")


def test_handlers_of_the_program_for_faults_are_not_the_childs():
    before = signal.signal(signal.SIGABRT, lambda number, frame: os._exit(0))
    try:
        with pytest.raises(ChildEndedError, match="SIGABRT"):
            numbers_of(lambda: os.kill(os.getpid(), signal.SIGABRT))
    finally:
        signal.signal(signal.SIGABRT, before)


@pytest.mark.parametrize("error", [OSError("no such column"), SystemExit(0), KeyboardInterrupt()])
def test_a_call_that_raises_ends_the_child_alone(error):
    def fail():
        raise error

    with pytest.raises(ChildEndedError, match=r"^stopped by an error$"):
        numbers_of(fail)


def test_nothing_of_a_call_remains(monkeypatch):
    fork, children = os.fork, []
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    before = set(Path("/proc/self/fd").iterdir())
    numbers_of(lambda: [1])
    assert set(Path("/proc/self/fd").iterdir()) <= before  # garbage of other tests may be closed
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], os.WNOHANG)
