"""A fault stays one alert when its job ends, its pod is gone, or its agent is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from alert_series import JOB, LOG_POD, NODE, OWNER, POD, failure
from alert_timelines import Series, steady
from clusters_apart import Followed, follow_together, of_alert
from servers import require_server

FAULT, SCRAPED, END = 40, 42, 100
"""The minutes in which something happens, is first looked at, and is forgotten."""

RETURNS = SCRAPED + 3

FAULTS = {
    "RankscopeCheckpointFailing": f'rankscope_checkpoint_write_failures_total{{{JOB},rank="0"',
    "RankscopeCheckpointCorrupt": f'rankscope_checkpoint_load_failures_total{{{JOB},rank="0"',
    "RankscopeCheckpointOverwritten": f"rankscope_checkpoint_shared_paths_total{{{JOB}",
    "RankscopePodFailed": failure("Error").removesuffix("}").replace(f"{NODE},", ""),
}
"""Series of jobs and ranks, by the alert about them."""

PRINTED = {
    "RankscopeNonFiniteLoss": 'rankscope_job_log_nonfinite_losses_total{framework="f",source="s"',
    "RankscopeNcclIbErrors": 'rankscope_nccl_ib_errors_total{device="m",status="12"',
    "RankscopeNcclCollectiveTimeout": 'rankscope_nccl_collective_timeouts_total{op="ALLREDUCE"',
}
"""Series of pods, which do not name their job."""


When = Callable[[int], bool]
"""Whether something is scraped in a minute."""


def there(selector: str, during: When, value: Callable[[int], int]) -> Series:
    """Return a series with a value in each minute in which it is scraped."""

    def values(states: Sequence[str], step: int) -> list[str]:
        minutes = range(0, len(states) * step, step)
        return [f"{value(one)}" if during(one) else "stale" for one in minutes]

    return Series(selector, values)


def present(one: Series, during: When) -> Series:
    return there(one.selector, during, lambda _: 1)


def told(name: str, known: When, shown: When | None = None) -> Followed:
    """Return a cluster where something happens once.

    Args:
        name: of the alert about it.
        known: when job and pod are.
        shown: when what happened is; None takes `known`.
    """
    shown = shown or known
    if name == "RankscopePodFailed":
        keys = f"{FAULTS[name]},{NODE}}}"
        series = there(keys, lambda minute: minute >= FAULT and shown(minute), lambda _: FAULT * 60)
    else:
        keys = f"{FAULTS[name]},{NODE}}}" if name in FAULTS else f"{PRINTED[name]},{LOG_POD}}}"
        series = there(keys, shown, lambda minute: int(minute >= FAULT))
    checks = [(FAULT - 2, 0), *((minute, 1) for minute in range(SCRAPED, FAULT + 30, 2)), (160, 0)]
    return of_alert(name, (series, present(OWNER, known), present(POD, known)), checks)


def ended(minute: int) -> bool:
    return minute <= SCRAPED


STORIES = {
    **{f"{name}, pods gone": told(name, ended) for name in FAULTS | PRINTED},
    **{
        f"{name}, agent replaced": told(name, lambda minute: not SCRAPED < minute < RETURNS)
        for name in FAULTS | PRINTED
    },
    **{
        f"{name}, ranks ended by it": told(
            name, lambda minute: minute <= FAULT, lambda minute: minute < END
        )
        for name in PRINTED
    },
    "RankscopePodFailed, history of its job": told(
        "RankscopePodFailed", ended, lambda minute: minute < END
    ),
}


def evicted() -> Followed:
    """Return a cluster where a queue evicts a job, every 40 minutes, after ten of them."""
    series = (
        there(
            f"rankscope_job_interruptions{{{JOB}}}",
            lambda _: True,
            lambda minute: (minute + 30) // 40,
        ),
        present(OWNER, lambda minute: minute % 40 < 10),
    )
    checks = [(86, 0), *((minute, 1) for minute in range(92, 200, 4))]
    return of_alert("RankscopeJobRequeued", series, checks)


def symptom(name: str, shown: str, cause: str, ranks: str, found: str) -> Followed:
    """Return a cluster where layers below the step times find the cause now and then.

    Args:
        name: of the alert.
        shown: what step times show.
        cause: what is found at times.
        ranks: labels of the culprit that step times name.
        found: those of the culprit while the cause is known.
    """

    def exported(kind: str, labels: str, during: When) -> tuple[Series, ...]:
        of_kind = f'{JOB},kind="{kind}"'
        told = f'{of_kind},symptom="{shown}",{labels},runbook="docs/runbooks/{kind}.md"'
        return (
            present(steady(f"rankscope_finding_culprit_info{{{told}}}"), during),
            present(steady(f"rankscope_finding_lost_fraction{{{of_kind}}}"), during),
        )

    series = (
        *exported(shown, ranks, lambda minute: minute % 8 < 4),
        *exported(cause, found, lambda minute: minute % 8 >= 4),
    )
    return of_alert(name, series, ((minute, 1) for minute in range(18, 100, 2)))


PLACE_OF_3 = f'rank="3",{NODE},gpu="3",uuid="GPU-3"'
RANK_3, WITH_PORT = (f'{PLACE_OF_3},device="{device}"' for device in ("", "mlx5_3"))
NO_RANK = 'rank="",node="",gpu="",uuid="",device=""'
PORT_ALONE = f'rank="",{NODE},gpu="",uuid="",device="mlx5_3"'
STORIES |= {
    "a port of the rank": symptom(
        *("RankscopeSlowNetworkGroup", "network_link", "congestion", RANK_3, WITH_PORT)
    ),
    "a port, no rank": symptom(
        *("RankscopeSlowNetworkGroup", "network_link", "congestion", NO_RANK, PORT_ALONE)
    ),
    "a port, all ranks": symptom(
        *("RankscopeGlobalSlowdown", "global_slowdown", "congestion", NO_RANK, PORT_ALONE)
    ),
    "a GPU, all ranks": symptom(
        *("RankscopeGlobalSlowdown", "global_slowdown", "power_cap", NO_RANK, RANK_3)
    ),
    "a port in a hang": symptom("RankscopeHang", "hang", "link_down", RANK_3, WITH_PORT),
}
STORIES["RankscopeJobRequeued, no pods while it is queued"] = evicted()


def told_in_logs(name: str, *others: Series) -> Followed:
    """Return a cluster where something is told for the first time, and its job is known."""
    keys = f"{PRINTED[name]},{LOG_POD}}}"
    series = there(keys, lambda minute: minute >= FAULT, lambda _: 1)
    checks = [(FAULT - 2, 0), *((minute, 1) for minute in range(SCRAPED, FAULT + 30, 2))]
    always = (present(one, lambda _: True) for one in (OWNER, POD))
    return of_alert(name, (series, *others, *always), checks)


LOSSES = there(
    f'rankscope_nonfinite_losses_total{{{NODE},{JOB},rank="0"}}',
    lambda _: True,
    lambda minute: int(minute >= FAULT),
)
FIRST_TOLD = {
    **{name: told_in_logs(name) for name in PRINTED},
    "RankscopeNonFiniteLoss, by the probe as well": told_in_logs("RankscopeNonFiniteLoss", LOSSES),
}


@pytest.mark.parametrize("alerts_first", [False, True])
def test_a_fault_is_one_alert_whatever_is_evaluated_first(alerts_first, tmp_path):
    said = follow_together(
        tmp_path, require_server("promtool"), FIRST_TOLD, alerts_first=alerts_first
    )
    assert said == dict.fromkeys(FIRST_TOLD, "")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), STORIES, step=2, sample=1)


@pytest.mark.parametrize("story", STORIES)
def test_a_fault_stays_one_alert(story, said):
    assert not said[story]
