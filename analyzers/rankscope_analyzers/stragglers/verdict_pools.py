"""Where verdicts on many traces are computed: processes of this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

CONNECT_SECONDS = 30
"""Seconds; Dask's own default, so that a scheduler that is just starting is waited for."""

SCHEMES = ("tcp://", "tls://")


class SchedulerError(Exception):
    """A Dask cluster cannot be used; the message names it and says why."""


@contextmanager
def processes(workers: int) -> Iterator[Executor]:
    """Yield a pool of processes on this machine."""
    # Fork would copy the locks of any threads that the caller has started.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool


@contextmanager
def cluster(scheduler: str) -> Iterator[Executor]:
    """Yield the workers of a Dask cluster as a pool; they have rankscope and see the traces.

    Certificates for tls:// are those of Dask's own configuration.

    Args:
        scheduler: its address.

    Raises:
        SchedulerError: the address is invalid, `distributed` is missing, or nobody answers.
    """
    if not scheduler.startswith(SCHEMES):
        raise SchedulerError(f"--scheduler takes tcp://HOST:PORT or tls://..., not {scheduler!r}")
    try:
        from distributed import Client
    except ImportError:
        needs = "--scheduler takes distributed: pip install 'rankscope[dask]'"
        raise SchedulerError(needs) from None
    try:
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise SchedulerError(f"no Dask scheduler can be used at {scheduler}: {error}") from None
    with client:
        yield client.get_executor()
