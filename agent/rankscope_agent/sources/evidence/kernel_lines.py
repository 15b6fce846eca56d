"""The kernel's messages since a given time, reread from the ring buffer or the journal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rankscope_agent.contract.printable import printable
from rankscope_agent.contract.private_keys import key_lines
from rankscope_agent.contract.redaction import HIDDEN, redacted
from rankscope_agent.sources.kernel_log.kmsg import MAX_RECORDS
from rankscope_agent.sources.kernel_log.log_sources import Opener, Source
from rankscope_agent.sources.kernel_log.records import Record

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
        found = _read(opener, booted, since_unix_seconds)
        if not isinstance(found, str):
            return found
        refusals.append(found)
    return {"source": "", "not_read": "; ".join(refusals), "lines": [], "left_out": 0}


def _read(opener: Opener, booted: float, since: float) -> dict[str, Any] | str:
    """Return what a log source provides, or why it provides nothing."""
    try:
        source = opener()
        try:
            kept = _kept(_records(source), booted, since)
            return {"source": source.name, "not_read": ""} | kept
        finally:
            source.close()
    except OSError as error:
        return str(error.strerror or error)[:100]


def _records(source: Source) -> Iterator[Record]:
    """Yield all records of a source, of which a reading returns at most `MAX_RECORDS`."""
    batch = source.read({})
    yield from batch.records
    while len(batch.records) == MAX_RECORDS:
        batch = source.read(batch.cursor)
        yield from batch.records


def _kept(records: Iterable[Record], booted: float, since: float) -> dict[str, Any]:
    least = since - booted
    newest: deque[Record] = deque(maxlen=MAX_RECORDS)
    wanted = 0
    for record in records:
        newest.append(record)
        wanted += record.text != b"" and record.seconds >= least
    keys = key_lines([record.text for record in newest])
    known = [
        (record, number in keys)
        for number, record in enumerate(newest)
        if record.text and record.seconds >= least
    ]
    lines = [
        f"{booted + record.seconds:.6f} {HIDDEN if is_key else _shown(record.text)}"
        for record, is_key in known[-KEPT_LINES:]
    ]
    return {"lines": lines, "left_out": wanted - len(lines)}


def _shown(text: bytes) -> str:
    line = redacted(text[: 4 * MAX_LINE].decode("utf-8", "replace"))
    return printable(line[:MAX_LINE])
