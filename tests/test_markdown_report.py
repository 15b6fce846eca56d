from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from job_reports import SLOW_EIGHT, THERMAL, frame, incident, locations, report
from rankscope_analyzers.reports import markdown as markdown_report
from rankscope_analyzers.stragglers.naive import NaiveAnswer
from simulated_jobs import Job

HOSTILE = "[x](http://evil.example) <script>alert(1)</script> | `a` **b**\n\n# owned\x1b[2J"


@pytest.fixture(scope="module")
def slow():
    return report(frame(SLOW_EIGHT))


def parsed(text):
    """Return the tokens of the text with HTML allowed, as a careless page would render it."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def shown(text):
    return " ".join(
        child.content
        for token in parsed(text)
        for child in token.children or ()
        if child.type in {"text", "text_special"}
    )


def rows(text, title):
    """Return the rows of the first table below a heading."""
    part = text.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_it_has_the_parts_of_a_postmortem_in_their_order(slow):
    headings = [
        line[3:] for line in markdown_report.write([slow]).splitlines() if line.startswith("## ")
    ]
    assert headings == [
        "Summary",
        "Impact",
        "Timeline",
        "Root cause and evidence",
        "Ruled out",
        "Not observed",
        "Actions",
        "Sources",
    ]


def test_it_says_what_it_cost_why_and_what_to_do(slow):
    written = markdown_report.write([slow])
    cost = slow.incidents[0].cost
    assert f"{cost.gpu_hours:.3g} GPU-hours lost, {cost.lost_fraction:.1%} of every step" in written
    assert "- [ ] Drain the node and hand it to hardware." in written
    assert f"[{THERMAL}](docs/runbooks/{THERMAL}.md)" in written
    assert "no DCGM profiling counters on any node" in written
    assert "Confidence 0.93 of 1" in written


def test_what_the_whole_run_lost_is_impact_and_only_a_wrong_answer_is_ruled_out(slow):
    misled = replace(slow, verdict=replace(slow.verdict, naive=NaiveAnswer(0, 0.01)))
    parts = dict(part.split("\n", 1) for part in markdown_report.write([misled]).split("\n## "))
    assert "- Over all steps judged the job ran " in parts["Impact"]
    assert "Over all steps judged" not in parts["Ruled out"]
    assert "- Step times alone would blame rank " in parts["Ruled out"]


def test_the_timeline_is_in_order_and_in_utc(slow):
    found = rows(markdown_report.write([slow]), "Timeline")
    times = [row[0] for row in found]
    assert times[0] == "before the observation"
    assert times[1:] == sorted(times[1:])
    assert all(time.endswith(" UTC") for time in times[1:])
    assert [row[1] for row in found] == ["link counters", "GPU counters", "step times", "Rankscope"]


def test_the_end_of_a_fault_is_an_event_of_its_own(slow):
    cause = replace(slow.incidents[0].cause, until_unix_seconds=1_760_000_400.0)
    ended = replace(slow, incidents=(replace(slow.incidents[0], cause=cause),))
    said = [row[2] for row in rows(markdown_report.write([ended]), "Timeline")]
    assert sum(one.startswith("over: ") for one in said) == 1


def test_a_signal_that_two_incidents_share_is_in_the_timeline_once(slow):
    twice = replace(slow, incidents=slow.incidents * 2)
    one, two = (rows(markdown_report.write([which]), "Timeline") for which in (slow, twice))
    assert one == two


def test_evidence_has_a_row_for_every_measurement_of_all_layers(slow):
    found = rows(markdown_report.write([slow]), "Root cause and evidence")
    assert [row[0] for row in found] == ["GPU counters"] * 2 + ["step times"] * 3
    assert found[0][2:4] == ["1.2 GHz", "1.98 GHz"]


def test_text_from_outside_is_inert():
    of = frame(SLOW_EIGHT, job_id=HOSTILE)
    made = report(of)
    finding = replace(
        made.observations[0], summary=HOSTILE, kind=HOSTILE, source=HOSTILE, runbook=HOSTILE
    )
    odd = incident(
        made.verdict.cause, locations(of), summary=HOSTILE, action=HOSTILE, findings=(finding,)
    )
    written = markdown_report.write(
        [
            replace(
                made,
                incidents=(replace(odd, cause=finding),),
                observations=(finding,),
                unobserved=(HOSTILE,),
                sources=(HOSTILE,),
            )
        ]
    )
    tokens = parsed(written)
    kinds = {token.type for token in tokens}
    inline = {child.type for token in tokens for child in token.children or ()}
    links = [
        child.attrs["href"]
        for token in tokens
        for child in token.children or ()
        if child.type == "link_open"
    ]
    assert not kinds & {"html_block", "code_block", "fence", "hr", "blockquote_open"}
    assert not inline & {"html_inline", "code_inline", "strong_open", "em_open", "image"}
    assert links == [f"docs/runbooks/{THERMAL}.md"]
    assert "\x1b" not in written
    assert "[x](http://evil.example) <script>alert(1)</script> | `a` **b**" in shown(written)
    assert sum(token.type == "heading_open" for token in tokens) == 10


def test_a_healthy_job_has_a_report_without_incidents():
    written = markdown_report.write([replace(report(frame(Job())), observations=())])
    assert "No straggler: no rank delays the others." in written
    assert "no incident, no cost known" in written
    assert "None was found." in written


def test_a_job_of_which_nothing_is_known_has_one_too():
    of = frame(Job())
    bare = report(
        of, verdict=None, frame=None, incidents=(), locations={}, unobserved=(), sources=()
    )
    written = markdown_report.write([replace(bare, observations=())])
    assert "no step records show how fast the ranks are" in written
    assert "- nothing" in written
