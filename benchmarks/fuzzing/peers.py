"""Peers of an agent on its node, as servers or clients: kubelets, NCCL, PyTorch, HTTP clients."""

from __future__ import annotations

import contextlib
import io
import json
import math
import pickle
import socket
import struct
from collections.abc import Callable, Iterable, Sequence

from benchmarks.fuzzing.target import Target, promise, stored
from h2.config import H2Configuration
from h2.connection import H2Connection

import fake_kubelet
import flight_servers
import inspector_files
import pod_json
import ras_server
from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract import (
    address,
    flight_dump,
    job_labels,
    shards,
    stalls,
    step_blocks,
    untrusted_json,
    untrusted_pickle,
)
from rankscope_agent.contract.flight_dump import DumpError
from rankscope_agent.contract.job_names import is_job_id, is_name
from rankscope_agent.contract.model import Scrape
from rankscope_agent.contract.pickle_limits import UnsafePickle
from rankscope_agent.sources.flight_recorder import launches, worker_server
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.gpus.dcgm import DcgmPage
from rankscope_agent.sources.nccl_inspector import records, textfile
from rankscope_agent.sources.nccl_ras import json_reply, text_reply
from rankscope_agent.sources.nccl_ras.report import RasReplyError, RasReport
from rankscope_agent.sources.pods import cgroups, command_line, devices, kubelet, processes
from rankscope_agent.sources.pods.job_naming import job_of_pod, refusal
from rankscope_agent.sources.pods.json_items import JsonItems
from rankscope_agent.sources.pods.kubelet import KubeletError
from rankscope_agent.sources.pods.launchers import membership
from rankscope_agent.sources.pods.protobuf import WireError
from rankscope_agent.sources.pods.records import PodError, parse_pod
from rankscope_agent.sources.storage_clients import ceph, lustre
from rankscope_agent.web import config_file, content_coding, credentials
from rankscope_agent.web.access import AccessSettings, Guard
from rankscope_agent.web.connection_slots import Slots
from rankscope_agent.web.handler import Handler, Site
from rankscope_agent.web.routes import Request, Response, Route, sentence

NOW_NS = 1_795_272_662_623_976_391
TOKEN = "correct-horse-battery-staple"  # noqa: S105 - of nothing
RAS_TEXT = """NCCL version 2.24.3 compiled with CUDA 12.4
Communicators... (0.00s)
=============
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING   MISMATCH
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
    15 ranks have launched up to operation 12
    Rank 3 has launched up to operation 11
  Rank 3 -- GPU 3 managed by process 4003 on node gpu-00
"""
DCGM = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-5fd4f087-86f3-7a43-b711-4771313afc50"} 41\n'
CONFIG = """tls_server_config:
  cert_file: server.crt
  key_file: server.key
  min_version: TLS12
http_server_config:
  headers: {X-Frame-Options: deny}
basic_auth_users:
  reader: $2b$04$aaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
"""


def _text(parse: Callable[[str], object]) -> Callable[[bytes], None]:
    """Return a target that passes a parser text, as read from files and sockets."""

    def read(data: bytes) -> None:
        parse(data.decode("utf-8", "replace"))

    return read


def _flight_dump(data: bytes) -> None:
    found = flight_dump.read(data)
    for group in stalls.groups_of(found):
        promise(len(group.calls) <= stalls.MAX_WAITED_CALLS, "more calls than the limit")
    promise(all(one.description.isprintable() for one in found.entries), "a terminal obeys it")
    launches.launches_of(found)


def _dump_seeds() -> Sequence[bytes]:
    entries = [flight_servers.entry(n, NOW_NS + n) for n in (1, 2, 3)]
    whole = {"version": "2.10", "entries": entries, "pg_config": {"0": {"ranks": "[0, 1]"}}}
    return [json.dumps(whole).encode(), pickle.dumps(whole, 4), pickle.dumps(whole, 2)]


def _pickle(data: bytes) -> None:
    promise(_is_plain(untrusted_pickle.loads(data)), "a value that is not plain")


