"""Runs of MLflow, at a receiver that has the REST contract of a tracking server."""

import json
import sys
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import watch_setup
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.intake.credentials import Entry
from rankscope_analyzers.tracking.mlflow_api import MlflowApi, TrackingError
from rankscope_analyzers.tracking.run_values import RunValues, of_jobs
from rankscope_analyzers.tracking.runs import EVERY_SECONDS, OVER_SECONDS, RunLog, Runs
from test_incident_history import reported
from test_watch import watch_command_options

JOB = "team/llm"
SLOW = replace(reported(last=220), job_id=JOB)
VALUES = RunValues({"rankscope/gpu_seconds/hang": 60.0}, {"rankscope.incident": "none"})


@dataclass
class Server:
    """Answers as MLflow's REST API does; what it answers instead of a call is in `instead`."""

    url: str = ""
    experiments: dict = field(default_factory=dict)
    runs: dict = field(default_factory=dict)
    headers: list = field(default_factory=list)
    instead: dict = field(default_factory=dict)
    called: list = field(default_factory=list)

    def answer(self, call, body):
        self.called.append(call)
        if call in self.instead:
            return self.instead[call]
        return getattr(self, call.replace("/", "_").replace("-", "_"))(body)

    def experiments_get_by_name(self, body):
        found = self.experiments.get(body["experiment_name"])
        if found is None:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}
        return 200, {"experiment": {"experiment_id": found, "name": body["experiment_name"]}}

    def experiments_create(self, body):
        self.experiments[body["name"]] = "7"
        return 200, {"experiment_id": "7"}

    def runs_create(self, body):
        assert body["experiment_id"] in self.experiments.values()
        assert isinstance(body["start_time"], int)
        name = f"run-{len(self.runs)}"
        self.runs[name] = {"status": "RUNNING", "tags": {}, "metrics": {}, **body}
        self._tag(name, body["tags"])
        return 200, {"run": {"info": {"run_id": name}}}

    def runs_search(self, body):
        assert body["filter"] == "attributes.status = 'RUNNING'"
        every = [
            {
                "info": {"run_id": name, "status": run["status"]},
                "data": {"tags": [{"key": k, "value": v} for k, v in run["tags"].items()]},
            }
            for name, run in self.runs.items()
            if run["status"] == "RUNNING" and run["experiment_id"] in body["experiment_ids"]
        ]
        at = int(body.get("page_token", 0))
        more = {"next_page_token": str(at + 1)} if at + 1 < len(every) else {}
        return 200, {"runs": every[at : at + 1], **more}

    def runs_log_batch(self, body):
        for one in body["metrics"]:
            assert set(one) == {"key", "value", "timestamp", "step"}
            self.runs[body["run_id"]]["metrics"][one["key"]] = one["value"], one["timestamp"]
        self._tag(body["run_id"], body["tags"])
        return 200, {}

    def runs_update(self, body):
        self.runs[body["run_id"]]["status"] = body["status"]
        return 200, {"run_info": {}}

    def _tag(self, run, pairs):
        if not isinstance(self.runs[run]["tags"], dict):
            self.runs[run]["tags"] = {}
        self.runs[run]["tags"].update({one["key"]: one["value"] for one in pairs})


@pytest.fixture
def mlflow():
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)
            self.send({key: value for key, (value,) in query.items()})

        def do_POST(self):
            assert self.headers["Content-Type"] == "application/json"
            self.send(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def send(self, body):
            found.headers.append(dict(self.headers))
            before, call = urlsplit(self.path).path.split("/mlflow/")
            assert before == "/api/2.0"
            code, answer = found.answer(call, body)
            text = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_arguments):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def samples():
    return [
        metrics.JOB_GPU_SECONDS.sample(60.0, job_id=JOB, part=parts.HANG),
        metrics.JOB_GPU_SECONDS.sample(540.0, job_id=JOB, part=parts.PRODUCTIVE),
        metrics.JOB_GPU_SECONDS.sample(5.0, job_id="gone", part=parts.HANG),
        metrics.JOB_ETTR.sample(0.9, job_id=JOB),
        metrics.JOB_MFU.sample(0.4, job_id=JOB, flops_by="program", dtype="bf16"),
        metrics.PROJECT_TOKENS.sample(1e9, project="p", job_class=""),
    ]


