"""The GPUs of this node over the agent's life: found, read, lost, and found again.

A session is what lies between opening the driver's library and closing it. A GPU that falls off the
bus, a driver that is reloaded, a GPU that is plugged in: all of them end in a new session. Who a
GPU is, is kept from when it was first seen; a lost one can no longer be asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rankscope_agent.gpus.call_errors import CallErrors
from rankscope_agent.gpus.events import EventCounts, EventThread
from rankscope_agent.gpus.nvml import (
    CLOSED_CODES,
    GONE_CODES,
    UNSUPPORTED_CODES,
    Identity,
    Nvml,
    NvmlError,
)
from rankscope_agent.gpus.reader import GpuReader, info_samples
from rankscope_agent.gpus.worker import Hung, Worker
from rankscope_agent.metrics import gpu as metrics
from rankscope_agent.model import Sample

log = logging.getLogger(__name__)

REOPEN_SECONDS = 5.0
"""Time from a loss to the first attempt to open the library again: a driver reload takes some."""

MAX_REOPEN_SECONDS = 600.0
"""Longest time between attempts. They double: a GPU off the bus seldom comes back by itself, and
each attempt closes the session of the healthy ones."""

HEALTHY_SECONDS = 60.0
"""A session without a loss for so long makes the next loss the first one again."""

BOUND_SECONDS = 5.0
"""Time between two looks at which GPUs the driver has: one directory."""

EVENT_STOP_SECONDS = 2.0
"""Patience with the thread of events: four of its waits."""

FIRST_EVENTS_SECONDS = 0.2
"""Patience with events that were pending when a session began, to have them on its first page."""

MAX_GPUS = 64
"""GPUs taken from one driver; the largest machines hold 16. What is beyond it is not looked at."""


@dataclass(slots=True)
class Gpu:
    """A GPU of the running session; without a reader it was found and cannot be read.

    Args:
        refusal: code of what it answered when it was asked who it is, 0 for none.
    """

    identity: Identity
    worker: Worker[tuple[Sample, ...]]
    reader: GpuReader | None
    refusal: int = 0
    lost: bool = False


class Session:
    """Reads all GPUs; used by one thread only, which calls of the driver never hold up for long.

    Args:
        nvml: the library.
        patience_seconds: how long one run waits for the driver, all GPUs together.
        clock: monotonic time in seconds.
    """

    def __init__(self, nvml: Nvml, patience_seconds: float, clock: Callable[[], float]) -> None:
        self._nvml = nvml
        self._patience = patience_seconds
        self._clock = clock
        self._errors = CallErrors()
        self._counts = EventCounts()
        self._opener: Worker[tuple[Gpu, ...]] = Worker("gpu-driver")
        self._events: EventThread | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._known: dict[tuple[str, str], Identity] = {}
        self._lost: set[tuple[str, str]] = set()
        self._bound: frozenset[str] | None = None
        self._bound_due = 0.0
        self._opened = 0
        self._failure: NvmlError | None = None
        self._open = False
        self._opening = False
        self._attempt = REOPEN_SECONDS
        self._reopen_due: float | None = self._clock()
        self._healthy_since = self._clock()

    def read(self) -> Iterator[Sample]:
        """Yield the samples of all GPUs there are or were.

        Raises:
            NvmlError: the library cannot be opened, and no GPU has been seen yet.
        """
        self._follow()
        if self._failure is not None and not self._known:
            raise self._failure
        yield metrics.NVML_OPENED.sample(self._opened)
        present = set()
        for gpu, samples in self._read_all():
            present.add(_key(gpu.identity))
            yield from samples
        for key, identity in self._known.items():
            if key not in present:
                yield from self._absent(identity)
        yield from self._counts.samples()
        yield from self._errors.samples()

    def _absent(self, identity: Identity) -> Iterator[Sample]:
        """Describe a GPU that is not part of the session, or whose session could not be opened."""
        yield from info_samples(identity, "")
        if _key(identity) in self._lost:
            yield Sample(metrics.GPU_LOST, identity.labels, 1)
        else:
            yield Sample(metrics.GPU_UNRESPONSIVE, identity.labels, 1)

    def _read_all(self) -> Iterator[tuple[Gpu, tuple[Sample, ...]]]:
        for gpu in self._gpus:
            if gpu.reader is not None and not gpu.lost:
                gpu.worker.ask(gpu.reader.read)
        end = self._clock() + self._patience
        for gpu in self._gpus:
            yield gpu, self._outcome(gpu, end)

    def _outcome(self, gpu: Gpu, end: float) -> tuple[Sample, ...]:
        labels = gpu.identity.labels
        who = tuple(info_samples(gpu.identity, ""))
        if gpu.lost:
            return (*who, Sample(metrics.GPU_LOST, labels, 1))
        if gpu.reader is None:
            reason = UNSUPPORTED_CODES.get(gpu.refusal, "error")
            return (Sample(metrics.UNSUPPORTED, (*labels, "identity", reason), 1),)
        try:
            samples = gpu.worker.answer(end - self._clock())
        except Hung:
            return (*who, Sample(metrics.GPU_UNRESPONSIVE, labels, 1))
        except NvmlError as error:
            return (*who, *self._failed(gpu, error))
        state = (Sample(metrics.GPU_LOST, labels, 0), Sample(metrics.GPU_UNRESPONSIVE, labels, 0))
        return (*state, *samples)

    def _failed(self, gpu: Gpu, error: NvmlError) -> tuple[Sample, ...]:
        """Note a GPU that could not be read at all; return what can still be said about it."""
        self._errors.add(error)
        if error.code in GONE_CODES | CLOSED_CODES:
            self._plan_reopening()
        if error.code in GONE_CODES:
            log.warning("GPU %s (%s) is lost: %s", gpu.identity.pci, gpu.identity.uuid, error)
            gpu.lost = True
            self._lost.add(_key(gpu.identity))
            return (Sample(metrics.GPU_LOST, gpu.identity.labels, 1),)
        return (Sample(metrics.GPU_UNRESPONSIVE, gpu.identity.labels, 1),)

    def _plan_reopening(self) -> None:
        now = self._clock()
        if self._reopen_due is None:
            if now - self._healthy_since >= HEALTHY_SECONDS:
                self._attempt = REOPEN_SECONDS
            self._reopen_due = now + self._attempt
            self._attempt = min(2 * self._attempt, MAX_REOPEN_SECONDS)
        self._healthy_since = now

    def _follow(self) -> None:
        """Open a new session if one is due or the driver has other GPUs than before."""
        now = self._clock()
        if self._open and now >= self._bound_due:
            self._bound_due = now + BOUND_SECONDS
            bound = self._nvml.bound()
            if bound != self._bound and self._reopen_due is None:
                log.info("the driver has other GPUs now: %s", sorted(bound or ()))
                self._reopen_due = now
        if self._reopen_due is None or now < self._reopen_due:
            return
        if any(gpu.worker.busy for gpu in self._gpus):
            return  # closing the library under a call that hangs could crash the agent
        self._reopen()

    def _reopen(self) -> None:
        if self._events is not None and not self._events.stop(EVENT_STOP_SECONDS):
            return
        self._events = None
        for gpu in self._gpus:
            gpu.worker.stop()
        self._gpus = ()
        patience = 0.0 if self._opening else self._patience
        if not self._opening:
            self._opener.ask(self._new_session)
            self._opening = True
        try:
            found = self._opener.answer(patience)
        except Hung:
            return  # asked again each run; meanwhile every GPU is unresponsive
        except NvmlError as error:
            self._opening, self._reopen_due = False, None
            self._failure = error
            self._errors.add(error)
            self._plan_reopening()
            return
        self._opening, self._reopen_due = False, None
        self._begin(found)

    def _new_session(self) -> tuple[Gpu, ...]:
        """Open the library and find the GPUs; runs in the thread that may hang.

        Raises:
            NvmlError: the library cannot be opened.
        """
        if self._open:
            self._open = False
            try:
                self._nvml.close()
            except NvmlError as error:
                self._errors.add(error)
        self._nvml.open()
        self._open = True
        return tuple(self._find(index) for index in range(min(self._nvml.count(), MAX_GPUS)))

    def _find(self, index: int) -> Gpu:
        """Look at one GPU.

        Raises:
            NvmlError: the session is over.
        """
        worker: Worker[tuple[Sample, ...]] = Worker(f"gpu-{index}")
        try:
            device = self._nvml.device(index)
            identity = device.identity()
        except NvmlError as error:
            worker.stop()
            if error.code in CLOSED_CODES:
                raise
            self._errors.add(error)
            unknown = Identity(str(index), "unknown", "unknown")
            return Gpu(unknown, worker, None, error.code, lost=error.code in GONE_CODES)
        reader = GpuReader(device, identity, self._errors, self._clock)
        return Gpu(identity, worker, reader)

    def _begin(self, found: tuple[Gpu, ...]) -> None:
        """Take over a new session."""
        now = self._clock()
        self._failure = None
        self._opened += 1
        self._gpus = found
        self._bound = self._nvml.bound()
        self._bound_due = now + BOUND_SECONDS
        self._healthy_since = now
        seen = {_key(gpu.identity): gpu.identity for gpu in found if gpu.reader is not None}
        self._lost -= seen.keys()
        self._lost |= self._known.keys() - seen.keys()
        self._known |= seen
        for key, identity in tuple(self._known.items()):
            if self._bound is not None and identity.pci not in self._bound:
                # Taken from the driver on purpose: a GPU off the bus stays in its list.
                del self._known[key]
                self._lost.discard(key)
        if self._lost or any(gpu.lost for gpu in found):
            self._plan_reopening()
        identities = {index: gpu.identity for index, gpu in enumerate(found)}
        self._events = EventThread(self._nvml, identities, self._counts, self._errors)
        self._events.looked.wait(FIRST_EVENTS_SECONDS)


def _key(identity: Identity) -> tuple[str, str]:
    return identity.uuid, identity.pci
