"""What a program's signal handlers raise while a hook of the probe runs is the program's."""

from __future__ import annotations

import faulthandler
import functools
import inspect
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
    assert not guard.told
    assert capsys.readouterr().err == ""


def test_handlers_are_registered_with_the_keywords_of_the_standard_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "signal", signal.signal)
    monkeypatch.setattr(signal, "getsignal", signal.getsignal)
    before = signal.getsignal(signal.SIGTERM)
    spans = object.__new__(rankscope_probe._Spans)
    spans.hook_termination()
    try:
        for registered in (signal.signal, signal.getsignal):
            names = list(inspect.signature(registered, follow_wrapped=False).parameters)
            assert names == list(inspect.signature(registered).parameters)
        signal.signal(signalnum=signal.SIGTERM, handler=function)
        assert signal.getsignal(signalnum=signal.SIGTERM) is function
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_may_save_a_checkpoint_while_another_one_is_asked_about(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that its own thread holds would block for ever."""
    store, start = rankscope_probe._CheckpointStore(guard), threading.Thread.start
    spans = [SimpleNamespace(kind=0, size=-1) for _ in range(2)]
    found: list[Any] = []
    both = threading.Event()

    def tell(span: Any, size: int) -> None:
        found.append(span)
        if len(found) == len(spans):
            both.set()

    def saving(number: int, frame: Any) -> None:
        store.ask(spans[1], __file__)

    def interrupted_start(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGUSR1)
        start(thread)

    store.tell = tell
    signal.signal(signal.SIGUSR1, saving)
    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    faulthandler.dump_traceback_later(60, exit=True)
    store.ask(spans[0], __file__)
    faulthandler.cancel_dump_traceback_later()
    assert both.wait(60)
    assert found == spans


def test_an_error_of_ours_ends_in_the_guard_whatever_handlers_there_are(guard: Any) -> None:
    signal.signal(signal.SIGUSR1, function)

    def broken() -> None:
        raise Death

    assert guard.guarded(broken)() is None
    assert guard.told == {"something"}


def test_errors_in_other_threads_end_in_the_guard(guard: Any) -> None:
    signal.signal(signal.SIGUSR1, function)

    def broken() -> None:
        raise Death

    thread = threading.Thread(target=guard.guarded(broken))
    thread.start()
    thread.join()
    assert guard.told == {"something"}
