"""Driver events, received by one thread and counted by GPU."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.gpus.call_errors import CallErrors
from rankscope_agent.sources.gpus.nvml import (
    EVENT_NAMES,
    EVENT_XID,
    TIMEOUT,
    UNSUPPORTED_CODES,
    Event,
    Identity,
    Nvml,
    NvmlError,
)

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.5
"""Duration of one wait for events, after which the thread checks whether the session is over."""

FAILURE_PAUSE_SECONDS = 5.0
"""Pause after a failed wait, so that a driver that fails immediately is not called in a tight
loop."""

MAX_XID = 1000
"""Highest Xid used as a label: NVIDIA's catalogue ends below 200."""

MAX_XIDS = 16
"""Distinct Xids of one GPU that have series; further ones are counted as `other`."""

MAX_EARLY = 64
"""Events that are kept until their GPU has said which one it is."""


class EventCounts:
    """Events since the agent's start; kept across sessions, by uuid."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._xids: dict[tuple[str, str], Counter[str]] = {}
        self._times: dict[tuple[str, str, str], float] = {}
        self._events: Counter[tuple[str, str, str]] = Counter()
        self._identities: dict[tuple[str, str], Identity] = {}

    def add(self, identity: Identity, event: Event) -> None:
        """Count an event on a GPU."""
        key = identity.uuid, identity.pci
        with self._lock:
            self._identities[key] = identity
            if event.kind != EVENT_XID:
                self._events[(*key, EVENT_NAMES.get(event.kind, "other"))] += 1
                return
            codes = self._xids.setdefault(key, Counter())
            code = str(event.data) if 0 <= event.data < MAX_XID else "other"
            if code not in codes and len(codes) >= MAX_XIDS:
                code = "other"
            codes[code] += 1
            self._times[(*key, code)] = self._clock()

    def samples(self) -> Iterator[Sample]:
        """Yield the counts, and the time of the last occurrence of each Xid."""
        with self._lock:
            xids = {key: dict(codes) for key, codes in self._xids.items()}
            times, events = dict(self._times), dict(self._events)
            labels = {key: identity.labels for key, identity in self._identities.items()}
        for key, codes in xids.items():
            for code, count in codes.items():
                yield Sample(metrics.GPU_XIDS, (*labels[key], code), count)
                when = times[(*key, code)]
                yield Sample(metrics.GPU_XID_TIMESTAMP, (*labels[key], code), when)
        for (uuid, pci, name), count in events.items():
            yield Sample(metrics.GPU_EVENTS, (*labels[uuid, pci], name), count)


class EventThread:
    """Waits for the events of one session until it is stopped."""

    def __init__(
        self,
        nvml: Nvml,
        identities: Mapping[int, Identity],
        counts: EventCounts,
        errors: CallErrors,
    ) -> None:
        self._nvml = nvml
        self._identities = identities
        self._counts = counts
        self._errors = errors
        self._early: deque[Event] = deque(maxlen=MAX_EARLY)
        self._stop = threading.Event()
        self.looked = threading.Event()
        """Set when the first wait has ended: events that were pending at the start are counted by
        then."""
        self._thread = threading.Thread(target=self._run, name="gpu-events", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Return True if no GPU that had answered by then reports events."""
        return not self._thread.is_alive()

    def stop(self, timeout_seconds: float) -> bool:
        """Ask the thread to end; return whether it has ended."""
        self._stop.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._wait():
                    return
        finally:
            self.looked.set()

    def _wait(self) -> bool:
        """Wait for one event; return whether to wait for more."""
        try:
            event = self._nvml.wait_event(WAIT_SECONDS)
        except NvmlError as error:
            if error.code in UNSUPPORTED_CODES:
                log.info("the driver reports no events here: %s", error)
                return False
            if error.code != TIMEOUT:
                self._errors.add(error)
                self._stop.wait(FAILURE_PAUSE_SECONDS)
            event = None
        if event is None:
            self.looked.set()
        else:
            self._early.append(event)
        self._count()
        return True

    def _count(self) -> None:
        """Count the events whose GPU the session knows by now."""
        for _ in range(len(self._early)):
            event = self._early.popleft()
            if event.index in self._identities:
                self._counts.add(self._identities[event.index], event)
            else:
                self._early.append(event)
