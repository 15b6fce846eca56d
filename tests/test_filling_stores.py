"""When free space that falls is a trend, and when it fell once."""

from collections.abc import Callable

import pytest

from alert_series import JOB, OWNER
from alert_timelines import Series, steady
from clusters_apart import follow_together, of_alert
from servers import require_server

RANK = f'node="n",{JOB},rank="0"'
CLAIM = 'namespace="team",persistentvolumeclaim="data"'
STORE = (
    steady(f"rankscope_checkpoint_store_size_bytes{{{RANK}}}", 100e12),
    OWNER,
)
VOLUME = (
    steady(
        'rankscope_pod_job_info{job_id="team/llm",pod_namespace="team",pod_name="llm-0",node="n"}'
    ),
    steady(f'kube_pod_spec_volumes_persistentvolumeclaims_info{{{CLAIM},pod="llm-0"}}'),
    steady(f"kubelet_volume_stats_capacity_bytes{{{CLAIM}}}", 100e12),
    OWNER,
)
ON_STORE = (f"rankscope_checkpoint_store_free_bytes{{{RANK}}}", STORE)
ON_VOLUME = (f"kubelet_volume_stats_available_bytes{{{CLAIM}}}", VOLUME)


def free(selector: str, terabytes: Callable[[int], float | None]) -> Series:
    """Return free space by the minute; None while nothing is known of it."""

    def at(minute: int) -> str:
        known = terabytes(minute)
        return "_" if known is None else f"{known * 1e12:.10g}"

    return Series(selector, lambda states, step: [at(i * step) for i in range(len(states))])


def begun(minute: int) -> float | None:
    """A job that keeps two checkpoints of 0.4 TB, and is seen from its first one on."""
    return None if minute < 62 else 29.0 - 0.4 * ((minute >= 67) + (minute >= 72))


def copied(minute: int) -> float:
    """Two hours of copying, within two of the three parts."""
    return 95 - 70 * min(max(minute - 430, 0) / 120, 1)


def kept(minute: int) -> float:
    """Five checkpoints, one each half an hour; further ones replace the oldest."""
    return 29 - 1.4 * min(minute // 30, 5)


def hoarded(minute: int) -> float:
    """A checkpoint of 3.4 TB every 95 minutes, of which none is removed."""
    return 35 - 3.4 * (minute // 95)


NEVER = [(minute, 0) for minute in range(30, 720, 15)]


FALLS = {
    "job begins": (begun, NEVER),
    "data set": (copied, NEVER),
    "job keeps five": (kept, NEVER),
    "none is removed": (hoarded, [(350, 0), (380, 1), (460, 1), (560, 1)]),
}
STORES = {
    f"{name} on a {where}": of_alert(
        "RankscopeCheckpointStoreFilling", (free(selector, terabytes), *others), checks
    )
    for name, (terabytes, checks) in FALLS.items()
    for where, (selector, others) in (("store", ON_STORE), ("volume", ON_VOLUME))
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), STORES, step=5, sample=1)


@pytest.mark.parametrize("store", STORES)
def test_a_fall_counts_as_a_trend_while_it_goes_on(store, said):
    assert not said[store]