def test_a_job_has_a_run_with_its_gpu_time_and_what_holds_it_up(mlflow):
    runs = Runs(RunLog(MlflowApi(mlflow.url), "rankscope"), pytest.fail)
    runs.look(samples(), [SLOW], 1000.0)
    runs.look([], [], 1000.0 + EVERY_SECONDS - 1)  # too early to be logged
    runs.close()
    ((_, run),) = mlflow.runs.items()
    assert {name: value for name, (value, _) in run["metrics"].items()} == {
        "rankscope/gpu_seconds/hang": 60.0,
        "rankscope/gpu_seconds/productive": 540.0,
        "rankscope/effective_training_time_ratio": 0.9,
        "rankscope/model_flops_utilization/bf16": 0.4,
    }
    assert {at for _, at in run["metrics"].values()} == {1_000_000}
    assert run["tags"] == {
        "rankscope.job_id": JOB,
        "rankscope.source": "watch",
        "mlflow.runName": JOB,
        "rankscope.incident": SLOW.incidents[0].summary,
    }
    assert run["status"] == "RUNNING"


def test_a_job_without_an_incident_says_none():
    (found,) = of_jobs([], [replace(SLOW, incidents=())]).values()
    assert found.tags["rankscope.incident"] == "none"


def test_values_go_into_the_run_that_the_job_itself_began_and_leave_it_open(mlflow):
    mlflow.experiments["own"] = "3"
    own = {"experiment_id": "3", "status": "RUNNING", "metrics": {}}
    mlflow.runs["other"] = {**own, "tags": {}}
    mlflow.runs["first"] = {**own, "tags": {"rankscope.job_id": JOB, "rankscope.source": "watch"}}
    mlflow.runs["mine"] = {**own, "tags": {"rankscope.job_id": JOB}}
    runs = RunLog(MlflowApi(mlflow.url), "own")
    runs.write({JOB: VALUES}, 1000.0)
    runs.write({}, 1000.0 + OVER_SECONDS + 1)
    assert mlflow.runs["mine"]["metrics"] == {"rankscope/gpu_seconds/hang": (60.0, 1_000_000)}
    assert mlflow.runs["mine"]["status"] == "RUNNING"
    assert len(mlflow.runs) == 3


def test_another_watch_goes_on_with_a_run_and_ends_it_when_its_job_is_over(mlflow):
    RunLog(MlflowApi(mlflow.url), "rankscope").write({JOB: VALUES}, 1000.0)
    later = RunLog(MlflowApi(mlflow.url), "rankscope")
    later.write({"b": VALUES}, 1060.0)
    (first, second) = mlflow.runs.values()
    later.write({"b": VALUES}, 1060.0 + OVER_SECONDS)
    assert first["status"] == "RUNNING"
    later.write({"b": VALUES}, 1061.0 + OVER_SECONDS)
    assert (first["status"], second["status"]) == ("FINISHED", "RUNNING")
    later.write({"b": VALUES}, 1062.0 + OVER_SECONDS)
    assert mlflow.called.count("runs/update") == 1


OTHERS = {"a": VALUES, "b": VALUES, "c": VALUES}


def refuse(server, call, run, code=400, reason="must be in the 'active' state"):
    """Have the server refuse what is asked of one run; any of its other runs works."""
    answer = server.answer

    def refused(asked, body):
        if asked == call and body["run_id"] == run:
            server.called.append(asked)
            return code, {"error_code": "INVALID_PARAMETER_VALUE", "message": f"{run} {reason}"}
        return answer(asked, body)

    server.answer = refused


def test_a_run_that_was_deleted_costs_no_other_job_and_is_followed_by_another(mlflow):
    log = RunLog(MlflowApi(mlflow.url), "rankscope")
    log.write(OTHERS, 1000.0)
    mlflow.runs["run-0"]["status"] = "DELETED"
    refuse(mlflow, "runs/log-batch", "run-0")
    with pytest.raises(
        TrackingError, match=r"^run run-0 of job a: .* answers 400: run-0 must be in the 'active'"
    ):
        log.write(OTHERS, 1060.0)
    logged = [run["metrics"]["rankscope/gpu_seconds/hang"][1] for run in mlflow.runs.values()]
    assert logged == [1_000_000, 1_060_000, 1_060_000]
    log.write(OTHERS, 1120.0)
    assert [run["tags"]["rankscope.job_id"] for run in mlflow.runs.values()] == ["a", "b", "c", "a"]
    assert mlflow.runs["run-3"]["metrics"]["rankscope/gpu_seconds/hang"][1] == 1_120_000


