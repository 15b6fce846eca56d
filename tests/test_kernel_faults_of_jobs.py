"""Which faults that a kernel reported concern a job that began later or holds other GPUs."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import kernel_log, pods, training
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnose_each
from simulated_jobs import Job, records

NOW = 1_800_000_000.0
NOBODY = TimingResults((), {}, ())
LOG = 'rankscope_kernel_log_info{source="kmsg"} 1\n'


def rank(number, *, job="ml/b", alive=1, stepped=0.5, started=None, uuid=None):
    """Return what a page says of a rank that is on the GPU of its number; times are ages."""
    labels = f'job_id="{job}",rank="{number}"'
    lines = [
        f'{training.RANK_INFO.name}{{{labels},uuid="{uuid or f"GPU-{number}"}"}} 1\n',
        f"{training.RANK_ALIVE.name}{{{labels}}} {alive}\n",
    ]
    if stepped is not None:
        lines.append(f"{training.LAST_STEP_TIMESTAMP.name}{{{labels}}} {NOW - stepped}\n")
    if started is not None:
        lines.append(f"{pods.RANK_STARTED.name}{{{labels}}} {NOW - started}\n")
    return "".join(lines)


def xid(code, ago, gpu=2, action="restart_app", severity="error"):
    labels = (
        f'gpu="{gpu}",uuid="GPU-{gpu}",pci="0000:{gpu}b:00",xid="{code}",severity="{severity}",'
        f'action="{action}"'
    )
    count = f"{kernel_log.XID_ERRORS.name}{{{labels}}} 1\n"
    return f"{LOG}{count}{kernel_log.XID_LAST.name}{{{labels}}} {NOW - ago}\n"


def event(kind, ago):
    return f'{LOG}{kernel_log.KERNEL_LAST_EVENT.name}{{kind="{kind}"}} {NOW - ago}\n'


def reboot(ago, reason="unexpected"):
    return f'{LOG}{kernel_log.BOOT_TIME.name}{{reason="{reason}"}} {NOW - ago}\n'


def incidents(*texts, timing=NOBODY, job="ml/b"):
    """Return the incidents of a job, of pages of one node half a minute apart."""
    pages = [
        Page("n1", NOW - 30.0 * (len(texts) - 1 - number), text)
        for number, text in enumerate(texts)
    ]
    evidence = JobEvidence(from_pages(pages, job_reports.READS))
    found = job_reports.reports(timing, evidence, NOW)
    return next(one.incidents for one in found if one.job_id == job)


def causes(*texts, **more):
    return [one.cause.kind for one in incidents(*texts, **more)]


def job(**more):
    return "".join(rank(number, **more) for number in range(4))


FAULTS = [
    (lambda ago: xid(31, ago), "app"),
    (lambda ago: xid(94, ago), "gpu_memory"),
    (lambda ago: event("nic_command_timeout", ago), "network_nic"),
    (reboot, "node_reboot"),
]


@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_what_was_over_before_the_job_began_is_not_its_own(fault, kind):
    assert causes(job(started=900.0) + fault(2400.0)) == []
    assert causes(job(started=900.0) + fault(60.0)) == [kind]


@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_the_first_step_that_was_read_shows_when_it_began_likewise(fault, kind):
    rows = records(Job(ranks=4, ranks_per_node=4, steps=80))
    rows["t_start_unix_seconds"] += NOW - 100.0 - rows["t_start_unix_seconds"].min()
    timing = diagnose_each([JobRecords("ml/b", rows.assign(node="n1"), 4, (), live=True)])
    running = job(stepped=None)
    assert causes(running + fault(300.0), timing=timing) == []
    assert causes(running + fault(20.0), timing=timing) == [kind]
    assert causes(job(started=900.0) + fault(300.0), timing=timing) == [kind], (
        "read from its middle"
    )


def test_a_fault_that_lasts_concerns_jobs_that_begin_later():
    lost = xid(79, 2400.0, action="reboot_node", severity="fatal")
    assert causes(job(started=900.0) + lost) == ["pcie"]
    assert causes(job(started=900.0) + event("nic_firmware_fault", 2400.0)) == ["network_nic"]


@pytest.mark.parametrize("text", [job(), job(started=900.0, stepped=None)])
def test_it_counts_where_it_is_unknown_when_the_job_began(text):
    """A job without steps may have failed by it, and have been started again."""
    assert causes(text + xid(31, 2400.0)) == ["app"]


def test_a_restarted_job_that_was_seen_before_a_fault_began_before_it():
    before, after = job(), job(started=20.0) + xid(31, 25.0)
    assert causes(before, after) == ["app"]


def test_the_fault_of_one_jobs_program_is_no_other_jobs():
    ended = "".join(rank(number, job="ml/a", alive=0, stepped=70.0) for number in range(4))
    began = ended + job(stepped=None) + xid(31, 45.0)
    assert causes(job_of_a := job().replace("ml/b", "ml/a"), began, job="ml/a") == ["app"]
    assert causes(job_of_a, began) == []
    drain = xid(48, 45.0, action="reset_gpu", severity="fatal")
    assert causes(job_of_a, ended + job(stepped=None) + drain) == ["gpu_memory"], "the GPU's own"


def test_a_reboot_that_somebody_meant_does_not_page():
    severities = {
        reason: incidents(job() + reboot(60.0, reason))[0].severity
        for reason in ("clean", "unexpected")
    }
    assert severities == {"clean": "ticket", "unexpected": "page"}


LOST = {"code": 79, "action": "reboot_node", "severity": "fatal"}


@pytest.mark.parametrize(
    ("fault", "stepped", "over"),
    [
        ({"code": 31}, 0.5, True),
        (LOST, 0.5, True),
        ({"code": 31}, 1190.0, False),
        ({"code": 48, "action": "reset_gpu", "severity": "fatal"}, 0.5, False),
    ],
)
def test_a_fault_that_stops_its_rank_is_over_once_that_makes_steps(fault, stepped, over):
    (found,) = incidents(job(stepped=stepped) + xid(ago=1200.0, **fault))
    assert (found.until_unix_seconds is not None) == over


@pytest.mark.parametrize(("stepped", "cause"), [(40.0, "missing_rank"), (1190.0, "app")])
def test_a_rank_that_ends_long_after_a_fault_ended_by_it_only_if_it_made_no_step_since(
    stepped, cause
):
    ended = f'{training.RANK_ENDED.name}{{job_id="ml/b",rank="2"}} {NOW - 35}\n'
    gone = rank(2, alive=0, stepped=stepped) + ended
    others = "".join(rank(number) for number in (0, 1, 3))
    assert causes(others + gone + xid(31, 1200.0))[0] == cause


def test_a_lost_gpu_that_only_its_address_names_is_not_that_of_ranks_on_others():
    """An agent that was restarted after the loss knows neither its index nor its UUID."""
    known = "".join(
        f'rankscope_gpu_info{{gpu="{gpu}",uuid="GPU-{gpu}",pci="0000:{gpu}b:00"}} 1\n'
        for gpu in (0, 1, 3)
    )
    text = rank(0, job="ml/a") + job() + known + xid(ago=60.0, **LOST).replace('"GPU-2"', '""')
    text = text.replace('gpu="2"', 'gpu=""')
    assert causes(text, job="ml/a") == []
    (found,) = incidents(text)
    assert (found.cause.kind, found.where.ranks) == ("pcie", (2,))
    labels = 'pci="0000:2b:00",sxid="20034",severity="fatal"'
    switch = f"{kernel_log.SXID_ERRORS.name}{{{labels}}} 1\n"
    switch += f"{kernel_log.SXID_LAST.name}{{{labels}}} {NOW - 60}\n"
    assert causes(rank(0, job="ml/a") + known + LOG + switch, job="ml/a") == ["nvlink_fabric"]
