"""What a program's signal handlers raise while a hook of the probe runs is the program's."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe


class Death(RuntimeError):
    """As torch raises it when a loader worker was killed."""


class Handler:
    """A handler that is an object."""

    def __call__(self, number: int, frame: Any) -> None:
        raise Death

    def method(self, number: int, frame: Any) -> None:
        raise Death


def function(number: int, frame: Any) -> None:
    deeper()


def deeper() -> None:
    raise Death


def of_three(what: str, number: int, frame: Any) -> None:
    raise Death(what)


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("RANKSCOPE_PROBE_DEBUG", raising=False)
    before = signal.getsignal(signal.SIGUSR1)
    yield rankscope_probe._Guard(SimpleNamespace())
    signal.signal(signal.SIGUSR1, before)


def interrupted() -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize(
    "handler",
    [function, Handler(), Handler().method, functools.partial(of_three, "why")],
    ids=["function", "object", "method", "partial"],
)
def test_what_a_handler_raises_goes_to_the_program(
    guard: Any, handler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGUSR1, handler)
    with pytest.raises(Death):
        guard.guarded(interrupted)()
    assert guard.errors == 0
    assert capsys.readouterr().err == ""


def test_an_error_of_ours_ends_in_the_guard_whatever_handlers_there_are(guard: Any) -> None:
    signal.signal(signal.SIGUSR1, function)

    def broken() -> None:
        raise Death

    assert guard.guarded(broken)() is None
    assert guard.errors == 1


def test_errors_in_other_threads_end_in_the_guard(guard: Any) -> None:
    signal.signal(signal.SIGUSR1, function)

    def broken() -> None:
        raise Death

    thread = threading.Thread(target=guard.guarded(broken))
    thread.start()
    thread.join()
    assert guard.errors == 1
