"""Ends a command as it should if its output cannot be written.

If whoever reads it has stopped, as `| head` does, there is no message. If a disk is full or the
output is closed, one sentence says so.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

CODE = 141
"""The code that shells give a program which SIGPIPE ended; Python ignores that signal."""

UNWRITTEN = 1
"""The code if the output could not be written."""

STANDARD_OUTPUT = 1
OUTPUTS = (STANDARD_OUTPUT, 2)
"""Descriptors of standard output and standard error."""


class _Output:
    """Standard output as long as a command runs; notes why it could not be written.

    Args:
        stream: standard output, None if it was closed before this process began. Its descriptor
            must not be used then: it may since be that of another file.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.problem: OSError | None = None
        self.used = False

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            OSError: it cannot be written.
        """
        self.used = self.used or bool(text)
        with self._noted():
            if self._stream is not None:
                return self._stream.write(text)
            if text:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return 0

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines.

        Raises:
            OSError: they cannot be written.
        """
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered.

        Raises:
            OSError: it cannot be written.
        """
        with self._noted():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(io.StringIO() if self._stream is None else self._stream, name)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = error
            raise


def run(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, `CODE` if the reader of its output is gone.

    Raises:
        BrokenPipeError: of another pipe or connection.
        OSError: of another file.
    """
    with _observed() as output:
        try:
            try:
                code = command()
            finally:
                print(end="", flush=True)  # here, not when Python ends and can only complain
        except BrokenPipeError:
            closed = _without_reader()
            if not closed:
                raise
            _discard_rest(closed)
            return CODE
        except (OSError, SystemExit):
            if output.problem is None:
                raise
            code = UNWRITTEN
    return code if output.problem is None else _unwritten(output.problem)


def is_unused() -> bool:
    """Return True if the command that runs has printed nothing to standard output."""
    return isinstance(sys.stdout, _Output) and not sys.stdout.used


@contextmanager
def _observed() -> Iterator[_Output]:
    before = sys.stdout
    output = _Output(before)
    sys.stdout = cast("TextIO", output)
    try:
        yield output
    finally:
        sys.stdout = before


def _unwritten(problem: OSError) -> int:
    """Say that the output could not be written, and return the exit code."""
    if sys.stdout is not None:
        _discard_rest([STANDARD_OUTPUT])
    with suppress(OSError, AttributeError):  # standard error may be full or closed as well
        why = problem.strerror or problem
        sys.stderr.write(f"rankscope: cannot write standard output: {why}\n")
    return UNWRITTEN


def _without_reader() -> Sequence[int]:
    """Return the outputs that nobody reads any more."""
    poll = select.poll()
    for descriptor in OUTPUTS:
        poll.register(descriptor, 0)
    gone = select.POLLERR | select.POLLHUP
    return [descriptor for descriptor, event in poll.poll(0) if event & gone]


def _discard_rest(outputs: Sequence[int]) -> None:
    """Send what is still buffered nowhere, as Python's documentation of SIGPIPE advises."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in outputs:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
