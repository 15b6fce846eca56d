"""What is fuzzed: a parser, inputs that it accepts, and how it may refuse others."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class BrokenPromiseError(AssertionError):
    """A parser accepted an input and returned what it promises never to return."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser.

    Args:
        name: on the command line and of the directory of its findings.
        read: passes bytes to it, and checks the promises about its results.
        seeds: inputs that it accepts, made by the writers of its format.
        refuses: errors by which it may refuse an input; every other one is a finding.
        runs: inputs of one run of `make fuzz`; fewer if each opens files or makes tables.
    """

    name: str
    read: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    refuses: tuple[type[Exception], ...] = ()
    runs: int = 100_000

    @property
    def folder(self) -> str:
        """Return the name of the directory of its corpus, and of its findings."""
        return "".join(one if one.isalnum() else "_" for one in self.name)


def run(target: Target, data: bytes) -> bool:
    """Pass one input to a parser; return True if it accepted it.

    Warnings count as errors, as in the tests: numpy and pandas warn when they overflow.

    Raises:
        Exception: the parser raised what it may not raise.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            target.read(data)
        except target.refuses:
            return False
    return True


def promise(kept: object, what: str) -> None:
    """Check a parser's promise.

    Raises:
        BrokenPromiseError: it is broken.
    """
    if not kept:
        raise BrokenPromiseError(what)


@contextmanager
def stored(data: bytes, name: str) -> Iterator[Path]:
    """Yield a file of this content and name in a separate directory, for parsers of files."""
    with tempfile.TemporaryDirectory(prefix="rankscope-fuzz-") as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        yield path
