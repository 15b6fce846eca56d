"""The node's GPUs as exported by dcgm-exporter, for agents without access to GPUs.

The endpoint is not trusted: it may hang, be slow on purpose, or answer with anything. A page must
arrive within one deadline, and only what `gpus.dcgm` can read in it is used.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from rankscope_agent import __version__
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.gpus.dcgm import DcgmPage
from rankscope_agent.sources.gpus.events import EventCounts
from rankscope_agent.sources.gpus.nvml import EVENT_XID, Event

FETCH_SECONDS = 5.0
"""Time between two fetches: dcgm-exporter itself reads the GPUs every 30 s unless configured
otherwise, so fetching more often would only cost CPU time. The last page is served until then."""

TIMEOUT_SECONDS = 4.0
"""Time limit for connecting and for the whole page: shorter than the time between two fetches."""

MAX_PAGE_BYTES = 8 << 20
"""Maximum size of a page: a node of 8 GPUs of 7 MIG devices each has some 2 MB with all fields."""

CHUNK_BYTES = 65536

STALE_SECONDS = 150.0
"""Time without a change of a GPU's energy counter after which its values are stale: five times the
30 s between dcgm-exporter's own readings. A GPU that answers uses energy every second. Exporters
keep showing the last values of a GPU whose driver hangs."""

BLANK_SECONDS = 60.0
"""Time without any value after which a GPU counts as unresponsive: twice the 30 s between
dcgm-exporter's own readings, the first of which it has not made when it starts."""

GpuLabels = tuple[str, ...]
"""Index, uuid and PCI address of a GPU."""


class EndpointError(Exception):
    """The endpoint does not answer like a dcgm-exporter; the argument says how it differs."""


def create(config: Config) -> DcgmCollector:
    """Create the collector of a dcgm-exporter.

    Raises:
        NoData: no address was given, or the GPUs are simulated.
    """
    if config.simulate is not None:
        raise NoData("the node and its GPUs are simulated")
    if not config.dcgm_url:
        raise NoData("--dcgm.url is not set, so the GPUs are read with NVML")
    timeout = min(TIMEOUT_SECONDS, config.deadline_seconds / 2)
    return DcgmCollector(config.dcgm_url, timeout, time.monotonic)