def test_a_refusal_keeps_no_run_from_being_ended(mlflow):
    log = RunLog(MlflowApi(mlflow.url), "rankscope")
    log.write(OTHERS, 1000.0)
    refuse(mlflow, "runs/log-batch", "run-2")
    refuse(mlflow, "runs/update", "run-0")
    later = 1001.0 + OVER_SECONDS
    with pytest.raises(TrackingError, match=r"run run-2 of job c: .*; run run-0 of job a: "):
        log.write({"c": VALUES}, later)
    assert mlflow.runs["run-1"]["status"] == "FINISHED"
    with pytest.raises(TrackingError, match=r"^run run-2 of job c: [^;]*$"):
        log.write({"c": VALUES}, later + 60)
    assert mlflow.called.count("runs/update") == 2, "a run that cannot be ended is forgotten"


def test_a_run_whose_values_are_refused_is_not_begun_again(mlflow):
    log = RunLog(MlflowApi(mlflow.url), "rankscope")
    refuse(mlflow, "runs/log-batch", "run-0", 500, "cannot be written")
    for now in (1000.0, 1060.0, 1120.0):
        with pytest.raises(TrackingError, match="run-0 cannot be written"):
            log.write(OTHERS, now)
    assert len(mlflow.runs) == 3


def test_many_refusals_are_counted(mlflow):
    mlflow.instead["runs/create"] = (403, {"message": 7})
    with pytest.raises(TrackingError, match=r"^a run of job 0: .*answers 403; .*; and 2 more$"):
        RunLog(MlflowApi(mlflow.url), "x").write({str(n): VALUES for n in range(5)}, 1000.0)
    assert mlflow.called.count("runs/create") == 5


class SilentRuns(MlflowApi):
    """A server that never answers about some runs; counts what is asked."""

    silent = ()

    def log(self, run, values, now):
        self.asked = [*getattr(self, "asked", []), run]
        if run in self.silent:
            raise TrackingError("timed out")
        super().log(run, values, now)


def test_a_server_that_does_not_answer_is_asked_once_and_one_run_holds_up_the_others_once(mlflow):
    api = SilentRuns(mlflow.url)
    log = RunLog(api, "rankscope")
    log.write(OTHERS, 1000.0)
    asked = []
    api.silent = ("run-0", "run-1")
    for now in (1060.0, 1120.0, 1180.0):
        api.asked = []
        with pytest.raises(TrackingError, match="timed out"):
            log.write(OTHERS, now)
        asked.append(api.asked)
    assert asked == [["run-0"], ["run-1"], ["run-2", "run-0"]]


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_server_that_is_busy_is_not_asked_for_every_job(mlflow, code):
    mlflow.instead["runs/create"] = (code, {})
    with pytest.raises(TrackingError, match=f"^runs/create: it answers {code}$"):
        RunLog(MlflowApi(mlflow.url), "x").write(OTHERS, 1000.0)
    assert mlflow.called.count("runs/create") == 1


def test_a_run_that_could_not_be_ended_as_the_server_was_away_is_ended_later(mlflow):
    log = RunLog(MlflowApi(mlflow.url), "rankscope")
    log.write(OTHERS, 1000.0)
    mlflow.instead["runs/update"] = (503, {})
    with pytest.raises(TrackingError, match="answers 503"):
        log.write({}, 1001.0 + OVER_SECONDS)
    del mlflow.instead["runs/update"]
    log.write({}, 1061.0 + OVER_SECONDS)
    assert {run["status"] for run in mlflow.runs.values()} == {"FINISHED"}


def test_a_token_is_shown(mlflow, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    MlflowApi(mlflow.url, Entry(token_file=token)).experiment("a")
    assert mlflow.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, {}), "it answers 500"),
        ((200, []), "not an object"),
        ((200, {}), "has no experiment_id"),
    ],
)
def test_what_the_server_does_not_take_is_said_once_and_the_watch_goes_on(mlflow, answer, problem):
    mlflow.instead["experiments/create"] = answer
    api = MlflowApi(mlflow.url)
    with pytest.raises(TrackingError, match=problem):
        api.experiment("a")
    texts = []
    runs = Runs(RunLog(api, "a"), texts.append)
    for now in (1000.0, 2000.0):
        runs.look(samples(), [SLOW], now)
    runs.close()
    (text,) = texts
    assert problem in text


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(TrackingError, match="experiments/get-by-name: "):
        MlflowApi("http://127.0.0.1:1").experiment("a")


def test_the_option_is_off_by_default_and_takes_an_address_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    options = watch_command_options("--agent", "a:1")
    assert watch_setup.tracking(options, pytest.fail) is None
    options = watch_command_options("--agent", "a:1", "--mlflow-tracking-uri", "mlflow:5000")
    with pytest.raises(
        InputError, match="--mlflow-tracking-uri: mlflow:5000 is not an http address"
    ):
        watch_setup.tracking(options, pytest.fail)
