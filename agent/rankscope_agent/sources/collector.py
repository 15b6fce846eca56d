"""The collector interface, and the only place where a collector's exceptions are caught.

A collector reads one source and yields samples. It raises `NoData` if the source does not exist and
lets every other error propagate: `scrape` turns both into a `Scrape` that describes them.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from rankscope_agent.contract.model import Sample, Scrape

log = logging.getLogger(__name__)

MAX_SAMPLES = 200_000
"""Samples accepted from one run: a hundred times the page's default limit, some 50 MB of memory.
More than this, from a collector that never stops yielding, could not be served anyway."""

MAX_FAILURE_CHARACTERS = 500
"""Maximum length of a failure's text: errors may quote input, which others wrote and which can be
of any size."""


ABSENT = "no data: "  # how the failure of a collector without its source begins


def lacks_source(failure: str) -> bool:
    """Return True if a run failed because its source is missing, not because of an error."""
    return failure.startswith(ABSENT)


class NoData(Exception):  # noqa: N818 - an absent source is a state, not an error
    """The source does not exist on this node; the argument says which one and why."""


class Incomplete(Exception):  # noqa: N818 - what could be read goes on the page
    """A run read only a part of its source; the run counts as failed.

    Args:
        samples: what could be read, which is still served.
        reason: what could not be read, and why.
    """

    def __init__(self, samples: tuple[Sample, ...], reason: str) -> None:
        super().__init__(reason)
        self.samples = samples


class Collector(Protocol):
    """One source of samples; called repeatedly, by one thread only."""

    def collect(self) -> Iterable[Sample]:
        """Yield the current state of the source.

        Raises:
            NoData: the source does not exist on this node.
            Incomplete: a part of it could not be read.
        """
        ...


@runtime_checkable
class Finishing(Protocol):
    """A collector that has something to do when the agent ends."""

    def finish(self) -> None:
        """Do it, within a second or two; called after the last run, by the same thread."""
        ...


def scrape(name: str, collector: Collector, last_success: float | None) -> Scrape:
    """Run a collector once and return the outcome, whatever it raises."""
    begin = time.monotonic()
    failure = ""
    samples: tuple[Sample, ...] = ()
    try:
        samples = _take(collector.collect())
    except NoData as absence:
        failure = f"{ABSENT}{absence}"[:MAX_FAILURE_CHARACTERS]
        log.debug("collector %s has no data: %s", name, absence)
    except Incomplete as gap:
        samples, failure = _take(gap.samples), str(gap)[:MAX_FAILURE_CHARACTERS]
        log_failure(name, failure)
    except PermissionError as error:  # a fault of the deployment: no traceback
        failure = f"{ABSENT}{error.filename}: permission denied"[:MAX_FAILURE_CHARACTERS]
        log.debug("collector %s is denied access to its source: %s", name, error)
    except Exception as error:  # noqa: BLE001 - the isolation that the page stands on
        failure = f"{type(error).__name__}: {error}"[:MAX_FAILURE_CHARACTERS]
        log_failure(name, failure, traceback=True)
    success = not failure
    return Scrape(
        collector=name,
        success=success,
        duration_seconds=time.monotonic() - begin,
        samples=samples,
        failure=failure,
        last_success_unix_seconds=time.time() if success else last_success,
    )


def log_failure(name: str, failure: str, *, what: str = "failed", traceback: bool = False) -> None:
    """Log a collector's failure, or a problem with its samples.

    The record carries name and failure, so that a handler can reduce repetitions.
    """
    log.error(
        "collector %s %s: %s",
        name,
        what,
        failure,
        exc_info=traceback,
        extra={"collector": name, "failure": failure},
    )


def _take(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Return all samples of a collector, up to a limit.

    Raises:
        ValueError: there are more than `MAX_SAMPLES`.
    """
    taken = tuple(itertools.islice(samples, MAX_SAMPLES + 1))
    if len(taken) > MAX_SAMPLES:
        raise ValueError(f"yields more than {MAX_SAMPLES} samples in one run")
    return taken
