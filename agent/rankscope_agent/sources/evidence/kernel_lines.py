"""The kernel's messages since a given time, reread from the ring buffer or the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rankscope_agent.contract.printable import printable
from rankscope_agent.contract.private_keys import key_lines
from rankscope_agent.contract.redaction import HIDDEN, redacted
from rankscope_agent.sources.kernel_log.log_sources import Opener
from rankscope_agent.sources.kernel_log.records import Batch

KEPT_LINES = 2000
"""The newest lines only: an hour of a flapping link."""

MAX_LINE = 1024


def kernel_lines(ways: Sequence[Opener], since_unix_seconds: float) -> dict[str, Any]:
    """Return the kernel's lines since a time, each with its time, and why there are none.

    Each begins with its Unix time by the node's current clock, which may have been adjusted since
    the record was written.
    """
    booted = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    refusals = []
    for opener in ways:
        found = _read(opener)
        if isinstance(found, tuple):
            name, batch = found
            return {"source": name, "not_read": ""} | _kept(batch, booted, since_unix_seconds)
        refusals.append(found)
    return {"source": "", "not_read": "; ".join(refusals), "lines": [], "left_out": 0}


def _read(opener: Opener) -> tuple[str, Batch] | str:
    """Return the name of a log source and its lines, or why it provides none."""
    try:
        source = opener()
        try:
            return source.name, source.read({})
        finally:
            source.close()
    except OSError as error:
        return str(error.strerror or error)[:100]


def _kept(batch: Batch, booted: float, since: float) -> dict[str, Any]:
    least = since - booted
    keys = key_lines([record.text for record in batch.records])
    known = [
        (record, number in keys)
        for number, record in enumerate(batch.records)
        if record.text and record.seconds >= least
    ]
    newest = known[-KEPT_LINES:]
    lines = [
        f"{booted + record.seconds:.6f} {HIDDEN if is_key else _shown(record.text)}"
        for record, is_key in newest
    ]
    return {"lines": lines, "left_out": len(known) - len(newest)}


def _shown(text: bytes) -> str:
    line = redacted(text[: 4 * MAX_LINE].decode("utf-8", "replace"))
    return printable(line[:MAX_LINE])
