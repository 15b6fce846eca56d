"""The options by which several watches share jobs, and the names of each one's objects."""

from __future__ import annotations

import argparse
import re
import socket
from dataclasses import replace

from rankscope_agent.contract.shards import WHOLE, Shard
from rankscope_analyzers.arguments.watch import AUTO
from rankscope_analyzers.command import InputError

_ORDINAL = re.compile(r"-([0-9]{1,6})$")
"""Number at the end of the name of a StatefulSet's pod, which is its hostname."""


def shard_of(options: argparse.Namespace, hostname: str | None = None) -> Shard:
    """Return the jobs that this watch follows.

    Args:
        options: of the command.
        hostname: of this machine, None to look it up.

    Raises:
        InputError: options exclude each other, or the name of the pod has no number.
    """
    if options.total_shards is None:
        if options.shard != AUTO:
            raise InputError("--shard needs --total-shards")
        return WHOLE
    total = options.total_shards
    name = socket.gethostname() if hostname is None else hostname
    try:
        shard = Shard(0, total)
        shard = replace(shard, index=_index(options.shard, total, name))
    except ValueError as error:
        raise InputError(f"--shard {options.shard} --total-shards {total}: {error}") from None
    if total > 1 and options.publish_nodes:
        raise InputError(
            "--publish-nodes needs a single shard: a node's conditions cover all its jobs"
        )
    return shard


def own_name(name: str, options: argparse.Namespace, shard: Shard) -> str:
    """Return the name of a Lease or a ConfigMap of this watch and its standbys."""
    return name if options.total_shards is None else f"{name}-{shard.index}"


def _index(given: str, total: int, hostname: str) -> int:
    if given == AUTO:
        return _ordinal(hostname) % total
    if not re.fullmatch("[0-9]{1,6}", given):
        raise ValueError(f"a shard is {AUTO!r}, or a number from 0 on")
    return int(given)


def _ordinal(hostname: str) -> int:
    found = _ORDINAL.search(hostname)
    if found is None:
        raise ValueError(
            f"the name {hostname[:80]!a} does not end with a number, as that of a StatefulSet's"
            " pod does"
        )
    return int(found[1])
