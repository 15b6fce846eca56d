"""Whom lost GPU time wakes: a share of the cluster's time, and more than a few GPUs'."""

from collections.abc import Sequence

import pytest

from alert_series import spent
from alert_timelines import Series
from clusters_apart import Followed, follow_together, of_alert
from servers import require_server

HUNG_SINCE = 400


def job(gpus: int) -> tuple[Series, Series]:
    """Return what is counted of a job that hangs after some hours."""

    def productive(states: Sequence[str], step: int) -> list[str]:
        return [str(60 * gpus * min(i * step, HUNG_SINCE)) for i in range(len(states))]

    def hung(states: Sequence[str], step: int) -> list[str]:
        return [str(60 * gpus * max(i * step - HUNG_SINCE, 0)) for i in range(len(states))]

    return Series(spent("productive"), productive), Series(spent("hang"), hung)


def hanging(gpus: int, fires: int) -> Followed:
    checks = [(390, 0), (460, fires), (520, fires), (700, fires)]
    return of_alert("RankscopeGoodputBurnFast", job(gpus), checks)


JOBS = {f"{gpus} GPUs": hanging(gpus, fires) for gpus, fires in ((1, 0), (8, 0), (16, 1))}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    return follow_together(
        tmp_path_factory.mktemp("rules"), require_server("promtool"), JOBS, step=2, sample=1
    )


@pytest.mark.parametrize("gpus", JOBS)
def test_a_small_job_that_is_all_there_is_pages_nobody(gpus, said):
    assert not said[gpus]
