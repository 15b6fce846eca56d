"""Alerts about jobs that fail together, or whose pods are taken away."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from alert_cases import CASES
from alert_series import JOB, failure
from alert_timelines import Case, Series, event, steady
from named_alerts import BY_NAME, fixed
from promtool_tests import follow, run
from servers import require_server


def test_a_cascade_that_leaves_no_job_running_is_one(tmp_path):
    case = CASES["RankscopeJobFailureCascade"]
    running = tuple(
        replace(one, values=lambda states, _step: ["0" if s == "bad" else "4" for s in states])
        if 'phase="Running"' in one.selector
        else one
        for one in case.series
    )
    assert running != case.series
    case = replace(case, series=running, gap=1)
    alert = BY_NAME["RankscopeJobFailureCascade"]
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("third", "fires"), [("team", 0), ("others", 1)])
def test_failures_of_one_namespace_mute_nobody_else(tmp_path, third, fires):
    """Three failing jobs of one tenant are no cascade, where other tenants have jobs."""
    failed = [
        event(failure("Error", f'job_id="{team}/j{i}"'))
        for i, team in enumerate(("team", "team", third))
    ]
    running = steady('rankscope_job_pods{node="n",job_id="others/llm",phase="Running"}', 4)
    case = Case((*failed, running, steady('rankscope_build_info{node="n"}')), step=1)
    states = [*(["good"] * 30), *(["bad"] * 20)]
    case = replace(case, series=tuple(fixed(one, states) for one in case.series))
    alert = BY_NAME["RankscopeJobFailureCascade"]
    promtool = require_server("promtool")
    done = follow(tmp_path, promtool, alert, case, 49, [(25, 0), (40, fires)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("nodes_back", "groups", "fires"),
    [((20, 21), False, {24: 0, 50: 0}), ((20,), False, {24: 1, 50: 1, 61: 0}), ((), True, {24: 0})],
    ids=["all its processes are new", "those of one node are not", "a replica group goes on"],
)
def test_a_job_is_away_after_a_preemption_until_it_has_been_started_again(
    tmp_path, nodes_back, groups, fires
):
    """Pods of one node are taken away at minute 15; the other node's processes remain."""

    def started(states: Sequence[str], step: int, again: int | None) -> list[str]:
        now = again if again is not None else 10**9
        return ["60" if i * step < now else str(60 * now) for i in range(len(states))]

    names = ("n0", "n1")
    backs = (*nodes_back, None, None)
    series = [
        Series(
            f'rankscope_job_processes_started_timestamp_seconds{{node="{node}",{JOB}}}',
            lambda states, step, back=back: started(states, step, back),
        )
        for node, back in zip(names, backs, strict=False)
    ]
    series += [steady(f'rankscope_job_ranks_alive{{node="{node}",{JOB}}}', 8) for node in names]
    # Nothing of the job is left here, and what has been is old.
    series += [
        steady(f'rankscope_job_ranks_alive{{node="gone",{JOB}}}', 0),
        steady(f'rankscope_job_processes_started_timestamp_seconds{{node="gone",{JOB}}}', 1),
    ]
    if groups:
        series.append(steady(f'rankscope_job_replica_group_ranks{{node="n0",{JOB}}}', 8))
    taken = failure("DisruptionTarget", detail="PreemptionByScheduler")
    series.append(fixed(event(taken), [*(["good"] * 14), *(["bad"] * 2), *(["good"] * 60)]))
    checks = [(10, 0), *([] if groups else [(17, 1)]), *fires.items()]
    alert = BY_NAME["RankscopeJobTakenAway"]
    done = follow(tmp_path, require_server("promtool"), alert, Case(tuple(series)), 70, checks)
    assert done.returncode == 0, done.stdout + done.stderr


def since(*values: tuple[int, str]) -> Callable[[Sequence[str], int], list[str]]:
    """Return values that each hold from a minute on; before the first one there is none."""

    def at(minute: int) -> str:
        return [value for begun, value in ((0, "_"), *values) if begun <= minute][-1]

    return lambda states, step: [at(i * step) for i in range(len(states))]


def at_minutes(*minutes: int) -> Callable[[Sequence[str], int], list[str]]:
    """Return the time at which something happened last."""
    return since(*((minute, str(60 * minute)) for minute in minutes))


def failing(*minutes: int) -> Series:
    """Return the newest failure of the job on the node whose pods nobody takes away."""
    keys = f'node="n1",{JOB},reason="OOMKilled",detail="sigkill"'
    name = "rankscope_job_last_failure_timestamp_seconds"
    return Series(f"{name}{{{keys}}}", at_minutes(*minutes))


def running(node: str, ended: int, again: int | None, failed: int = 999) -> tuple[Series, ...]:
    """Return eight ranks that end with the preemption, run again from a minute on, and fail."""
    back = [(again, "8"), (failed, "0")] if again else []
    alive = since((0, "8"), (ended, "0"), *back)
    started = at_minutes(1, *([again] if again else []))
    of_node = f'{{node="{node}",{JOB}}}'
    return (
        Series(f"rankscope_job_ranks_alive{of_node}", alive),
        Series(f"rankscope_job_processes_started_timestamp_seconds{of_node}", started),
    )


PREEMPTED = Series(failure("DisruptionTarget", detail="PreemptionByScheduler"), at_minutes(60))


@pytest.mark.parametrize(
    ("series", "fires", "away"),
    [
        (
            (failing(61, 70), *running("gpu-07", 60, 65), *running("n1", 61, 66, 70)),
            {64: 0, 69: 0, 72: 1, 100: 1},
            {62: 1, 68: 0, 72: 0, 100: 0},
        ),
        (
            (failing(61, 70), *running("gpu-07", 60, None), *running("n1", 61, None)),
            {64: 0, 72: 0, 84: 0},
            {62: 1, 72: 1, 104: 1, 107: 0},
        ),
        ((failing(61, 80),), {64: 0, 79: 0, 82: 1}, {62: 1, 104: 1, 107: 0}),
        ((failing(57),), {59: 1, 64: 1}, {62: 1}),
    ],
    ids=["started again", "not started again", "without the probe", "failed before"],
)
def test_what_fails_after_a_preemption_follows_from_it_until_the_job_runs_again(
    tmp_path, series, fires, away
):
    """Pods of another node are taken away at minute 60; those of this one fail a minute later."""
    case = Case((PREEMPTED, *series))
    for name, expected in (("RankscopePodFailed", fires), ("RankscopeJobTakenAway", away)):
        checks = [*expected.items()]
        done = follow(tmp_path, require_server("promtool"), BY_NAME[name], case, 110, checks)
        assert done.returncode == 0, done.stdout + done.stderr
