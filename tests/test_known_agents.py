"""What `rankscope watch --cluster` does while the API server tells it of no agents."""

from __future__ import annotations

import argparse
import sys
import time

import pytest

import kubeconfigs
from fake_api_server import FakeApiServer
from pod_json import agents_pod
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.intake.cluster import ClusterError, NodeAgents
from rankscope_analyzers.intake.known_agents import KnownAgents
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.watch.exporter import FindingsExporter
from ring_writer import RingWriter
from running_agent import PATIENCE_SECONDS, running_agent

JOB = "local/0c1d2e3f"


class Cluster:
    """Names agents, or answers with an error; a clock goes along."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.agents: dict[str, str] | None = {"n1": "http://10.0.0.1", "n2": "http://10.0.0.2"}
        self.patience: list[float] = []

    def look_up(self, seconds: float) -> dict[str, str]:
        self.patience.append(seconds)
        if self.agents is None:
            raise ClusterError("the API server answers 503: Service Unavailable")
        return NodeAgents(self.agents)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def known(cluster: Cluster, vouched: bool = True) -> KnownAgents:
    return KnownAgents(cluster.look_up, vouched, lambda: cluster.now)


def test_a_cluster_that_answers_no_more_leaves_the_addresses_that_it_named(cluster):
    agents = known(cluster)
    named = dict(agents.now().addresses)
    cluster.agents = None
    for seconds, age in ((30, "30 s"), (210, "4 min"), (10560, "3.0 h")):
        cluster.now += seconds
        found = agents.now()
        agents.note_answers([])
        assert found.addresses == named
        assert found.stale == (
            f"the addresses of agents are those of {age} ago, because the API server answers 503:"
            " Service Unavailable"
        )
    cluster.agents = {"n3": "http://10.0.0.3"}
    assert agents.now().addresses == {"n3": "http://10.0.0.3"}
    assert agents.now().stale == ""


def test_a_cluster_that_never_answered_has_no_agents_to_go_on_with(cluster):
    agents = known(cluster)
    cluster.agents = None
    with pytest.raises(ClusterError, match="answers 503"):
        agents.now()


def test_it_is_waited_for_less_long_once_there_are_addresses_to_go_on_with(cluster):
    agents = known(cluster)
    for _ in range(3):
        agents.now()
    first, *later = cluster.patience
    assert max(later) < first


def test_a_token_goes_to_no_address_that_was_silent_and_may_be_another_pods_by_now(cluster):
    agents = known(cluster, vouched=False)
    agents.now()
    agents.note_answers([])  # the cluster has just named them: it is asked again before they are
    cluster.agents = None
    assert set(agents.now().addresses) == {"n1", "n2"}
    agents.note_answers(["http://10.0.0.1"])
    assert agents.now().addresses == {"n1": "http://10.0.0.1"}
    cluster.agents = {"n1": "http://10.0.0.1", "n2": "http://10.0.0.9"}
    assert agents.now().addresses == cluster.agents


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = FakeApiServer()
    kubeconfigs.point_at(server.url, tmp_path, monkeypatch)
    yield server
    server.close()


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def values(page: str, name: str) -> dict[str, float]:
    """Return the values of a metric by its labels: processes of others may be jobs, too."""
    lines = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return {one: float(number) for one, _, number in (line.rpartition(" ") for line in lines)}


def reported(source) -> list[str]:
    """Return what the report on the job says about addresses: what else it lacks may vary."""
    (report,) = [one for one in source.exported.reports if one.job_id == JOB]
    return [text for text in report.unobserved if "the addresses of agents are those of" in text]


def test_the_watch_goes_on_and_its_reports_say_how_old_the_addresses_are(tmp_path, api, capsys):
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    options = parser.parse_args(["--cluster", "--namespace=rankscope", "--since=9000d"])
    (tmp_path / "rings").mkdir()
    writer = RingWriter(tmp_path / "rings", rank=0, job_id=JOB)
    writer.step(40)
    with running_agent(tmp_path, "--collector.interval=0.2") as agent:
        until(lambda: "rankscope_rank_alive{" in agent.get("/metrics"))
        api.put(agents_pod(agent.url, "rankscope"))
        sight = watch_command.JobSource(watch_command.reader(options, 30.0))
        exported, log = FindingsExporter(), ErrorLog(sys.stderr.write)
        watch_command.evaluate(sight, exported, log)
        before = reported(sight)
        api.faults.status = 503
        watch_command.evaluate(sight, exported, log)
        after = reported(sight)
    writer.end()
    (failures,) = values(exported.text(), "rankscope_watch_failed_evaluations_total").values()
    assert (failures, len(before), len(after)) == (0, 0, 1)
    assert "the addresses of agents are those of" in capsys.readouterr().err
