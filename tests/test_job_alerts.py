"""Stories of pods, from watch events over the agent's own page to the alerts that fire.

Each story is of one job of two workers. All rules run over the pages as an agent wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from alert_timelines import of_cluster
from clusters_apart import all_records, said_against
from collected_pods import Kubelet, Node
from pod_states import (
    BEGIN,
    deleted,
    disrupted,
    ended,
    evicted,
    waits,
    with_state,
    worker,
)
from rankscope_agent.contract.metrics.job_status import JOB_FAILURES
from rankscope_agent.contract.model import Scrape, Snapshot
from rankscope_agent.serving.exposition import choose_format, render
from rankscope_agent.sources.pods.records import parse_pod
from rankscope_dashboards.rules.alerts import ALERTS
from rankscope_dashboards.rules.rule_files import Links, rule
from servers import require_server

SCRAPE_SECONDS = 30
MINUTES = 50
"""Longer than RankscopeJobPending waits, and than failures are news."""

Events = Sequence[tuple[float, dict[str, Any]]]
RUNNING: dict[str, Any] = {"running": {}}


def state(seconds: float, *arguments: Any, **more: Any) -> tuple[float, dict[str, Any]]:
    return seconds, with_state(worker(), *arguments, **more)


def crash_loop(*, init: bool = False) -> Events:
    """A container that fails ten seconds after each start; the kubelet doubles its pauses."""
    found: list[tuple[float, dict[str, Any]]] = []
    now, last, pause = 60.0, None, 0.0
    for number in range(8):
        end = ended("Error", 1, now)
        found.append(state(now, end, last=last, restarts=number, init=init))
        if pause:
            wait = waits("CrashLoopBackOff")
            found.append(state(now + 1, wait, last=end, restarts=number, init=init))
        now += pause
        found.append(state(now + 2, RUNNING, last=end, restarts=number + 1, init=init))
        now, last, pause = now + 12, end, min(300.0, max(10.0, 2 * pause))
    if init:  # at last it gets through
        found.append((now, with_state(worker(), RUNNING)))
    return found


def once(reason: str, code: int) -> Events:
    """A container that fails, is started again and runs."""
    end = ended(reason, code, 60)
    return [state(60, end), state(62, RUNNING, last=end, restarts=1)]


def image() -> Events:
    """The kubelet alternates between the failed pull and the pause after it."""
    words = ("ErrImagePull", "ImagePullBackOff")
    pending = [state(30 + 15 * n, waits(words[n % 2])) for n in range(180)]
    for _, data in pending:
        data["status"]["phase"] = "Pending"
    return pending


def config() -> Events:
    when, data = state(30, waits("CreateContainerConfigError"))
    data["status"]["phase"] = "Pending"
    return [(when, data)]


def failed_init() -> Events:
    end = ended("Error", 1, 60)
    return [
        state(30, RUNNING, init=True),
        state(60, end, init=True),
        state(62, RUNNING, last=end, restarts=1, init=True),
        (90, with_state(worker(), RUNNING)),
    ]


def preempted() -> Events:
    taken = disrupted(worker(), "PreemptionByScheduler", 60)
    killed = disrupted(with_state(worker(), ended("Error", 137, 90)), "PreemptionByScheduler", 60)
    return [(60, taken), (61, deleted(taken, 61)), (90, deleted(killed, 61))]


def rolled() -> Events:
    """Each worker is replaced in turn."""
    found: list[tuple[float, dict[str, Any]]] = []
    for index in range(2):
        start = 60.0 + 120 * index
        old, new = worker(index, number=1 + index), worker(index, number=11 + index)
        killed = with_state(worker(index, number=1 + index), ended("Error", 143, start + 5))
        found += [(start, deleted(old, start)), (start + 5, deleted(killed, start))]
        found += [(start + 6, {**old, "gone": True})]
        starting = with_state(worker(index, number=11 + index), waits("ContainerCreating"))
        starting["status"]["phase"] = "Pending"
        found += [(start + 7, starting), (start + 60, new)]
    return found


def completed() -> Events:
    done = ended("Completed", 0, 300)
    return [
        (300 + index, with_state(worker(index, number=1 + index, phase="Succeeded"), done))
        for index in range(2)
    ]


STORIES: Mapping[str, tuple[Events, str]] = {
    "CrashLoopBackOff": (crash_loop(), "RankscopeCrashLoop"),
    "Init:CrashLoopBackOff": (crash_loop(init=True), "RankscopeCrashLoop"),
    "OOMKilled": (once("OOMKilled", 137), "RankscopePodFailed"),
    "Error": (once("Error", 139), "RankscopePodFailed"),
    "Evicted": ([(60, evicted(worker(), 60))], "RankscopePodFailed"),
    "Init:Error": (failed_init(), "RankscopePodFailed"),
    "DisruptionTarget": (preempted(), "RankscopeJobPreempted"),
    "CreateContainerConfigError": (config(), "RankscopeContainerNotCreated"),
    "ImagePullBackOff": (image(), "RankscopeImagePullFailing"),
    "a healthy rolling job": (rolled(), ""),
    "a completed job": (completed(), ""),
}
GROUPS_BACK = {8: "", 30: "RankscopeElasticJobDegraded"}
"""The minute from which a job has all its replica groups again, and the alert until then."""

NO_OLD_FAILURE = "an agent that starts again"
NO_CLUSTER = ""


class Told:
    """An agent whose pages are kept."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(folder, Kubelet())
        self.pages: list[str] = []

    def follow(self, events: Events) -> None:
        """Take events as they come, and write a page every half a minute."""
        self.node.now = BEGIN
        self.node.pods(worker(0, number=1), worker(1, number=2))
        left = sorted(events, key=lambda event: event[0])
        for number in range(MINUTES * 60 // SCRAPE_SECONDS):
            until = number * SCRAPE_SECONDS
            while left and left[0][0] <= until:
                when, data = left.pop(0)
                self.node.now = BEGIN + when
                if data.pop("gone", False):
                    self.node.directory.remove(data["metadata"]["uid"], self.node.now)
                else:
                    self.node.directory.put(parse_pod(data), self.node.now)
            self.node.now = BEGIN + until
            self.pages.append(self._page())

    def _page(self) -> str:
        now = self.node.now
        scrape = Scrape("pods", True, 0.0, tuple(self.node.collect()), "", now)
        snapshot = Snapshot("n1", now, (scrape,))
        return render(snapshot, choose_format(""), None).decode()

    def series(self, cluster: str) -> list[dict[str, str]]:
        """Return promtool's input: each series over all pages, times counted from the begin."""
        values: dict[str, list[str]] = {}
        for number, page in enumerate(self.pages):
            for series, value in _samples(page, {"cluster": cluster, "node": "n1"}):
                row = values.setdefault(series, ["_"] * len(self.pages))
                row[number] = f"{value:.10g}"
        return [
            {"series": selector, "values": " ".join(_ends(row))} for selector, row in values.items()
        ]


def _samples(page: str, target: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(
                f"{key}={json.dumps(value)}" for key, value in {**sample.labels, **target}.items()
            )
            moved = sample.name.endswith("timestamp_seconds")
            yield f"{sample.name}{{{labels}}}", sample.value - (BEGIN if moved else 0.0)


def _ends(row: Sequence[str]) -> list[str]:
    """Mark where a series ends, as Prometheus does where a target no longer has it."""
    before = ("_", *row)
    return [
        "stale" if value == "_" and earlier not in {"_", "stale"} else value
        for earlier, value in zip(before, row, strict=False)
    ]


def told_once(
    folder: Path, clusters: Mapping[str, Sequence[dict[str, str]]], wanted: Mapping[str, str]
) -> Mapping[str, str]:
    """Let promtool see that in each cluster one alert fired, or none, once and without a pause.

    All rules keep clusters apart, so that what they cost is paid once for all stories.

    Args:
        folder: where promtool finds its files.
        clusters: the series of each cluster.
        wanted: the alert of each cluster, empty if it has none.

    Returns:
        For each cluster, what promtool has to say against it.
    """
    groups = all_records()
    groups.append({"name": "alerts", "rules": [rule(alert, Links()) for alert in ALERTS]})
    block = {
        "interval": f"{SCRAPE_SECONDS}s",
        "input_series": [series for several in clusters.values() for series in several],
        "promql_expr_test": [
            check for cluster, alert in wanted.items() for check in checks(cluster, alert)
        ],
    }
    return said_against(
        folder, require_server("promtool"), groups, block, f"{SCRAPE_SECONDS}s", wanted
    )


def checks(cluster: str, alert: str) -> Iterator[dict[str, Any]]:
    """Yield the questions whether an alert fired, and whether it did without a pause."""
    told = f'ALERTS{{alertstate="firing",severity!="none",{of_cluster(cluster)}}}'
    window = f"[{MINUTES}m:{SCRAPE_SECONDS}s]"
    times = f"timestamp({told}){window}"
    whole = f"(max_over_time({times}) - min_over_time({times})) / {SCRAPE_SECONDS} + 1"
    wanted = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    for expression in (
        f"count by (alertname) (count_over_time({told}{window}))",
        f"count by (alertname) (count_over_time({told}{window}) == {whole})",
    ):
        yield {"expr": expression, "eval_time": f"{MINUTES - 1}m", "exp_samples": wanted}


def replica_groups(cluster: str, job_id: str, back: int) -> list[dict[str, str]]:
    """Return a job of two groups of two ranks, one of which is gone from minute 2 to `back`."""
    labels = f'{of_cluster(cluster)},job_id="{job_id}",node="n1"'
    values = {
        "job_replica_group_ranks": "2x{rest}",
        "job_world_size": "4x{rest}",
        "job_ranks_alive": f"4x3 2x{2 * back - 5} 4x{{rest}}",
        "step_latency_seconds_count": "0+60x{rest}",
    }
    return [
        {"series": f"rankscope_{name}{{{labels}}}", "values": text.format(rest=2 * MINUTES)}
        for name, text in values.items()
    ]


def groups_go_on(back: int) -> str:
    return f"groups go on, all from minute {back}"


def restarted_agent(folder: Path) -> Told:
    """What failed an hour ago is still in the pods' status."""
    told = Told(folder)
    told.node.now = BEGIN
    old = with_state(worker(), RUNNING, last=ended("Error", 1, -3600), restarts=5)
    told.node.pods(old, worker(1, number=2))
    told.pages = [told._page()] * (MINUTES * 60 // SCRAPE_SECONDS)
    assert 'reason="Error"' in told.pages[0]
    return told


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> Mapping[str, str]:
    """What promtool has to say against each story."""
    clusters, wanted = {}, {NO_CLUSTER: "", NO_OLD_FAILURE: ""}
    for story, (events, alert) in STORIES.items():
        told = Told(tmp_path_factory.mktemp("story"))
        told.follow(events)
        clusters[story], wanted[story] = told.series(story), alert
        if story == "OOMKilled":
            (job_id,) = {labels[0] for labels in told.node.values(JOB_FAILURES)}
            for back, degraded in GROUPS_BACK.items():
                name = groups_go_on(back)
                clusters[name] = [*told.series(name), *replica_groups(name, job_id, back)]
                wanted[name] = degraded
    clusters[NO_OLD_FAILURE] = restarted_agent(tmp_path_factory.mktemp("story")).series(
        NO_OLD_FAILURE
    )
    return told_once(tmp_path_factory.mktemp("rules"), clusters, wanted)


@pytest.mark.parametrize("story", STORIES)
def test_a_fault_of_pods_fires_its_alert_once_and_no_other(story, said):
    assert not said[story]


@pytest.mark.parametrize("back", GROUPS_BACK)
def test_a_job_whose_other_replica_groups_go_on_is_degraded_and_has_not_failed(back, said):
    """Without them, the story of OOMKilled has the alert of a failed pod."""
    assert not said[groups_go_on(back)]


def test_an_agent_that_starts_again_makes_no_old_failure_new(said):
    assert not said[NO_OLD_FAILURE]


def test_no_story_fires_an_alert_of_no_cluster(said):
    assert not said[NO_CLUSTER]