def _is_plain(value: object, depth: int = 0) -> bool:
    if isinstance(value, dict | list | tuple | set | frozenset):
        parts: Iterable[object] = [*value, *value.values()] if isinstance(value, dict) else value
        return depth > 20 or all(_is_plain(one, depth + 1) for one in parts)
    return value is None or isinstance(value, str | bytes | bytearray | int | float)


def _pickle_seeds() -> Sequence[bytes]:
    value: object = {"a": [1, -2, 1 << 70, 2.5, None, True], "b": ("x", b"y", []), 3: "\u00e9" * 40}
    return [pickle.dumps(value, protocol) for protocol in (2, 3, 4, 5)]


def _ras(parse: Callable[[str], RasReport]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        found = parse(data.decode("utf-8", "replace"))
        numbers = (found.communicators, found.largest, found.missing_ranks, found.timeouts)
        promise(all(number >= 0 for number in numbers), "a negative count")
        promise(all(lag.operations >= 0 for lag in found.lags), "a rank that is ahead of itself")

    return read


def _ras_seeds() -> Sequence[bytes]:
    ranks = [ras_server.rank_entry(n, AllReduce=12 - (n == 3)) for n in range(4)]
    missing = [ras_server.missing_entry(5, dead=True)]
    return [ras_server.json_report(ras_server.communicator(8, ranks, missing)).encode()]


def _inspector(data: bytes) -> None:
    for line in data.splitlines():
        found = records.parse(line)
        if isinstance(found, records.Record):
            promise(0 <= found.rank < found.nranks and found.seconds >= 0, "no such operation")


def _inspector_text(data: bytes) -> None:
    for speed in textfile.parse(data.decode("utf-8", "replace")):
        values = (speed.seconds, speed.bytes_per_second)
        promise(all(one is None or (one > 0 and math.isfinite(one)) for one in values), "no speed")


def _dcgm(text: str) -> None:
    scrape = Scrape("dcgm", True, 0.0, tuple(DcgmPage(text).samples()), "", None)
    promise(Validator().validate([scrape])[0].success, "a page that Prometheus refuses")


def _devices(data: bytes) -> None:
    found = list(devices.parse_pod_resources(data))
    promise(len(found) <= devices.MAX_DEVICES, "more devices than the limit")
    for one in found:
        devices.parse_device_id(one.device)
        promise(one.kind in {"gpu", "rdma", "other"}, "no kind")


def _device_seeds() -> Sequence[bytes]:
    uuid = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"
    held = fake_kubelet.devices("nvidia.com/gpu", uuid, f"{uuid}::3", "nvidia0/gi3")
    claimed = fake_kubelet.claim("gpu.nvidia.com", "node-1", "gpu-0", "nvidia.com/gpu=0")
    return [fake_kubelet.pod_resources("ml", "train-0", held, claimed)]


class _Played:
    """A socket that plays a peer's bytes, and accepts whatever it is sent."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def settimeout(self, seconds: float) -> None: ...

    def sendall(self, data: bytes) -> None: ...

    def recv(self, size: int) -> bytes:
        return self._data.read(min(size, 977))


def _kubelet(data: bytes) -> None:
    kubelet._exchange(_Played(data), kubelet.LIST, lambda: 1.0)  # type: ignore[arg-type]


def _kubelet_seeds() -> Sequence[bytes]:
    """Return the bytes of a gRPC server: a response, and an error."""
    found = []
    for status, message in (("0", _device_seeds()[0]), ("12", b"")):
        server = H2Connection(H2Configuration(client_side=False))
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        client.send_headers(1, kubelet._request_headers(kubelet.LIST), end_stream=True)
        server.initiate_connection()
        server.receive_data(client.data_to_send())
        server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
        server.send_data(1, struct.pack(">BI", 0, len(message)) + message)
        trailers = [("grpc-status", status), ("grpc-message", "not%20there")]
        server.send_headers(1, trailers, end_stream=True)
        found.append(server.data_to_send())
    return found


def _pods(data: bytes) -> None:
    """Read a list of pods like the agent, item by item."""
    items = JsonItems(io.BytesIO(data).read)
    for item in items:
        try:
            found = parse_pod(item)
        except PodError:
            continue
        member = membership(found)
        if not (is_name(found.name) and is_name(found.namespace)):
            continue  # the API server makes no such pod
        rank = member.rank if member else None
        promise(rank is None or rank >= 0, "a negative rank")
        name = job_of_pod(found, member)
        known = name is None or refusal(found) or is_job_id(name)
        promise(known, f"{name!a} is no name of a job, and nothing is said about it")


def _pod_seeds() -> Sequence[bytes]:
    variables = {"RANK": "3", "WORLD_SIZE": "16", "PET_NNODES": "2", "NCCL_DEBUG": "INFO"}
    owner = ("batch/v1", "Job", "train")
    limits = {"nvidia.com/gpu": "8"}
    found = pod_json.pod(env=variables, owner=owner, limits=limits, labels={"team": "vision"})
    found["status"]["containerStatuses"][0]["state"] = {
        "terminated": {"exitCode": 137, "reason": "OOMKilled"}
    }
    listed = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [found]}
    return [json.dumps(listed).encode(), json.dumps({"items": [found, found]}).encode()]


def _process(data: bytes) -> None:
    """Read a process of a pod in /proc: its command, environment and group."""
    promise(all(isinstance(one, str) for one in command_line.parse_command(data)), "no text")
    processes.parse_environ(data)
    processes.has_probe(data, in_pod=True)
    cgroups.parse_cgroup(data.decode("utf-8", "replace"))


def _process_seeds() -> Sequence[bytes]:
    group = "0::/kubepods.slice/kubepods-pod0f9d2c1e_7a51_4b7e_9a35_000000000001.slice/cri-a.scope"
    return [
        b"python\0-m\0torch.distributed.run\0--nproc-per-node=8\0train.py\0",
        b"RANK=3\0WORLD_SIZE=16\0PYTHONPATH=/opt/rankscope\0MASTER_ADDR=a\0",
        group.encode(),
    ]


def _storage(text: str) -> None:
    lustre.parse_stats(text)
    ceph.parse_metrics(text)


def _answer(request: Request) -> Response:
    """Read the parameters of the agent's paths."""
    try:
        for text in request.query.get("after", ()):
            step_blocks.cursors_of(text)
        for text in request.query.get("shard", ()):
            shards.shard_of_text(text)
    except ValueError as error:
        return sentence(400, str(error))
    return sentence(200, "steps")


ROUTES = {
    "/metrics": Route(lambda request: sentence(200, "metrics"), "page"),
    "/healthz": Route(lambda request: sentence(200, "healthy"), "open"),
    "/api/v1/steps": Route(_answer, heavy=True),
}


def _site(data: bytes, guard: Guard) -> bytes:
    """Serve one connection that sends some bytes and then nothing; return the responses."""
    site = Site(ROUTES, guard, "rankscope-agent", loopback=True)
    client, server = socket.socketpair()
    with client, server:
        slot = Slots().acquire("127.0.0.1", server)
        client.setblocking(False)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        Handler(slot, ("127.0.0.1", 1), None, site)  # type: ignore[arg-type]
        try:
            return client.recv(1 << 18)
        except BlockingIOError:  # nothing is answered
            return b""


def _requests(data: bytes) -> None:
    answers = _site(data[:30_000], Guard(AccessSettings(insecure_api=True)))
    promise(b"Traceback" not in answers, "a traceback for everybody")
    head = data.decode("latin-1")
    content_coding.accepts_gzip(head)
    content_coding.accepts(head, step_blocks.MEDIA_TYPE)


def _request_seeds() -> Sequence[bytes]:
    blocks = step_blocks.cursors_text({"0123456789abcdef": 7})
    return [
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip;q=0.5, br\r\n\r\n",
        f"GET /api/v1/steps?since=1.5&after={blocks}&shard=0/4 HTTP/1.1\r\n"
        f"Accept: {step_blocks.MEDIA_TYPE}\r\n\r\n".encode(),
        b"GET /healthz HTTP/1.0\r\n\r\nGET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /metrics\r\n\r\n",
    ]


def _authorization(data: bytes) -> None:
    """Send a server any Authorization header."""
    text = data.decode("latin-1")
    digest = credentials._digest(TOKEN)
    known = credentials.is_known_token(text, (digest,))
    promise(not known or TOKEN in text, "a token that nobody gave out")
    hashed = {"reader": "$2b$04$" + "a" * 22 + "b" * 31}
    promise(not credentials.Passwords().match(text, hashed, "peer"), "a password of nobody")


def _web_config(data: bytes) -> None:
    with stored(data, "web.yml") as path:
        config_file.read_web_config(path)


def _tokens(data: bytes) -> None:
    with stored(data, "tokens") as path:
        promise(credentials.read_tokens(path), "no tokens and no refusal")


def _words(text: str) -> None:
    """Read short words of parameters and flags."""
    readers: Sequence[Callable[[str], object]] = (
        address.parse_listen_address,
        job_labels.parse_job_labels,
        shards.shard_of_text,
        step_blocks.cursors_of,
    )
    for parse in readers:
        with contextlib.suppress(ValueError):
            parse(text)


TARGETS = (
    Target("flight recorder dump", _flight_dump, _dump_seeds, (DumpError,)),
    Target("untrusted pickle", _pickle, _pickle_seeds, (UnsafePickle,)),
    Target(
        "worker server",
        worker_server._handlers,
        lambda: [b'["ping", "fr_trace_json", "dump_traceback"]'],
        (FlightError,),
    ),
    Target("NCCL RAS JSON", _ras(json_reply.parse), _ras_seeds, (RasReplyError,)),
    Target("NCCL RAS text", _ras(text_reply.parse), lambda: [RAS_TEXT.encode()], (RasReplyError,)),
    Target(
        "Inspector lines",
        _inspector,
        lambda: [(inspector_files.line() + inspector_files.send(3, 16)).encode()],
    ),
    Target(
        "Inspector metrics",
        _inspector_text,
        lambda: [
            inspector_files.prom("nccl_bus_bandwidth_gbs", 519.77).encode(),
            inspector_files.prom("nccl_p2p_exec_time_microseconds", 250, "Send").encode(),
        ],
    ),
    Target("DCGM page", _text(_dcgm), lambda: [DCGM.encode() * 2]),
    Target("device list", _devices, _device_seeds, (WireError,)),
    Target("kubelet's answer", _kubelet, _kubelet_seeds, (KubeletError,), runs=20_000),
    Target("pod list", _pods, _pod_seeds, (ValueError,)),
    Target("process", _process, _process_seeds),
    Target(
        "storage clients",
        _text(_storage),
        lambda: [b"read_bytes 5 samples [bytes] 1 4096 20480\nread 5 samples [usec] 1 9 20 90\n"],
    ),
    Target("HTTP requests", _requests, _request_seeds),
    Target(
        "Authorization",
        _authorization,
        lambda: [f"Bearer {TOKEN}".encode(), b"Basic cmVhZGVyOnB3"],
    ),
    Target("web configuration", _web_config, lambda: [CONFIG.encode()], (ValueError,), runs=20_000),
    Target(
        "tokens",
        _tokens,
        lambda: [f"{TOKEN}\n{TOKEN[::-1]}\n".encode()],
        (ValueError,),
        runs=20_000,
    ),
    Target("parameters", _text(_words), lambda: [b"[::1]:9877", b"0/4", b"team=x,project=y"]),
    Target(
        "JSON", untrusted_json.read, lambda: [b'{"a": [1, 2.5, null, "\\u00e9"]}'], (ValueError,)
    ),
)
