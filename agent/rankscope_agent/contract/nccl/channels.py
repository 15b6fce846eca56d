"""Reads lines about channels that name no connection, and connections that name no channel.

`16 coll channels, 0 nvls channels, ..` gives their number; excerpts and tutorials also show
connections without their prefix.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.nccl.facts import Facts, Limits, Member
from rankscope_agent.contract.nccl.lines import (
    MAX_EDGE_TRANSPORTS,
    connection_of,
    parse_headless,
)
from rankscope_agent.contract.nccl.writers import Thread

_CHANNELS = re.compile(
    r"(?:Using )?(\d{1,4}) (?:\w{1,10} )?channels(?:.*?(\d{1,4}) nvls channels)?"
)

MAX_LOOSE_CHANNELS = 8
"""Channel counts kept of a process without a known communicator: a job has few groups."""


def read_channels(facts: Facts, limits: Limits, thread: Thread, info: bytes) -> int:
    """Read a line; return the number of connections that it adds to the thread, 0 or 1."""
    text = info.decode(errors="replace").rstrip()
    match = _CHANNELS.match(text)
    if match is None:
        return _read_headless(facts, thread, info.rstrip(), text)
    thread.channels = int(match[1]), int(match[2]) if match[2] else None
    if thread.member is not None:
        give_channels(thread, thread.member)
    else:
        _keep_loose(facts, limits, thread, int(match[1]))
    return 0


def give_channels(thread: Thread, member: Member) -> None:
    """Assign a thread's channels to a member; before 2.18.3 they are printed ahead of its name."""
    if thread.channels is not None:
        member.coll_channels, member.nvls_channels = thread.channels
        thread.channels = None


def _keep_loose(facts: Facts, limits: Limits, thread: Thread, channels: int) -> None:
    process = thread.process.host, thread.process.pid
    known = facts.loose_channels
    if process in known or len(known) < limits.threads:
        several = known.setdefault(process, set())
        if len(several) < MAX_LOOSE_CHANNELS:
            several.add(channels)


def _read_headless(facts: Facts, thread: Thread, info: bytes, text: str) -> int:
    """Keep a connection without its channel; count the transports of one without its ranks."""
    connection = connection_of(info)
    if connection is not None:
        thread.sink.distinct.add(connection)
        return 1
    headless = facts.headless
    for transport in parse_headless(text):
        if transport in headless or len(headless) < MAX_EDGE_TRANSPORTS:
            headless[transport] = headless.get(transport, 0) + 1
    return 0
