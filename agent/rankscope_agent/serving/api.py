"""The agent's answers on each path; the server takes care of transport."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rankscope_agent import __version__
from rankscope_agent.collecting.registry import CollectorState, Registry
from rankscope_agent.contract import api_version, shards, stalls
from rankscope_agent.contract import step_blocks as step_form
from rankscope_agent.contract.model import SPAN_COLUMNS, LeftOut, SpanSource, StepRow, StepSource
from rankscope_agent.contract.requirements import remedy_text
from rankscope_agent.contract.shards import Jobs, Shard, shard_of_text
from rankscope_agent.serving.evidence_paths import EvidencePaths
from rankscope_agent.serving.exposition import PageCache, choose_format
from rankscope_agent.serving.json_response import json_response
from rankscope_agent.serving.landing_page import landing_page
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_agent.serving.step_stream import steps_json
from rankscope_agent.sources.evidence.node_evidence import NodeEvidence
from rankscope_agent.sources.evidence.saved_evidence import SavedEvidence
from rankscope_agent.sources.flight_recorder.stream import windows_json
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.sources.pods.listing import listing
from rankscope_agent.sources.stalls.stall_source import StallSource
from rankscope_agent.web.content_coding import accepts, accepts_gzip
from rankscope_agent.web.routes import HTML_TYPE, JSON_TYPE, Request, Response, Route, sentence

AFTER, SHARD = "after", shards.PARAMETER
"""Parameters by which a reader names the rings that it follows, and its shard of jobs."""


class Api:
    """The agent's paths for its registry of collectors and its source of step records."""

    def __init__(
        self,
        node: str,
        registry: Registry,
        steps: StepSource,
        max_series: int,
        disabled: Sequence[str] = (),
        pods: PodDirectory | None = None,
        windows: FlightWindows | None = None,
        in_part: Mapping[str, Sequence[str]] | None = None,
        spans: SpanSource | None = None,
        stalls: StallSource | None = None,
        evidence: NodeEvidence | None = None,
        kept: SavedEvidence | None = None,
    ) -> None:
        self._stalls = stalls
        self._evidence = EvidencePaths(node, evidence, kept)
        self._spans = spans
        self._in_part = in_part or {}
        self._pods = pods or PodDirectory()
        self._windows = windows or FlightWindows()
        self._node = node
        self._registry = registry
        self._steps = steps
        self._pages = PageCache(max_series)
        self._disabled = tuple(disabled)

    def routes(self) -> Mapping[str, Route]:
        """Return every path that is answered."""
        routes = {
            "/": Route(self.landing, "page"),
            "/metrics": Route(self.metrics, "page"),
            "/healthz": Route(self.healthz, "open"),
            "/readyz": Route(self.readyz, "open"),
            "/api/v1/pods": Route(self.pods),
            "/api/v1/ranks": Route(self.ranks),
            "/api/v1/steps": Route(self.step_records, heavy=True),
            "/api/v1/step_starts": Route(self.step_starts, heavy=True),
            "/api/v1/spans": Route(self.span_records, heavy=True),
            "/api/v1/stalls": Route(self.stalled_ranks, heavy=True),
            "/api/v1/evidence": Route(self._evidence.part, heavy=True),
            "/api/v1/hangs": Route(self._evidence.hangs, heavy=True),
            "/api/v1/collectives": Route(self.collectives, heavy=True),
        }
        return {
            path: dataclasses.replace(route, answer=_versioned(route.answer))
            for path, route in routes.items()
        }

    def metrics(self, request: Request) -> Response:
        """Return the page for Prometheus, in the requested format and coding."""
        form = choose_format(request.accept)
        gzipped = accepts_gzip(request.accept_encoding)
        page = self._pages.page(self._registry.snapshot(), form, gzipped=gzipped)
        headers: tuple[tuple[str, str], ...] = (("Vary", "Accept, Accept-Encoding"),)
        if gzipped:
            headers += (("Content-Encoding", "gzip"),)
        return Response(200, form.content_type, page, headers)

    def healthz(self, request: Request) -> Response:
        """Return what the agent sees, what it does not see, and why.

        The status is 200 as long as the agent can do its work: collectors without their source are
        listed, but restarting the agent would not provide the source. 503 means that a collector's
        thread has ended, which only a restart repairs. Reasons may quote names of jobs, pods and
        files, and are only shown to those who may see pages.
        """
        states = self._registry.states()
        broken = [state.name for state in states if not state.scheduled]
        unobserved = {state.name: _why_unobserved(state) for state in states}
        unobserved |= dict.fromkeys(self._disabled, "switched off")
        unobserved = {name: why for name, why in unobserved.items() if why}
        status = "broken" if broken else "partial" if unobserved else "ok"
        body: dict[str, Any] = {
            "status": status,
            "node": self._node,
            "version": __version__,
            "api_version": api_version.API_VERSION,
        }
        if request.trusted:
            now = time.time()
            body["collectors"] = {state.name: _state_json(state, now) for state in states}
            body["unobserved"] = unobserved
            body["unobserved_parts"] = {name: list(got) for name, got in self._in_part.items()}
        return dataclasses.replace(json_response(body), status=503 if broken else 200)

    def readyz(self, request: Request) -> Response:
        """Return whether every enabled collector has ended a run or passed its deadline.

        What is not seen is listed, along with what would provide it, for those who may see pages;
        the agent is ready all the same.
        """
        states = self._registry.states()
        waiting = [state.name for state in states if state.scrape is None]
        if waiting:
            return sentence(503, f"Waiting for the first run of: {', '.join(waiting)}.")
        lines = ["Every collector has had its first run."]
        if not request.trusted:
            return sentence(200, lines[0])
        unseen = {state.name: _why_unobserved(state) for state in states}
        if not unseen.get("pods"):  # it works with some of its sources as well
            unseen |= self._pods.view.problems
        for name, why in unseen.items():
            if why:
                lines.append(f"Not seen: {name}: {why}{remedy_text(name, why)}.")
        for name, parts in self._in_part.items():
            if not unseen.get(name):
                lines.extend(f"Not seen by {name}: {part}." for part in parts)
        return sentence(200, "\n".join(lines))

    def landing(self, request: Request) -> Response:
        """Return the page for people."""
        page = landing_page(self._node, __version__, self._registry.states())
        # Nothing on the page needs a script or another origin, so none is allowed.
        policy = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        # Failures may quote file names, which need not be UTF-8.
        body = page.encode(errors="backslashreplace")
        return Response(200, HTML_TYPE, body, (policy,))

    def pods(self, request: Request) -> Response:
        """List the pods of this node, the devices they hold and the ranks known by process."""
        return json_response({"node": self._node, **listing(self._pods)})

    def ranks(self, request: Request) -> Response:
        """List the ranks seen on this node."""
        ranks = [dataclasses.asdict(rank) for rank in self._steps.ranks()]
        return json_response({"node": self._node, "ranks": ranks})

    def step_records(self, request: Request) -> Response:
        """Stream the records of steps that started at or after `since`, of one job or all.

        The format is JSON, or blocks of columns for readers that accept them and list in `after`
        what they have.
        """
        wanted = _jobs_since(request, AFTER)
        if isinstance(wanted, Response):
            return wanted
        if not accepts(request.accept, step_form.MEDIA_TYPE):
            left_out: list[LeftOut] = []
            return self._streamed(self._steps.steps(*wanted, left_out.append), left_out)
        try:
            cursors = step_form.cursors_of(request.query.get(AFTER, [""])[0])
        except ValueError as error:
            return sentence(400, f"{error}.")
        pieces = steps_blocks(self._steps.fresh(*wanted, cursors), self._node)
        headers = (("Vary", "Accept"),)
        return Response(200, step_form.MEDIA_TYPE, pieces, headers, compress=True)

    def step_starts(self, request: Request) -> Response:
        """Stream the first records of each rank's processes, of steps before `since`."""
        wanted = _jobs_since(request)
        if isinstance(wanted, Response):
            return wanted
        return self._streamed(self._steps.starts(*wanted))

    def span_records(self, request: Request) -> Response:
        """Stream what ranks did besides steps, since `since` or still, of one job or all."""
        wanted = _jobs_since(request)
        if isinstance(wanted, Response):
            return wanted
        rows = self._spans.spans(*wanted) if self._spans else iter(())
        pieces = steps_json(rows, self._node, columns=SPAN_COLUMNS)
        return Response(200, JSON_TYPE, pieces, compress=True)

    def _streamed(
        self, found: Iterable[StepRow], left_out: Sequence[LeftOut] | None = None
    ) -> Response:
        rows = iter(found)
        # Fetched before the status line is sent, while a failure can still determine it.
        first = tuple(itertools.islice(rows, 1))
        pieces = steps_json(itertools.chain(first, rows), self._node, left_out=left_out)
        return Response(200, JSON_TYPE, pieces, compress=True)

    def stalled_ranks(self, request: Request) -> Response:
        """Return the state of the ranks that end no steps, of one job or all."""
        if not set(request.query) <= {"job"}:
            return sentence(400, "Unknown query parameter; this path takes job.")
        job = request.query.get("job", [""])[0]
        found = self._stalls.stalls(job or None) if self._stalls else ()
        return json_response(
            {"node": self._node, "stalls": [stalls.as_object(one) for one in found]}
        )

    def collectives(self, request: Request) -> Response:
        """Stream the sampled windows of collectives that end after `since`, of one job or all."""
        wanted = _selection(request)
        if isinstance(wanted, Response):
            return wanted
        pieces = windows_json(self._windows.since(*wanted), self._node)
        return Response(200, JSON_TYPE, pieces, compress=True)


