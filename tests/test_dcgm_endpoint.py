"""Endpoints that are to be a dcgm-exporter: good ones, and all that others may answer with."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

from gpu_nodes import Page
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.gpus.collector_dcgm import DcgmCollector, EndpointError, create

FETCH_SECONDS = 5.0
MAX_PAGE_BYTES = 8 << 20
STALE_SECONDS = 150.0

PATIENCE = 20.0  # of answers that come, on a busy machine
SHORT = 0.3  # of answers that do not

GPU = '{gpu="0",UUID="GPU-5fd4f087",pci_bus_id="00000000:3B:00.0",modelName="NVIDIA H100"}'
OTHER = '{gpu="1",UUID="GPU-99aa0123",pci_bus_id="00000000:5E:00.0",modelName="NVIDIA H100"}'


def page_of(energy=1000, temperature=50, gpu=GPU):
    return (
        f"# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu} {temperature}\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu} {energy}\n"
    )


def response(body, kind="text/plain; version=0.0.4", status="200 OK", more=""):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}"
    return [f"{head}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()]


class Endpoint:
    """Sends the same pieces to everybody who connects, after the request, until it is closed.

    Args:
        pieces: what is sent; None is a wait without end.
    """

    def __init__(self, pieces):
        self.pieces = pieces
        self.requests = []
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/metrics?x=1"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self):
        self._closed.set()
        with contextlib.suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        self._thread.join()
        self._listener.close()

    def _serve(self):
        while True:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):
                if self._closed.is_set():
                    return
                self.requests.append(connection.recv(65536))
                self._answer(connection)

    def _answer(self, connection):
        for piece in self.pieces:
            if piece is None:
                # Until whoever asked has had enough, and cuts the connection.
                while not self._closed.is_set() and connection.recv(1):
                    pass
                return
            connection.sendall(piece)
            if self._closed.wait(0.02 if len(piece) == 1 else 0):
                return


@pytest.fixture
def endpoint():
    """Make endpoints, and close them all."""
    made = []

    def make(pieces):
        made.append(Endpoint(pieces))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_page_is_taken_over_and_asked_for_again_after_its_time(endpoint):
    server, clock = endpoint(response(page_of())), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    for _ in range(3):
        page = Page(collector.collect())
        assert page.value(metrics.GPU_TEMPERATURE, "core") == 50
        assert page.value(metrics.GPU_UNRESPONSIVE) == 0
    assert len(server.requests) == 1
    assert server.requests[0].startswith(b"GET /metrics?x=1 HTTP/1.1\r\n")
    clock.now += FETCH_SECONDS
    collector.collect()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (response("<html>hello</html>", "text/html"), "answers with HTML; is the path right"),
        (response("no", status="404 Not Found"), "answers with status 404"),
        (response("", status="302 Found", more="Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (response("", status="503 Busy"), "answers with status 503"),
        ([b"SSH-2.0-OpenSSH_9.2p1\r\n"], "does not speak HTTP: BadStatusLine"),
        ([b"\x16\x03\x01\x02\x00" * 100], "does not speak HTTP"),
        ([], "does not speak HTTP: RemoteDisconnected"),
        ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500], "does not speak HTTP: HTTPException"),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx"],
            "does not speak HTTP: IncompleteRead",
        ),
        (
            [response(page_of() + page_of(gpu=OTHER))[0][:-100]],
            "does not speak HTTP: IncompleteRead",
        ),
        (
            [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * (1 << 20)] * (1 + (MAX_PAGE_BYTES >> 20))],
            f"sends more than {MAX_PAGE_BYTES} bytes",
        ),
    ],
)
def test_what_is_no_page_of_an_exporter_is_said_to_be_what_it_is(endpoint, pieces, words):
    collector = DcgmCollector(endpoint(pieces).url, PATIENCE, Clock())
    with pytest.raises(EndpointError, match=words):
        collector.collect()


SLOWLY = [bytes((byte,)) for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * 90]


@pytest.mark.parametrize(
    "pieces",
    [
        [None],
        [b"HTTP/1.1 200 OK\r\n", None],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", page_of().encode(), None],
        [b"HTTP/1.0 200 OK\r\n\r\n", page_of().encode(), None],
        SLOWLY,
        [b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", *SLOWLY],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n", b"1"], None],
    ],
    ids=["silent", "head", "body", "body without length", "bytes of head", "of body", "chunks"],
)
def test_an_endpoint_that_hangs_or_trickles_is_given_up_whole(endpoint, pieces):
    collector = DcgmCollector(endpoint(pieces).url, SHORT, Clock())
    with pytest.raises(EndpointError, match="sends its page too slowly"):
        collector.collect()


def test_nobody_there_is_an_error_and_leaves_no_old_values(endpoint):
    server, clock = endpoint(response(page_of())), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    assert collector.collect()
    server.close()
    clock.now += FETCH_SECONDS
    for _ in range(2):
        with pytest.raises(OSError, match="refused"):
            collector.collect()


def test_a_page_without_gpus_is_no_data(endpoint):
    collector = DcgmCollector(endpoint(response("node_load1 0.5\n")).url, PATIENCE, Clock())
    with pytest.raises(NoData, match="answers, but shows no GPU"):
        collector.collect()


def test_values_of_a_gpu_whose_energy_stands_still_are_old_and_left_off(endpoint):
    server, clock = endpoint([]), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    pages = []
    for look in range(2 + int(STALE_SECONDS / 30)):
        server.pieces = response(page_of(7000) + page_of(9000 + look, gpu=OTHER))
        pages.append(Page(collector.collect()))
        clock.now += 30
    assert [page.value(metrics.GPU_UNRESPONSIVE) for page in pages] == [0] * (len(pages) - 2) + [
        1
    ] * 2
    last = pages[-1]
    assert last.number(0) == 2, "who it is, and that nobody knows how it is"
    assert last.value(metrics.GPU_TEMPERATURE, "core", gpu=1) == 50
    server.pieces = response(page_of(7001))
    assert Page(collector.collect()).value(metrics.GPU_TEMPERATURE, "core") == 50


BLANK = 9223372036854775794


def test_a_gpu_of_which_the_exporter_knows_nothing_does_not_answer(endpoint):
    server, clock = endpoint([]), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    xid = f"DCGM_FI_DEV_XID_ERRORS{OTHER} 79\n"
    server.pieces = response(page_of() + page_of(BLANK, BLANK, gpu=OTHER) + xid)
    states = {}
    for seconds in (0, 30, 60):
        clock.now += 30 if seconds else 0
        page = Page(collector.collect())
        states[seconds] = [page.value(metrics.GPU_UNRESPONSIVE, gpu=gpu) for gpu in (0, 1)]
    assert states == {0: [0, 0], 30: [0, 0], 60: [0, 1]}
    server.pieces = response(page_of(1001) + page_of(1001, gpu=OTHER))
    clock.now += 30
    assert Page(collector.collect()).value(metrics.GPU_UNRESPONSIVE, gpu=1) == 0


def test_an_xid_that_is_new_is_an_event_of_the_driver(endpoint):
    server, clock = endpoint([]), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)

    def xids(*codes):
        lines = (f"DCGM_FI_DEV_XID_ERRORS{GPU} {code}\n" for code in codes)
        server.pieces = response(page_of(clock.now) + "".join(lines))
        clock.now += FETCH_SECONDS
        page = Page(collector.collect())
        found = {code: page.value(metrics.GPU_XIDS, code) for code in ("31", "79")}
        times = {code: page.value(metrics.GPU_XID_TIMESTAMP, code) for code in found}
        assert {code for code in times if times[code]} == {code for code in found if found[code]}
        return found

    assert xids(31) == {"31": None, "79": None}, "of any age"
    assert xids(31) == {"31": None, "79": None}
    assert xids(79) == {"31": None, "79": 1}
    assert xids() == {"31": None, "79": 1}, "the GPU is gone, or the field is blank"
    assert xids(0) == {"31": None, "79": 1}, "the exporter was restarted"
    assert xids(79) == {"31": None, "79": 2}


@pytest.mark.parametrize(("before", "events"), [(1000, 1), (BLANK, None)])
def test_the_first_xid_of_an_exporter_that_shows_none_before_is_an_event(endpoint, before, events):
    """Unless the exporter had only started, and may show one of any age."""
    server, clock = endpoint([]), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    for page in (page_of(before, before), page_of() + f"DCGM_FI_DEV_XID_ERRORS{GPU} 79\n"):
        server.pieces = response(page)
        clock.now += FETCH_SECONDS
        samples = Page(collector.collect())
    assert samples.value(metrics.GPU_XIDS, "79") == events


def test_a_gpu_of_which_only_unknown_fields_have_values_answers(endpoint):
    server, clock = endpoint([]), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    server.pieces = response(f"DCGM_FI_DEV_MEMORY_TEMP{GPU} {BLANK}\nDCGM_FI_DEV_X{GPU} 5\n")
    for _ in range(3):
        clock.now += 60
        assert Page(collector.collect()).value(metrics.GPU_UNRESPONSIVE) == 0


def test_without_an_energy_counter_nobody_can_say_that_values_are_old(endpoint):
    server, clock = endpoint(response(f"DCGM_FI_DEV_GPU_TEMP{GPU} 50\n")), Clock()
    collector = DcgmCollector(server.url, PATIENCE, clock)
    for _ in range(10):
        clock.now += STALE_SECONDS
        page = Page(collector.collect())
    assert page.value(metrics.GPU_TEMPERATURE, "core") == 50


def test_a_fetch_ends_well_before_the_run_of_its_collector_has_to(endpoint):
    settings = SimpleNamespace(
        dcgm_url=endpoint([None]).url, deadline_seconds=2 * SHORT, simulate=None
    )
    with pytest.raises(EndpointError, match="too slowly"):
        create(settings).collect()
