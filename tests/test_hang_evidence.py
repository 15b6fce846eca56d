"""Whom faults of GPUs and processes, PyTorch's watchdogs and NCCL's RAS make suspects of a hang."""

from __future__ import annotations

import pytest

from hanging_jobs import NOW, standing
from rankscope_agent.contract.metrics import agent, kernel_log, nccl_log, nccl_ras, training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers.hang_evidence import by_faults
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.rank_locations import rank_locations
from rankscope_analyzers.stragglers.diagnosis import TimingResults

RANKS = 4


def page(*, quiet=90.0, more=""):
    """Return the page of a node whose ranks, each in a pod and on a GPU, made no step so long."""
    lines = [f"{agent.SNAPSHOT_TIMESTAMP.name} {NOW}\n", more]
    for rank in range(RANKS):
        labels = f'job_id="ml/a",rank="{rank}"'
        pod = f'pod_namespace="ml",pod_name="w-{rank}",pod_uid="u-{rank}",world_size="{RANKS}"'
        lines += [
            f'{training.RANK_INFO.name}{{{labels},{pod},uuid="GPU-{rank}"}} 1\n',
            f"{training.RANK_ALIVE.name}{{{labels}}} 1\n",
            f"{training.LAST_STEP_TIMESTAMP.name}{{{labels}}} {NOW - quiet}\n",
            f"{training.LAST_STEP_SECONDS.name}{{{labels}}} 0.2\n",
            f'rankscope_gpu_allocation_info{{gpu="{rank}",uuid="GPU-{rank}",{pod}}} 1\n',
            f'rankscope_gpu_info{{gpu="{rank}",uuid="GPU-{rank}",pci="0000:{rank}b:00"}} 1\n',
        ]
    return Page("n1", NOW, "".join(lines))


def hang(more, stalls=None):
    """Return whom the report on a job that stands suspects, and its sentence."""
    evidence = JobEvidence(from_pages([page(more=more)], job_reports.READS), stalls=stalls or {})
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    (found,) = [one for one in report.incidents if one.stands]
    return found.where.ranks, found.summary


def xid(rank, ago, code=79):
    labels = (
        f'gpu="{rank}",uuid="GPU-{rank}",pci="0000:{rank}b:00",xid="{code}",severity="fatal",'
        'action="drain"'
    )
    log = f'{kernel_log.KERNEL_LOG_INFO.name}{{source="kmsg"}} 1\n'
    count = f"{kernel_log.XID_ERRORS.name}{{{labels}}} 1\n"
    return f"{log}{count}{kernel_log.XID_LAST.name}{{{labels}}} {NOW - ago}\n"


def killed(rank, ago):
    labels = f'kind="oom_kill",scope="cgroup",pod_uid="u-{rank}"'
    return f"{kernel_log.POD_LAST_EVENT.name}{{{labels}}} {NOW - ago}\n"


def standing_in(late):
    stalls = standing(late, age=89.0)["job"]
    return {"ml/a": [type(one)(**{**_fields(one), "job_id": "ml/a"}) for one in stalls]}


def _fields(one):
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


@pytest.mark.parametrize("ago", [95.0, 85.0])
@pytest.mark.parametrize("fault", [xid, killed])
def test_the_rank_whose_gpu_or_process_the_kernel_reports_just_then_is_named(fault, ago):
    ranks, _ = hang(fault(2, ago))
    assert ranks == (2,)


@pytest.mark.parametrize("fault", [xid, killed])
def test_a_fault_long_before_the_last_step_did_not_stop_the_job(fault):
    def suspects(ago):
        observed = from_pages([page(more=fault(2, ago))], job_reports.READS)
        view = job_view("ml/a", rank_locations(observed).of("ml/a", None))
        return by_faults(observed, view, NOW - 90.0).ranks

    assert suspects(200.0) == (2,)
    assert suspects(220.0) == ()


@pytest.mark.parametrize("fault", [xid, killed])
@pytest.mark.parametrize("stands", [None, 1])
def test_a_fault_after_which_steps_went_on_lends_its_ranks_to_no_hang(fault, stands):
    """It is an incident by itself: only what was there just before explains that steps end."""
    where = standing_in(stands) if stands else None
    assert hang(fault(2, 205.0), where)[0] == ((stands,) if stands else (2,))
    ranks, sentence = hang(fault(2, 400.0), where)
    assert ranks == ((stands,) if stands else ())
    assert "because" not in sentence


def test_where_two_faults_are_reported_the_earlier_one_is_the_cause():
    assert hang(xid(1, 88.0) + killed(3, 94.0))[0] == (3,)


def test_who_is_waited_for_stays_named_where_the_fault_is_of_another_rank():
    ranks, sentence = hang(xid(1, 88.0), standing_in(2))
    assert ranks == (2,)
    assert "rank 2 has not entered all_reduce 5" in sentence
    ranks, sentence = hang(xid(2, 88.0), standing_in(2))
    assert ranks == (2,)


def watchdogs(*gave_up, spoke=RANKS, at=20.0):
    """Return what agents say of the logs of pods, of which some gave up so long ago."""
    lines = []
    for rank in range(spoke):
        pod = f'pod_namespace="ml",pod_name="w-{rank}"'
        lines.append(f"{nccl_log.NCCL_LAST_LINE.name}{{{pod}}} {NOW - at}\n")
        if rank in gave_up:
            lines += [
                f'{nccl_log.NCCL_TIMEOUTS.name}{{{pod},op="ALLREDUCE"}} 1\n',
                f"{nccl_log.NCCL_LAST_WARNING.name}{{{pod}}} {NOW - at}\n",
            ]
    return "".join(lines)


def test_the_silent_pods_are_suspected_where_most_watchdogs_gave_up():
    ranks, sentence = hang(watchdogs(0, 1, 3))
    assert ranks == (2,)
    assert "watchdogs gave up in 3 of 4 pods, not in pod ml/w-2" in sentence


@pytest.mark.parametrize(
    "lines", [watchdogs(0, 1), watchdogs(0, 1, 2, 3), watchdogs(), watchdogs(0, 1, 3, at=500.0)]
)
def test_half_or_all_of_them_or_those_of_an_earlier_attempt_name_nobody(lines):
    assert hang(lines)[0] == ()


def ras(rank, lag=3, behind=1, size=RANKS):
    return (
        f'{nccl_ras.RAS_LAG.name}{{op="AllReduce"}} {lag}\n'
        f"{nccl_ras.RAS_LAGGING_RANK.name} {rank}\n"
        f"{nccl_ras.RAS_LAGGING_RANKS.name} {behind}\n{nccl_ras.RAS_RANKS.name} {size}\n"
    )


def test_the_rank_that_ras_counts_fewer_launches_of_is_named():
    ranks, sentence = hang(ras(1))
    assert ranks == (1,)
    assert "by NCCL's RAS rank 1 is 3 AllReduce operations behind the first" in sentence


def test_two_launches_behind_are_more_than_some_rank_always_is():
    assert hang(ras(1, lag=2))[0] == (1,)


@pytest.mark.parametrize("lines", [ras(1, lag=1), ras(1, behind=2), ras(1, size=2)])
def test_a_usual_lag_several_ranks_and_numbers_of_a_smaller_communicator_name_nobody(lines):
    assert hang(lines)[0] == ()


def test_where_ranks_stand_outranks_what_ras_and_watchdogs_say():
    assert hang(ras(1) + watchdogs(0, 2, 3), standing_in(2))[0] == (2,)
