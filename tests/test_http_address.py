"""Addresses of servers as people type them: those that no server can have are refused at once."""

import argparse

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.arguments.http_address import http_address


@pytest.mark.parametrize(
    "address",
    ["node", "node:9877", "http://node", "https://u:p@node:1/path", "[::1]:65535", "node:1/a:b"],
)
def test_an_address_is_taken_as_it_was_typed(address):
    assert http_address(address) == address


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("node:99999", "ports are 1 to 65535"),
        ("node:0", "ports are 1 to 65535"),
        ("node:", "ports are 1 to 65535"),
        ("node:http", "ports are 1 to 65535"),
        ("::1", "an IPv6 address is written in brackets"),
        (":9877", "it names no host"),
        ("", "it names no host"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("two nodes:9877", "it contains white space"),
        ("ftp://node", "it does not begin with http:// or https://"),
    ],
)
def test_an_address_that_no_server_can_have_is_refused(address, why):
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        http_address(address)
    assert str(refused.value) == f"{address!r} is not an http address: {why}"


@pytest.mark.parametrize(
    ("command", "option"),
    [("diagnose", "--agent"), ("jobs", "--prometheus"), ("canary", "--watch")],
)
def test_a_port_that_does_not_exist_is_named_instead_of_asked(command, option, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, option, "localhost:99999"])
    assert ended.value.code == 1
    assert "'localhost:99999' is not an http address" in capsys.readouterr().err
