"""Turns a snapshot into a page for Prometheus, as text or OpenMetrics.

A page is kept until the snapshot changes, so that a second scraper, or the same one between two
runs of the collectors, costs no rendering.
"""

from __future__ import annotations

import gzip
import itertools
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rankscope_agent import __version__
from rankscope_agent.collecting.series_budget import within_budget
from rankscope_agent.contract.canary import is_canary
from rankscope_agent.contract.metrics import agent as metrics
from rankscope_agent.contract.model import Sample, Scrape, Snapshot
from rankscope_agent.contract.sources import COMES_WITH_JOBS
from rankscope_agent.serving.page_text import SeriesLines, write_openmetrics, write_text
from rankscope_agent.sources.collector import lacks_source
from rankscope_agent.web.content_coding import GZIP_LEVEL, quality_of

MISSED_SECONDS = 6 * 3600.0
"""How long the absence of a source is reported: a shift, within which someone has noticed."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of the page: its name in HTTP, and its writer."""

    media_type: str
    content_type: str
    write: Callable[[Iterable[Sample], SeriesLines], bytes]


# Every name in the catalogue uses the legacy character set, in which all of Prometheus' escaping
# schemes but `dots` leave names unchanged; so one variant of each format serves every scraper.
TEXT = Format("text/plain", "text/plain; version=0.0.4; charset=utf-8", write_text)
OPENMETRICS = Format(
    "application/openmetrics-text",
    "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
    write_openmetrics,
)


def choose_format(accept: str) -> Format:
    """Return the format that an Accept header prefers; there is an answer whatever it contains.

    OpenMetrics is returned only if requested by name, in version 1 or without a version.
    """
    quality = {OPENMETRICS.media_type: 0.0, TEXT.media_type: 0.0}
    for entry in accept.lower().split(","):
        media_type, *fields = (part.strip() for part in entry.split(";"))
        parameters = dict(field.split("=", 1) for field in fields if "=" in field)
        if media_type == OPENMETRICS.media_type:
            if parameters.get("version", "1.0.0").split(".")[0] != "1":
                continue
        elif media_type != TEXT.media_type:
            continue
        quality[media_type] = max(quality[media_type], quality_of(parameters.get("q", "1")))
    asked, text = quality[OPENMETRICS.media_type], quality[TEXT.media_type]
    return OPENMETRICS if asked > 0 and asked >= text else TEXT


def render(
    snapshot: Snapshot, form: Format, max_series: int | None, known: SeriesLines | None = None
) -> bytes:
    """Render the page of a snapshot.

    Args:
        snapshot: what to write.
        form: `TEXT` or `OPENMETRICS`.
        max_series: maximum number of collectors' series, None for no limit. The least important are
            left off, and counted in `rankscope_series_dropped`.
        known: lines of the previous page; None if there was none.
    """
    page = within_budget([_without_canary(one) for one in snapshot.scrapes], max_series)
    own = _self_samples(snapshot, page.dropped)
    return form.write(itertools.chain(own, page.samples), known or SeriesLines())


def _without_canary(scrape: Scrape) -> Scrape:
    """Leave out the canary's series: alerts and dashboards add up real jobs only."""
    kept = tuple(sample for sample in scrape.samples if not is_canary(_job_of(sample)))
    return scrape if len(kept) == len(scrape.samples) else replace(scrape, samples=kept)


def _job_of(sample: Sample) -> str:
    labels = sample.metric.labels
    return sample.labels[labels.index("job_id")] if "job_id" in labels else ""


def _self_samples(snapshot: Snapshot, dropped: Mapping[str, int]) -> Iterator[Sample]:
    """Yield the agent's series about itself and about its collectors."""
    python = platform.python_version()
    yield metrics.BUILD_INFO.sample(
        1, version=__version__, python_version=python, simulated=snapshot.simulated
    )
    yield metrics.SNAPSHOT_TIMESTAMP.sample(snapshot.taken_at_unix_seconds)
    yield metrics.PAGE_SERIES_DROPPED.sample(sum(dropped.values()))
    for scrape in snapshot.scrapes:
        name = scrape.collector
        yield metrics.COLLECTOR_SUCCESS.sample(float(scrape.success), collector=name)
        if not lacks_source(scrape.failure):
            yield metrics.COLLECTOR_DURATION.sample(scrape.duration_seconds, collector=name)
        if scrape.invalid:
            yield metrics.INVALID_SAMPLES.sample(scrape.invalid, collector=name)
        if dropped[name]:
            yield metrics.SERIES_DROPPED.sample(dropped[name], collector=name)
        if not scrape.success and scrape.last_success_unix_seconds is not None:
            when = scrape.last_success_unix_seconds
            yield metrics.COLLECTOR_LAST_SUCCESS.sample(when, collector=name)
        if _fails(scrape, snapshot.taken_at_unix_seconds):
            yield metrics.COLLECTOR_FAILING.sample(1, collector=name)


def _fails(scrape: Scrape, now: float) -> bool:
    """Return True if a collector should work: one that never had its source does not fail."""
    if scrape.success or not lacks_source(scrape.failure):
        return not scrape.success
    if scrape.collector in COMES_WITH_JOBS:
        return False
    worked = scrape.last_success_unix_seconds
    return worked is not None and now - worked < MISSED_SECONDS


class PageCache:
    """Pages of the newest snapshot, each written at most once per format and coding."""

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._pages: dict[tuple[str, bool], bytes] = {}
        self._lines = SeriesLines()

    def page(self, snapshot: Snapshot, form: Format, *, gzipped: bool) -> bytes:
        """Return a snapshot's page; concurrent scrapers wait for the one rendering."""
        with self._lock:
            if snapshot is not self._snapshot:
                self._snapshot = snapshot
                self._pages = {}
            plain = self._pages.get((form.media_type, False))
            if plain is None:
                plain = render(snapshot, form, self._max_series, self._lines)
                self._pages[form.media_type, False] = plain
            if not gzipped:
                return plain
            packed = self._pages.get((form.media_type, True))
            if packed is None:
                packed = gzip.compress(plain, GZIP_LEVEL, mtime=0)
                self._pages[form.media_type, True] = packed
            return packed
