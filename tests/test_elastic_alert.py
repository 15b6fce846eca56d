"""What a job lost, and what is only unknown of it as the agent of a node is silent."""

from __future__ import annotations

import pytest

from alert_series import JOB
from alert_timelines import Series, steady
from clusters_apart import Followed, follow_together, of_alert
from servers import require_server

NODES = ("n0", "n1", "n2", "n3")
SILENT_SINCE = 60


def until_silent(selector: str, value: str) -> Series:
    """Return a series of the node whose agent is not scraped from some minute on."""

    def at(minute: int) -> str:
        return value if minute < SILENT_SINCE else "stale" if minute == SILENT_SINCE else "_"

    return Series(selector, lambda states, step: [at(i * step) for i in range(len(states))])


def by_node(name: str, labels: str, value: int) -> tuple[Series, ...]:
    """Return what the agents of all nodes export, the first of which goes silent."""
    first, *others = (f'{name}{{node="{node}"{labels}}}' for node in NODES)
    return until_silent(first, str(value)), *(steady(one, value) for one in others)


AGENTS = by_node("rankscope_build_info", "", 1)
WITHOUT_PROBE = (
    *by_node("rankscope_job_pods", f',{JOB},phase="Running"', 1),
    steady(f'rankscope_job_elastic_pods{{node="n1",{JOB},bound="max"}}', 4),
)
REPLICA_GROUPS = (
    *by_node("rankscope_job_ranks_alive", f",{JOB}", 8),
    *by_node("rankscope_job_world_size", f",{JOB}", 32),
    steady(f'rankscope_job_replica_group_ranks{{node="n1",{JOB}}}', 8),
    Series(
        f'rankscope_step_latency_seconds_count{{node="n1",{JOB}}}',
        lambda states, step: [str(60 * i * step) for i in range(len(states))],
    ),
)


def ready(node: str, now: int = 1) -> Series:
    """Return whether the kubelet of a node says that it works; later it may not."""
    condition = f'kube_node_status_condition{{node="{node}",condition="Ready",status="true"}}'
    return Series(
        condition,
        lambda states, step: [
            "1" if i * step < SILENT_SINCE else f"{now}" for i in range(len(states))
        ],
    )


OTHERS_READY = tuple(ready(node) for node in NODES[1:])


ALERT = "RankscopeElasticJobDegraded"
BESIDE = {
    f"{kind}, {known}": of_alert(ALERT, (*AGENTS, *of_job, *kubernetes), fires.items())
    for kind, of_job in (("pods", WITHOUT_PROBE), ("replica groups", REPLICA_GROUPS))
    for known, kubernetes, fires in (
        ("node works", (ready("n0"), *OTHERS_READY), {72: 0, 100: 0, 200: 0, 300: 0}),
        ("node is down", (ready("n0", 0), *OTHERS_READY), {66: 0, 72: 1, 200: 1}),
        ("node is gone", OTHERS_READY, {66: 0, 72: 1, 200: 1}),
        ("nothing is known of nodes", (), {72: 0, 110: 0, 140: 1, 200: 1}),
    )
}


def lost_elsewhere() -> Followed:
    """Of four pods one is unknown and one has ended: a quarter is missing."""
    ended = tuple(
        until_silent(one.selector, "1") if 'node="n1"' in one.selector else one
        for one in WITHOUT_PROBE[:4]
    )
    series = (*AGENTS, *ended, WITHOUT_PROBE[4], ready("n0"), *OTHERS_READY)
    return of_alert(ALERT, series, [(58, 0), (76, 1)])


ELSEWHERE = "lost elsewhere"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    clusters = BESIDE | {ELSEWHERE: lost_elsewhere()}
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), clusters, step=2, sample=1)


@pytest.mark.parametrize("job", BESIDE)
def test_what_runs_beside_a_silent_agent_is_lost_only_if_its_node_is(job, said):
    assert not said[job]


def test_what_a_job_lost_elsewhere_counts_beside_a_silent_agent(said):
    assert not said[ELSEWHERE]
