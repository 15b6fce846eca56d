"""A thread that makes the driver calls of one GPU, so that a hung call blocks nothing else.

A call into the driver cannot be cancelled. The thread that made it keeps waiting, and its GPU is
unresponsive until the call returns; its result is then outdated and discarded.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from rankscope_agent.sources.gpus.nvml import UNKNOWN, NvmlError

log = logging.getLogger(__name__)

T = TypeVar("T")

BROKEN_CALL: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    ctypes.ArgumentError,
)
"""Exceptions that an incompatible version of the library may cause; they cost one GPU's values."""


class Hung(Exception):  # noqa: N818 - a state of the driver, as NoData is one of a source
    """The call has not returned in time, or an earlier one has still not returned."""


class Worker(Generic[T]):
    """Runs calls one after another in its own thread; used by one thread only."""

    def __init__(self, name: str) -> None:
        self._wanted: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._done: SimpleQueue[T | NvmlError] = SimpleQueue()
        self._outstanding = 0
        self._asked = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Return True if a call has not returned yet."""
        self._discard()
        return self._outstanding > 0

    def ask(self, call: Callable[[], T]) -> None:
        """Start a call, unless an earlier one hangs."""
        self._asked = not self.busy
        if self._asked:
            self._outstanding += 1
            self._wanted.put(call)

    def answer(self, timeout_seconds: float) -> T:
        """Wait for the result of the started call; may be called again after `Hung`.

        Raises:
            Hung: it does not return in time.
            NvmlError: the call raised it, or an unexpected exception.
        """
        if not self._asked:
            raise Hung
        try:
            result = self._done.get(timeout=max(0.0, timeout_seconds))
        except Empty:
            raise Hung from None
        self._outstanding -= 1
        if isinstance(result, NvmlError):
            raise result
        return result

    def stop(self) -> None:
        """End the thread once it is idle."""
        self._wanted.put(None)

    def _discard(self) -> None:
        """Discard a late result."""
        while self._outstanding and not self._done.empty():
            self._done.get()
            self._outstanding -= 1

    def _run(self) -> None:
        while (call := self._wanted.get()) is not None:
            self._done.put(self._outcome(call))

    def _outcome(self, call: Callable[[], T]) -> T | NvmlError:
        try:
            return call()
        except NvmlError as error:
            return error
        except BROKEN_CALL as error:
            log.error("a call of %s failed", self._thread.name, exc_info=error)
            return NvmlError(UNKNOWN, type(error).__name__)
