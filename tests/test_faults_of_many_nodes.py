"""What it takes to judge the faults of a job grows with its nodes, not with their square."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import gpus, host, kernel_log, nccl_ras, training
from rankscope_analyzers.findings.finding import Where
from rankscope_analyzers.fusion import incidents, job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers import hang_evidence
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.rank_locations import rank_locations
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from test_incidents import judged, seen

NOW = 1_800_000_000.0
NODES = 8


def rank(number):
    """Return what a page says of a rank in a pod of its own."""
    labels = f'job_id="ml/b",rank="{number}"'
    pod = f'pod_uid="u{number}",pod_namespace="ml",pod_name="w{number}"'
    return (
        f'{training.RANK_INFO.name}{{{labels},uuid="GPU-{number}",local_rank="0",{pod}}} 1\n'
        f"{training.RANK_ALIVE.name}{{{labels}}} 1\n"
        f"{training.LAST_STEP_TIMESTAMP.name}{{{labels}}} {NOW - 1}\n"
        f'{gpus.GPU_INFO.name}{{gpu="0",uuid="GPU-{number}",pci="0000:1b:00"}} 1\n'
    )


def xid(code, number, severity, action, *, named):
    gpu = f'gpu="0",uuid="GPU-{number}"' if named else 'gpu="",uuid=""'
    labels = f'{gpu},pci="0000:1b:00",xid="{code}",severity="{severity}",action="{action}"'
    return (
        f'{kernel_log.KERNEL_LOG_INFO.name}{{source="kmsg"}} 1\n'
        f"{kernel_log.XID_ERRORS.name}{{{labels}}} 1\n"
        f"{kernel_log.XID_LAST.name}{{{labels}}} {NOW - 30}\n"
    )


def kills(number, count):
    return f'{host.POD_OOM_KILLS.name}{{pod_uid="u{number}"}} {count}\n'


FAULTS = {
    "GPU": lambda number: xid(79, number, "fatal", "reboot_node", named=True),
    "GPU's address": lambda number: xid(43, number, "error", "restart_app", named=False),
    "kill": lambda number: kills(number, 1),
}


@pytest.fixture
def looks(monkeypatch):
    """Return a list to which each look at a metric of all nodes is added."""
    taken = []
    named = Observed.named

    def counted(self, name):
        taken.append(name)
        return named(self, name)

    monkeypatch.setattr(Observed, "named", counted)
    return taken


def observed(fault, faulty):
    """Return what is read of a job, some of whose nodes have had a fault by the second page."""
    before = [Page(f"n{n}", NOW - 30, rank(n) + kills(n, 0)) for n in range(NODES)]
    after = [
        Page(f"n{n}", NOW, rank(n) + (fault(n) if n < faulty else kills(n, 0)))
        for n in range(NODES)
    ]
    return from_pages([*before, *after], job_reports.READS)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_of_all_nodes_take_no_more_looks_at_them_than_one(fault, looks):
    taken = {}
    for faulty in (1, NODES):
        evidence = JobEvidence(observed(fault, faulty))
        looks.clear()
        (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
        assert sum(len(one.where.nodes) for one in report.incidents) == faulty
        taken[faulty] = len(looks)
    assert taken[1] == taken[NODES]


def test_what_ras_counts_on_all_nodes_takes_no_more_looks_than_what_it_counts_on_one(looks):
    lag = (
        f'{nccl_ras.RAS_LAG.name}{{op="AllReduce"}} 1\n{nccl_ras.RAS_LAGGING_RANK.name} 1\n'
        f"{nccl_ras.RAS_LAGGING_RANKS.name} 1\n{nccl_ras.RAS_RANKS.name} {NODES}\n"
    )
    taken = []
    for asked in (1, NODES):
        read = observed(lambda _: lag, asked)
        job = job_view("ml/b", rank_locations(read).jobs["ml/b"])
        looks.clear()
        assert hang_evidence.by_ras(read, job, NODES) == hang_evidence.NOBODY
        taken.append(len(looks))
    assert taken[0] == taken[1]


def test_what_faults_explain_is_looked_up_by_their_number_and_not_its_square(monkeypatch):
    looked_up = []
    kind_of = incidents.kind_of
    monkeypatch.setattr(incidents, "kind_of", lambda kind: looked_up.append(kind) or kind_of(kind))
    counts = []
    for number in (20, 40):
        looked_up.clear()
        faults = [seen("oom_kill", "host", where=Where(nodes=(f"n{n}",))) for n in range(number)]
        assert len(judged((), faults).incidents) == number
        counts.append(len(looked_up))
    assert counts[1] <= 2 * counts[0]
