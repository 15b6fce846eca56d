"""Attacks on an agent over the network, each a process of its own on one core: `attackers.py KIND`.

Started as a program: KIND, the port of pages, the port of health and a number that all addresses of
this attacker begin from. It goes on until its standard input ends, and then prints how often it did
what it does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator

import standard_input

HOST = "127.0.0.1"
SECONDS = 5.0
BIG_LINES, BIG_LINE = 97, 65_000
HELD = 100


def connected(port: int, number: int) -> socket.socket:
    """Connect from a loopback address of this attacker's own."""
    return socket.create_connection((HOST, port), SECONDS, source_address=(f"127.0.0.{number}", 0))


def big_heads(ports: tuple[int, ...], first: int) -> Iterator[None]:
    line = b"X: " + b"a" * BIG_LINE + b"\r\n"
    for port in itertools.cycle(ports):
        yield
        with contextlib.suppress(OSError), connected(port, first) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n" + line * BIG_LINES)
            connection.recv(1)


def silent_connections(ports: tuple[int, ...], first: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        held: deque[socket.socket] = deque()
        for port in itertools.cycle(ports):
            yield
            with contextlib.suppress(OSError):
                held.append(stack.enter_context(connected(port, first)))
            if len(held) > HELD:
                held.popleft().close()
            time.sleep(0.002)


def dripping_heads(ports: tuple[int, ...], first: int) -> Iterator[None]:
    head = itertools.cycle(b"GET /metrics HTTP/1.1\r\nX: ")
    with contextlib.ExitStack() as stack:
        held: deque[socket.socket] = deque()
        for port in itertools.cycle(ports):
            yield
            with contextlib.suppress(OSError):
                held.append(stack.enter_context(connected(port, first)))
            for connection in held:
                with contextlib.suppress(OSError):
                    connection.send(bytes([next(head)]))
            if len(held) > HELD:
                held.popleft().close()
            time.sleep(0.01)


def many_addresses(ports: tuple[int, ...], first: int) -> Iterator[None]:
    """Ask once from each of forty addresses, and keep the connections open."""
    held: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        for number in itertools.cycle(range(first, first + 40)):
            yield
            if number in held:
                held[number].close()
            with contextlib.suppress(OSError):
                held[number] = stack.enter_context(connected(ports[number % len(ports)], number))
                held[number].sendall(b"HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.005)


def wrong_passwords(ports: tuple[int, ...], first: int) -> Iterator[None]:
    """Ask from four addresses at once, with a password that was never tried before."""
    port = ports[0]
    held: deque[socket.socket] = deque()
    for number in itertools.count():
        yield
        shown = b64encode(b"prometheus:guess %d of %d" % (number, first))
        with contextlib.suppress(OSError):
            connection = connected(port, first + number % 4)
            held.append(connection)
            connection.sendall(
                b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Basic %s\r\n\r\n" % shown
            )
        if len(held) > HELD:
            held.popleft().close()
        time.sleep(0.005)
    for connection in held:
        connection.close()


KINDS: dict[str, Callable[[tuple[int, ...], int], Iterator[None]]] = {
    "big_heads": big_heads,
    "silent_connections": silent_connections,
    "dripping_heads": dripping_heads,
    "many_addresses": many_addresses,
    "wrong_passwords": wrong_passwords,
}


def main() -> None:
    kind, *numbers = sys.argv[1:]
    port, health_port, first = map(int, numbers)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ended = standard_input.end()
    attack = KINDS[kind]((port, health_port), first)
    times = sum(1 for _ in itertools.takewhile(lambda _: not ended.is_set(), attack))
    sys.stdout.write(f"{times}\n")


if __name__ == "__main__":
    main()
