"""The faults, as rows of one table: each is injected into a running chain and healed afterwards."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TypedDict

from benchmarks.chaos import hostile_files
from benchmarks.chaos.chain import Chain, Disk
from benchmarks.chaos.failing import ANALYZED, How, Switch
from benchmarks.chaos.looking import knows
from benchmarks.chaos.server import Server, comes_true
from benchmarks.commands import environment
from benchmarks.processes import memory_mib

from rankscope_agent.contract.sources import SOURCES
from rankscope_analyzers.demo.free_ports import free_port

Inject = Callable[[Chain, Random], AbstractContextManager[None]]

LORISES = 32
DRIP_SECONDS = 0.2
FLOOD_BYTES = 24 << 20
STORM = 4
JUMP_SECONDS = 3600
KNOWN_SECONDS = 60.0
FAKE_TIME = "/usr/lib/{}/faketime/libfaketimeMT.so.1"
SHORT_HOLD, LONG_HOLD = 2.0, 5.0
HANG_HOLD = 16.0
"""Longer than a collector's deadline of 10 s, whatever factor the seed draws."""

RUN_COLLECTORS = ("training", "nccl_log", "nvml", "host", "netdev", "pods")
"""Collectors that have their source here, or search for it each second."""


class NotHereError(Exception):
    """This machine cannot have the fault; the message says why."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A row.

    Args:
        inject: begins the fault, and heals it at the end of the block.
        seconds: how long it lasts.
        ringless: True where the job that begins during it can have no ring.
    """

    inject: Inject
    seconds: float = SHORT_HOLD
    ringless: bool = False


def _server(chain: Chain, name: str) -> Server:
    return next(one for one in chain.servers if one.name == name)


@contextlib.contextmanager
def _nothing(chain: Chain, random: Random) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _killed(*names: str, chain: Chain, random: Random) -> Iterator[None]:
    servers = [_server(chain, name) for name in names]
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.excused())
            server.kill()
        yield
        for server in servers:
            server.start()
        for server in servers:
            server.await_ready()


@contextlib.contextmanager
def _stopped(name: str, chain: Chain, random: Random) -> Iterator[None]:
    server = _server(chain, name)
    with server.excused():
        server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            server.signal(signal.SIGCONT)
        server.recover()


@contextlib.contextmanager
def _storm(name: str, chain: Chain, random: Random) -> Iterator[None]:
    server = _server(chain, name)
    with server.excused():
        for _ in range(STORM):
            server.kill()
            server.start()
            time.sleep(random.uniform(0.1, 1.5))
        yield
        server.recover()


@contextlib.contextmanager
def _rank_stopped(chain: Chain, random: Random) -> Iterator[None]:
    pid = random.choice(chain.long.pids)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _second_reader(number: signal.Signals, chain: Chain, random: Random) -> Iterator[None]:
    """Run a second agent on the same rings, and end or stop it in the middle of reading."""
    address, folder = f"127.0.0.1:{free_port()}", chain.folder / f"reader-{int(number)}"
    folder.mkdir()
    command = [sys.executable, "-m", "rankscope_agent", f"--web.listen-address={address}"]
    command += ["--node-name=reader", f"--path.ring-dir={chain.rings.folder}"]
    command += [f"--path.state={folder}", f"--path.kubelet={folder}", f"--path.pod-logs={folder}"]
    reader = Server("reader", command, folder, f"http://{address}", "/healthz", environment())
    reader.start()
    try:
        reader.await_ready()
        time.sleep(random.uniform(0.0, 1.0))
        reader.signal(number)
        yield
    finally:
        reader.end()


def _mounted(disk: Disk) -> Path:
    if not disk.mounted:
        raise NotHereError("mounting a disk was refused: it takes root")
    return disk.folder


@contextlib.contextmanager
def _full(which: str, chain: Chain, random: Random) -> Iterator[None]:
    filler = _mounted(getattr(chain, which)) / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def _read_only(chain: Chain, random: Random) -> Iterator[None]:
    folder = _mounted(chain.state)

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)

    remount("ro")
    try:
        yield
    finally:
        remount("rw")


