"""Ports of started servers: free, and none that a connection may take first."""

import socket

import pytest

from rankscope_analyzers.demo.free_ports import free_port


def test_ports_are_below_those_that_linux_gives_to_connections():
    given = [free_port() for _ in range(50)]
    assert min(given) >= 20_000
    assert max(given) < 32_768
    assert len(set(given)) > 1


def test_a_port_that_is_listened_on_is_not_given():
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        other = free_port()
        assert {free_port((taken, other)) for _ in range(20)} == {other}
        with pytest.raises(OSError, match=f"no free port found from {taken} to {taken}"):
            free_port((taken,))
