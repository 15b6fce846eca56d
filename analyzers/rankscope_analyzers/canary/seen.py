"""What is exported about the canary: read from the watch's own page, or queried from Prometheus.

Of several watches behind one name only the leader's page has anything about jobs, so each address
of the name is queried.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from rankscope_agent.contract.metrics import canary as metrics
from rankscope_agent.contract.metrics import watch
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.intake.agent_client import Agent, AgentError
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError

ANSWER_SECONDS = 10.0
"""A watch of 2,048 nodes takes a second to write its page."""

MAX_PAGE_BYTES = 256 << 20
"""Bytes; more than the series of all jobs that a watch keeps."""

BRIDGED = "2m"
"""Maximum age of a sample from Prometheus: four scrapes."""

READS = (metrics.CANARY_STEP, metrics.CANARY_NAMED, watch.WATCH_LAST)

Series = tuple[str, Mapping[str, str], float]
"""Name, labels and value of a sample."""


class SilentError(Exception):
    """Nobody answers; the message says who was queried and why there was no answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one canary.

    Args:
        evaluated: Unix time of the watch's last evaluation, None if no watch evaluates.
        newest_step: Unix time of the newest step that the watch judged, None if there is none.
        named: Unix time of the last step for which each symptom and rank was named.
    """

    evaluated: float | None = None
    newest_step: float | None = None
    named: Mapping[tuple[str, int], float] = field(default_factory=dict)


Look = Callable[[str], Seen]
"""Returns what is known of a job now. Raises SilentError."""


def on_pages(url: str, entry: Entry) -> Look:
    """Return a function that fetches the page of a watch, or of each one behind its name.

    Args:
        url: such as http://rankscope-watch:9878.
        entry: credentials.
    """

    def look(job_id: str) -> Seen:
        samples: list[Series] = []
        failures = []
        for address in _addresses(url, entry):
            answer = _answer(*address)
            if isinstance(answer, str):
                failures.append(answer)
            else:
                samples += answer
        if not samples and failures:
            raise SilentError("; ".join(failures))
        return seen(samples, job_id)

    return look


def in_prometheus(url: str, entry: Entry) -> Look:
    """Return a function that queries a Prometheus server.

    Args:
        url: of the server.
        entry: credentials.
    """
    server = Prometheus(url, entry)

    def asked(metric: Metric) -> Iterator[Series]:
        query = f"max by ({', '.join(metric.labels)}) (last_over_time({metric.name}[{BRIDGED}]))"
        for labels, value in server.instant(query, time.time()):
            yield metric.name, labels, value

    def look(job_id: str) -> Seen:
        try:
            return seen([one for metric in READS for one in asked(metric)], job_id)
        except PrometheusError as error:
            raise SilentError(str(error)) from None

    return look


def seen(samples: list[Series], job_id: str) -> Seen:
    """Return what samples show of a canary; of several for one series the newest counts."""
    steps, evaluated = [], []
    named: dict[tuple[str, int], float] = {}
    for name, labels, value in samples:
        if name == watch.WATCH_LAST.name:
            evaluated.append(value)
        elif labels.get("job_id") != job_id:
            continue
        elif name == metrics.CANARY_STEP.name:
            steps.append(value)
        elif labels["rank"].isdecimal():
            key = labels["symptom"], int(labels["rank"])
            named[key] = max(value, named.get(key, value))
    return Seen(max(evaluated, default=None), max(steps, default=None), named)


def _addresses(url: str, entry: Entry) -> Iterator[tuple[str, Entry]]:
    """Yield the address of each watch, and the credentials for it.

    Raises:
        SilentError: the name has no address.
    """
    parts = urlsplit(url if "://" in url else f"{entry.scheme}://{url}")
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SilentError(f"{host} has no address: {error}") from None
    named = replace(entry, server_name=entry.server_name or host)
    for address in dict.fromkeys(str(one[4][0]) for one in known):
        where = f"[{address}]" if ":" in address else address
        server = SplitResult(parts.scheme, f"{where}:{port}", "", "", "")
        yield server.geturl(), named if parts.scheme == "https" else entry


def _answer(url: str, entry: Entry) -> list[Series] | str:
    """Return the content of a watch's page, or a sentence on why it is unknown."""
    server = Agent(url, entry, role="watch")
    try:
        page = server.body("/metrics", MAX_PAGE_BYTES, ANSWER_SECONDS)
        return list(_samples(page.decode("utf-8", "replace")))
    except AgentError as error:
        return str(error)
    except ValueError as error:
        return f"{url}/metrics: {error}"


def _samples(page: str) -> Iterator[Series]:
    """Yield the samples of a page that are about canaries.

    Raises:
        ValueError: it is not a page of metrics.
    """
    names = tuple(metric.name for metric in READS)
    lines = "".join(f"{line}\n" for line in page.splitlines() if line.startswith(names))
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