@contextlib.contextmanager
def _damaged(
    name: str, damage: Callable[[bytes, Random], bytes], chain: Chain, random: Random
) -> Iterator[None]:
    """Damage the state of a process that was killed, before it is started again.

    The log of incidents stays intact: it is no cache but what the watch promises to others.
    """
    server = _server(chain, name)
    with server.excused():
        server.kill()
        for path in sorted(chain.state.folder.rglob("*")):
            is_watch = path.name.startswith("watch.json")
            if path.is_file() and path != chain.incidents and is_watch == (name == "watch"):
                path.write_bytes(damage(path.read_bytes(), random))
        server.start()
        server.await_ready()
    yield


@contextlib.contextmanager
def _clock(name: str, seconds: int, chain: Chain, random: Random) -> Iterator[None]:
    """Start a process under libfaketime, let its clock jump, and bring both back."""
    library = FAKE_TIME.format(f"{os.uname().machine}-linux-gnu")
    if not Path(library).exists():
        raise NotHereError(f"{library} is missing: apt-get install libfaketime")
    server, offset = _server(chain, name), chain.folder / "clock"
    offset.write_text("+0")
    variables = {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(offset)}
    variables |= {"FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with server.excused():
        server.kill()
        server.start(variables)
        server.await_ready()
    # A watch sleeps between its first two requests: libfaketime answers a sleep during a jump with
    # EINVAL, which no kernel does.
    comes_true(lambda: knows(chain), KNOWN_SECONDS)
    offset.write_text(f"{seconds:+d}")
    try:
        yield
    finally:
        offset.write_text("+0")
    with server.excused():
        server.kill()
        server.start()
        server.await_ready()


@contextlib.contextmanager
def _rotated(chain: Chain, random: Random) -> Iterator[None]:
    """Rotate the logs of all pods as the kubelet does."""
    for log in sorted((chain.folder / "logs").glob("*/main/0.log")):
        log.rename(log.with_name(f"0.log.2026112{random.randrange(10)}-101010"))
        log.touch()
    yield


@contextlib.contextmanager
def _flooding(chain: Chain, random: Random) -> Iterator[None]:
    log = chain.log_of("flood")
    log.parent.mkdir(parents=True, exist_ok=True)
    line = b"2026-11-21T02:14:00.1Z stdout F NCCL INFO " + random.randbytes(400).hex().encode()
    with log.open("wb") as file:
        file.write((line + b"\n") * (FLOOD_BYTES // len(line)))
    yield
    log.unlink()


class _ApiFault(TypedDict, total=False):
    """What of `fake_api_server.Faults` differs from a healthy server."""

    status: int
    garbage: bytes
    silent: bool


@contextlib.contextmanager
def _api(change: _ApiFault, chain: Chain, random: Random) -> Iterator[None]:
    healthy = chain.api.faults
    chain.api.faults = replace(healthy, **change)
    try:
        yield
    finally:
        chain.api.faults = healthy


@contextlib.contextmanager
def _lorises(chain: Chain, random: Random) -> Iterator[None]:
    """Request pages from 32 addresses, a byte at a time."""
    host, _, port = chain.agent.url.removeprefix("http://").partition(":")
    ended = threading.Event()

    def drip(number: int) -> None:
        head = b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * 4096
        with contextlib.suppress(OSError):
            source = (f"127.0.1.{number + 1}", 0)
            with socket.create_connection((host, int(port)), 5.0, source) as connection:
                for byte in head:
                    connection.sendall(bytes([byte]))
                    if ended.wait(DRIP_SECONDS):
                        return

    threads = [threading.Thread(target=drip, args=(number,)) for number in range(LORISES)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _no_descriptors(name: str, chain: Chain, random: Random) -> Iterator[None]:
    server = _server(chain, name)
    with server.excused():
        with server.limited(resource.RLIMIT_NOFILE, server.use().descriptors):
            yield
        server.recover()


@contextlib.contextmanager
def _no_memory(name: str, chain: Chain, random: Random) -> Iterator[None]:
    server = _server(chain, name)
    most = int((memory_mib(server.pid, "VmSize") + 2) * (1 << 20))
    with server.excused():
        with server.limited(resource.RLIMIT_AS, most):
            yield
        server.recover()


@contextlib.contextmanager
def _failing(
    process: str, choose: Callable[[Random], Sequence[str]], how: How, chain: Chain, random: Random
) -> Iterator[None]:
    """Let collectors or analyzers fail.

    Raises:
        RuntimeError: none of them ran in the meantime, so that nothing failed.
    """
    switch = Switch(chain.folder, process)
    switch.has_failed()
    with switch.on(choose(random), how):
        yield
    if not switch.has_failed():
        raise RuntimeError(f"nothing of the {process} was asked that {how}")


def _a_collector(random: Random) -> Sequence[str]:
    return [random.choice(RUN_COLLECTORS)]


def _all_collectors(random: Random) -> Sequence[str]:
    return [source.name for source in SOURCES]


def _analyzers(random: Random) -> Sequence[str]:
    return sorted(ANALYZED)


def _of(inject: Callable[..., AbstractContextManager[None]], *first: object) -> Inject:
    bound = partial(inject, *first)
    return lambda chain, random: bound(chain=chain, random=random)


SERVERS = ("agent", "watch", "prometheus", "alertmanager")

FAULTS: Mapping[str, Fault] = {
    "nothing": Fault(_nothing),
    **{f"{name} killed": Fault(_of(_killed, name)) for name in SERVERS},
    "all four killed": Fault(_of(_killed, *SERVERS)),
    **{f"{name} stopped": Fault(_of(_stopped, name), LONG_HOLD) for name in SERVERS},
    "agent started again and again": Fault(_of(_storm, "agent")),
    "watch started again and again": Fault(_of(_storm, "watch")),
    "rank stopped": Fault(_rank_stopped),
    "second reader of rings killed": Fault(_of(_second_reader, signal.SIGKILL)),
    "second reader of rings stopped": Fault(_of(_second_reader, signal.SIGSTOP)),
    "disk of state full": Fault(_of(_full, "state"), LONG_HOLD),
    "disk of state read-only": Fault(_read_only, LONG_HOLD),
    "disk of rings full": Fault(_of(_full, "rings"), ringless=True),
    "state of the watch cut short": Fault(_of(_damaged, "watch", hostile_files.cut)),
    "state of the watch corrupted": Fault(_of(_damaged, "watch", hostile_files.corrupted)),
    "state of the agent cut short": Fault(_of(_damaged, "agent", hostile_files.cut)),
    "state of the agent corrupted": Fault(_of(_damaged, "agent", hostile_files.corrupted)),
    "agent's clock an hour ahead": Fault(_of(_clock, "agent", JUMP_SECONDS)),
    "agent's clock an hour behind": Fault(_of(_clock, "agent", -JUMP_SECONDS)),
    "watch's clock an hour ahead": Fault(_of(_clock, "watch", JUMP_SECONDS)),
    "watch's clock an hour behind": Fault(_of(_clock, "watch", -JUMP_SECONDS)),
    "logs rotated": Fault(_rotated),
    "log of 24 MiB at once": Fault(_flooding),
    "API server answers 503": Fault(_of(_api, {"status": 503}), LONG_HOLD),
    "API server sends garbage": Fault(_of(_api, {"garbage": b"\xff{[" * 99}), LONG_HOLD),
    "API server falls silent": Fault(_of(_api, {"silent": True}), LONG_HOLD),
    "32 slow scrapers": Fault(_lorises, LONG_HOLD),
    "hostile rings": Fault(hostile_files.hostile_rings, LONG_HOLD),
    "hostile dumps": Fault(hostile_files.hostile_dumps, HANG_HOLD),
    "a collector hangs": Fault(_of(_failing, "agent", _a_collector, "hangs"), HANG_HOLD),
    "all collectors hang": Fault(_of(_failing, "agent", _all_collectors, "hangs"), HANG_HOLD),
    "a collector raises": Fault(_of(_failing, "agent", _a_collector, "raises"), LONG_HOLD),
    "all collectors raise": Fault(_of(_failing, "agent", _all_collectors, "raises"), LONG_HOLD),
    "analyzers hang": Fault(_of(_failing, "watch", _analyzers, "hangs"), LONG_HOLD),
    "analyzers raise": Fault(_of(_failing, "watch", _analyzers, "raises"), LONG_HOLD),
    "agent without descriptors": Fault(_of(_no_descriptors, "agent"), LONG_HOLD),
    "watch without descriptors": Fault(_of(_no_descriptors, "watch"), LONG_HOLD),
    "agent without memory": Fault(_of(_no_memory, "agent"), LONG_HOLD),
    "watch without memory": Fault(_of(_no_memory, "watch"), LONG_HOLD),
}
"""By name."""
