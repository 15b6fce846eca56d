"""The kernel's messages since a moment, read anew from the ring or the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rankscope_agent.contract.printable import printable
from rankscope_agent.contract.redaction import redacted
from rankscope_agent.sources.kernel_log.records import Batch
from rankscope_agent.sources.kernel_log.ways import Opener

KEPT_LINES = 2000
"""The newest: an hour of a link that flaps."""

MAX_LINE = 1024


def kernel_lines(ways: Sequence[Opener], since_unix_seconds: float) -> dict[str, Any]:
    """Return the kernel's lines since a moment, with their times, and why there are none.

    Each begins with its Unix time by the node's clock of now, from which that of the kernel's
    records may have moved by what the clock was set.
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
    """Return a way's name and all that it gives, or why it gives nothing."""
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
    known = [record for record in batch.records if record.text and record.seconds >= least]
    newest = known[-KEPT_LINES:]
    lines = [f"{booted + record.seconds:.6f} {_shown(record.text)}" for record in newest]
    return {"lines": lines, "left_out": len(known) - len(newest)}


def _shown(text: bytes) -> str:
    line = redacted(text[: 4 * MAX_LINE].decode("utf-8", "replace"))
    return printable(line[:MAX_LINE])
