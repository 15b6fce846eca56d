"""When free space that falls is a trend, and when it fell once."""

from collections.abc import Callable

import pytest

from alert_series import JOB, OWNER
from alert_timelines import Case, Series, steady
from named_alerts import BY_NAME
from promtool_tests import follow
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


@pytest.mark.parametrize("where", [ON_STORE, ON_VOLUME], ids=["store", "volume"])
@pytest.mark.parametrize(
    ("terabytes", "checks"),
    [
        (begun, NEVER),
        (copied, NEVER),
        (kept, NEVER),
        (hoarded, [(350, 0), (380, 1), (460, 1), (560, 1)]),
    ],
    ids=["job begins", "data set", "job keeps five", "none is removed"],
)
def test_a_fall_counts_as_a_trend_while_it_goes_on(tmp_path, where, terabytes, checks):
    selector, others = where
    case = Case((free(selector, terabytes), *others))
    alert = BY_NAME["RankscopeCheckpointStoreFilling"]
    done = follow(tmp_path, require_server("promtool"), alert, case, 720, checks)
    assert done.returncode == 0, done.stdout + done.stderr
