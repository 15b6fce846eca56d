"""What others can do to a real agent over the network, under the memory that its pod has."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import bcrypt

import attackers as attacks
from memory_groups import limit_of_the_pod, memory_group
from ring_writer import RingWriter
from running_agent import COMMAND, HEALTH, PATIENCE_SECONDS, RunningAgent, running_agent

Answer = TypeVar("Answer")

ATTACKERS = 31
MOST_GROWTH = 32 << 20  # threads' stacks and heaps among it; their heads would have 186 MiB


def send_a_big_head(address: tuple[str, int], sent: threading.Barrier) -> None:
    """Send most of a head that is as large as it may be line by line, and hold it open."""
    try:
        with socket.create_connection(address, PATIENCE_SECONDS) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            for number in range(attacks.BIG_LINES):
                connection.sendall(b"X-%d: " % number + b"a" * attacks.BIG_LINE + b"\r\n")
            sent.wait(PATIENCE_SECONDS)
            connection.sendall(b"\r\n")
            connection.recv(65536)
    except (OSError, threading.BrokenBarrierError):
        sent.abort()  # one was refused, so nobody needs to wait for all


def send_big_heads(agent: RunningAgent) -> None:
    """Have all attackers send their heads at once."""
    url = urlsplit(agent.url)
    arguments = ((str(url.hostname), int(url.port or 0)), threading.Barrier(ATTACKERS))
    attackers = [threading.Thread(target=send_a_big_head, args=arguments) for _ in range(ATTACKERS)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join(PATIENCE_SECONDS)


def test_big_heads_do_not_end_an_agent_with_the_memory_of_its_pod(tmp_path):
    with (
        memory_group(limit_of_the_pod()) as group,
        running_agent(tmp_path, command=group.command(*COMMAND)) as agent,
    ):
        send_big_heads(agent)
        assert group.kills() == 0
        assert agent.process.poll() is None
        assert "rankscope_build_info" in agent.get("/metrics")


def test_big_heads_cost_an_agent_next_to_no_memory(tmp_path):
    with running_agent(tmp_path) as agent:
        agent.get("/metrics")
        before = peak_bytes(agent)
        send_big_heads(agent)
        assert peak_bytes(agent) - before < MOST_GROWTH


def peak_bytes(agent: RunningAgent) -> int:
    """Return the most memory that an agent ever held."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(dict(line.split(":", 1) for line in status.splitlines())["VmHWM"].split()[0]) << 10


JOB = "team/other-job"
PASSWORD = "correct horse"
ATTACK_SECONDS = 8.0
PROBES = SCRAPES = 10  # at least so many are seen; by time it would be four times as many


@contextlib.contextmanager
def attackers(agent: RunningAgent) -> Iterator[None]:
    """Attack in all ways at once until the block ends, all on one core."""
    ports = [str(urlsplit(url).port) for url in (agent.url, agent.health_url)]
    started = [
        subprocess.Popen(
            [sys.executable, attacks.__file__, kind, *ports, str(2 + 50 * number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number, kind in enumerate(attacks.KINDS)
    ]
    try:
        yield
        counts = {
            kind: int(process.communicate(timeout=PATIENCE_SECONDS)[0])
            for kind, process in zip(attacks.KINDS, started, strict=True)
        }
        assert min(counts.values()) >= PROBES, counts
    finally:
        for process in started:
            process.kill()
            process.communicate()


class Prometheus:
    """Scrapes with a password over one connection, as long as that lasts."""

    def __init__(self, agent: RunningAgent) -> None:
        address = agent.url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
        shown = b64encode(f"prometheus:{PASSWORD}".encode()).decode()
        self._headers = {"Authorization": f"Basic {shown}"}

    def scrape(self) -> tuple[int, frozenset[str]]:
        """Return the status, and the series of the other job, counts with their values.

        Its waits for a CPU are left out: attackers on the same machine do cause some.
        """
        try:
            return self._ask()
        except ConnectionError:  # Go's clients ask once more when a kept connection has ended
            self._connection.close()
            return self._ask()

    def close(self) -> None:
        self._connection.close()

    def _ask(self) -> tuple[int, frozenset[str]]:
        self._connection.request("GET", "/metrics", headers=self._headers)
        answer = self._connection.getresponse()
        page = answer.read().decode()
        lines = (line for line in page.splitlines() if "_starved_" not in line)
        of_the_job = (line for line in lines if f'job_id="{JOB}"' in line)
        return answer.status, frozenset(map(without_rates, of_the_job))


def without_rates(line: str) -> str:
    """Return a series, with its value where that is a count: only the job may change it."""
    series = line.rpartition(" ")[0]
    return line if "_total{" in series else series


def written_config(folder: Path) -> str:
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10)).decode()
    path = folder / "web.yml"
    path.write_text(f"basic_auth_users: {{prometheus: '{hashed}'}}\n")
    return f"--web.config.file={path}"


@contextlib.contextmanager
def job(folder: Path) -> Iterator[None]:
    """Have a job of two ranks on the node."""
    rings = folder / "rings"
    rings.mkdir()
    ranks = [
        RingWriter(rings, f"{rank + 1}-99.ring", rank=rank, job_id=JOB, world_size=2)
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            rank.step(5, start_unix_ns=time.time_ns())
        yield
    finally:
        for rank in ranks:
            rank.end()


def asked_again_and_again(seconds: float, ask: Callable[[], Answer]) -> list[Answer]:
    """Ask four times a second, and return what was answered."""
    until = time.monotonic() + seconds
    answers = []
    while time.monotonic() < until:
        answers.append(ask())
        time.sleep(0.25)
    return answers


def test_five_attacks_at_once_cost_neither_a_probe_nor_a_scrape(tmp_path):
    flags = (HEALTH, written_config(tmp_path), "--collector.interval=0.5")
    with (
        memory_group(limit_of_the_pod()) as group,
        job(tmp_path),
        running_agent(tmp_path, *flags, command=group.command(*COMMAND)) as agent,
        contextlib.closing(Prometheus(agent)) as prometheus,
        ThreadPoolExecutor(1) as kubelet,
    ):
        before = seen_in_full(prometheus)
        with attackers(agent):
            probes = kubelet.submit(asked_again_and_again, ATTACK_SECONDS, agent.liveness)
            scrapes = asked_again_and_again(ATTACK_SECONDS, prometheus.scrape)
            assert probes.result() == [200] * max(PROBES, len(probes.result()))
        assert [status for status, _ in scrapes] == [200] * max(SCRAPES, len(scrapes))
        assert set().union(*(found ^ before for _, found in scrapes)) == set()
        assert group.kills() == 0
        assert agent.process.poll() is None


EACH_RANK = ("rankscope_rank_alive{", "rankscope_rank_stopped{")


def seen_in_full(prometheus: Prometheus) -> frozenset[str]:
    """Return the series of the other job once both of its ranks are among them.

    What the kernel says of their processes comes with a look of its own.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        _, found = prometheus.scrape()
        if sum(line.startswith(EACH_RANK) for line in found) == 2 * len(EACH_RANK):
            return found
        time.sleep(0.1)
    raise AssertionError("the job never came")
