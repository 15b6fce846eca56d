"""Whose word counts in a real Prometheus: pods of other namespaces, agents of one node's name."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from prometheus_blocks import serving_samples
from rankscope_analyzers import cli
from rankscope_analyzers.intake import prometheus_instances
from rankscope_analyzers.intake.prometheus_api import Prometheus

SCRAPE, SCRAPES = 15, 100
WHOLE = range(SCRAPES)


@dataclass(frozen=True)
class Agent:
    """A scraped agent.

    Args:
        ranks: of the job ml/llm.
        scrapes: when it is there, of `SCRAPES`.
        compute: seconds of each step.
    """

    instance: str
    node: str
    ranks: range
    namespace: str = "ml"
    scrapes: range = WHOLE
    compute: float = 1.0
    cluster: str = ""

    def scraped(self) -> str:
        more = f',cluster="{self.cluster}"' if self.cluster else ""
        return f'instance="{self.instance}",job="rankscope-agent"{more}'

    def lines(self, start: int) -> Iterator[tuple[str, str]]:
        yield from self.of("rankscope_build_info", 'version="1"', start, 0)
        for rank in self.ranks:
            labels = f'job_id="ml/llm",rank="{rank}"'
            pod = f'pod_namespace="{self.namespace}",pod_name="w",pod_uid="u{self.instance}"'
            told = f'{labels},node="{self.node}",world_size="8",{pod}'
            yield from self.of("rankscope_rank_info", told, start, 0)
            yield from self.of("rankscope_rank_alive", labels, start, 0)
            parts = {"steps": 10.0, "step_seconds": 12.0, "data_seconds": 0.2}
            parts |= {
                "compute_seconds": 10 * self.compute,
                "sync_seconds": 11.8 - 10 * self.compute,
            }
            for name, each in parts.items():
                yield from self.of(f"rankscope_{name}_total", labels, start, each)

    def of(self, name: str, labels: str, start: int, each: float) -> Iterator[tuple[str, str]]:
        """Yield the samples of a counter that grows by `each`, or of a gauge that is 1."""
        for number in self.scrapes:
            stamp, value = start + number * SCRAPE, each * (number + 1) or 1
            yield name, f"{name}{{{labels},{self.scraped()}}} {value} {stamp}"


OWN = (Agent("10.0.0.1:1", "n0", range(4)), Agent("10.0.0.2:1", "n1", range(4, 8)))
STRANGER = Agent("10.0.0.9:1", "n2", range(6, 9), "mallory", compute=1.15)
LIAR = Agent("10.0.0.8:1", "n1", range(4, 8), compute=1.15)
BEFORE = Agent("10.0.0.7:1", "n0", range(4), scrapes=range(60))
AFTER = Agent("10.0.0.1:1", "n0", range(4), scrapes=range(60, SCRAPES))
ELSEWHERE = Agent("10.1.0.1:1", "n1", range(4), cluster="west")


def exposition(start: int, agents: tuple[Agent, ...]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for agent in agents:
        for name, line in agent.lines(start):
            found.setdefault(name, []).append(line)
    for name, lines in found.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# TYPE {name.removesuffix('_total')} {kind}"
        yield from lines
    yield "# EOF"


@pytest.fixture
def diagnosed(tmp_path, capsys):
    """Diagnose the job by a Prometheus that scraped these agents."""

    def diagnose(*agents: Agent) -> dict:
        start = (int(time.time()) // SCRAPE) * SCRAPE - SCRAPES * SCRAPE
        with serving_samples(tmp_path, exposition(start, agents)) as url:
            flags = ["--prometheus", url, "--since", "25m", "--json", "--job", "ml/llm"]
            assert cli.main(["diagnose", *flags]) == 0
        return json.loads(capsys.readouterr().out)["ml/llm"]

    return diagnose


def test_a_pod_of_another_namespace_is_not_believed_by_prometheus_either(diagnosed):
    said = diagnosed(*OWN, STRANGER)
    assert (said["verdict"]["class"], said["incidents"]) == (None, [])
    assert sorted(rank["rank"] for rank in said["ranks"]) == list(range(8))
    assert {rank["node"] for rank in said["ranks"]} == {"n0", "n1"}
    (note,) = [one for one in said["unobserved"] if "mallory" in one]
    assert "ranks 6-8 of job ml/llm on node n2" in note


def test_of_two_instances_that_say_they_are_of_one_node_neither_is_believed(diagnosed):
    said = diagnosed(*OWN, LIAR)
    assert (said["verdict"]["class"], said["incidents"]) == (None, [])
    assert sorted(rank["rank"] for rank in said["ranks"]) == list(range(4))
    (note,) = [one for one in said["unobserved"] if "node n1" in one and "believed" in one]
    assert "10.0.0.2:1, 10.0.0.8:1" in note


def test_an_agent_that_was_replaced_is_no_second_one(diagnosed):
    said = diagnosed(BEFORE, AFTER, OWN[1])
    assert sorted(rank["rank"] for rank in said["ranks"]) == list(range(8))
    assert not [one for one in said["unobserved"] if "believed" in one]


def test_nodes_of_one_name_in_two_clusters_are_two(tmp_path):
    now = (int(time.time()) // SCRAPE) * SCRAPE
    lines = exposition(now - SCRAPES * SCRAPE, (OWN[1], ELSEWHERE))
    with serving_samples(tmp_path, lines) as url:
        found = prometheus_instances.known(Prometheus(url), None, now - 1500.0, float(now))
    assert set(found.nodes) == {"10.0.0.2:1", "10.1.0.1:1"}
    assert (found.refused, found.doubts) == (frozenset(), ())
