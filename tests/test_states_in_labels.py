"""States that a label tells, as of a GPU or of NCCL's network, hold until another takes over."""

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.verification import evidence as job_evidence
from rankscope_analyzers.verification.evidence import Settings

NOW = 1_795_170_000.0
POD = 'pod_namespace="team",pod_name="llm-0"'
RANK = f'rankscope_rank_info{{job_id="team/llm",rank="0",uuid="GPU-0",{POD}}} 1\n'


def states(action, fallback, reason, net):
    gpu = f'rankscope_gpu_recovery_action{{gpu="0",uuid="GPU-0",action="{action}"}} 1\n'
    network = f'rankscope_nccl_net_info{{{POD},pod_uid="u",net="{net}"}} 1\n'
    state = f'rankscope_nccl_socket_fallback_state{{{POD},reason="{reason}"}} {fallback}\n'
    return RANK + gpu + network + state


AMISS = states("gpu_reset", 1, "no_ib_device", "Socket")
SOUND = states("none", 0, "none", "IB")
UNKNOWN = RANK


def report_of(*pages):
    reads = (*job_reports.READS, *job_evidence.READS)
    observed = from_pages([Page("n1", NOW + 30 * at, one) for at, one in enumerate(pages)], reads)
    evidence, now = job_reports.JobEvidence(observed), NOW + 30 * len(pages)
    (report,) = job_reports.reports(TimingResults(), evidence, now)
    return report, observed


def kinds_after(*pages):
    report, _ = report_of(*pages)
    found = [one.cause.kind for one in report.incidents] + [one.kind for one in report.observations]
    return sorted(found)


def test_a_state_is_reported_until_another_takes_its_place():
    both = ["gpu_recovery_needed", "socket_fallback"]
    assert kinds_after(SOUND, AMISS) == both
    assert kinds_after(AMISS, SOUND) == []
    assert kinds_after(AMISS, SOUND, AMISS) == both
    assert kinds_after(AMISS, UNKNOWN) == both


def test_verify_reads_the_network_that_nccl_uses_now():
    settings = Settings(None, None, 0.3, "auto", frozenset())
    (reading,) = job_evidence.evidence(*report_of(AMISS, SOUND), settings, None, ()).nccl
    assert (reading.fallback, reading.reason, reading.network) == (False, "none", "IB")
