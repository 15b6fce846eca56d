"""The GPUs of this node during the agent's life: found, read, lost and found again.

A session lasts from opening the driver's library to closing it. A GPU that falls off the bus, a
reloaded driver, a GPU that is plugged in: each of them leads to a new session. The identity of a
GPU is kept from when it was first seen, because a lost one can no longer be queried. From its first
call on, each GPU has its own thread, so that if one hangs, only its own values are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.gpus.call_errors import CallErrors
from rankscope_agent.sources.gpus.events import EventCounts, EventThread
from rankscope_agent.sources.gpus.given import GivenGpus
from rankscope_agent.sources.gpus.nvml import (
    CLOSED_CODES,
    GONE_CODES,
    UNSUPPORTED_CODES,
    Identity,
    Nvml,
    NvmlError,
)
from rankscope_agent.sources.gpus.reader import GpuReader, info_samples
from rankscope_agent.sources.gpus.worker import Hung, Worker

log = logging.getLogger(__name__)

REOPEN_SECONDS = 5.0
"""Time from a loss to the first attempt to reopen the library: a driver reload takes a while."""

MAX_REOPEN_SECONDS = 600.0
"""Longest time between attempts. It doubles each time: a GPU off the bus seldom comes back by
itself, and each attempt closes the session of the healthy ones."""

MAX_CLOSED_SECONDS = 60.0
"""Longest time between attempts while no session is open, when they disturb nothing: the driver may
be installed long after the agent."""

HEALTHY_SECONDS = 60.0
"""After a session without losses for this long, the next loss counts as the first one again."""

BOUND_SECONDS = 5.0
"""Time between two checks of the driver's list of GPUs, which read one directory."""

EVENT_STOP_SECONDS = 2.0
"""Time to wait for the event thread to end: four of its waits."""

FIRST_EVENTS_SECONDS = 0.2
"""Time to wait for events that were pending when a session began, so that they are on its first
page."""

SILENT_SECONDS = 30.0
"""Time after which opening the library counts as hung. Opening takes a second per GPU if no process
keeps the driver's state, and the largest machines have 16."""

MAX_GPUS = 64
"""GPUs read from one driver; the largest machines have 16. Further ones are not read."""

UNKNOWN_PCI = "unknown"


@dataclass(slots=True)
class Gpu:
    """A GPU of the current session; without a reader it cannot be read, or has not answered yet.

    Args:
        identity: its current or last known identity; a placeholder if unknown.
        reader: set by the worker's thread after the GPU has identified itself.
        refusal: the error code that it returned instead of its identity; 0 for none.
    """

    index: int
    identity: Identity
    worker: Worker[tuple[Sample, ...]]
    reader: GpuReader | None = None
    refusal: int = 0
    lost: bool = False


