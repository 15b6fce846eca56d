"""Processes that the kernel ended: a verdict for the job whose pod it was, and for no other."""

from __future__ import annotations

import pytest

from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnose_each
from simulated_jobs import Job, records

NOW = 1_800_000_000.0
NOBODY = TimingResults((), {}, ())
LAST = "rankscope_kernel_pod_last_event_timestamp_seconds"


def pod(job: str, uid: str, ranks: range, alive: int = 1, name: str = "") -> str:
    """Return what a page says of a pod with ranks of a job."""
    where = f'pod_uid="{uid}",pod_namespace="{job.partition("/")[0]}",pod_name="{name or uid}"'
    lines = [f'rankscope_pod_job_info{{job_id="{job}",{where}}} 1\n']
    for rank in ranks:
        keys = f'job_id="{job}",rank="{rank}"'
        lines.append(f"rankscope_rank_info{{{keys},{where}}} 1\n")
        lines.append(f"rankscope_rank_alive{{{keys}}} {alive}\n")
    return "".join(lines)


def hit(uid: str, kind: str = "oom_kill", scope: str = "cgroup", ago: float = 300.0) -> str:
    return f'{LAST}{{kind="{kind}",scope="{scope}",pod_uid="{uid}"}} {NOW - ago}\n'


LOG = 'rankscope_kernel_log_info{source="kmsg"} 1\n'
TWO_JOBS = pod("ml/a", "u-a", range(4)) + pod("ml/b", "u-b", range(2))


def kills(uid: str, count: int) -> str:
    return f'rankscope_pod_oom_kills_total{{pod_uid="{uid}"}} {count}\n'


def reported(*texts: str, timing: TimingResults = NOBODY) -> dict[str, tuple[list[str], list[str]]]:
    """Return the causes of each job's incidents and its observations, of pages a minute apart."""
    pages = [
        Page("n1", NOW - 60.0 * (len(texts) - 1 - number), text)
        for number, text in enumerate(texts)
    ]
    evidence = JobEvidence(from_pages(pages, job_reports.READS))
    return {
        report.job_id: (
            [one.cause.kind for one in report.incidents],
            [one.kind for one in report.observations],
        )
        for report in job_reports.reports(timing, evidence, NOW)
    }


@pytest.mark.parametrize("scope", ["cgroup", "node"])
def test_a_kill_is_the_verdict_of_the_job_whose_pod_it_was_and_of_no_other(scope):
    found = reported(TWO_JOBS + LOG + hit("u-b", scope=scope))
    assert found == {"ml/a": ([], []), "ml/b": (["oom_kill"], [])}


def test_a_crash_likewise():
    found = reported(TWO_JOBS + LOG + hit("u-a", "user_fault", ""))
    assert found == {"ml/a": (["app"], []), "ml/b": ([], [])}


def test_it_names_the_ranks_of_the_pod():
    text = pod("ml/a", "u-a", range(2)) + pod("ml/a", "u-c", range(2, 4)) + hit("u-c")
    evidence = JobEvidence(from_pages([Page("n1", NOW, text)], job_reports.READS))
    (report,) = job_reports.reports(NOBODY, evidence, NOW)
    (incident,) = report.incidents
    assert (incident.where.ranks, incident.severity) == ((2, 3), "page")
    assert "killed at its memory limit" in incident.summary


@pytest.mark.parametrize(
    "line",
    [
        hit("u-of-nobody"),
        hit("u-of-nobody", "user_fault", ""),
        hit("", scope="node"),
        hit("", "user_fault", ""),
    ],
)
def test_one_of_which_nobody_knows_whose_it_was_is_a_note_and_no_verdict(line):
    found = reported(TWO_JOBS + LOG + line)
    assert found == {job: ([], ["unattributed_kill"]) for job in ("ml/a", "ml/b")}


def test_nothing_is_said_of_what_is_older_than_an_hour():
    found = reported(TWO_JOBS + LOG + hit("u-a", ago=3700.0) + hit("x", ago=3700.0))
    assert found == {"ml/a": ([], []), "ml/b": ([], [])}


@pytest.mark.parametrize(("ago", "causes"), [(200.0, []), (20.0, ["oom_kill"])])
def test_nothing_is_said_of_what_was_before_the_jobs_first_step(ago, causes):
    rows = records(Job(ranks=4, steps=80))
    rows["t_start_unix_seconds"] += NOW - 100.0 - rows["t_start_unix_seconds"].min()
    timing = diagnose_each([JobRecords("ml/a", rows, 4, (), live=True)])
    found = reported(pod("ml/a", "u-a", range(4)) + LOG + hit("u-a", ago=ago), timing=timing)
    assert found["ml/a"][0] == causes


@pytest.mark.parametrize(("stepped", "cause"), [(40.0, "missing_rank"), (290.0, "oom_kill")])
def test_a_rank_ended_by_an_earlier_kill_only_if_it_made_no_step_since(stepped, cause):
    lines = []
    for rank in range(2):
        keys = f'job_id="ml/a",rank="{rank}"'
        lines.append(f"rankscope_last_step_timestamp_seconds{{{keys}}} {NOW - stepped}\n")
    lines.append(f'rankscope_rank_ended_timestamp_seconds{{job_id="ml/a",rank="0"}} {NOW - 35}\n')
    pods = pod("ml/a", "u-a", range(1), alive=0) + pod("ml/a", "u-a", range(1, 2))
    assert reported(pods + "".join(lines) + LOG + hit("u-a"))["ml/a"][0][0] == cause


