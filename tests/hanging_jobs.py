"""Jobs that stand still: their agents' pages, where their ranks stand, and reports on them."""

from __future__ import annotations

from dataclasses import replace

from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import pods, starvation, training
from rankscope_agent.contract.stalls import Call, GroupCalls, RankStall
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from simulated_jobs import Job, diagnosed, records

NOW = 1_760_000_300.0
OFFSET = -37.0
"""Seconds that the nodes' clocks are ahead of ours, too little to be noticed."""

SERIES = {
    "alive": training.RANK_ALIVE,
    "ended": training.RANK_ENDED,
    "last": training.LAST_STEP_TIMESTAMP,
    "seconds": training.LAST_STEP_SECONDS,
    "step": training.LAST_STEP,
    "steps": training.STEPS,
    "spent": training.STEP_SECONDS,
    "stopped": starvation.RANK_STOPPED,
    "started": pods.RANK_STARTED,
}
DATED = ("ended", "last", "started")


def page(node="n1", *, first=0, size=4, read=0.0, told=True, offset=OFFSET, **values):
    """Return a node's page; moments are seconds before it was made, None where absent."""
    lines = []
    for name, of_ranks in values.items():
        for rank, value in enumerate(of_ranks, start=first):
            if value is not None:
                number = NOW - read + offset - value if name in DATED else value
                lines.append(f'{SERIES[name].name}{{job_id="job",rank="{rank}"}} {number}\n')
    count = max(map(len, values.values()))
    lines += [
        f'{training.RANK_INFO.name}{{job_id="job",rank="{rank}",node="{node}",world_size="{size}"}}'
        " 1\n"
        for rank in range(first, first + count)
    ]
    if told:
        lines.append(f"{agent_metrics.SNAPSHOT_TIMESTAMP.name} {NOW - read + offset}\n")
    return Page(node, NOW - read, "".join(lines))


def training_page(quiet, ranks=4, **more):
    """Return the page of ranks that all made their newest step, of 0.2 s, so long ago."""
    known = {
        "alive": [1] * ranks,
        "last": [quiet] * ranks,
        "seconds": [0.2] * ranks,
        "steps": [500] * ranks,
        "spent": [100.0] * ranks,
    }
    return page(**known | more)


def reported(*pages, judged=None, after=60.0):
    timing = TimingResults((judged,) if judged else (), {}, ())
    evidence = JobEvidence(from_pages(pages, job_reports.READS))
    (report,) = job_reports.reports(timing, evidence, NOW, hang_after_seconds=after)
    return report


def hung(*pages, judged=None, after=60.0):
    """Return the ranks that the others wait for, None where the job is not called hung."""
    standing = [one for one in reported(*pages, judged=judged, after=after).incidents if one.stands]
    return standing[0].where.ranks if standing else None


def steps(job=None, **long):
    """Return a diagnosis of steps of 1 s; `long` makes some of them longer: s120=300."""
    rows = records(job or Job())
    for name, seconds in long.items():
        rows.loc[rows["step"] == int(name[1:]), ["sync_seconds", "step_seconds"]] += seconds
    return diagnosed(rows)


def standing(late, *, age=60.0, stepped=True):
    """Return where four ranks stand, of which one has not entered the others' collective."""
    taken = NOW + OFFSET
    done = Call("gloo:all_reduce", 4, False, "8 Float", taken - age - 1, True)
    open_call = replace(done, sequence=5, created_unix_seconds=taken - age, done=False)
    found = []
    for rank in range(4):
        calls = (done,) if rank == late else (done, open_call)
        group = GroupCalls("0", "default_pg", (), calls[-1].sequence, calls)
        found.append(RankStall("job", rank, 4, taken, age, stepped, "S", 1.0, (group,), "", (), ""))
    return {"job": found}


def reported_with(stalls, *pages, after=60.0):
    evidence = JobEvidence(from_pages(pages, job_reports.READS), stalls=stalls)
    nothing = TimingResults((), {}, ())
    (report,) = job_reports.reports(nothing, evidence, NOW, hang_after_seconds=after)
    return report
