"""A real Prometheus scrapes a real agent, and promtool reads its page."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from rankscope_analyzers.demo.free_ports import free_port
from ring_writer import RingWriter
from running_agent import RunningAgent, running_agent
from servers import require_server

PATIENCE_SECONDS = 60.0


def configuration(agent: RunningAgent) -> str:
    target = agent.url.removeprefix("http://")
    return json.dumps(
        {  # JSON is YAML
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [
                {"job_name": "rankscope", "static_configs": [{"targets": [target]}]},
            ],
        }
    )


@pytest.fixture
def prometheus(tmp_path):
    """Give a function that starts a Prometheus over an agent and returns its address."""
    program = require_server("prometheus")
    processes = []

    def start(agent: RunningAgent) -> str:
        address = f"127.0.0.1:{free_port()}"
        config = tmp_path / "prometheus.yml"
        config.write_text(configuration(agent))
        with (tmp_path / "prometheus.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [
                        program,
                        f"--config.file={config}",
                        f"--storage.tsdb.path={tmp_path / 'data'}",
                        f"--web.listen-address={address}",
                    ],
                    stdout=log,
                    stderr=log,
                )
            )
        return address

    yield start
    for process in processes:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def query(address: str, expression: str) -> list[dict]:
    url = f"http://{address}/api/v1/query?query={urllib.parse.quote(expression)}"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)["data"]["result"]


def until_found(address: str, expression: str, log: Path) -> list[dict]:
    """Ask until there is a result."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            found = query(address, expression)
        except OSError:  # not up yet
            found = []
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{expression} found nothing; {log.read_text()[-2000:]}")


def test_a_real_prometheus_scrapes_the_agent(prometheus, tmp_path):
    with running_agent(tmp_path) as agent:
        address, log = prometheus(agent), tmp_path / "prometheus.log"
        (info,) = until_found(address, "rankscope_build_info == 1", log)
        assert info["metric"]["job"] == "rankscope"
        assert info["metric"]["version"]
        (up,) = until_found(address, 'up{job="rankscope"} == 1', log)
        assert up["value"][1] == "1"
        rescraped = "count_over_time(rankscope_snapshot_timestamp_seconds[1m]) > 1"
        assert until_found(address, rescraped, log)
        assert query(address, '{__name__=~"exported_.*"} or {exported_job!=""}') == []


def test_prometheus_understands_counters_and_histograms_of_ranks(prometheus, tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    writer = RingWriter(rings, rank=3, job_id="team/job")
    writer.step(5, start_unix_ns=time.time_ns(), step_ns=100_000_000)
    with contextlib.ExitStack() as stack:
        stack.callback(writer.end)
        agent = stack.enter_context(running_agent(tmp_path))
        address, log = prometheus(agent), tmp_path / "prometheus.log"
        (steps,) = until_found(address, 'rankscope_steps_total{job_id="team/job",rank="3"}', log)
        assert steps["value"][1] == "5"
        median = "histogram_quantile(0.5, rankscope_step_latency_seconds_bucket)"
        (latency,) = query(address, median)
        assert 0.05 < float(latency["value"][1]) <= 0.1
        with urllib.request.urlopen(
            f"http://{address}/api/v1/metadata?metric=rankscope_step_latency_seconds",
            timeout=PATIENCE_SECONDS,
        ) as answer:
            (known,) = json.load(answer)["data"]["rankscope_step_latency_seconds"]
        assert known["type"] == "histogram"
        assert known["help"]


def test_promtool_finds_nothing_wrong_with_a_running_agents_page(tmp_path):
    promtool = require_server("promtool")
    with running_agent(tmp_path) as agent:
        page = agent.get("/metrics")
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=page,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
