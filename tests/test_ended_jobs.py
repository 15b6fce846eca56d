"""A job that was slow and is over: its incident is too, and whatever is not known to be over."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from rankscope_agent.contract.metrics import watch as metrics
from rankscope_analyzers.fusion import ended_jobs, job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, PageHistory
from rankscope_analyzers.reports import html, job_json, job_summary, job_table, markdown, terminal
from rankscope_analyzers.stragglers.diagnosis import TimingResults
from rankscope_analyzers.watch.series import WatchSeries
from simulated_jobs import START_UNIX_SECONDS, Fault, Job, diagnosed, records

RANKS = 4
ENDED = START_UNIX_SECONDS + 400.0
REFUSED = 'rankscope_training_rings_rejected{reason="x"} 1\n'
NODES = ("node-00000", "node-00001")


@cache
def slow():
    """Return the diagnosis of a job of two nodes whose rank 2 is slow to its end."""
    fault = Fault("compute", (2,), 0.7, first_step=60)
    return diagnosed(records(Job(ranks=RANKS, ranks_per_node=2, faults=(fault,))))


def page(node, at, ranks, *, state=0, ended=None, size=RANKS, pod="", more=""):
    """Return an agent's page about these ranks: a state of None is that of no process at all."""
    lines = [f"rankscope_training_rings {len(ranks)}\nrankscope_snapshot_timestamp_seconds {at}\n"]
    for rank in ranks if state is not None else ():
        labels = f'job_id="job",rank="{rank}"'
        where = f'node="{node}",pod_uid="{pod}"'
        lines.append(f'rankscope_rank_info{{{labels},{where},world_size="{size}"}} 1\n')
        lines.append(f"rankscope_rank_alive{{{labels}}} {state}\n")
        if ended is not None:
            lines.append(f"rankscope_rank_ended_timestamp_seconds{{{labels}}} {ended}\n")
    return Page(node, at, "".join(lines) + more)


def both(at, **of_ranks):
    return [page(NODES[0], at, (0, 1), **of_ranks), page(NODES[1], at, (2, 3), **of_ranks)]


def reported(*looks, judged=True):
    """Return the report after some looks at pages; `judged` adds the steps of the slow job."""
    history = PageHistory(job_reports.READS, polls=9)
    for pages in looks:
        history.add(pages)
    evidence, now = JobEvidence(history.observed()), looks[-1][0].time
    timing = TimingResults((slow(),) if judged else (), {}, ())
    (report,) = job_reports.reports(timing, evidence, now)
    return report


def blind(report):
    """Return a report that lacks records, so that what it does not show is not over for that."""
    return replace(report, missing=("step records of another node",))


def over():
    return reported(both(ENDED + 20.0, ended=ENDED))


def is_over(report):
    (incident,) = [one for one in report.incidents if one.timing]
    assert (incident.cause.kind, incident.where.ranks) == ("gpu_compute", (2,))
    assert (report.over is not None) == incident.ended_with_job
    return incident.ended_with_job


KILLED = """rankscope_kernel_log_info{{source="kmsg"}} 1
rankscope_kernel_pod_last_event_timestamp_seconds{{kind="oom_kill",scope="cgroup",pod_uid="u"}} {}
"""


def killed(at, ended=ENDED):
    """Return pages of the job after one of its processes was killed for its memory."""
    first = page(NODES[0], at, (0, 1), ended=ended, pod="u", more=KILLED.format(ended - 1.0))
    return [first, page(NODES[1], at, (2, 3), ended=ended)]


def test_what_ended_a_job_is_the_answer_and_not_what_made_it_slow_until_then():
    report = reported(killed(ENDED + 20.0))
    assert [one.cause.kind for one in report.incidents] == ["oom_kill", "gpu_compute"]
    assert is_over(report)
    said = job_summary.headline(report)
    assert said.startswith("The job is over: its ranks ended within ")
    assert " UTC. Cause: on node node-00000 a process was killed at its memory limit" in said
    assert job_json.as_object(report)["verdict"]["summary"] == said
    (row,) = job_table.rows([report])
    assert (row.state, row.kind) == ("failed", "oom_kill")


def test_what_made_a_job_slow_is_over_when_the_job_is():
    report = over()
    assert is_over(report)
    assert report.incidents[0].until_unix_seconds == ENDED
    assert not is_over(reported(both(ENDED + 20.0, state=1)))


@pytest.mark.parametrize(("idle", "said"), [(59.0, "UTC."), (122.0, "UTC, 122 s after its last")])
def test_a_job_that_was_ended_long_after_its_last_step_says_so(idle, said):
    """Whoever killed a hung job asks what was wrong with it."""
    ended = slow().frame.ended_unix_seconds + idle
    report = reported(both(ended + 20.0, ended=ended))
    assert f" {said}" in job_summary.headline(report).partition("Until then")[0]


