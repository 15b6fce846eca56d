"""What others can do to a real agent over the network, under the memory that its pod has."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from memory_groups import memory_group
from rendered_manifests import ROOT
from running_agent import COMMAND, PATIENCE_SECONDS, RunningAgent, running_agent

BIG_LINES, BIG_LINE = 97, 65_000
ATTACKERS = 31
MOST_GROWTH = 32 << 20  # threads' stacks and heaps among it; their heads would have 186 MiB
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def limit_of_the_pod() -> int:
    """Return the memory in bytes that the DaemonSet gives its agent."""
    document = yaml.safe_load((ROOT / "base" / "daemonset.yaml").read_text())
    (container,) = document["spec"]["template"]["spec"]["containers"]
    text = container["resources"]["limits"]["memory"]
    return int(text[:-2]) * UNITS[text[-2:]]


def send_a_big_head(address: tuple[str, int], sent: threading.Barrier) -> None:
    """Send most of a head that is as large as it may be line by line, and hold it open."""
    try:
        with socket.create_connection(address, PATIENCE_SECONDS) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            for number in range(BIG_LINES):
                connection.sendall(b"X-%d: " % number + b"a" * BIG_LINE + b"\r\n")
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
