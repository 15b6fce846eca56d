"""Reads series from Prometheus, or any server with its HTTP API, into a matrix.

A range of thousands of series is tens of megabytes of JSON. Two things make reading it fast: the
response is requested uncompressed, because the server spends five times as long on gzip as on the
query, and numbers are parsed directly from the bytes, without a Python object for each.

API: https://prometheus.io/docs/prometheus/latest/querying/api.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request

import numpy as np

from rankscope_agent.contract import untrusted_json
from rankscope_analyzers.intake.credentials import NONE, CredentialsError, Entry
from rankscope_analyzers.intake.deadline import Deadline
from rankscope_analyzers.numeric.arrays import Floats
from rankscope_analyzers.text.name_lists import shortened
from rankscope_analyzers.text.sanitize import visible

TIMEOUT_SECONDS = 60.0
"""Prometheus ends its own queries after two minutes; a verdict is worth waiting for one."""

WHOLE_ANSWER_SECONDS = 120.0
"""Seconds for a whole response: a gigabyte, at a tenth of the bandwidth of a 1 Gbit/s network."""

MAXIMUM_ANSWER_BYTES = 1 << 30
"""Bytes: 16,384 series of 360 points have 203 MB; five times that answers no query of ours."""

MAXIMUM_POINTS = 11_000
"""Points per series that Prometheus returns at most for one query."""

MAXIMUM_WARNINGS = 100
"""Warnings that are taken from one answer: Thanos has one for each store that does not answer."""

_SERIES, _VALUES, _END = b'{"metric":', b',"values":[', b"]]"
_NOT_NUMBERS = b'"[]'


class PrometheusError(Exception):
    """The server sends no usable response; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Series over a common grid of moments.

    Args:
        labels: N label sets, with `__name__` if the query kept it.
        times: (T,) Unix seconds, evenly spaced.
        values: (N, T) values, NaN where a series has none.
        warnings: of the server, such as that one of its stores does not answer.
    """

    labels: tuple[Mapping[str, str], ...]
    times: Floats
    values: Floats
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server at an address such as http://prometheus:9090, with a path prefix if it has one.

    Args:
        url: its address.
        entry: credentials.
        warnings: of its answers so far, each once.
    """

    url: str
    entry: Entry = NONE
    warnings: dict[str, None] = field(default_factory=dict, compare=False, repr=False)

    def without_warnings(self) -> Prometheus:
        """Return the same server, without the warnings of earlier answers."""
        return replace(self, warnings={})

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return a sentence if answers were not whole, with the first reasons."""
        if not self.warnings:
            return ()
        why = shortened([visible(text) for text in self.warnings])
        return (f"series may be missing: Prometheus {self.url} warns: {why}",)

    def range(self, query: str, start: float, end: float, step: float) -> Matrix:
        """Evaluate a query at every `step` seconds from `start` to `end` (Unix seconds).

        Raises:
            PrometheusError: the server refuses, cannot be reached, or answers something else.
        """
        count = int((end - start) / step) + 1
        if count > MAXIMUM_POINTS:
            raise PrometheusError(
                f"{count} points a series are more than the {MAXIMUM_POINTS} that Prometheus gives:"
                " ask for a shorter time or a longer step"
            )
        times = start + step * np.arange(count, dtype=np.float64)
        window = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        body = self._get("/api/v1/query_range", {"query": query, **window})
        found = parse_matrix(body, times)
        self.warnings.update(dict.fromkeys(found.warnings))
        return found

    def instant(self, query: str, at: float) -> Sequence[tuple[Mapping[str, str], float]]:
        """Evaluate a query at one moment; return (labels, value) pairs.

        Raises:
            PrometheusError: the server refuses, cannot be reached, or answers something else.
        """
        body = self._get("/api/v1/query", {"query": query, "time": f"{at:.3f}"})
        try:
            document = untrusted_json.read(body)
            rows = document["data"]["result"]
            found = [(row["metric"], float(row["value"][1])) for row in rows]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise PrometheusError(
                f"{self.url} does not answer as Prometheus does: {error!r}"
            ) from None
        self.warnings.update(dict.fromkeys(_warnings(document)))
        return found

    def _get(self, path: str, query: Mapping[str, str]) -> bytes:
        url = self.url if "://" in self.url else f"{self.entry.scheme}://{self.url}"
        base = url.rstrip("/")
        if urlsplit(base).scheme not in {"http", "https"}:
            raise PrometheusError(f"{self.url} is not the http address of a Prometheus server")
        headers = {
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        # Posted, because queries outgrow the URLs that proxies accept.
        data = urlencode(query).encode()
        request = Request(base + path, data=data, headers=headers)  # noqa: S310 - scheme is checked
        deadline = Deadline(WHOLE_ANSWER_SECONDS, TIMEOUT_SECONDS)
        try:
            body = self._answer(request, deadline)
        except CredentialsError as error:
            raise PrometheusError(str(error)) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise PrometheusError(f"Prometheus {self.url} {deadline.missed(reason)}") from None
            raise PrometheusError(f"Prometheus {self.url} cannot be reached: {reason}") from None
        if len(body) > MAXIMUM_ANSWER_BYTES:
            raise PrometheusError(f"{self.url} answers more than {MAXIMUM_ANSWER_BYTES >> 30} GiB")
        return body

    def _answer(self, request: Request, deadline: Deadline) -> bytes:
        try:
            with self.entry.open(request, deadline) as answer:
                return answer.read(MAXIMUM_ANSWER_BYTES + 1)
        except HTTPError as error:
            with error:
                message = f"{self.url} answers {error.code}: {_reason(error)}"
            raise PrometheusError(message) from None


def parse_matrix(body: bytes, times: Floats) -> Matrix:
    """Read the response to a range query onto a grid.

    Points off the grid, as other servers may return them, go to the nearest moment of it.

    Args:
        body: JSON as Prometheus writes it: no white space, `metric` before `values`.
        times: (T,) Unix seconds, evenly spaced.

    Raises:
        PrometheusError: it is not a matrix.
    """
    if not body.startswith(b'{"status":"success"') or b'"resultType":"matrix"' not in body[:4096]:
        start = body[:200].decode("utf-8", "replace")
        raise PrometheusError(f"the response is not a matrix: {start}")
    labels: list[Mapping[str, str]] = []
    rows: list[Floats] = []
    last = -1
    for found, numbers, end in _series(body):
        labels.append(found)
        rows.append(_on_grid(numbers, times))
        last = end
    values = np.array(rows) if rows else np.empty((0, len(times)))
    return Matrix(tuple(labels), times, values, _warnings(_around(body, last)))


def _around(body: bytes, end: int) -> Any:
    """Return a response without its series, so that one that breaks off between two is noticed.

    Args:
        body: all of it.
        end: where the values of its last series end, -1 without any.

    Raises:
        PrometheusError: it breaks off.
    """
    following = end + len(_END) + 1
    if end < 0 or b'"histograms":' in body[following:]:
        around = body
    else:
        around = body[: body.find(_SERIES)] + body[following:]
    try:
        return untrusted_json.read(around)
    except ValueError:
        raise PrometheusError("the answer breaks off") from None


def _warnings(document: Any) -> tuple[str, ...]:
    """Return what a server says its answer lacks; VictoriaMetrics says only that it lacks some.

    Prometheus and Thanos: https://prometheus.io/docs/prometheus/latest/querying/api/#format-overview.
    """
    if not isinstance(document, dict):
        return ()
    listed = document.get("warnings")
    texts = listed[:MAXIMUM_WARNINGS] if isinstance(listed, list) else ()
    partial = ("the answer is partial",) if document.get("isPartial") is True else ()
    return (*partial, *(text[:300] for text in texts if isinstance(text, str)))


def _series(body: bytes) -> Iterator[tuple[Mapping[str, str], Floats, int]]:
    """Yield each series' labels, its numbers (moment, value, moment, value...), and their end.

    The markers cannot occur inside a label, where quotes are escaped, nor inside a number.
    """
    position = body.find(_SERIES)
    while position >= 0:
        values = body.find(_VALUES, position)
        end = body.find(_END, values)
        following = body.find(_SERIES, position + 1)
        if values < 0 or end < 0:
            if b'"histograms":' in body[position:]:
                return  # only native histograms, which we never query
            raise PrometheusError("the answer breaks off in the middle of a series")
        if 0 <= following < values:  # a series of native histograms, without values
            position = following
            continue
        yield (
            _labels(body[position + len(_SERIES) : values]),
            _numbers(body[values + len(_VALUES) : end]),
            end,
        )
        position = following


def _labels(text: bytes) -> Mapping[str, str]:
    try:
        found = untrusted_json.read(text)
    except ValueError as error:
        raise PrometheusError(f"labels of a series are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise PrometheusError(f"labels of a series are a JSON {type(found).__name__}")
    return found


def _numbers(text: bytes) -> Floats:
    try:
        return np.array(list(map(float, text.translate(None, _NOT_NUMBERS).split(b","))))
    except ValueError as error:
        raise PrometheusError(f"a value is not a number: {error}") from None


def _on_grid(numbers: Floats, times: Floats) -> Floats:
    row = np.full(len(times), np.nan)
    moments, values = numbers[0::2], numbers[1::2]
    if len(moments) != len(values):
        raise PrometheusError("a series has moments without values")
    step = times[1] - times[0] if len(times) > 1 else 1.0
    if len(values) == len(times) and abs(moments[0] - times[0]) < step / 2:
        return values
    near = np.abs(moments - times[0]) <= step * len(times)  # NaN and infinity are not
    indices = np.rint((moments[near] - times[0]) / step).astype(int)
    inside = (indices >= 0) & (indices < len(times))
    row[indices[inside]] = values[near][inside]
    return row


def _reason(error: HTTPError) -> str:
    """Return Prometheus' reason for refusing a query, or the beginning of any other response."""
    body = error.read(4096)
    try:
        document: Any = untrusted_json.read(body)
        return str(document["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace").strip()