SOCKETS = (
    'rankscope_nccl_socket_fallback_state{pod_namespace="",pod_name="",reason="no_ib_device"} 1\n'
)


def test_how_its_processes_ran_is_over_too_though_their_log_is_still_there():
    """NCCL's lines of a pod stay for as long as the pod."""
    watch = WatchSeries()

    def sockets(at, **of_ranks):
        report = blind(reported(both(at, more=SOCKETS, **of_ranks)))
        watch.update([report], at)
        (found,) = [one for one in report.incidents if one.cause.kind == "socket_fallback"]
        return found

    assert not sockets(ENDED - 20.0, state=1).ended_with_job
    found = sockets(ENDED + 20.0, ended=ENDED)
    assert (found.ended_with_job, found.until_unix_seconds) == (True, ENDED)
    (said,) = [one.sentence for one in watch.events if one.kind == "socket_fallback"]
    assert said.startswith("over, the job ended at 2025-10-09 09:00:00 UTC: NCCL carries data ")


def test_how_processes_ran_is_over_also_if_nobody_saw_when_and_never_before_it_began():
    now = ENDED + 20.0
    report = reported(both(now, more=SOCKETS), judged=False)
    (found,) = report.incidents
    assert report.over.since_unix_seconds is None
    assert (found.ended_with_job, found.until_unix_seconds) == (True, now)
    later = replace(found.cause, since_unix_seconds=ENDED, until_unix_seconds=None)
    (ended,) = ended_jobs.of_processes_ended([later], ENDED - 30.0)
    assert ended.until_unix_seconds == ENDED
    (marked,) = ended_jobs.marked([replace(found, cause=ended, until_unix_seconds=ENDED)], (), 0.0)
    assert marked.ended_with_job


def test_what_came_after_an_end_of_unknown_time_is_not_called_its_cause():
    at = ENDED + 20.0
    first = page(NODES[0], at, (0, 1), pod="u", more=KILLED.format(ENDED + 10.0))
    report = reported([first, page(NODES[1], at, (2, 3))])
    assert "oom_kill" in {one.cause.kind for one in report.incidents}
    assert "; when it ended was not observed. Until then: " in job_summary.headline(report)
    (row,) = job_table.rows([report])
    assert row.state != "failed"


OBJECTIVE = """rankscope_checkpoint_objective_seconds 60
rankscope_checkpoint_last_success_timestamp_seconds{{job_id="job",rank="0"}} {}
"""


def test_what_only_running_jobs_have_ends_with_the_job_whatever_else_is_not_known():
    watch = WatchSeries()
    more = OBJECTIVE.format(ENDED - 300.0)
    for at, of_ranks in ((ENDED - 20.0, {"state": 1}), (ENDED + 20.0, {"ended": ENDED})):
        watch.update([blind(reported(both(at, more=more, **of_ranks)))], at)
    said = {one.kind: one.sentence for one in watch.events}
    assert said["checkpoint_overdue"].startswith("over, the job ended at 2025-10-09 09:00:00 UTC")
    assert metrics.FINDING_ACTIVE not in {one.metric for one in watch.samples()}


@pytest.mark.parametrize("judged", [True, False])
def test_a_hang_that_ended_in_a_kill_did_not_recover(judged):
    """The end of the job is then part of the incident of the kill."""
    watch = WatchSeries()
    stood = "".join(
        f'rankscope_last_step_timestamp_seconds{{job_id="job",rank="{rank}"}} {ENDED - 50.0}\n'
        for rank in range(RANKS)
    )
    standing = reported(both(ENDED + 60.0, state=1, more=stood), judged=judged)
    watch.update([standing], ENDED + 60.0)
    assert "hang" in {one.kind for one in watch.events}
    watch.update([reported(killed(ENDED + 120.0, ENDED + 90.0), judged=judged)], ENDED + 120.0)
    (said,) = [one.sentence for one in watch.events if one.kind == "hang"]
    assert said.startswith("over, the job ended at 2025-10-09 09:01:30 UTC: no step since ")


def test_the_series_of_the_incident_end_and_the_event_says_why():
    watch = WatchSeries()
    watch.update([reported(both(ENDED - 20.0, state=1))], ENDED - 20.0)
    active = metrics.FINDING_ACTIVE
    assert [one.value for one in watch.samples() if one.metric == active] == [1]
    watch.update([over()], ENDED + 20.0)
    (event,) = watch.events
    assert (event.change, event.kind) == ("over", "gpu_compute")
    assert event.sentence.startswith("over, the job ended at 2025-10-09 09:00:00 UTC: rank 2 ")
    shown = {one.metric: one.value for one in watch.samples()}
    assert not {active, metrics.FINDING_SEEN} & shown.keys()
    assert shown[metrics.FINDING_RECOVERED] == ENDED
    watch.update([over()], ENDED + 40.0)
    assert watch.events == ()


