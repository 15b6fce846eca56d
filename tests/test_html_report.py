import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from job_reports import SLOW_EIGHT, frame, incident, locations, report
from rankscope_analyzers.findings.finding import RankLocation, Where
from rankscope_analyzers.reports import html as html_report
from rankscope_analyzers.reports.report_page.elements import VOID
from simulated_jobs import Fault, Job

HOSTILE = '"><script>alert(1)</script>&lt;\x1b[2J\u202e</script><!--'


class Elements(HTMLParser):
    """Elements of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.open = []
        self.text = []
        self.data = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.data = self.data or data
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def page():
    return html_report.write([report(frame(SLOW_EIGHT))])


def numbers(page):
    return json.loads(Elements(page).data)


def test_the_page_says_who_why_since_when_what_it_costs_and_what_to_do(page):
    said = " ".join(" ".join(Elements(page).text).split())
    assert "rank 5 (node node-00000, GPU 5) computes 1.60x as long as its peers" in said
    assert "since 2025-10-09" in said
    assert "of every step" in said
    assert "GPU-hours so far" in said
    assert "0.93 of 1" in said
    assert "Drain the node" in said
    assert "GPU counters, step times" in said
    assert "no DCGM profiling counters on any node" in said
    assert "mlx5_2 on node-00000 counts 3 symbol errors an hour" in said
    assert "A GPU is too hot and slows itself down" in said


def test_the_evidence_names_where_it_was_read(page):
    said = " ".join(Elements(page).text)
    assert 'rate(rankscope_gpu_clock_event_seconds_total{reason="hw_thermal_slowdown"}[1m])' in said


def test_nothing_on_the_page_is_fetched_or_runs_but_the_script_with_the_named_hash(page):
    policy = next(
        attributes["content"]
        for tag, attributes in Elements(page).found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    for _, attributes in Elements(page).found:
        assert not {"src", "srcset", "style", "action"} & set(attributes)
        assert not any(key.startswith("on") for key in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:,"))


def test_the_page_is_well_formed(page):
    elements = Elements(page)
    assert elements.open == []
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements.found:
        for key in ("aria-labelledby", "aria-describedby", "for"):
            assert attributes.get(key, ids[0]) in ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids


def test_names_with_markup_and_escapes_are_text_everywhere():
    of = frame(SLOW_EIGHT, job_id=HOSTILE)
    of = replace(of, nodes=(HOSTILE,) * 8)
    known = {
        rank: RankLocation(rank, HOSTILE, 0, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE)
        for rank in range(8)
    }
    written = html_report.write(
        [report(of, locations=known, unobserved=(HOSTILE,), sources=(HOSTILE,))]
    )
    plain = Elements(html_report.write([report(frame(SLOW_EIGHT))]))
    tags = [tag for tag, _ in Elements(written).found]
    assert tags.count("script") == 2
    assert set(tags) == {tag for tag, _ in plain.found}
    assert "\x1b" not in written
    assert "\u202e" not in written
    assert HOSTILE[:20] in numbers(written)[0]["job"]


def test_the_data_are_the_maps_the_ranks_and_the_incident(page):
    (job,) = numbers(page)
    assert job["culprits"] == [5]
    assert job["time"]["bins"] == 240
    assert [one["name"] for one in job["time"]["maps"]] == ["compute", "sync"]
    cells = np.frombuffer(base64.b64decode(job["time"]["maps"][0]["cells"]), np.uint8)
    assert cells.reshape(8, 240)[5, 150:].min() > cells.reshape(8, 240)[4, 150:].max()
    (span,) = job["time"]["incidents"]
    assert span == {
        "kind": "hw_thermal_slowdown",
        "first": pytest.approx(90, abs=2),
        "last": 239,
        "ranks": [5],
    }
    assert job["ranks"]["rank"] == list(range(8))
    assert job["ranks"]["nics"][3] == "mlx5_3"
    assert job["ranks"]["compute"][5] == pytest.approx(1.6, abs=0.05)


def test_restarts_are_marked_where_the_run_changes():
    of = frame(Job(steps=100))
    of = replace(of, segments=np.repeat([0, 1], [60, 40]))
    assert numbers(html_report.write([report(of)]))[0]["time"]["restarts"] == [60]


def test_a_healthy_job_is_called_healthy_and_has_no_culprit():
    page = html_report.write([report(frame(Job()))])
    assert "No straggler: no rank delays the others." in " ".join(Elements(page).text)
    assert numbers(page)[0]["culprits"] == []


def test_a_job_without_step_records_still_has_its_ranks_and_its_incident():
    of = frame(SLOW_EIGHT)
    known = locations(of)
    cause = report(of).verdict.cause
    bare = report(
        of,
        verdict=None,
        frame=None,
        incidents=(incident(cause, known, cost=None, where=Where(nodes=("node-00000",))),),
    )
    page = html_report.write([bare])
    said = " ".join(Elements(page).text)
    assert "No step records: nothing can be drawn." in said
    assert "Unknown: there are no step times." in said
    assert numbers(page)[0]["time"] is None
    assert len(numbers(page)[0]["ranks"]["rank"]) == 8


def test_a_job_with_one_rank_and_one_step_has_a_page():
    of = frame(Job(ranks=1, steps=1, warm_up=0))
    page = html_report.write([report(of)])
    assert "No verdict: only 1 usable steps" in " ".join(Elements(page).text)
    assert numbers(page)[0]["time"]["bins"] == 1


def test_clocks_that_are_hours_or_ages_apart_still_give_a_page():
    of = frame(SLOW_EIGHT)
    made = report(of)
    of.starts[:, 3] += 7200
    of.starts[:, 4] = 1e300
    odd = replace(made.incidents[0], since_unix_seconds=1e300, until_unix_seconds=-1e300)
    page = html_report.write([replace(made, incidents=(odd,), made_unix_seconds=float("nan"))])
    assert "unknown" in " ".join(Elements(page).text)
    start = numbers(page)[0]["time"]["start"]
    assert start == sorted(start)


def test_a_runbook_outside_the_folder_is_not_read(tmp_path):
    secret = tmp_path / "secret.md"
    secret.write_text("the secret")
    made = report(frame(SLOW_EIGHT))
    odd = replace(made.incidents[0], runbook=str(secret))
    page = html_report.write([replace(made, incidents=(odd,))])
    assert "the secret" not in page
    assert "Runbook:" not in page


def test_several_jobs_share_a_page_with_a_list_of_them():
    fault = Job(faults=(Fault("data", (2,), 0.5),))
    jobs = [report(frame(SLOW_EIGHT)), report(frame(fault, job_id="team/other"))]
    page = html_report.write(jobs)
    elements = Elements(page)
    links = [a["href"] for tag, a in elements.found if tag == "a"]
    assert {"#job-0", "#job-1"} < set(links)
    assert [job["job"] for job in numbers(page)] == ["team/pretrain", "team/other"]
    assert [one["name"] for one in numbers(page)[1]["time"]["maps"]] == ["compute", "sync", "data"]


def test_a_thousand_observations_and_long_sentences_do_not_swell_the_page():
    made = report(frame(SLOW_EIGHT))
    many = tuple(replace(made.observations[0], summary="x" * 100_000) for _ in range(1000))
    page = html_report.write([replace(made, observations=many)])
    assert len(page) < 500_000
    assert "950 more in --json." in page


def test_a_big_job_keeps_its_page_small_and_its_culprit_in_full():
    of = frame(Job(ranks=1024, steps=40, faults=(Fault("compute", (777,), 0.6),)))
    page = html_report.write([report(of)])
    assert len(page) < 2_000_000
    titles = re.findall(r"<figcaption><strong>(.*?)</strong>(.*?)</figcaption>", page)
    assert titles == [("node node-00097", ": culprit is rank 777")]
    assert page.count('class="tile"') == 127
    assert page.count('class="tile lit"') == 1


def test_a_gpu_is_lit_on_the_named_node_only():
    of = frame(Job(ranks=16, faults=(Fault("compute", (13,), 0.6),)))
    made = report(of)
    same = {
        rank: replace(location, uuid=f"GPU-{rank % 8}") for rank, location in made.locations.items()
    }
    odd = replace(made.incidents[0], where=replace(made.incidents[0].where, uuids=("GPU-5",)))
    page = html_report.write([replace(made, locations=same, incidents=(odd,))])
    assert page.count('class="gpu lit"') == 1
    assert "culprit is rank 13" in page


def test_what_a_sentence_says_already_is_not_listed_again():
    made = report(frame(SLOW_EIGHT))
    cause = made.incidents[0].cause
    said = replace(made.incidents[0], summary=f"rank 5 is slow, because {cause.summary}")
    page = html_report.write([replace(made, incidents=(said,))])
    assert f"<li>GPU counters: {cause.summary}</li>" not in page
    assert f"<li>step times: {said.findings[0].summary}</li>" in page


def test_a_page_of_many_big_jobs_gives_each_fewer_bins():
    big = report(frame(Job(ranks=4096, steps=30)))
    assert html_report.data.bins([big]) == 240
    assert html_report.data.bins([big] * 4) == 91
    assert html_report.data.bins([big] * 100) == 24
