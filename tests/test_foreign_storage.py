"""Alerts on storage by others' series: JuiceFS' own metrics, kubelets' and kube-state-metrics'."""

from __future__ import annotations

import pytest

from alert_series import JOB, OWNER
from alert_timelines import Case, Series, counter, steady
from clusters_apart import Followed, follow_together, of_alert
from panel_queries import expression, gives
from promtool_tests import run
from rankscope_dashboards.rules.alerts import ALERTS
from servers import require_server

__all__ = ["gives"]

BY_NAME = {alert.name: alert for alert in ALERTS}
FUSE = "juicefs_fuse_ops_durations_histogram_seconds"


def mount(node: str, *seconds: float):
    """Return what a mount counts: 60 operations a minute, of so many seconds together."""
    key = f'{{node="{node}",vol_name="shared",mp="/jfs",instance="{node}:9567"}}'
    return counter(f"{FUSE}_count{key}", 60, 60, 60), counter(f"{FUSE}_sum{key}", *seconds)


def test_a_node_with_a_slow_mount_of_juicefs_fires(tmp_path):
    usual = (one for node in "bcd" for one in mount(node, 0.6, 0.6, 0.6))
    case = Case((*mount("a", 6.0, 0.6, 2.9), *usual), lag=11)
    alert = BY_NAME["RankscopeStorageClientSlow"]
    done = run(tmp_path, require_server("promtool"), alert, case, None)
    assert done.returncode == 0, done.stdout + done.stderr


POD_JOB = 'rankscope_pod_job_info{job_id="team/llm",pod_namespace="team",pod_name="llm-0",node="a"}'
CLAIM = 'namespace="team",persistentvolumeclaim="checkpoints"'
KNOWN = (
    steady(POD_JOB),
    steady(f'kube_pod_spec_volumes_persistentvolumeclaims_info{{{CLAIM},pod="llm-0"}}'),
    steady(f'kubelet_volume_stats_capacity_bytes{{{CLAIM},node="a"}}', 1e12),
    OWNER,
)
AVAILABLE = f'kubelet_volume_stats_available_bytes{{{CLAIM},node="a"}}'
FILLING = counter(AVAILABLE, -1e9, start=6e11)
"""Three tenths are left after five hours, nothing within the day."""

STORE = (
    steady(f'rankscope_checkpoint_store_free_bytes{{{JOB},rank="3",node="a"}}', 4e11),
    steady(f'rankscope_checkpoint_store_size_bytes{{{JOB},rank="3",node="a"}}', 1e12),
)


def volume(series: tuple[Series, ...], fires: int) -> Followed:
    checks = [(350, 0), (380, fires), (420, fires)]
    return of_alert("RankscopeCheckpointStoreFilling", (*KNOWN, *series), checks)


VOLUMES = {
    "it fills": volume((FILLING,), 1),
    "it is full of data": volume((steady(AVAILABLE, 1e10),), 0),
    "the probe knows another store": volume((FILLING, *STORE), 0),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What promtool has to say against each."""
    return follow_together(
        tmp_path_factory.mktemp("rules"), require_server("promtool"), VOLUMES, step=5
    )


@pytest.mark.parametrize("claim", VOLUMES)
def test_a_volume_of_a_jobs_pods_fires_that_fills_and_may_hold_checkpoints(claim, said):
    assert not said[claim]


def test_the_dashboard_shows_claims_of_the_job_and_mounts_of_its_nodes(gives):
    series = {
        POD_JOB: "1x20",
        f'kube_pod_spec_volumes_persistentvolumeclaims_info{{{CLAIM},pod="llm-0"}}': "1x20",
        f'kubelet_volume_stats_capacity_bytes{{{CLAIM},node="a"}}': "1000x20",
        AVAILABLE: "600-6x20",
        'rankscope_rank_info{job_id="team/llm",rank="0",node="a"}': "1x20",
    }
    volume = f'{{job_id="team/llm",{CLAIM}}}'
    title = "Volumes of the job's pods"
    gives(expression("checkpoints", title), series, {volume: 0.48})
    gives(expression("checkpoints", title, 1), series, {volume: 480 / 0.1})
    for node, seconds in (("a", 6), ("elsewhere", 60)):
        key = f'{{node="{node}",vol_name="shared",mp="/jfs"}}'
        series |= {f"{FUSE}_count{key}": "0+60x20", f"{FUSE}_sum{key}": f"0+{seconds}x20"}
    gives(
        expression("checkpoints", "Duration of an operation on a file system"),
        series,
        {'{node="a",type="juicefs",filesystem="shared",operation="any"}': 0.1},
    )
