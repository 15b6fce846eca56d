"""Whom lost GPU time wakes: a share of the cluster's time, and more than a few GPUs'."""

from collections.abc import Sequence

import pytest

from alert_series import spent
from alert_timelines import Case, Series
from named_alerts import BY_NAME
from promtool_tests import follow
from servers import require_server

HUNG_SINCE = 400


def job(gpus: int) -> tuple[Series, Series]:
    """Return what is counted of a job that hangs after some hours."""

    def productive(states: Sequence[str], step: int) -> list[str]:
        return [str(60 * gpus * min(i * step, HUNG_SINCE)) for i in range(len(states))]

    def hung(states: Sequence[str], step: int) -> list[str]:
        return [str(60 * gpus * max(i * step - HUNG_SINCE, 0)) for i in range(len(states))]

    return Series(spent("productive"), productive), Series(spent("hang"), hung)


@pytest.mark.parametrize(("gpus", "fires"), [(1, 0), (8, 0), (16, 1)])
def test_a_small_job_that_is_all_there_is_pages_nobody(tmp_path, gpus, fires):
    checks = [(390, 0), (460, fires), (520, fires), (700, fires)]
    alert = BY_NAME["RankscopeGoodputBurnFast"]
    done = follow(tmp_path, require_server("promtool"), alert, Case(job(gpus)), 700, checks)
    assert done.returncode == 0, done.stdout + done.stderr