class Session:
    """Reads all GPUs; used by one thread only, which driver calls never block for long.

    Args:
        nvml: the library.
        timeout_seconds: how long one run waits for all GPUs together.
        opening_seconds: how long the first run waits for the library to open, which takes a second
            per GPU if no process keeps the driver's state.
        clock: returns monotonic time in seconds.
    """

    def __init__(
        self,
        nvml: Nvml,
        timeout_seconds: float,
        opening_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._nvml = nvml
        self._patience = timeout_seconds
        self._opening_timeout = opening_seconds
        self._clock = clock
        self._errors = CallErrors()
        self._counts = EventCounts()
        self._opener: Worker[int] = Worker("gpu-driver")
        self._events: EventThread | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._identities: dict[int, Identity] = {}
        self._known: dict[tuple[str, str], Identity] = {}
        self._parts: dict[tuple[str, str], tuple[Sample, ...]] = {}
        self._lost: set[tuple[str, str]] = set()
        self._bound = nvml.bound()
        self._bound_due = 0.0
        self._given = GivenGpus(nvml)
        self._opened = 0
        self._failure: NvmlError | None = None
        self._open = False
        self._opening_since: float | None = None
        self._attempt = REOPEN_SECONDS
        self._reopen_due: float | None = self._clock()
        self._healthy_since = self._clock()

    def read(self) -> Iterator[Sample]:
        """Yield the samples of all current and former GPUs.

        Raises:
            NvmlError: the library cannot be opened, and no GPU has been seen yet.
        """
        self._follow()
        self._take_over()
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
        yield from self._never_seen()
        yield from self._counts.samples()
        yield from self._errors.samples()

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the library began to open without answering; None if it is not opening."""
        return None if self._opening_since is None else self._clock() - self._opening_since

    def _never_seen(self) -> Iterator[Sample]:
        """Describe GPUs that the kernel lists but the library has never named."""
        for pci in self._unnamed()[:MAX_GPUS]:
            yield Sample(metrics.GPU_UNRESPONSIVE, Identity("unknown", "unknown", pci).labels, 1)

    def _unnamed(self) -> list[str]:
        """Return addresses of such GPUs; none while the library may only be slow to open."""
        here = [gpu.identity.pci for gpu in self._gpus]
        named = {*here, *(identity.pci for identity in self._known.values())}
        seconds = self.silent_seconds
        if seconds is not None:
            listed = self._bound or self._nvml.on_bus()
            return sorted(listed - named) if seconds >= SILENT_SECONDS else []
        missing = (self._given.addresses & (self._bound or frozenset())) - named
        # As many of these are GPUs of the session that have not said who they are; no matter which.
        return sorted(missing)[here.count(UNKNOWN_PCI) :]

    def _absent(self, identity: Identity) -> Iterator[Sample]:
        """Describe a GPU that is not part of the session, or whose session could not be opened."""
        yield from self._who(identity)
        state = metrics.GPU_LOST if _key(identity) in self._lost else metrics.GPU_UNRESPONSIVE
        yield Sample(state, identity.labels, 1)

    def _who(self, identity: Identity) -> tuple[Sample, ...]:
        """Return what a GPU that cannot be read is, and of which parts it consisted."""
        return (*info_samples(identity, ""), *self._parts.get(_key(identity), ()))

    def _read_all(self) -> Iterator[tuple[Gpu, tuple[Sample, ...]]]:
        for gpu in self._gpus:
            if gpu.reader is not None and not gpu.lost:
                gpu.worker.ask(gpu.reader.read)
        end = self._clock() + self._patience
        for gpu in self._gpus:
            yield gpu, self._outcome(gpu, end)

    def _outcome(self, gpu: Gpu, end: float) -> tuple[Sample, ...]:
        labels = gpu.identity.labels
        who = self._who(gpu.identity)
        if gpu.lost:
            return (*who, Sample(metrics.GPU_LOST, labels, 1))
        if gpu.refusal:
            reason = UNSUPPORTED_CODES.get(gpu.refusal, "error")
            refused = Sample(metrics.UNSUPPORTED, (*labels, "identity", reason), 1)
            return (*who, refused, Sample(metrics.GPU_UNRESPONSIVE, labels, 1))
        if gpu.reader is None:
            return (*who, Sample(metrics.GPU_UNRESPONSIVE, labels, 1))
        try:
            samples = gpu.worker.answer(end - self._clock())
        except Hung:
            return (*who, Sample(metrics.GPU_UNRESPONSIVE, labels, 1))
        except NvmlError as error:
            return (*who, *self._failed(gpu, error))
        self._parts[_key(gpu.identity)] = tuple(s for s in samples if s.metric is metrics.MIG_INFO)
        state = (Sample(metrics.GPU_LOST, labels, 0), Sample(metrics.GPU_UNRESPONSIVE, labels, 0))
        return (*state, *samples)

    def _failed(self, gpu: Gpu, error: NvmlError) -> tuple[Sample, ...]:
        """Record a GPU that could not be read at all; return what is still known about it."""
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
            longest = MAX_REOPEN_SECONDS if self._open else MAX_CLOSED_SECONDS
            self._reopen_due = now + min(self._attempt, longest)
            self._attempt = min(2 * self._attempt, MAX_REOPEN_SECONDS)
        self._healthy_since = now

    def _follow(self) -> None:
        """Open a new session if one is due or the driver's list of GPUs has changed."""
        now = self._clock()
        if now >= self._bound_due and self._opening_since is None:
            self._bound_due = now + BOUND_SECONDS
            bound = self._nvml.bound()
            if bound != self._bound:
                log.info("the driver's list of GPUs has changed: %s", sorted(bound or ()))
                self._bound = bound
                self._reopen_due = now
        if self._reopen_due is None or now < self._reopen_due:
            return
        if any(gpu.worker.busy for gpu in self._gpus):
            return  # closing the library during a hung call could crash the agent
        self._reopen()

    def _reopen(self) -> None:
        if self._events is not None and not self._events.stop(EVENT_STOP_SECONDS):
            return
        self._events = None
        for gpu in self._gpus:
            gpu.worker.stop()
        self._gpus = ()
        patience = 0.0 if self._opening_since is not None else self._opening_timeout
        if self._opening_since is None:
            self._opener.ask(self._new_session)
            self._opening_since = self._clock()
        try:
            count = self._opener.answer(patience)
        except Hung:
            return  # retried in every run; meanwhile every GPU is unresponsive
        except NvmlError as error:
            self._opening_since, self._reopen_due = None, None
            self._failure = error
            self._errors.add(error)
            self._plan_reopening()
            return
        self._opening_since, self._reopen_due = None, None
        self._begin(count)

    def _new_session(self) -> int:
        """Open the library and count the GPUs; runs in the thread that may hang.

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
        return min(self._nvml.count(), MAX_GPUS)

    def _look(self, gpu: Gpu) -> tuple[Sample, ...]:
        """Read a GPU's identity; runs in its own thread, which may hang.

        Raises:
            NvmlError: it does not return its identity.
        """
        device = self._nvml.device(gpu.index)
        gpu.identity = device.identity()
        gpu.reader = GpuReader(device, gpu.identity, self._errors, self._clock)
        return ()

    def _begin(self, count: int) -> None:
        """Begin a new session: request the identities of all GPUs at once."""
        now = self._clock()
        self._failure = None
        self._opened += 1
        self._identities = {}
        self._bound = self._nvml.bound()
        self._bound_due = now + BOUND_SECONDS
        self._healthy_since = now
        self._given.ask()
        self._gpus = tuple(_placeholder(index) for index in range(count))
        for gpu in self._gpus:
            gpu.worker.ask(partial(self._look, gpu))
        end = now + self._patience
        for gpu in self._gpus:
            self._identify_gpu(gpu, end)
        self._given.wait(end - self._clock())
        closed = [gpu.refusal for gpu in self._gpus if gpu.refusal in CLOSED_CODES]
        if closed:  # the driver has disappeared again
            self._failure = NvmlError(closed[0], "identity")
            self._keep_hung()
            return
        self._take_over()
        self._report_unidentified()
        self._report_missing()
        self._events = self._new_events()
        self._events.looked.wait(FIRST_EVENTS_SECONDS)

    def _keep_hung(self) -> None:
        """Forget the GPUs of a session that is over, except those whose call has not returned."""
        hung = []
        for gpu in self._gpus:
            if gpu.worker.busy:
                hung.append(gpu)
            else:
                gpu.worker.stop()
        self._gpus = tuple(hung)

    def _identify_gpu(self, gpu: Gpu, end: float) -> None:
        """Wait for a GPU's identity; one that hangs may still return it later."""
        try:
            gpu.worker.answer(end - self._clock())
        except Hung:
            return
        except NvmlError as error:
            self._errors.add(error)
            gpu.refusal, gpu.lost = error.code, error.code in GONE_CODES
            if error.code not in UNSUPPORTED_CODES:
                self._plan_reopening()

    def _take_over(self) -> None:
        """Register the GPUs that have identified themselves, including late ones."""
        for gpu in self._gpus:
            if gpu.reader is None and not gpu.refusal:
                self._identify_gpu(gpu, self._clock())
            if gpu.reader is not None and gpu.index not in self._identities:
                self._identities[gpu.index] = gpu.identity
                self._known[_key(gpu.identity)] = gpu.identity
                self._lost.discard(_key(gpu.identity))
                if self._events is not None and self._events.ended:
                    self._events = self._new_events()

    def _new_events(self) -> EventThread:
        return EventThread(self._nvml, self._identities, self._counts, self._errors)

    def _report_unidentified(self) -> None:
        """Assume that a GPU without an identity is the one that had its index before."""
        seen = {_key(identity) for identity in self._identities.values()}
        away = {at.gpu: at for key, at in self._known.items() if key not in seen}
        for gpu in self._gpus:
            if gpu.reader is None and not gpu.lost:
                gpu.identity = away.get(str(gpu.index), gpu.identity)

    def _report_missing(self) -> None:
        """Record the known GPUs that are missing from this session."""
        present = {_key(gpu.identity) for gpu in self._gpus}
        taken = {identity.pci for identity in self._identities.values()}
        for key in self._known.keys() - present:
            pci = self._known[key].pci
            # Deliberately removed from the driver, or replaced. A GPU off the bus stays in the
            # driver's list, unless its slot removes it later: one that was lost stays lost.
            removed = self._bound is not None and pci not in self._bound
            if pci in taken or (removed and key not in self._lost):
                del self._known[key]
                self._lost.discard(key)
            else:
                self._lost.add(key)
        # A GPU that identified itself in an earlier session will do so again.
        refusing = [gpu for gpu in self._gpus if gpu.refusal and _key(gpu.identity) in self._known]
        lost = self._lost or any(gpu.lost for gpu in self._gpus)
        if lost or refusing or self._unnamed():
            self._plan_reopening()


def _placeholder(index: int) -> Gpu:
    return Gpu(index, Identity(str(index), "unknown", UNKNOWN_PCI), Worker(f"gpu-{index}"))


def _key(identity: Identity) -> tuple[str, str]:
    return identity.uuid, identity.pci
