"""Traces of jobs, decoded by OpenTelemetry's own protocol at a receiver."""

import contextlib
import gzip
import sys
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from goodput_records import STEP, end, run, table
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import watch_setup
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.steps.beside_steps import BesideSteps
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.tracing.otlp import Sender
from rankscope_analyzers.tracing.traces import KEPT_AS, OVER_SECONDS, Traces
from rankscope_analyzers.watch.memory import Memory, NoWatch
from rankscope_analyzers.watch.store import FileStore
from test_incident_history import reported
from test_watch import watch_command_options

collector = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra tracing"
)

JOB = "team/llm"
SAVES = 0.5
FIRST = run(1000.0, range(1, 101), lambda s, _: {"checkpoint": SAVES} if s == 50 else {})
SECOND = run(end(FIRST) + 20.0, range(51, 101), attempt=1)
SLOW = reported(last=220)
(FAULT,) = SLOW.incidents
KIND = FAULT.cause.kind
BEGIN = 1000.0 + 49 * STEP + 0.01
"""Of the checkpoint, by what a rank marked."""


@dataclass
class Received:
    url: str = ""
    requests: list = field(default_factory=list)
    headers: list = field(default_factory=list)

    @property
    def resources(self):
        return [one for request in self.requests for one in request.resource_spans]

    @property
    def spans(self):
        return [span for one in self.resources for scope in one.scope_spans for span in scope.spans]


@pytest.fixture
def receiver():
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            received.headers.append((self.path, dict(self.headers)))
            received.requests.append(collector.ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(collector.ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_arguments):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield received
    server.shutdown()
    server.server_close()
    thread.join()


@contextlib.contextmanager
def sender(receiver):
    found = Sender(receiver.url)
    yield found
    found.close()


def look(traces, rows, now, incidents=()):
    saved = (BesideSteps(2, "checkpoint_save", BEGIN, SAVES),)
    records = table(rows)
    records["job_id"] = JOB
    job = JobRecords(JOB, records, 4, (), True, beside=saved)
    gathered = Gathered((job,), JobEvidence(Observed({})))
    found = replace(SLOW, job_id=JOB, made_unix_seconds=now, incidents=tuple(incidents))
    assert traces.look(gathered, [found], now) == []


def told(traces):
    """Look at a job of two attempts, a checkpoint and an incident until it is over."""
    fault = replace(FAULT, since_unix_seconds=1003.0, until_unix_seconds=None)
    for now in np.arange(1002.0, end(SECOND) + 6.0, 6.0).tolist():
        rows = [
            one
            for one in FIRST + SECOND
            if one["t_start_unix_seconds"] + one["step_seconds"] <= now
        ]
        look(traces, rows, now, [fault] if 1003.0 <= now < 1014.0 else [])
    look(traces, FIRST + SECOND, end(SECOND) + OVER_SECONDS + 1.0)


def attributes(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def seconds(span):
    return pytest.approx((span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9), abs=1e-3)


def test_a_receiver_gets_job_attempts_incident_and_checkpoint_as_one_trace(receiver):
    with sender(receiver) as to:
        told(Traces(to.send))
    by_name = {}
    for span in receiver.spans:
        by_name.setdefault(span.name, []).append(span)
    assert {name: len(found) for name, found in by_name.items()} == {
        "job": 1,
        "attempt": 2,
        "incident": 1,
        "checkpoint": 1,
    }
    (job,), attempts = by_name["job"], by_name["attempt"]
    (fault,), (saved,) = by_name["incident"], by_name["checkpoint"]
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert len({span.span_id for span in receiver.spans}) == 5
    assert job.parent_span_id == b""
    assert {one.parent_span_id for one in attempts} == {job.span_id}
    assert fault.parent_span_id == saved.parent_span_id == attempts[0].span_id
    assert (1000.0, end(SECOND)) == seconds(job)
    assert (1000.0, end(FIRST)) == seconds(attempts[0])
    assert (end(FIRST) + 20.0, end(SECOND)) == seconds(attempts[1])
    assert seconds(saved) == (BEGIN, BEGIN + SAVES)
    assert seconds(fault) == (1003.0, 1014.0)
    assert [one.status.code for one in attempts] == [2, 0]
    assert (fault.status.code, fault.status.message) == (2, FAULT.summary)


def test_attributes_have_the_names_of_the_semantic_conventions(receiver):
    from opentelemetry.semconv._incubating.attributes import k8s_attributes
    from opentelemetry.semconv.attributes import error_attributes, service_attributes

    with sender(receiver) as to:
        told(Traces(to.send))
    (resource, *_) = [attributes(one.resource) for one in receiver.resources]
    assert resource[service_attributes.SERVICE_NAME] == "rankscope-watch"
    assert resource[service_attributes.SERVICE_VERSION]
    by_name = {span.name: attributes(span) for span in receiver.spans}
    for found in by_name.values():
        assert found[k8s_attributes.K8S_NAMESPACE_NAME] == "team"
        assert found["rankscope.job.id"] == JOB
    fault = by_name["incident"]
    assert fault[error_attributes.ERROR_TYPE] == KIND
    assert fault["rankscope.incident.kind"] == KIND
    assert by_name["checkpoint"]["rankscope.step"] == 50


def test_another_watch_goes_on_with_the_same_trace_and_sends_nothing_twice(receiver, tmp_path):
    with sender(receiver) as to:
        told(Traces(to.send))
    whole = sorted(span.span_id for span in receiver.spans)
    receiver.requests.clear()
    with sender(receiver) as to:

        class Changing(Traces):
            """Another watch after each look."""

            def look(self, *of):
                path = tmp_path / "state"
                memory = Memory(FileStore(path), pytest.fail, {KEPT_AS: self})
                self.stand_by()
                memory.begin(NoWatch(), None)
                found = super().look(*of)
                assert memory.end(NoWatch(), None, changed=True)
                return found

        told(Changing(to.send))
    assert sorted(span.span_id for span in receiver.spans) == whole


def test_headers_are_those_of_the_environment_and_the_path_is_that_of_traces(receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
    with sender(receiver) as to:
        told(Traces(to.send))
    path, headers = receiver.headers[0]
    assert path == "/v1/traces"
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == (
        "Bearer secret"
    )


def test_nothing_of_opentelemetry_is_imported_without_the_option(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    options = watch_command_options("--agent", "a:1")
    assert watch_setup.tracing(options) is None


def test_without_the_package_the_option_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.setitem(sys.modules, name, None)
    options = watch_command_options("--agent", "a:1", "--otlp-endpoint", "http://localhost:4318")
    with pytest.raises(InputError, match=r"pip install 'rankscope\[tracing\]'"):
        watch_setup.tracing(options)
    with pytest.raises(InputError, match="not an http address"):
        watch_setup.tracing(
            watch_command_options("--agent", "a:1", "--otlp-endpoint", "collector:4318")
        )
