"""The calls of MLflow's REST API that logging a job requires.

https://mlflow.org/docs/latest/rest-api.html, version 2.0 of the API, which MLflow 2 and 3 have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.credentials import NONE, CredentialsError, Entry
from rankscope_analyzers.intake.deadline import Deadline
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.tracking.run_values import JOB_ID, RUN_NAME, SOURCE, WATCH, RunValues

PATH = "/api/2.0/mlflow/"
ANSWER_SECONDS = 10.0
MOST_BYTES = 1 << 24
"""Bytes of a response: a thousand runs with their metrics and tags are a few MiB."""

REASON_BYTES, REASON_CHARACTERS = 1 << 16, 300
"""Limits of a server's reason to refuse a request, as it is read and as it is shown."""

BUSY = frozenset((429, 502, 503, 504))
"""Codes of HTTP by which a server or its proxy answers any request for now."""

RUNS_OF_A_PAGE, MOST_PAGES = 500, 20


class TrackingError(Exception):
    """The server did not accept or answer a request; the message says why."""


class RefusedError(TrackingError):
    """The server answered, and did not accept this request; it may accept others."""


class MlflowApi:
    """A tracking server.

    Args:
        url: its address.
        entry: credentials.

    Raises:
        TrackingError: it is not an address.
    """

    def __init__(self, url: str, entry: Entry = NONE) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise TrackingError(f"{url} is not an http address")
        self._url, self._entry = url.rstrip("/") + PATH, entry

    def experiment(self, name: str) -> str:
        """Return the identifier of an experiment, which is created if there is none.

        Raises:
            TrackingError: the server does not accept it.
        """
        try:
            found = self._call("experiments/get-by-name", query={"experiment_name": name})
            return str(_of(found, "experiment", "experiment_id"))
        except _MissingError:
            return str(_of(self._call("experiments/create", {"name": name}), "experiment_id"))

    def running(self, experiment: str) -> dict[str, tuple[str, bool]]:
        """Return the running runs of jobs: by job, the run and whether the watch began it.

        Raises:
            TrackingError: the server does not answer.
        """
        found: dict[str, tuple[str, bool]] = {}
        for run in self._search(experiment):
            tags = {one.get("key"): one.get("value") for one in run.get("data", {}).get("tags", ())}
            if JOB_ID in tags:
                job, ours = str(tags[JOB_ID]), tags.get(SOURCE) == WATCH
                # A run that the job itself began takes precedence over ours.
                if job not in found or found[job][1]:
                    found[job] = str(_of(run, "info", "run_id")), ours
        return found

    def _search(self, experiment: str) -> Iterator[Mapping[str, Any]]:
        wanted = {
            "experiment_ids": [experiment],
            "filter": "attributes.status = 'RUNNING'",
            "max_results": RUNS_OF_A_PAGE,
        }
        for _ in range(MOST_PAGES):
            page = self._call("runs/search", wanted)
            yield from page.get("runs", ())
            if not page.get("next_page_token"):
                return
            wanted["page_token"] = page["next_page_token"]

    def begin(self, experiment: str, job: str, now: float) -> str:
        """Begin a run for a job and return its identifier.

        Raises:
            TrackingError: the server does not accept it.
        """
        tags = {JOB_ID: job, SOURCE: WATCH, RUN_NAME: job}
        run = {
            "experiment_id": experiment,
            "start_time": _milliseconds(now),
            "run_name": job,
            "tags": _pairs(tags),
        }
        return str(_of(self._call("runs/create", run), "run", "info", "run_id"))

    def log(self, run: str, values: RunValues, now: float) -> None:
        """Log metrics and set tags of a run.

        Raises:
            TrackingError: the server does not accept them.
        """
        metrics = [
            {"key": key, "value": value, "timestamp": _milliseconds(now), "step": 0}
            for key, value in values.metrics.items()
        ]
        self._call(
            "runs/log-batch", {"run_id": run, "metrics": metrics, "tags": _pairs(values.tags)}
        )

    def end(self, run: str, now: float) -> None:
        """End a run.

        Raises:
            TrackingError: the server does not accept it.
        """
        self._call(
            "runs/update", {"run_id": run, "status": "FINISHED", "end_time": _milliseconds(now)}
        )

    def _call(
        self,
        name: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Post a body, or get the result of a query.

        Raises:
            RefusedError: the server does not accept it, or its response is not an object.
            TrackingError: the server does not answer, or accepts nothing now.
        """
        url = f"{self._url}{name}{'?' + urlencode(query) if query else ''}"
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            request = Request(url, data=data, headers=headers)  # noqa: S310 - checked
            deadline = Deadline(ANSWER_SECONDS)
            with self._entry.open(request, deadline) as answer:
                found = untrusted_json.read(answer.read(MOST_BYTES))
        except HTTPError as error:
            with error:
                text = f"{name}: it answers {error.code}{_reason(error)}"
                raise _kind(error.code)(text) from None
        except (OSError, HTTPException, CredentialsError) as error:
            raise TrackingError(f"{name}: {visible(str(error), REASON_CHARACTERS)}") from None
        except ValueError as error:
            raise RefusedError(f"{name}: {visible(str(error), REASON_CHARACTERS)}") from None
        if not isinstance(found, dict):
            raise RefusedError(f"{name}: the response is not an object")
        return found


class _MissingError(RefusedError):
    """The server has no such object."""


def _kind(code: int) -> type[TrackingError]:
    if code in BUSY:
        return TrackingError
    return _MissingError if code == 404 else RefusedError


def _reason(error: HTTPError) -> str:
    """Return what a server says about a refused request, if it is readable."""
    try:
        found = untrusted_json.read(error.read(REASON_BYTES))
    except (OSError, HTTPException, ValueError):
        return ""
    given = found.get("message") if isinstance(found, dict) else None
    return f": {visible(given, REASON_CHARACTERS)}" if isinstance(given, str) else ""


def _pairs(tags: Mapping[str, str]) -> list[Mapping[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _milliseconds(unix_seconds: float) -> int:
    return round(unix_seconds * 1000)


def _of(answer: Mapping[str, Any], *keys: str) -> Any:
    """Return a value within a response.

    Raises:
        RefusedError: it is missing.
    """
    found: Any = answer
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            raise RefusedError(f"the answer has no {'.'.join(keys)}")
        found = found[key]
    return found
