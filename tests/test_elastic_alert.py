"""What a job lost, and what is only unknown of it as the agent of a node is silent."""

from __future__ import annotations

import pytest

from alert_series import JOB
from alert_timelines import Case, Series, steady
from named_alerts import BY_NAME
from promtool_tests import follow
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


@pytest.mark.parametrize("of_job", [WITHOUT_PROBE, REPLICA_GROUPS], ids=["pods", "replica groups"])
@pytest.mark.parametrize(
    ("kubernetes", "fires"),
    [
        ((ready("n0"), *OTHERS_READY), {72: 0, 100: 0, 200: 0, 300: 0}),
        ((ready("n0", 0), *OTHERS_READY), {65: 0, 72: 1, 200: 1}),
        (OTHERS_READY, {65: 0, 72: 1, 200: 1}),
        ((), {72: 0, 110: 0, 140: 1, 200: 1}),
    ],
    ids=["node works", "node is down", "node is gone", "nothing is known of nodes"],
)
def test_what_runs_beside_a_silent_agent_is_lost_only_if_its_node_is(
    tmp_path, of_job, kubernetes, fires
):
    case = Case((*AGENTS, *of_job, *kubernetes))
    alert = BY_NAME["RankscopeElasticJobDegraded"]
    done = follow(tmp_path, require_server("promtool"), alert, case, 300, fires.items())
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_job_lost_elsewhere_counts_beside_a_silent_agent(tmp_path):
    """Of four pods one is unknown and one has ended: a quarter is missing."""
    ended = tuple(
        until_silent(one.selector, "1") if 'node="n1"' in one.selector else one
        for one in WITHOUT_PROBE[:4]
    )
    case = Case((*AGENTS, *ended, WITHOUT_PROBE[4], ready("n0"), *OTHERS_READY))
    alert = BY_NAME["RankscopeElasticJobDegraded"]
    done = follow(tmp_path, require_server("promtool"), alert, case, 100, [(59, 0), (75, 1)])
    assert done.returncode == 0, done.stdout + done.stderr
