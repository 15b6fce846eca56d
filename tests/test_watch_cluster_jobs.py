"""`rankscope watch --cluster-jobs` as a process: its page, and what outlives it."""

import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from fake_api_server import FakeApiServer, Store
from kubeconfigs import point_at, written
from rankscope_analyzers import cli
from rankscope_analyzers.demo.free_ports import free_port
from running_agent import agent_environment
from workload_objects import condition, kind, pod, thing

PATIENCE_SECONDS = 40.0
TORCH = "/apis/kubeflow.org/v1/pytorchjobs"
STATE = "/api/v1/namespaces/rankscope/configmaps/state"
OPTIONS = ("--cluster-jobs", "--state-config-map=state", "--cluster", "--namespace=rankscope")


@pytest.fixture
def api():
    server = FakeApiServer(bookmark_seconds=0.5)
    server.collections[TORCH] = Store()
    server.config_maps[STATE] = {"metadata": {"name": "state", "resourceVersion": "1"}}
    yield server
    server.close()


class Watching:
    def __init__(self, api, tmp_path):
        self.port = free_port()
        arguments = (*OPTIONS, "--interval=1s", f"--web.listen-address=127.0.0.1:{self.port}")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rankscope_analyzers", "watch", *arguments],
            env={**agent_environment(), "KUBECONFIG": str(written(api.url, tmp_path))},
            stderr=subprocess.PIPE,
            text=True,
        )

    def page(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def until(self, line):
        end = time.monotonic() + PATIENCE_SECONDS
        page = ""
        while time.monotonic() < end and self.process.poll() is None:
            try:
                page = self.page()
            except OSError:
                page = ""
            if line in page:
                return page
            time.sleep(0.1)
        raise AssertionError(f"{line!r} is not on {page}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=30)[1]


def torch(name, *conditions):
    found = {"conditions": list(conditions)}
    return thing(kind("PyTorchJob"), {}, found, name, labels={"rankscope.io/class": "prod"})


def total(outcome, cause, count):
    labels = f'cause="{cause}",job_class="prod",job_namespace="team",outcome="{outcome}"'
    return f"rankscope_job_completions_total{{{labels}}} {count}.0\n"


def test_ends_are_counted_once_over_the_end_of_the_watch_and_an_outage(api, tmp_path):
    torches = api.collections[TORCH]
    labels = {"training.kubeflow.org/job-name": "a"}
    torches.put(torch("a", condition("Running")))
    torches.put(torch("b", condition("Running")))
    torches.put(torch("c", condition("Running")))
    api.put(pod("a-0", labels))
    first = Watching(api, tmp_path)
    try:
        first.until('rankscope_job_held_gpus{job_id="team/a"} 8.0')
        torches.put(torch("a", condition("Succeeded", 60)))
        first.until(total("succeeded", "", 1))
        api.faults.status = 503
        torches.put(torch("b", condition("Failed", 70, message="specified deadline")))
        time.sleep(2.5)
        assert total("failed", "deadline", 1) not in first.page()
        api.faults.status = 0
        first.until(total("failed", "deadline", 1))
    finally:
        said = first.stop()
    assert "the cluster has no rayjobs.ray.io" in said
    torches.delete("team", "c")
    second = Watching(api, tmp_path)
    try:
        page = second.until(total("unobserved", "", 1))
        assert total("succeeded", "", 1) in page
        assert total("failed", "deadline", 1) in page
    finally:
        second.stop()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--cluster-jobs", "--once"),
            "--cluster-jobs follows jobs and cannot be used with --once",
        ),
        (("--state-config-map=s",), "--state-config-map needs --namespace"),
        (("--state-config-map=s", "--namespace=n", "--state=f"), "cannot be used with --state"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(
    arguments, sentence, api, tmp_path, monkeypatch, capsys
):
    point_at(api.url, tmp_path, monkeypatch)
    assert cli.main(["watch", "--cluster", *arguments]) == 1
    assert sentence in capsys.readouterr().err