def test_what_the_log_and_the_pods_own_counter_tell_is_told_once():
    before, after = (TWO_JOBS + LOG + kills("u-a", n) + kills("u-b", n) for n in (0, 1))
    evidence = from_pages(
        [Page("n1", NOW - 60, before), Page("n1", NOW, after + hit("u-a"))], job_reports.READS
    )
    reports = job_reports.reports(NOBODY, JobEvidence(evidence), NOW)
    told = {
        report.job_id: [
            finding.layer
            for one in report.incidents
            for finding in (one.cause, *one.findings)
            if finding.kind == "oom_kill"
        ]
        for report in reports
    }
    assert told == {"ml/a": ["kernel"], "ml/b": ["host"]}


def test_the_nodes_own_counter_is_nobodys_verdict_where_pods_are():
    nodes = "rankscope_oom_kills_total {}\n"
    assert reported(*(TWO_JOBS + nodes.format(n) for n in (0, 3))) == {
        job: ([], ["unattributed_kill"]) for job in ("ml/a", "ml/b")
    }
    own = [TWO_JOBS + nodes.format(n) + kills("u-a", n) + kills("u-b", 0) for n in (0, 3)]
    assert reported(*own) == {"ml/a": (["oom_kill"], []), "ml/b": ([], [])}
    logged = [TWO_JOBS + LOG + nodes.format(n) for n in (0, 3)]
    assert reported(*logged) == {"ml/a": ([], []), "ml/b": ([], [])}


BARE = "".join(f'rankscope_rank_info{{job_id="1234",rank="{n}"}} 1\n' for n in range(2))
ALIVE = 'rankscope_rank_alive{{job_id="1234",rank="0"}} {}\n'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (hit("", scope="node"), (["oom_kill"], [])),
        (hit(""), (["oom_kill"], [])),
        (hit("", "user_fault", "") + ALIVE.format(1), ([], ["unattributed_kill"])),
        (hit("", "user_fault", "") + ALIVE.format(0), (["app"], [])),
        (hit("u-1"), ([], ["unattributed_kill"])),
    ],
)
def test_outside_of_pods_a_kill_is_of_the_node_and_a_crash_of_a_job_that_lost_a_rank(line, found):
    assert reported(BARE + LOG + line) == {"1234": found}


OTHER = BARE.replace("1234", "1235") + ALIVE.replace("1234", "1235").format(1)


def ended(ago):
    when = f'rankscope_rank_ended_timestamp_seconds{{job_id="1234",rank="0"}} {NOW - ago}\n'
    return BARE + ALIVE.format(0) + when


@pytest.mark.parametrize(
    ("states", "owners"),
    [(ended(ago=299.0), ["1234"]), (ended(ago=500.0), []), (BARE + ALIVE.format(1), [])],
    ids=["lost a rank then", "was over before", "lives"],
)
def test_of_two_jobs_outside_of_pods_a_kill_is_that_of_the_one_that_lost_a_rank(states, owners):
    found = reported(states + OTHER + LOG + hit(""))
    assert [job for job, (causes, _) in found.items() if "oom_kill" in causes] == owners
    assert "unattributed_kill" in found["1235"][1]
    counts = [states + OTHER + f"rankscope_oom_kills_total {count}\n" for count in (0, 3)]
    assert "unattributed_kill" in reported(*counts)["1235"][1]


@pytest.mark.parametrize(("ago", "causes"), [(900.0, ["oom_kill"]), (10.0, [])])
def test_a_kill_is_that_of_the_only_job_that_ran_then_though_another_is_remembered(ago, causes):
    over = ended(ago).replace(BARE, BARE.splitlines(keepends=True)[0])
    counts = [over + OTHER + f"rankscope_oom_kills_total {count}\n" for count in (0, 1)]
    assert reported(*counts)["1235"][0] == causes
    assert reported(over + OTHER + LOG + hit("", ago=5.0))["1235"][0] == causes


def test_a_rank_that_an_earlier_kill_ended_keeps_it_after_the_next_kill_of_the_node():
    pages = [ended(ago=299.0) + OTHER + LOG + hit("", ago=ago) for ago in (300.0, 200.0)]
    assert "oom_kill" in reported(*pages)["1234"][0]


def test_a_pod_without_a_probe_is_known_by_the_name_that_its_uid_has():
    held = (
        'rankscope_gpu_allocation_info{job_id="ml/a",rank="0",uuid="g",gpu="0",'
        'pod_namespace="ml",pod_name="w0"} 1\n'
        'rankscope_pod_job_info{job_id="ml/a",pod_uid="u-a",pod_namespace="ml",pod_name="w0"} 1\n'
    )
    assert reported(held + hit("u-a")) == {"ml/a": (["oom_kill"], [])}