def _versioned(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Make answers state the API version, by which readers know whether they are compatible."""
    version = (api_version.HEADER, str(api_version.API_VERSION))

    def versioned(request: Request) -> Response:
        response = answer(request)
        return dataclasses.replace(response, headers=(*response.headers, version))

    return versioned


def _jobs_since(request: Request, *more: str) -> tuple[Jobs, float] | Response:
    """Read the parameters `job` or `shard`, and `since`."""
    wanted = _selection(request, SHARD, *more)
    text = request.query.get(SHARD, [""])[0]
    if isinstance(wanted, Response) or not text:
        return wanted
    job, since = wanted
    try:
        return _either(job, shard_of_text(text)), since
    except ValueError as error:
        return sentence(400, f"{error}.")


def _either(job: str | None, shard: Shard) -> Shard:
    if job is not None:
        raise ValueError("this path takes a job or a shard")
    return shard


def _selection(request: Request, *more: str) -> tuple[str | None, float] | Response:
    """Read the parameters `job` and `since`; one without a value counts as not given."""
    if not set(request.query) <= {"job", "since", *more}:
        known = ", ".join(("job", *more))
        return sentence(400, f"Unknown query parameter; this path takes {known} and since.")
    job, since_text = (request.query.get(name, [""])[0] for name in ("job", "since"))
    since = _unix_seconds(since_text or "0")
    if since is None:
        return sentence(400, "since must be a Unix time in seconds, such as 1767225600.5.")
    return job or None, since


def _unix_seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _why_unobserved(state: CollectorState) -> str:
    if not state.scheduled:
        return "its thread has ended"
    if state.scrape is None:
        return "its first run has not finished"
    return state.scrape.failure


def _state_json(state: CollectorState, now: float) -> Mapping[str, Any]:
    """Describe a collector: age is that of its last ended run, null stands for never."""
    scrape, finished = state.scrape, state.finished_unix_seconds
    success = None if scrape is None else scrape.last_success_unix_seconds
    return {
        "success": scrape is not None and scrape.success,
        "failure": "" if scrape is None else scrape.failure,
        "invalid_samples": 0 if scrape is None else scrape.invalid,
        "age_seconds": None if finished is None else round(max(0.0, now - finished), 3),
        "duration_seconds": None if scrape is None else round(scrape.duration_seconds, 6),
        "last_success_unix_seconds": None if success is None else round(success, 3),
    }
