"""The kernel's messages since a moment, read anew from the ring or the journal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

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
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    count = 0
    for record in batch.records:
        at = booted + record.seconds
        if record.text and at >= since:
            count += 1
            text = redacted(record.text[: 4 * MAX_LINE].decode("utf-8", "replace"))
            shown = "".join(one if one.isprintable() else " " for one in text[:MAX_LINE])
            lines.append(f"{at:.6f} {shown}")
    return {"lines": list(lines), "left_out": count - len(lines)}
