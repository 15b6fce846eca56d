"""The file in which an agent leaves its totals to the next one: read once, replaced in turns.

It is written by a thread of its own, because a disk that pods keep busy must not delay the reading
of rings.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.sources.sealed_state import sealed, unsealed
from rankscope_agent.sources.training.shares import largest_jobs

log = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
"""Largest file that is written or read: a thousand ranks take 3 MB, each with eight rings and
processes. Jobs are left out of a larger one, those of the namespace that takes most of it."""

LAST_SECONDS = 1.0
"""How long the end of the agent waits for a disk."""


class TotalsFile:
    """One file of totals.

    Args:
        path: of the file; the directory must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""
        self._complained = self._left_out = False
        self._writer: threading.Thread | None = None

    def read(self) -> Mapping[str, Any]:
        """Return what was written; empty if there is nothing, or it cannot be used."""
        try:
            with self._path.open("rb") as file:
                return _parse(file.read(MAX_BYTES + 1))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning(
                "cannot continue the totals of steps from %s (%s): those of jobs whose rings have"
                " lost their first records begin anew",
                self._path,
                error,
            )
            return {}

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the file, unless it is the same or is still being written."""
        if self._writer is not None and self._writer.is_alive():
            return
        content = self._fitting(state)
        if content == self._written:
            return
        writer = threading.Thread(
            target=self._replace, args=(content,), name="totals-file", daemon=True
        )
        writer.start()  # raises at a limit of threads or memory, and is tried again then
        self._writer = writer

    def _fitting(self, state: Mapping[str, Any]) -> bytes:
        """Return the content of the file, without jobs for which it has no room."""
        content = _content(state)
        excess = len(content) - MAX_BYTES
        if excess <= 0 or not state["jobs"]:
            return content
        sizes = {job_id: len(_encoded(job)) for job_id, job in state["jobs"].items()}
        left_out = largest_jobs(sizes, excess)
        if not self._left_out:
            log.warning(
                "%s has no room for the totals of %d jobs, one of them %s; after a restart, they"
                " may begin anew",
                self._path,
                len(left_out),
                min(left_out),
            )
        self._left_out = True
        jobs = {job_id: job for job_id, job in state["jobs"].items() if job_id not in left_out}
        return _content({**state, "jobs": jobs})

    def write_last(self, state: Mapping[str, Any]) -> None:
        """Replace the file at the end of the agent, if the disk is not too slow."""
        if self._writer is not None:
            self._writer.join(LAST_SECONDS)
        self.write(state)
        if self._writer is not None:
            self._writer.join(LAST_SECONDS)

    def _replace(self, content: bytes) -> None:
        made = self._path.with_suffix(".tmp")
        try:
            if len(content) > MAX_BYTES:
                raise OSError(None, f"{len(content)} bytes, limit {MAX_BYTES}")
            made.write_bytes(content)
            made.replace(self._path)
        except OSError as error:
            if not self._written:
                self._remove_earlier()
            if not self._complained:
                self._complained = True
                log.warning(
                    "cannot write %s: %s; after a restart, totals of steps may begin anew",
                    made,
                    error.strerror,
                )
            return
        self._written = content
        self._complained = False

    def _remove_earlier(self) -> None:
        """Remove what an earlier agent left: this one has shown larger totals by now."""
        with suppress(OSError):
            self._path.unlink()


def _content(state: Mapping[str, Any]) -> bytes:
    return sealed(_encoded(state))


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _parse(content: bytes) -> Mapping[str, Any]:
    """Return the values in a file's content.

    Raises:
        ValueError: they are not what was written.
    """
    state = untrusted_json.read(unsealed(content))
    if not isinstance(state, dict):
        raise ValueError("it is not an object")
    return state