class DcgmCollector:
    """Reads one endpoint.

    Args:
        url: its address.
        timeout_seconds: limit for a whole fetch.
        clock: returns monotonic time in seconds.
    """

    def __init__(self, url: str, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._clock = clock
        self._due = clock()
        self._samples: tuple[Sample, ...] = ()
        self._energy: dict[GpuLabels, tuple[object, float]] = {}
        self._blank: dict[GpuLabels, float] = {}
        self._xids: dict[GpuLabels, int] = {}
        self._events = EventCounts()

    def collect(self) -> Sequence[Sample]:
        """Return the endpoint's latest answer.

        Raises:
            NoData: it shows no GPU.
            EndpointError: the answer is not such a page.
            OSError: it cannot be reached.
        """
        now = self._clock()
        if now >= self._due or not self._samples:
            self._samples = ()
            self._due = now + FETCH_SECONDS
            self._samples = self._fetch()
        return self._samples

    def _fetch(self) -> tuple[Sample, ...]:
        page = DcgmPage(fetch_text(self._url, self._timeout))
        if not page.gpus:
            raise NoData(f"{self._url} answers, but shows no GPU")
        samples = tuple(page.samples())
        old = self._old(samples) | self._without_values(page)
        known = tuple(
            Sample(metrics.GPU_UNRESPONSIVE, identity.labels, int(identity.labels in old))
            for identity in page.gpus
        )
        current = (s for s in samples if s.metric is metrics.GPU_INFO or s.labels[:3] not in old)
        self._note_xids(page, samples)
        return (*known, *current, *self._events.samples())

    def _note_xids(self, page: DcgmPage, samples: Iterable[Sample]) -> None:
        """Count the Xids that are new: the exporter shows a GPU's newest one, without its time.

        One that is there when the GPU is first seen may be of any age, and the same one again
        cannot be told from the first. Some exporters leave the field out until there is one
        (dcgm-exporter issue 700).
        """
        newest = {
            sample.labels: int(sample.value)
            for sample in samples
            if sample.metric is metrics.GPU_LAST_XID and isinstance(sample.value, int | float)
        }
        for identity in page.gpus:
            code = newest.get(identity.labels)
            if code is None:
                if identity not in page.blank_gpus:  # as of an exporter that has just started
                    self._xids.setdefault(identity.labels, 0)
                continue
            if code and self._xids.get(identity.labels, code) != code:
                self._events.add(identity, Event(int(identity.gpu), EVENT_XID, code))
            self._xids[identity.labels] = code

    def _without_values(self, page: DcgmPage) -> frozenset[GpuLabels]:
        """Return the GPUs about which the exporter has known nothing for some time."""
        now = self._clock()
        blank = {gpu.labels for gpu in page.blank_gpus}
        self._blank = {gpu: self._blank.get(gpu, now) for gpu in blank}
        return frozenset(gpu for gpu, since in self._blank.items() if now - since >= BLANK_SECONDS)

    def _old(self, samples: Iterable[Sample]) -> frozenset[GpuLabels]:
        """Return the GPUs whose energy counter has stopped."""
        now = self._clock()
        before, self._energy = self._energy, {}
        for sample in samples:
            if sample.metric is metrics.GPU_ENERGY and sample.value:
                value, since = before.get(sample.labels, (sample.value, now))
                since = since if value == sample.value else now
                self._energy[sample.labels] = sample.value, since
        return frozenset(
            gpu for gpu, (_, since) in self._energy.items() if now - since >= STALE_SECONDS
        )


def fetch_text(url: str, timeout_seconds: float) -> str:
    """Fetch a page of text within one deadline.

    Raises:
        EndpointError: the answer is an error, a redirect, HTML, too long or too late.
        OSError: there is no answer.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.connect()
        with _ended_after(connection.sock, timeout_seconds) as late:
            try:
                text = _answer(connection, path, url)
            except (OSError, http.client.HTTPException) as error:
                if not late.is_set() and not isinstance(error, TimeoutError):
                    raise
                late.set()  # the socket's own timeout has the same length
            # The end of a connection that we shut down looks like the end of the page.
            if late.is_set():
                raise EndpointError(f"{url} sends its page too slowly")
            return text
    except http.client.HTTPException as error:
        raise EndpointError(f"{url} does not speak HTTP: {type(error).__name__}") from None
    finally:
        connection.close()


@contextmanager
def _ended_after(connected: socket.socket, seconds: float) -> Iterator[threading.Event]:
    """Shut down a connection after some time, even while receiving; yield an event set then.

    A socket's own timeout applies to each piece, and never fires if a byte arrives every second.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()


def _answer(connection: http.client.HTTPConnection, path: str, url: str) -> str:
    """Request a page.

    Raises:
        EndpointError: the answer is not a page.
        OSError: the connection broke.
        http.client.HTTPException: the answer is not HTTP, or was cut off.
    """
    connection.request("GET", path, headers={"User-Agent": f"rankscope-agent/{__version__}"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise EndpointError(f"{url} answers with status {answer.status}")
    if "html" in (answer.getheader("Content-Type") or "").lower():
        raise EndpointError(f"{url} answers with HTML; is the path right, such as /metrics?")
    body = bytearray()
    while piece := answer.read1(CHUNK_BYTES):
        body += piece
        if len(body) > MAX_PAGE_BYTES:
            raise EndpointError(f"{url} sends more than {MAX_PAGE_BYTES} bytes")
    if answer.length:  # `read1` returns the same at the end of an answer and of a connection
        raise http.client.IncompleteRead(bytes(body), answer.length)
    return body.decode(errors="replace")
