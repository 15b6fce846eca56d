"""Posts changes of incidents to a receiver of Alertmanager's webhooks, version 4.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. Each change is posted
until it is accepted, at least once; a receiver that hangs delays nothing, because a separate thread
posts from a bounded queue. Changes that did not fit into the queue, or were not accepted when the
watch ended, are read from the incident log again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

from rankscope_analyzers.intake.credentials import NONE, CredentialsError, Entry
from rankscope_analyzers.intake.deadline import Deadline
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.incident_log import LogError, line_of

SIGNATURE = "X-Rankscope-Signature-256"
"""HMAC-SHA256 of the body, as `sha256=` and hexadecimal digits; GitHub's webhooks do the same."""

MOST_WAITING = 1000
MOST_KEPT = 32
"""Lines that were not accepted yet, saved with the watch's state: usually 64 KiB at most."""

ANSWER_SECONDS = 10.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
MOST_SECRET_BYTES = 4096
REFUSED_FOR_GOOD = frozenset((400, 404, 405, 410, 413, 415, 422))
"""Statuses that mean that this body will never be accepted: the next one is posted."""

Line = Mapping[str, Any]
"""A line of the incident log."""


class Webhook:
    """Posts lines of the incident log, in their order.

    Args:
        url: of the receiver.
        again: reads the lines of the incident log after a number. Raises LogError.
        say: writes a sentence to the watch's own log.
        secret: that bodies are signed with, None if they are not.
        entry: credentials of the receiver.
        pause_seconds: before a body is posted again, at first.
    """

    def __init__(
        self,
        url: str,
        again: Callable[[int], Iterable[Line]],
        say: Callable[[str], None],
        secret: Path | None = None,
        entry: Entry = NONE,
        pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._url, self._say, self._secret, self._entry = url, say, secret, entry
        self._pause = pause_seconds
        self._again = again
        self._left_out = False
        self._thread: threading.Thread | None = None
        self._waiting: deque[Line] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._problem = ""
        self.delivered = 0

    def post(self, lines: Iterable[Line]) -> None:
        """Post some lines, later; those that do not fit are read from the log then."""
        with self._changed:
            for line in lines:
                if self._left_out or len(self._waiting) >= MOST_WAITING:
                    self._left_out = True
                else:
                    self._waiting.append(line)
            self._changed.notify()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            # At a limit of threads or memory it is tried again at the next news.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    @property
    def waiting(self) -> int:
        """Return how many lines of the queue were not accepted yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Stop posting."""
        self._closing.set()
        with self._changed:
            self._changed.notify()

    def kept(self) -> Any:
        """Return the state to save: up to which line all were accepted, and some others.

        The log may be on the disk of another node than the watch that continues.
        """
        with self._changed:
            return {"delivered": self.delivered, "waiting": [*islice(self._waiting, MOST_KEPT)]}

    def restore(self, kept: Any) -> None:
        """Continue from saved state; if it is None, only new changes are posted.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is invalid.
        """
        if kept is not None:
            lines = [line for one in kept.get("waiting", ()) if (line := line_of(one))]
            with self._changed:
                self.delivered, self._left_out = int(kept["delivered"]), True
                self._waiting = deque(line for line in lines if line["sequence"] > self.delivered)

    def _run(self) -> None:
        pause = self._pause
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(self._has_work)
                line = self._waiting[0] if self._waiting else None
            if self._closing.is_set():
                return
            if line is None:
                self._refill()
            elif self._is_delivered(line):
                pause = self._pause
                self._done(line)
            else:
                self._closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._left_out or self._closing.is_set()

    def _refill(self) -> None:
        """Read the lines that did not fit, as many as fit now."""
        with self._changed:
            self._left_out = False  # lines posted from now on may be missing from this read
        try:
            found = list(islice(self._again(self.delivered), MOST_WAITING + 1))
        except LogError as error:
            self._tell(str(error))
            self._left_out = True
            self._closing.wait(self._pause)
            return
        with self._changed:
            newest = found[-1]["sequence"] if found else self.delivered
            later = [line for line in self._waiting if line["sequence"] > newest]
            whole = [*found, *later]
            self._waiting = deque(whole[:MOST_WAITING])
            self._left_out = self._left_out or len(whole) > MOST_WAITING

    def _done(self, line: Line) -> None:
        with self._changed:
            if self._waiting and self._waiting[0] is line:
                self._waiting.popleft()
            self.delivered = max(self.delivered, int(line["sequence"]))

    def _is_delivered(self, line: Line) -> bool:
        """Post a line; return True if it need not be posted again."""
        try:
            request = Request(self._url, method="POST", **self._signed(line))  # noqa: S310 - checked
            with self._entry.open(request, Deadline(ANSWER_SECONDS)):
                self._tell("")
                return True
        except HTTPError as error:
            with error:
                if error.code in REFUSED_FOR_GOOD:
                    self._tell(f"it answers {error.code} to one, which is not posted again")
                    return True
                self._tell(f"it answers {error.code}")
                return False
        except (OSError, HTTPException, CredentialsError, ValueError) as error:
            self._tell(visible(str(error), 300))
            return False

    def _signed(self, line: Line) -> dict[str, Any]:
        body = json.dumps(alertmanager_body(line, self._url), allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        if self._secret is not None:
            with self._secret.open("rb") as file:
                secret = file.read(MOST_SECRET_BYTES).strip()
            if not secret:  # anybody could sign with an empty secret
                raise ValueError(f"{self._secret} contains no secret to sign with")
            digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={digest}"
        return {"data": body, "headers": headers}

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._say(f"the webhook does not accept incidents, which the log keeps: {problem}")
        elif self._problem and not problem:
            self._say("the webhook accepts incidents again")
        self._problem = problem


def alertmanager_body(line: Line, receiver: str) -> dict[str, Any]:
    """Return the body of a webhook of Alertmanager, version 4, about one incident.

    Args:
        line: of the incident log.
        receiver: name of the receiver.
    """
    status = "resolved" if line["change"] == "closed" else "firing"
    group = {"alertname": "RankscopeIncident", "job_id": line["job_id"]}
    labels = {
        **group,
        "fault": line["fault"],
        "kind": line["kind"],
        "severity": str(line.get("severity") or "info"),
        "incident": line["incident"],
    }
    notes = {
        "summary": line["summary"],
        "description": str(line.get("action") or ""),
        "runbook_url": str(line.get("runbook") or ""),
        "change": line["change"],
        "sequence": str(line["sequence"]),
        "number": str(line["number"]),
        **({"reason": str(line["reason"])} if "reason" in line else {}),
    }
    never = "0001-01-01T00:00:00Z"
    ended = str(line.get("until") or line["time"])
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="RankscopeIncident", job_id="{line["job_id"]}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver.partition("?")[0],
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": notes,
        "externalURL": "",
        "alerts": [
            {
                "status": status,
                "labels": labels,
                "annotations": notes,
                "startsAt": str(line.get("since") or line["time"]),
                "endsAt": ended if status == "resolved" else never,
                "generatorURL": "",
                "fingerprint": line["incident"],
            }
        ],
    }