def test_it_ends_too_where_something_else_could_not_be_read():
    watch = WatchSeries()
    watch.update([reported(both(ENDED - 20.0, state=1))], ENDED - 20.0)
    watch.update([blind(over())], ENDED + 20.0)
    assert [event.change for event in watch.events] == ["over"]
    assert metrics.FINDING_ACTIVE not in {one.metric for one in watch.samples()}


def test_a_job_that_is_over_loses_no_time_any_longer():
    def lost(watch):
        return sum(one.value for one in watch.samples() if one.metric == metrics.LOST_GPU_SECONDS)

    watch = WatchSeries()
    watch.update([over()], ENDED + 20.0)
    watch.update([over()], ENDED + 50.0)
    watch.announce_sums()
    assert lost(watch) == 0


@pytest.mark.parametrize(
    "pages",
    [
        both(ENDED + 20.0, ended=ENDED)[:1],
        [both(ENDED - 30.0, state=1)[0], both(ENDED + 20.0, ended=ENDED)[1]],
        both(ENDED + 20.0, ended=ENDED, size=2 * RANKS),
    ],
    ids=["its agent never answered", "nor any longer", "ranks without any record"],
)
def test_ranks_whose_agent_is_silent_may_live(pages):
    assert not is_over(reported(pages))


def test_steps_after_the_end_are_those_of_a_job_that_was_started_again():
    stepped = slow().frame.ended_unix_seconds
    assert is_over(reported(both(stepped + 1.0, ended=stepped + 0.1)))
    assert not is_over(reported(both(stepped + 1.0, ended=stepped - 60.0)))


def test_an_end_that_no_agent_saw_is_an_end():
    """After its restart an agent knows only that the processes are gone."""
    report = reported(both(ENDED + 20.0))
    assert is_over(report)
    stepped = slow().frame.ended_unix_seconds
    assert report.incidents[0].until_unix_seconds == stepped
    said = job_summary.headline(report)
    assert said.startswith("The job is over: all its processes have ended, its last step ended at")
    assert "; when it ended was not observed. Until then: rank 2 " in said
    (row,) = job_table.rows([report])
    assert (row.state, row.kind) == ("ended", "")


def test_a_job_is_over_of_which_all_its_agents_know_no_process_any_longer():
    """They drop a job ten minutes after its end; its records are judged for half an hour."""
    looks = [both(ENDED + seconds, state=None) for seconds in (600.0, 615.0)]
    report = reported(*looks)
    assert is_over(report)
    assert "no process of it is left" in job_summary.headline(report)


@pytest.mark.parametrize(
    "looks",
    [
        [both(ENDED + 615.0, state=None)],
        [both(ENDED + seconds, state=None)[:1] for seconds in (600.0, 615.0)],
        [both(ENDED + seconds, state=None)[:1] for seconds in (600.0, 700.0)]
        + [both(ENDED + 700.0, state=None)[:1]],
        [
            both(
                ENDED + seconds, state=None, more='rankscope_training_rings_rejected{reason="x"} 1'
            )
            for seconds in (600.0, 615.0)
        ],
        [
            both(ENDED + seconds, state=None, more="rankscope_page_series_dropped 3\n")
            for seconds in (600.0, 615.0)
        ],
        [both(slow().frame.ended_unix_seconds + late, state=None) for late in (2.0, 17.0)],
    ],
    ids=["started just now", "silent", "silent for long", "refused", "cut off", "has just stepped"],
)
def test_agents_that_may_not_show_all_ranks_end_nothing(looks):
    assert not is_over(reported(*looks))


def text(report):
    console = Console(no_color=True, width=500)
    with console.capture() as shown:
        terminal.show(console, [report])
    return shown.get()


def test_reports_begin_with_the_end_and_mention_it_once():
    report = over()
    said = job_summary.headline(report)
    began = "The job is over: its ranks ended within "
    assert said.startswith(began)
    assert " UTC. Until then: rank 2 (node node-00001" in said
    assert "at 2025-10-09 09:00:00 UTC" in said
    shown = text(report)
    assert said.replace("then: ", "then: gpu_compute: ") in shown
    assert "It cost " in shown
    assert "while it lasted" in shown
    for page_of in (shown, markdown.write([report]), html.write([report])):
        assert page_of.count(began.rstrip()) + page_of.count(began.rstrip().lower()) >= 1
        for words in ("harmless so far", "so far", "without an effect"):
            assert words not in page_of
    found = job_json.as_object(report)
    assert found["verdict"]["summary"] == said
    assert found["incidents"][0]["until_unix_seconds"] == ENDED
