"""Keeps the pod directory in sync with the API server: a list, then repeated watches.

There is one request at a time, and on a healthy node one every four to eight minutes. After a
failure the pause grows, so that a struggling server is not burdened further; what was known is kept
meanwhile.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rankscope_agent.sources.pods.api_client import ApiError
from rankscope_agent.sources.pods.directory import MAX_PODS, PodDirectory
from rankscope_agent.sources.pods.records import Pod, PodError, parse_pod

log = logging.getLogger(__name__)

START_JITTER_SECONDS = 30.0
"""After an upgrade, all agents of a cluster start at once; their lists are spread over this
time."""

WATCH_SECONDS = (240, 480)
"""A watch ends after a random time within this range, which client-go's reflectors double."""

FIRST_PAUSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 120.0
"""A watch that lasted this long ends a series of failures."""

SHORT_WATCH_SECONDS = 5.0
"""A watch that ends sooner, although minutes were requested, comes from a server or proxy that
cannot hold one; retrying without a pause would be a request storm."""

SILENT_SECONDS = 60.0
"""A watch that was open for this long and then stayed silent is reopened and does not count as a
failure: an API server whose etcd lacks progress notifications sends no bookmarks, and pods may not
change."""

GONE = 410

MAX_FAILURE = 300
"""Characters kept of an unexpected error, which may quote what pods say."""


class PodServer(Protocol):
    """Lists and watches pods; see `rankscope_agent.sources.pods.api_client.ApiServer`."""

    def list_pods(self, node: str, take: Callable[[object], None]) -> Mapping[str, Any]:
        """Pass on the items of a PodList one by one, and return the rest of it."""
        ...

    def watch_pods(
        self, node: str, version: str, seconds: int
    ) -> AbstractContextManager[Iterator[Mapping[str, Any]]]:
        """Open a watch."""
        ...


class Reflector:
    """Follows the pods of a node.

    Args:
        server: the API server.
        directory: what is kept up to date.
        node: the node of the pods.
        clock: returns the Unix time in seconds.
        pause: waits for some seconds and returns whether to stop.
        jitter: returns a number from 0 to 1.
        start_jitter_seconds: longest wait before the first list.
    """

    def __init__(
        self,
        server: PodServer,
        directory: PodDirectory,
        node: str,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], bool] | None = None,
        jitter: Callable[[], float] = random.random,  # noqa: S311 - spreads load, keeps no secret
        start_jitter_seconds: float = START_JITTER_SECONDS,
    ) -> None:
        self._start_jitter_seconds = start_jitter_seconds
        self._server = server
        self._directory = directory
        self._node = node
        self._clock = clock
        self._stop = threading.Event()
        self._pause = pause or self._stop.wait
        self._jitter = jitter
        self._version: str | None = None
        self._failures = 0
        self.failure = ""
        self.errors = 0
        self.requests = {"list": 0, "watch": 0}

    def start(self) -> None:
        """Follow the pods in a separate thread, until the process exits."""
        self._directory.expect()
        threading.Thread(target=self.run, name="pod-reflector", daemon=True).start()

    def stop(self) -> None:
        """Ask the thread to end at its next pause."""
        self._stop.set()

    def run(self) -> None:
        """Follow the pods until stopped."""
        stopped = self._pause(self._start_jitter_seconds * self._jitter())
        while not stopped and not self._stop.is_set():
            stopped = self._pause(self._attempt())

    def _attempt(self) -> float:
        """Make one request and return the pause that is due; whatever is raised is a failure."""
        begin = time.monotonic()
        try:
            return self._iteration()
        except Exception as error:  # the only thread that follows the node's pods goes on
            failure = f"{error!a}"[:MAX_FAILURE]
            log.error("pods: cannot process an answer", exc_info=failure != self.failure)
            # How much of it was stored is not known: a list starts over.
            self._version = None
            return self._failed(failure, begin, 0.0)

    def _iteration(self) -> float:
        """Make one request and return the pause that is due after it."""
        begin = time.monotonic()
        try:
            if self._version is None:
                self._list()
                return 0.0
            self._watch(self._version)
        except ApiError as error:
            # An expired version is the server's normal answer after a restart.
            if error.code == GONE and self._version is not None:
                self._version = None
                return self._failed(error, begin, 0.0)
            return self._failed(error, begin, error.retry_after_seconds)
        except TimeoutError as error:
            # A connection without an answer is abandoned far sooner.
            if self._version is None or time.monotonic() - begin < SILENT_SECONDS:
                return self._failed(error, begin, 0.0)
            self.failure = ""
            return 0.0
        except OSError as error:
            return self._failed(error, begin, 0.0)
        lasted = time.monotonic() - begin
        if lasted < SHORT_WATCH_SECONDS:
            return self._failed(f"the watch ended after {lasted:.1f} s", begin, 0.0)
        self.failure = ""
        if lasted >= HEALTHY_SECONDS:
            self._failures = 0
        return 0.0

    def _failed(self, error: object, begin: float, wait: float) -> float:
        if time.monotonic() - begin >= HEALTHY_SECONDS:
            self._failures = 0
        self._failures += 1
        self.errors += 1
        self.failure = f"{error}" or type(error).__name__
        log.warning("pods: %s (failure %d in a row)", self.failure, self._failures)
        grown = FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10)
        return max(wait, min(grown, MAX_PAUSE_SECONDS) * (1.0 + 0.5 * self._jitter()))

    def _list(self) -> None:
        self.requests["list"] += 1
        pods: list[Pod] = []
        left_out: set[str] = set()

        def take(item: object) -> None:
            pod = _pod(item)
            if pod and len(pods) < MAX_PODS:
                pods.append(pod)
            elif pod and len(left_out) < MAX_PODS:
                left_out.add(pod.uid)

        version = _version(self._server.list_pods(self._node, take))
        if version is None:
            raise ApiError(0, "the list of pods has no resourceVersion to watch from")
        if left_out:
            log.warning("pods: only the first %d of the list are known", MAX_PODS)
        self._directory.replace(pods, self._clock(), left_out)
        self._version = version
        self.failure = ""

    def _watch(self, version: str) -> None:
        """Process events until the watch ends."""
        self.requests["watch"] += 1
        shortest, longest = WATCH_SECONDS
        seconds = shortest + int((longest - shortest) * self._jitter())
        with self._server.watch_pods(self._node, version, seconds) as events:
            for event in events:
                self._take(event)
                self.failure = ""
                if self._stop.is_set():
                    break

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, now = event.get("type"), self._clock()
        data = event.get("object")
        version = _version(data) if isinstance(data, dict) else None
        if kind == "BOOKMARK":
            self._directory.note_contact(now)
        elif pod := _pod(data):
            # A pod that moves to another node is reported as DELETED, because it no longer matches.
            if kind == "DELETED":
                self._directory.remove(pod.uid, now)
            elif kind in {"ADDED", "MODIFIED"}:
                self._directory.put(pod, now)
        self._version = version or self._version


def _pod(data: object) -> Pod | None:
    try:
        return parse_pod(data)
    except PodError as error:
        log.debug("pods: left out: %s", error)
        return None


def _version(document: Mapping[str, Any]) -> str | None:
    metadata = document.get("metadata")
    found = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and found else None
