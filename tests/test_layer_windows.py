"""How old, how busy and how late what other layers say may be to count for a job."""

import numpy as np
import pytest

from rankscope_agent.contract.metrics import gpus, kernel_log, nccl_log, nccl_ras
from rankscope_agent.contract.metrics.cluster_jobs import JOB_NODE_NOTICE
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.intake.observed import Series, gathered
from rankscope_analyzers.layers import gpu_health, nccl_transport, node_notices, process_deaths
from rankscope_analyzers.layers import kernel_log as kernel_findings
from rankscope_analyzers.layers.job_view import job_view

NOW = 1_760_000_000.0
GPU = {"gpu": "0", "uuid": "GPU-0", "pci": "0000:3b:00"}
POD = {"pod_namespace": "team", "pod_name": "job-0"}
JOB = job_view(
    "team/job",
    {0: RankLocation(0, "gpu-0", gpu="0", uuid="GPU-0", pod="team/job-0", pod_uid="uid-0")},
)


def series(metric, value, ago=0, **labels):
    """Return what was read of the node in a minute that ended so many seconds ago."""
    times = np.array([NOW - 60, NOW]) - ago
    return Series("gpu-0", metric.name, labels, times, np.array([value, value], float))


def kinds(module, *read):
    return [finding.kind for finding in module.findings(gathered(read), JOB)]


@pytest.mark.parametrize(("busy", "told"), [(0.45, False), (0.55, True)])
def test_the_pcie_link_of_a_gpu_that_is_busy_half_of_the_time_is_up(busy, told):
    read = (
        series(gpus.GPU_UTILIZATION, busy, **GPU),
        series(gpus.GPU_PCIE_WIDTH, 8, **GPU),
        series(gpus.GPU_PCIE_WIDTH_MAX, 16, **GPU),
    )
    assert kinds(gpu_health, *read) == ["gpu_pcie_degraded"] * told


@pytest.mark.parametrize(("ago", "told"), [(3590, True), (3610, False)])
def test_what_the_kernel_reports_counts_for_an_hour(ago, told):
    panic = series(kernel_log.KERNEL_LAST_EVENT, NOW - ago, kind="kernel_panic")
    boot = series(kernel_log.BOOT_TIME, NOW - ago, reason="unclean")
    assert kinds(kernel_findings, panic) == ["host_kernel"] * told
    assert kinds(kernel_findings, boot) == ["node_reboot"] * told


@pytest.mark.parametrize(("ago", "told"), [(3590, True), (3610, False)])
def test_a_killed_process_counts_for_an_hour(ago, told):
    labels = {"kind": "oom_kill", "scope": "cgroup", "pod_uid": "uid-0"}
    killed = series(kernel_log.POD_LAST_EVENT, NOW - ago, **labels)
    assert kinds(process_deaths, killed) == ["oom_kill"] * told


@pytest.mark.parametrize(("quiet", "told"), [(55, False), (65, True)])
def test_a_start_that_has_not_ended_hangs_after_a_minute_of_silence(quiet, told):
    read = (
        series(nccl_log.NCCL_RANKS_EXPECTED, 8, **POD),
        series(nccl_log.NCCL_RANKS_INITIALIZED, 6, **POD),
        series(nccl_log.NCCL_LAST_LINE, NOW - quiet, **POD),
    )
    assert kinds(nccl_transport, *read) == ["init_incomplete"] * told


@pytest.mark.parametrize(("behind", "told"), [(1, False), (2, True)])
def test_some_rank_is_always_ahead_of_others_by_one_collective(behind, told):
    lag = series(nccl_ras.RAS_LAG, behind, op="AllReduce")
    assert kinds(nccl_transport, lag) == ["ras_lag"] * told


@pytest.mark.parametrize(("ago", "over"), [(600, False), (601, True)])
def test_a_notice_that_was_not_read_for_ten_minutes_is_over(ago, over):
    notice = series(JOB_NODE_NOTICE, NOW - ago - 60, ago, job_id="team/job", notice="maintenance")
    now = series(gpus.GPU_UTILIZATION, 1.0, **GPU)
    (found,) = node_notices.findings(gathered([notice, now]), JOB)
    assert found.until_unix_seconds == (NOW - ago if over else None)


@pytest.mark.parametrize(("held", "kind"), [(3600, "node_leaving"), (3601, "node_notice")])
def test_a_notice_that_has_held_for_more_than_an_hour_explains_nothing(held, kind):
    notice = series(JOB_NODE_NOTICE, NOW - held, job_id="team/job", notice="maintenance")
    assert kinds(node_notices, notice) == [kind]
