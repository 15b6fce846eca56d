"""The current report of NCCL's RAS, queried at most once in a while, however many ask for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rankscope_agent.contract.address import ListenAddress
from rankscope_agent.sources.nccl_ras.client import RasError, ask

QUERY_SECONDS = 5.0
"""Time allowed for a query: NCCL's own client waits as long for the collection."""

KEPT_SECONDS = 3.0
"""Minimum time between two queries, because all ranks of the job answer each of them."""

OFF = "RAS is not queried; enable it with --nccl.ras-address localhost:28028"


class RasReports:
    """Queries RAS; may be used by any thread.

    Args:
        address: where RAS listens; None if it is not to be queried.
        clock: returns the Unix time in seconds.
    """

    def __init__(
        self, address: ListenAddress | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._address = address
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, Any] = {}

    def report(self) -> dict[str, Any]:
        """Return the report with its time and format, or why there is none."""
        address = self._address
        if address is None:
            return {"not_read": OFF}
        with self._lock:
            now = self._clock()
            if not 0 <= now - self._kept.get("taken_unix_seconds", 0.0) < KEPT_SECONDS:
                self._kept = {"taken_unix_seconds": now, **_asked(address)}
            return self._kept


def _asked(address: ListenAddress) -> dict[str, Any]:
    where = f"{address.host}:{address.port}"
    try:
        reply = ask(address.host, address.port, QUERY_SECONDS, "json")
    except TimeoutError:
        return {"not_read": f"{where} does not report within {QUERY_SECONDS:g} s"}
    except (OSError, RasError) as error:
        return {"not_read": f"no RAS on {where}: {str(error)[:100]}"}
    return {"format": reply.format, "text": reply.text, "not_read": ""}
