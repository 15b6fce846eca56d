"""A device with streams and events that keep the real ordering rules, in simulated time.

The host only queues: what it queues begins once its stream has done all before it, and an event
completes when its stream gets there. A stream that waits for an event does nothing until that was
completed as it was last recorded when the wait was queued. Asking tells what is so at the host's
time. So what each step spent waiting, and for what, is known exactly. Times are milliseconds.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

PEERS, COPIES = "peers", "copies"


@dataclass(slots=True)
class Truth:
    """What one stream's time went to, of what was queued since the last look."""

    peers: float = 0.0
    copies: float = 0.0
    idle: float = 0.0
    data: float = 0.0


class CudaError(RuntimeError):
    """What torch raises where CUDA refuses."""


class Device:
    """One or several devices of a process, and its host.

    Args:
        call_ms: what each call to the device costs the host.
    """

    def __init__(self, call_ms: float = 0.0) -> None:
        self.now = 0.0
        self.call_ms = call_ms
        self.numbers = itertools.count()
        self.current = threading.local()
        self.broken = ""
        self.capturing = False
        self.calls = 0
        self.never = False  # events do not complete any longer
        self.streams: dict[int, Stream] = {}
        self.cuda = cuda_of(self)
        self.training = self.default(0)

    def called(self) -> None:
        """Take a call of the host's."""
        self.calls += 1
        self.now += self.call_ms
        if self.broken:
            raise CudaError(self.broken)

    def default(self, index: int) -> Stream:
        """Return the default stream of a device."""
        if index not in self.streams:
            self.streams[index] = self.cuda.Stream(index)
        return self.streams[index]

    def stream(self) -> Stream:
        """Return this thread's current stream."""
        return getattr(self.current, "stream", None) or self.training

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Make a stream this thread's current one."""
        before = getattr(self.current, "stream", None)
        self.current.stream = stream
        try:
            yield
        finally:
            self.current.stream = before

    def host(self, milliseconds: float) -> None:
        """Let time pass on the host."""
        self.now += milliseconds

    def fetch(self, milliseconds: float) -> None:
        """Let the host wait for a batch, which the training stream may not notice."""
        begin = max(self.now, self.training.free)
        self.host(milliseconds)
        self.training.truth.data += max(self.now - begin, 0.0)

    def kernel(self, milliseconds: float, cause: str = "") -> None:
        """Queue work in the current stream: a kernel, a copy or what peers are waited in."""
        self.called()
        self.stream().run(milliseconds, cause)

    def collective(self, channel: Stream, milliseconds: float) -> Event:
        """Queue an asynchronous collective as NCCL does, on a stream of its own; return its end."""
        self.called()
        own = self.cuda.Event()
        own.put_into(self.stream())
        channel.await_event(own)
        channel.run(milliseconds, PEERS)
        end: Event = self.cuda.Event()
        end.put_into(channel)
        return end

    def truth(self) -> Truth:
        """Return what the training stream's time went to since the last time."""
        taken, self.training.truth = self.training.truth, Truth()
        return taken

    def block(self, until: float, cause: str) -> None:
        """Hold the host up until the device is there; the training stream lacks work meanwhile."""
        stream, begin = self.training, max(self.now, self.training.free)
        if until > begin:
            stream.truth.idle += begin - stream.free
            spent = until - begin
            stream.truth.peers += spent if cause == PEERS else 0.0
            stream.truth.copies += spent if cause == COPIES else 0.0
            stream.free = until
        self.now = max(self.now, until)

    def drain(self) -> None:
        """Let the host wait until all streams are done."""
        self.now = max([self.now, *(stream.free for stream in self.streams.values())])


class Event:
    """An event; `Device` is that of its class, see `cuda_of`."""

    device: Device

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.timing = enable_timing
        self.at: float | None = None
        self.cause = ""

    def put_into(self, stream: Stream) -> None:
        """Complete when the stream has done all that it was given before."""
        self.at, self.cause = max(self.device.now, stream.free), stream.cause

    def record(self, stream: Stream | None = None) -> None:
        """Put the event into a stream, the current one by default."""
        self.device.called()
        target = stream or self.device.stream()
        assert not self.device.capturing or not self.timing, "an event was put into a graph"
        self.put_into(target)

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream wait, the current one by default."""
        self.device.called()
        (stream or self.device.stream()).await_event(self)

    def query(self) -> bool:
        """Return True if the device has come here."""
        self.device.called()
        assert not self.device.capturing, "an event was asked for during a capture"
        return self.at is None or (self.at <= self.device.now and not self.device.never)

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds between two events that have completed."""
        self.device.called()
        assert not self.device.capturing, "an event was read during a capture"
        if not (self.timing and end.timing) or self.at is None or end.at is None:
            raise CudaError("invalid resource handle")
        if max(self.at, end.at) > self.device.now:
            raise CudaError("device not ready")
        return end.at - self.at

    def synchronize(self) -> None:
        """Make the host wait, and the training stream with it once it has nothing to do."""
        self.device.block(self.at or 0.0, self.cause)


class Stream:
    """A queue of work of one device."""

    device: Device

    def __init__(self, device_index: int = 0, priority: int = 0, **_: Any) -> None:
        number = next(self.device.numbers)
        self.device_index = device_index if isinstance(device_index, int) else 0
        self.stream_id = number
        self.free = 0.0
        self.cause = ""
        self.truth = Truth()
        self.device.streams.setdefault(1000 + number, self)

    def run(self, milliseconds: float, cause: str = "") -> None:
        """Do something as soon as all before it is done."""
        self.truth.idle += max(self.device.now - self.free, 0.0)
        self.free = max(self.device.now, self.free) + milliseconds
        if cause:
            self.cause = cause
            if cause == PEERS:
                self.truth.peers += milliseconds

    def await_event(self, event: Event) -> None:
        """Do nothing until an event, as it was last recorded, has completed."""
        if event.at is None:
            return
        begin = max(self.device.now, self.free)
        if event.at > begin:
            self.truth.idle += max(self.device.now - self.free, 0.0)
            stall = event.at - begin
            if event.cause == PEERS:
                self.truth.peers += stall
            elif event.cause == COPIES:
                self.truth.copies += stall
            self.free = event.at
            self.cause = event.cause or self.cause

    def record_event(self, event: Event | None = None) -> Event:
        """Put an event here, a new one by default."""
        put: Event = event if event is not None else self.device.cuda.Event()
        put.record(self)
        return put

    def wait_event(self, event: Event) -> None:
        """Wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Wait for all that another stream has been given so far."""
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Return True if all is done."""
        self.device.called()
        assert not self.device.capturing, "a stream was asked during a capture"
        return self.free <= self.device.now

    def synchronize(self) -> None:
        """Make the host wait, and the training stream with it once it has nothing to do."""
        self.device.block(self.free, self.cause)


def cuda_of(device: Device) -> Any:
    """Return what stands for `torch.cuda`, with classes of its own, as hooks are put into them.

    As in torch, `Stream.wait_stream` calls `wait_event`, which calls `Event.wait`.
    """
    graph = {
        "capture_begin": lambda graph: setattr(device, "capturing", True),
        "capture_end": lambda graph: setattr(device, "capturing", False),
        "replay": lambda graph: device.kernel(0.1),
    }
    own = {"device": device}
    return SimpleNamespace(
        Event=type("Event", (Event,), own),
        Stream=type("Stream", (Stream,), own),
        CUDAGraph=type("CUDAGraph", (), graph),
        current_stream=lambda index=None: device.stream(),
        is_current_stream_capturing=lambda: device.capturing,
    )
