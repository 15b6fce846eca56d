"""What a program's signal handlers raise while a hook of the probe runs is the program's."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

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


class Heir(Handler):
    """One that inherits what handles signals."""


def function(number: int, frame: Any) -> None:
    deeper()


def once(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # what follows it must not interrupt the last save
    raise Death


def once_by_any_arguments(*arguments: Any) -> None:
    once(*arguments)


def too_late(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise TimeoutError


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
    [
        function,
        Handler(),
        Heir(),
        Handler().method,
        functools.partial(of_three, "why"),
        once,
        once_by_any_arguments,
    ],
    ids=["function", "object", "heir", "method", "partial", "once", "any arguments"],
)
def test_what_a_handler_raises_goes_to_the_program(
    guard: Any, handler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGUSR1, handler)
    with pytest.raises(Death):
        guard.guarded(interrupted)()
    assert not guard.told
    assert capsys.readouterr().err == ""


def test_what_a_handler_raised_that_took_no_arguments_and_is_registered_no_more(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame shows nothing of a signal; the probe saw it being registered."""
    monkeypatch.setattr(signal, "signal", signal.signal)
    monkeypatch.setattr(signal, "getsignal", signal.getsignal)
    spans = object.__new__(rankscope_probe._Spans)
    spans.guard = guard
    spans.hook_termination()

    def forgetful(number: int, frame: Any) -> None:
        del frame
        once(number, None)

    signal.signal(signal.SIGUSR1, forgetful)
    with pytest.raises(Death):
        guard.guarded(interrupted)()


def test_a_time_limit_of_the_program_is_no_error_of_our_file(
    guard: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TimeoutError is an OSError, as are those of a descriptor that the program closed."""
    slots = rankscope_probe._Slots(str(tmp_path / "slots"), b"header", 4)

    def seek(*where: int) -> int:
        interrupted()
        raise AssertionError

    slots.seek = seek
    signal.signal(signal.SIGUSR1, too_late)
    with pytest.raises(TimeoutError):
        guard.guarded(slots.write)(0, b"slot")
    slots.held.close()
    assert capsys.readouterr().err == ""


def test_what_another_thread_raises_here_goes_to_the_program(
    guard: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As libraries for time limits do; it is raised as soon as this call returns to our code."""
    raises, here = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(threading.get_ident())
    slots = rankscope_probe._Slots(str(tmp_path / "slots"), b"header", 4)
    slots.handler_of = functools.partial(raises, here, ctypes.py_object(Death))
    with pytest.raises(Death):
        guard.guarded(slots.write)(0, b"slot")
    slots.held.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("module", "known"),
    [
        *(("builtins", True), ("json.decoder", True), ("torch.cuda", True)),
        *(("pytest", False), ("__main__", False), ("not_loaded", False)),
    ],
)
def test_pythons_before_3_10_know_their_modules_by_the_files(
    monkeypatch: pytest.MonkeyPatch, module: str, known: bool
) -> None:
    monkeypatch.delattr(sys, "stdlib_module_names")
    assert rankscope_probe._is_known(module) is known


def test_an_error_of_ours_ends_in_the_guard_of_older_pythons(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "stdlib_module_names")

    def broken() -> None:
        raise Death

    assert guard.guarded(broken)() is None


def test_handlers_from_before_the_probe_are_not_registered_again(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would replace what faulthandler has put over them."""
    registered: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda *what: registered.append(what))
    monkeypatch.setattr(signal, "getsignal", lambda signalnum: function)
    spans = object.__new__(rankscope_probe._Spans)
    spans.guard = guard
    spans.hook_termination()
    assert not registered


def test_handlers_are_registered_with_the_keywords_of_the_standard_library(
    guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", signal.signal)
    monkeypatch.setattr(signal, "getsignal", signal.getsignal)
    before = signal.getsignal(signal.SIGTERM)
    spans = object.__new__(rankscope_probe._Spans)
    spans.guard = guard
    spans.hook_termination()
    try:
        for registered in (signal.signal, signal.getsignal):
            names = list(inspect.signature(registered, follow_wrapped=False).parameters)
            assert names == list(inspect.signature(registered).parameters)
        signal.signal(signalnum=signal.SIGTERM, handler=function)
        assert signal.getsignal(signalnum=signal.SIGTERM) is function
        obliging = Mock()
        signal.signal(signal.SIGTERM, obliging)
        assert signal.getsignal(signal.SIGTERM) is obliging
        kept = signal.signal(signal.SIGUSR1, obliging)
        assert signal.signal(signal.SIGUSR1, kept) is obliging
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
