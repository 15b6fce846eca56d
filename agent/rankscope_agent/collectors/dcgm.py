"""The node's GPUs as a dcgm-exporter on the node shows them, for agents without privileges on GPUs.

The endpoint is somebody else's: it may hang, be slow on purpose, or answer with anything. A page is
fetched within one deadline for all of it, and is taken for what `gpus.dcgm` can read in it.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from rankscope_agent import __version__
from rankscope_agent.collector import NoData
from rankscope_agent.gpus.dcgm import DcgmPage
from rankscope_agent.gpus.simulation.spec import Simulation
from rankscope_agent.metrics import gpu as metrics
from rankscope_agent.model import Sample

FETCH_SECONDS = 5.0
"""Time between two fetches: dcgm-exporter itself looks at the GPUs every 30 s unless told
otherwise, so that more would only cost it CPU time. What was fetched stands until then."""

TIMEOUT_SECONDS = 4.0
"""For connecting and for the whole page: shorter than the time between two fetches."""

MAX_PAGE_BYTES = 8 << 20
"""A node of 8 GPUs of 7 MIG devices each has some 2 MB with every field that there is."""

CHUNK_BYTES = 65536


class DcgmConfig(Protocol):
    """What the collector needs of the agent's settings."""

    @property
    def dcgm_url(self) -> str:
        """Address of dcgm-exporter's page, empty for none."""
        ...

    @property
    def simulate(self) -> Simulation | None:
        """The node to make up, None for the real one."""
        ...

    @property
    def deadline_seconds(self) -> float:
        """Seconds after which a run counts as failed."""
        ...


class EndpointError(Exception):
    """The endpoint does not answer as a dcgm-exporter does; the argument says how."""


def create(config: DcgmConfig) -> DcgmCollector:
    """Make the collector of a dcgm-exporter.

    Raises:
        NoData: no address was given, or the GPUs are made up.
    """
    if config.simulate is not None:
        raise NoData("the node is simulated, and its GPUs with it")
    if not config.dcgm_url:
        raise NoData("no --dcgm.url is given, so the GPUs are read with NVML")
    timeout = min(TIMEOUT_SECONDS, config.deadline_seconds / 2)
    return DcgmCollector(config.dcgm_url, timeout, time.monotonic)


class DcgmCollector:
    """Reads one endpoint.

    Args:
        url: its address.
        timeout_seconds: for all of one fetch.
        clock: monotonic time in seconds.
    """

    def __init__(self, url: str, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._clock = clock
        self._due = clock()
        self._samples: tuple[Sample, ...] = ()

    def collect(self) -> Sequence[Sample]:
        """Return what the endpoint said at the last fetch.

        Raises:
            NoData: it shows no GPU.
            EndpointError: it answers with something else than such a page.
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
        known = tuple(
            Sample(metrics.GPU_UNRESPONSIVE, identity.labels, 0) for identity in page.gpus
        )
        return (*known, *page.samples())


def fetch_text(url: str, timeout_seconds: float) -> str:
    """Fetch a page of text within a deadline for all of it.

    Raises:
        EndpointError: the answer is an error, a redirection, HTML, too long or too late.
        OSError: there is no answer.
    """
    end = time.monotonic() + timeout_seconds
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"User-Agent": f"rankscope-agent/{__version__}"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise EndpointError(f"{url} answers with status {answer.status}")
        if "html" in (answer.getheader("Content-Type") or "").lower():
            raise EndpointError(f"{url} answers with HTML; is the path right, such as /metrics?")
        return _read(connection, answer, url, end).decode(errors="replace")
    except http.client.HTTPException as error:
        raise EndpointError(f"{url} does not speak HTTP: {type(error).__name__}") from None
    finally:
        connection.close()


def _read(
    connection: http.client.HTTPConnection,
    answer: http.client.HTTPResponse,
    url: str,
    end: float,
) -> bytes:
    """Read a body piece by piece, so that one that trickles in does not take for ever."""
    body = bytearray()
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise EndpointError(f"{url} sends its page too slowly")
        if connection.sock is not None:
            connection.sock.settimeout(left)
        piece = answer.read1(CHUNK_BYTES)
        if not piece:
            return bytes(body)
        body += piece
        if len(body) > MAX_PAGE_BYTES:
            raise EndpointError(f"{url} sends more than {MAX_PAGE_BYTES} bytes")
