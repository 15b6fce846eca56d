"""Logs jobs to a real MLflow tracking server on this machine, and reads them with MLflow's client.

The server has a separate environment, which is created for it: MLFLOW_PYTHON names the Python of
one that has MLflow already.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.tracking.mlflow_api import MlflowApi
from rankscope_analyzers.tracking.run_values import INCIDENT, JOB_ID, RunValues
from rankscope_analyzers.tracking.runs import OVER_SECONDS, RunLog

EXPERIMENT, JOB, OWN = "rankscope", "team/llm", "team/own"
METRIC = "rankscope/gpu_seconds/hang"
BEGAN = 1_700_000_000.0
MINUTES = 5
START_SECONDS = 180.0
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

CLIENT = f"""
import json, sys
import mlflow
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
if sys.argv[2] == "begin":
    experiment = client.create_experiment({EXPERIMENT!r})
    client.create_run(experiment, tags={{{JOB_ID!r}: {OWN!r}}})
    found = mlflow.__version__
else:
    experiment = client.get_experiment_by_name({EXPERIMENT!r}).experiment_id
    found = [
        dict(job=run.data.tags[{JOB_ID!r}], status=run.info.status, tags=run.data.tags,
             values=[[one.timestamp, one.value] for one in
                     client.get_metric_history(run.info.run_id, {METRIC!r})])
        for run in client.search_runs([experiment])
    ]
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What MLflow's client read.

    Args:
        version: of the server and client.
        runs: by job.
        seconds: for logging both jobs, once each minute of theirs.
    """

    version: str
    runs: Mapping[str, Any]
    seconds: float


def measure() -> Seen:
    """Log two jobs, one of which has begun its own run, until one of them is over."""
    with tempfile.TemporaryDirectory(prefix="rankscope-mlflow-") as folder:
        python = os.environ.get("MLFLOW_PYTHON") or _environment(Path(folder))
        with _server(Path(folder), python) as url:
            version = _client(python, url, "begin")
            api = MlflowApi(url)
            began = time.perf_counter()
            for minute in range(MINUTES):
                values = RunValues({METRIC: 60.0 * minute}, {INCIDENT: "none"})
                # A new watch each time, which knows nothing of the previous one.
                runs = RunLog(api, EXPERIMENT)
                runs.write({JOB: values, OWN: values}, BEGAN + 60 * minute)
            seconds = time.perf_counter() - began
            runs.write({}, BEGAN + 60 * MINUTES + OVER_SECONDS)
            return Seen(version, {one["job"]: one for one in _client(python, url, "read")}, seconds)


def report(seen: Seen) -> str:
    """Return what was read, and what was expected."""
    expected = [[round(1000 * (BEGAN + 60 * at)), 60.0 * at] for at in range(MINUTES)]
    lines = [f"MLflow {seen.version}: {len(seen.runs)} runs (2), logged in {seen.seconds:.2f} s"]
    for job, status in ((JOB, "FINISHED"), (OWN, "RUNNING")):
        run = seen.runs.get(job, {})
        good = run.get("values") == expected and run.get("status") == status
        lines.append(
            f"  {job}: {len(run.get('values', ()))} values, {run.get('status')},"
            f" {INCIDENT}={run.get('tags', {}).get(INCIDENT)}{'' if good else ' MISSED'}"
        )
    return "\n".join(lines)


def _environment(folder: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = f"{folder}/env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "mlflow>=3,<4"], check=True)
    return python


@contextlib.contextmanager
def _server(folder: Path, python: str) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={port}"]
    command += ["--workers=1", f"--backend-store-uri=sqlite:///{folder}/runs.db"]
    command += [f"--artifacts-destination={folder}/artifacts"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env={**os.environ, **QUIET}
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "server.log").read_text())
            time.sleep(1.0)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False


def _client(python: str, url: str, what: str) -> Any:
    done = subprocess.run(
        [python, "-c", CLIENT, url, what],
        env={**os.environ, **QUIET},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
