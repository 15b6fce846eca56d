"""Jobs that stand still: what is said of them, and the pauses that are none."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rankscope_agent.contract.flight_dump import Frame
from rankscope_agent.contract.metrics import agent as agent_metrics
from rankscope_agent.contract.metrics import pods, starvation, training
from rankscope_agent.contract.model import FLAG_FIRST
from rankscope_agent.contract.stalls import Call, GroupCalls, RankStall
from rankscope_analyzers.fusion import job_reports
from rankscope_analyzers.fusion.job_reports import JobEvidence
from rankscope_analyzers.intake.page_history import Page, PageHistory, from_pages
from rankscope_analyzers.layers import hang
from rankscope_analyzers.layers.job_view import job_view
from rankscope_analyzers.layers.pace import OpenSpan, Pace
from rankscope_analyzers.reports import html, job_json, job_summary, terminal
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch.series import WatchSeries
from simulated_jobs import Fault, Job, diagnosed, records

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


def test_a_job_without_steps_for_a_minute_is_hung_and_the_first_line_says_since_when():
    report = reported(training_page(70.0), judged=steps())
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks, incident.severity) == ("hang", (), "page")
    assert job_summary.headline(report) == (
        "no step since 2025-10-09 08:56:33 UTC (70 s ago), usual step 1.20 s."
    )
    assert incident.cost is not None
    assert incident.cost.lost_fraction == 1.0
    assert incident.cost.gpu_hours == pytest.approx(70.0 * 8 / 3600)
    verdict = job_json.as_object(report)["verdict"]
    assert (verdict["class"], verdict["lost_fraction"]) == ("hang", 1.0)
    assert verdict["summary"].startswith("no step since ")


def test_without_step_records_the_agents_sums_say_what_a_usual_step_is():
    report = reported(training_page(70.0))
    assert job_summary.headline(report) == (
        "no step since 2025-10-09 08:56:33 UTC (70 s ago), usual step 200.0 ms."
    )
    verdict = job_json.as_object(report)["verdict"]
    assert (verdict["class"], verdict["lost_fraction"]) == ("hang", 1.0)


@pytest.mark.parametrize("after", [5.0, 60.0, 300.0])
def test_the_least_time_is_the_users_choice(after):
    assert hung(training_page(after - 1), after=after) is None
    assert hung(training_page(after + 1), after=after) == ()


@pytest.mark.parametrize(("quiet", "called"), [(119.0, None), (121.0, ())])
def test_an_agent_that_does_not_tell_its_time_may_be_wrong_by_a_minute(quiet, called):
    assert hung(training_page(quiet, told=False, offset=0.0)) == called


@pytest.mark.parametrize(("started", "called"), [(59.0, None), (61.0, ())])
def test_a_program_has_a_minute_to_be_loaded_however_impatient_the_user_is(started, called):
    assert hung(page(started=[started] * 4), after=2.0) == called


def test_that_nothing_moves_is_as_good_as_sure():
    assert reported(training_page(70.0)).incidents[0].confidence == pytest.approx(0.9)


HEALTHY = {
    "between two steps": [training_page(3.0)],
    "a pause of a minute less a second": [training_page(59.0)],
    "ended as it should": [training_page(900.0, alive=[0] * 4, ended=[900.0] * 4)],
    "ended with a rank that writes the model at the end": [
        training_page(900.0, alive=[1, 0, 0, 0], ended=[None, 900.0, 900.0, 900.0])
    ],
    "scaled to 0: its series are gone from newer pages": [
        training_page(3.0, read=600.0),
        page("n1", stopped=[0]),
    ],
    "its agents gave no answer for ten minutes": [training_page(3.0, read=600.0)],
    "one agent gave no answer for ten minutes": [
        training_page(2.0, ranks=2),
        training_page(2.0, ranks=2, node="n2", first=2, read=600.0),
    ],
    "the agent's clock is three minutes ahead": [training_page(3.0, offset=180.0)],
    "the agent's clock is three minutes behind": [training_page(3.0, offset=-180.0)],
    "the agent does not tell its time, and clocks differ": [
        training_page(65.0, told=False, offset=0.0)
    ],
    "the clocks of two nodes are a minute apart": [
        training_page(3.0, ranks=2, offset=30.0),
        training_page(3.0, ranks=2, node="n2", first=2, offset=-30.0),
    ],
    "an agent that was restarted shows the rings' newest steps": [
        training_page(3.0, read=31.0),
        training_page(1.0, steps=[510] * 4),
    ],
    "a first step of nine minutes": [page(started=[540.0] * 4)],
    "a first step of nine minutes after a restart": [
        page(alive=[0] * 4, ended=[600.0] * 4, steps=[500] * 4, started=[540.0] * 4)
    ],
    "a second step of nine minutes after a restart": [
        page(alive=[1] * 4, steps=[500] * 4, started=[540.0] * 4)
    ],
    "a program without an optimizer": [page(alive=[1] * 4, steps=[0] * 4, started=[9000.0] * 4)],
    "a rank that joins while the others wait for it": [
        page(started=[5000.0, 5000.0, 5000.0, 30.0])
    ],
    "one rank goes on for the others' agents are slow": [
        training_page(100.0, ranks=2, read=40.0),
        training_page(1.0, ranks=2, node="n2", first=2),
    ],
}


@pytest.mark.parametrize("pages", HEALTHY.values(), ids=HEALTHY)
def test_pauses_that_every_healthy_job_has_are_no_hang(pages):
    assert hung(*pages) is None


@pytest.mark.parametrize(
    ("usual", "quiet"),
    [
        ({"s120": 200.0}, 380.0),  # a checkpoint or an evaluation took as long before
        ({"job": Job(compute=20.0)}, 95.0),  # long steps
    ],
    ids=["a checkpoint as long as the last one", "steps of 20 s"],
)
def test_a_jobs_own_past_says_how_long_a_pause_may_be(usual, quiet):
    judged = steps(**usual)
    assert hung(training_page(quiet), judged=judged) is None
    assert hung(training_page(3 * quiet), judged=judged) == ()


def spans(*open_spans, quiet=700.0):
    """Say whether a job is hung whose ranks are in these spans."""
    view = replace(
        job_view("job", {}), now_unix_seconds=NOW, pace=Pace(0.2, 0.3, 0.3), open_spans=open_spans
    )
    observed = from_pages([training_page(quiet)], job_reports.READS)
    return bool(list(hang.findings(observed, view)))


@pytest.mark.parametrize("kind", ["checkpoint", "evaluation", "compile"])
def test_a_span_that_a_probe_marks_may_take_twice_as_long_as_the_longest_one(kind):
    began = NOW + OFFSET - 650.0
    assert spans()
    assert not spans(OpenSpan(0, kind, began, 400.0))
    assert spans(OpenSpan(0, kind, began, 300.0))
    assert not spans(OpenSpan(0, kind, began, None))
    assert spans(OpenSpan(0, kind, began - 1300.0, None), quiet=2000.0)


def test_a_stopped_rank_explains_a_hang_and_is_its_culprit_before_the_minute_is_over():
    report = reported(training_page(12.0, stopped=[0, 0, 1, 0]))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks) == ("rank_stopped", (2,))
    said = job_summary.headline(report)
    assert said.startswith("no step since 2025-10-09 08:57:31 UTC (12 s ago), usual step 200.0 ms,")
    assert "because rank 2 (node n1) is stopped by a signal" in said
    assert job_json.as_object(report)["verdict"]["ranks"] == [2]


def test_a_rank_that_is_gone_explains_a_hang():
    pages = training_page(90.0, alive=[1, 1, 0, 1], ended=[None, None, 89.0, None])
    (incident,) = reported(pages).incidents
    assert (incident.cause.kind, incident.where.ranks) == ("missing_rank", (2,))
    assert incident.stands


def test_ranks_that_did_not_end_the_newest_step_are_whom_the_others_wait_for():
    report = reported(training_page(90.0, step=[41, 41, 40, 41]))
    assert report.incidents[0].where.ranks == (2,)
    assert "; rank 2 ended step 40, the others 41" in report.incidents[0].summary
    assert hung(training_page(90.0, step=[40, 40, 40, 41])) == ()  # three are no culprits
    assert hung(training_page(90.0, step=[41] * 4)) == ()


def test_processes_that_take_no_first_step_are_hung_after_ten_minutes_and_absent_ranks_are_named():
    assert hung(page(started=[599.0, 900.0])) is None
    report = reported(page(started=[610.0, 900.0, None, 800.0]))
    (incident,) = report.incidents
    assert (incident.cause.kind, incident.where.ranks, incident.confidence) == ("hang", (2,), 0.7)
    assert incident.summary == (
        "no step since the processes of ranks 0, 1, 3 were started at 2025-10-09 08:47:33 UTC"
        " (10 min ago), usual step unknown; no process of rank 2 is seen"
    )


def test_a_job_that_does_not_come_back_from_a_restart_is_hung_and_not_over():
    pages = page(alive=[0] * 4, ended=[950.0] * 4, steps=[500] * 4, started=[900.0] * 4)
    report = reported(pages)
    assert [one.cause.kind for one in report.incidents] == ["hang"]
    assert report.observations == ()
    second = page(alive=[1] * 4, steps=[500] * 4, started=[900.0] * 4)
    assert hung(second) == ()


@pytest.mark.parametrize(
    ("took", "waited", "called"),
    [(400.0, 790.0, False), (400.0, 810.0, True), (10.0, 590.0, False), (10.0, 610.0, True)],
)
def test_a_first_step_may_take_twice_as_long_as_the_jobs_first_steps_did(took, waited, called):
    rows = records(Job())
    first = rows["step"] == rows["step"].min()
    rows.loc[first, "flags"], rows.loc[first, "step_seconds"] = FLAG_FIRST, took
    older, newest = rows[first], rows[~first]
    job = JobRecords("job", newest, None, (), live=True, start=older)
    followed = FollowedJobs()
    diagnose_each([job], followed)
    later = diagnose_each([replace(job, start=None)], followed)
    for timing in (diagnose_each([job]), later):
        again = page(alive=[0] * 4, ended=[950.0] * 4, steps=[9] * 4, started=[waited] * 4)
        evidence = JobEvidence(from_pages([again], job_reports.READS))
        (report,) = job_reports.reports(timing, evidence, NOW)
        assert any(one.stands for one in report.incidents) is called


@pytest.mark.parametrize("stepped", [True, False])
def test_processes_that_are_started_as_others_end_are_a_restart(stepped):
    """Launchers start them before agents have noticed the end, and boot is told in seconds."""
    more = {"last": [903.0] * 4} if stepped else {}
    pages = page(alive=[0] * 4, ended=[900.0] * 4, steps=[60] * 4, started=[901.5] * 4, **more)
    report = reported(pages)
    assert [one.cause.kind for one in report.incidents] == ["hang"]
    assert report.observations == ()
    # Processes that are slow to end after their last step are none.
    more = {"last": [903.0] * 4} if stepped else {}
    pages = page(alive=[0] * 4, ended=[900.0] * 4, steps=[60] * 4, started=[905.0] * 4, **more)
    assert hung(pages) is None
    assert [one.kind for one in reported(pages).observations] == ["job_over"]


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")])
@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize(("waited", "called"), [(250.0, False), (650.0, True)])
def test_a_job_that_is_started_again_on_another_node_is_given_the_time_to_start(
    nodes, ring, waited, called
):
    """The steps of the processes that ended on the first node are not those of its new ones."""
    before = training_page(801.0, alive=[0] * 4, ended=[800.0] * 4)
    after = page(started=[waited] * 4, **({"alive": [1] * 4} if ring else {}))
    pages = [replace(one, node=node) for one, node in zip((before, after), nodes, strict=True)]
    assert (hung(*sorted(pages, key=lambda one: one.node)) is not None) is called


def test_a_hang_comes_before_faults_that_cost_more_so_far():
    slow = diagnosed(records(Job(faults=(Fault("compute", (3,), 0.6),))))
    report = reported(training_page(90.0), judged=slow)
    assert [one.stands for one in report.incidents] == [True, False]
    assert report.incidents[1].cause.kind == "gpu_compute"
    assert report.incidents[1].cost is not None


def test_the_time_from_the_last_step_to_the_look_that_finds_the_hang_is_lost():
    watch = WatchSeries()
    judged = steps()
    for now, quiet in ((NOW - 90.0, 5.0), (NOW - 60.0, 30.0), (NOW, 75.0), (NOW + 30.0, 105.0)):
        report = replace(reported(training_page(quiet), judged=judged), made_unix_seconds=now)
        assert watch.update([report], now) == ()
    watch.announce_sums()
    sums = {
        (sample.metric.name, *sample.labels): sample.value
        for sample in watch.samples()
        if "gpu_seconds" in sample.metric.name
    }
    ranks = 8
    lost = sums["rankscope_job_lost_gpu_seconds_total", "job", "hang"]
    seen = sums["rankscope_job_observed_gpu_seconds_total", "job"]
    assert seen == pytest.approx(ranks * 120.0)
    assert lost == pytest.approx(ranks * (75.0 + 30.0))


def test_a_watch_that_finds_a_hang_at_once_counts_no_time_that_it_did_not_see():
    watch = WatchSeries()
    for now in (NOW, NOW + 30.0):
        watch.update([reported(training_page(500.0))], now)
    watch.announce_sums()
    lost = [s.value for s in watch.samples() if s.metric.name.endswith("lost_gpu_seconds_total")]
    assert lost == [4 * 30.0]


def test_pages_of_a_node_that_answers_no_more_do_not_hide_a_hang():
    """The last page of a node that died shows steps that ended just before it was made."""
    history = PageHistory(job_reports.READS, 9)
    history.add([training_page(1.0, ranks=2, read=100.0, node="n2", first=2)])
    history.add([training_page(100.0, ranks=2)])
    evidence = JobEvidence(history.observed())
    (report,) = job_reports.reports(TimingResults((), {}, ()), evidence, NOW)
    assert [one.stands for one in report.incidents] == [True]


def test_a_span_on_an_agents_page_keeps_a_pause_from_being_called_a_hang():
    def paused(kind, quiet, began, *more):
        labels = f'{{job_id="job",rank="0",kind="{kind}"}}'
        text = f"{training.SPAN_BEGAN.name}{labels} {NOW + OFFSET - began}\n" + "".join(more)
        whole = training_page(quiet)
        return hung(replace(whole, body=whole.text + text))

    usual = f'{training.CHECKPOINT_LAST_WRITE.name}{{job_id="job",rank="0"}} 100\n'
    assert hung(training_page(150.0)) == ()
    assert paused("evaluation", 150.0, 149.0) is None
    assert paused("checkpoint_save", 150.0, 149.0, usual) is None
    assert paused("checkpoint_save", 250.0, 249.0, usual) == ()


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


def test_the_rank_that_never_entered_is_named_with_the_collective():
    report = reported_with(standing(2, age=69.0), training_page(70.0))
    assert report.incidents[0].where.ranks == (2,)
    assert job_summary.headline(report).endswith(
        "; rank 2 has not entered all_reduce 5 of default_pg, where 3 ranks wait."
    )


def test_a_job_that_goes_on_launching_collectives_is_not_hung():
    report = reported_with(standing(2, age=20.0), training_page(700.0))
    assert [one for one in report.incidents if one.stands] == []


def test_a_node_whose_clock_is_ahead_hides_no_launches_of_the_others():
    going_on = standing(2, age=20.0)["job"]
    going_on[2] = replace(
        going_on[2],
        taken_unix_seconds=going_on[2].taken_unix_seconds + 900.0,
        groups=(),
        recorder="it has no worker server",
    )
    report = reported_with({"job": going_on}, training_page(700.0))
    assert [one for one in report.incidents if one.stands] == []


@pytest.mark.parametrize(("age", "called"), [(590.0, False), (610.0, True)])
def test_ranks_that_wait_in_a_collective_before_a_first_step_are_hung_after_ten_minutes(
    age, called
):
    pages = [page(alive=[1] * 4, steps=[0] * 4)]
    report = reported_with(standing(1, age=age, stepped=False), *pages)
    assert [one.where.ranks for one in report.incidents if one.stands] == [(1,)] * called


@pytest.mark.parametrize(("waited", "called"), [(59.0, False), (61.0, True)])
def test_programs_have_a_minute_to_be_loaded_whatever_is_asked(waited, called):
    loading = page(alive=[0] * 4, started=[waited] * 4)
    assert (hung(loading, after=1.0) is not None) is called


def test_ranks_that_have_joined_and_wait_for_nobody_are_not_hung():
    calm = {"job": [replace(one, groups=()) for one in standing(1)["job"]]}
    report = reported_with(calm, page(alive=[1] * 4, started=[5000.0] * 4))
    assert [one for one in report.incidents if one.stands] == []


ALL_REDUCE = Frame("all_reduce", "/x/torch/distributed/distributed_c10d.py", 3252)
PROBE_FRAME = Frame("wait", "/x/rankscope_probe.py", 896)
FETCH = Frame("fetch", "/home/me/train.py", 12)


def with_stacks(late):
    """Return where ranks stand with their stacks, which the late one has elsewhere."""
    return {
        "job": [
            replace(one, stack=(FETCH,) if one.rank == late else (PROBE_FRAME, ALL_REDUCE))
            for one in standing(late)["job"]
        ]
    }


def test_stacks_are_a_table_in_every_report_and_the_one_elsewhere_comes_first():
    report = reported_with(with_stacks(2), training_page(70.0))
    console = Console(width=100, record=True, file=io.StringIO())
    terminal.show(console, [report])
    text = console.export_text()
    assert "Rank 2 stands elsewhere than most ranks" in text
    assert "fetch me/train.py:12" in text
    assert "rankscope_probe" not in text
    first, second = job_json.as_object(report)["stacks"]
    assert (first["ranks"], first["suspect"]) == ([2], True)
    assert first["frames"] == [{"function": "fetch", "file": "/home/me/train.py", "line": 12}]
    assert (second["ranks"], second["suspect"]) == ([0, 1, 3], False)
    page = html.write([report])
    assert "Where ranks stand" in page
    assert "<td>fetch me/train.py:12</td>" in page


def test_a_job_that_makes_steps_has_no_table_of_stacks():
    report = reported_with(with_stacks(2), training_page(30.0))
    assert report.stacks is None
    assert job_json.as_object(report)["stacks"] is None
    assert "Where ranks stand" not in html.write([report])
