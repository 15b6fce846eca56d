"""The canary: whom it takes for named, what is exported of it, and that nothing else counts it."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from job_reports import frame, report
from rankscope_agent.contract.canary import NAME, RANKS, SLOW_RANK, SYMPTOM, is_canary
from rankscope_agent.contract.metrics import training
from rankscope_agent.contract.model import Scrape, Snapshot
from rankscope_agent.serving.exposition import TEXT, render
from rankscope_agent.web.routes import TEXT_TYPE, Response, Route
from rankscope_analyzers import cli
from rankscope_analyzers.canary import seen as looks
from rankscope_analyzers.canary import trial
from rankscope_analyzers.canary.seen import Seen, SilentError
from rankscope_analyzers.demo import run as demo
from rankscope_analyzers.demo.faults import FAULTS
from rankscope_analyzers.demo.free_ports import free_port
from rankscope_analyzers.findings.finding import Where
from rankscope_analyzers.watch import canaries
from rankscope_analyzers.watch.canaries import Canaries
from rankscope_analyzers.watch.finding_series import symptom
from serving import answering
from simulated_jobs import Fault, Job

NOW = 1_760_000_500.0
"""Some minutes after the start of simulated jobs."""

JOB = f"team/{NAME}"
SLOW = Job(ranks=4, steps=120, faults=(Fault("compute", (SLOW_RANK,), 0.5, first_step=60),))
STEP = "rankscope_canary_step_timestamp_seconds"
NAMED = "rankscope_canary_named_timestamp_seconds"


@pytest.mark.parametrize("job_id", [NAME, JOB, f"{JOB}-29384760"])
def test_a_canary_is_known_by_its_name_in_any_namespace(job_id):
    assert is_canary(job_id)


@pytest.mark.parametrize("job_id", ["team/llm", f"{JOB}-like", f"{JOB}/llm", f"team/my-{NAME}", ""])
def test_what_only_looks_like_one_is_a_job(job_id):
    assert not is_canary(job_id)


def test_the_job_of_the_demo_is_the_one_that_is_expected_to_be_slow():
    assert demo.RANKS == RANKS
    assert FAULTS["slow-compute"] == SYMPTOM


def agent_page(*job_ids):
    samples = tuple(training.STEPS.sample(7, job_id=job_id, rank="0") for job_id in job_ids)
    scrape = Scrape("training", True, 0.1, samples, "", NOW)
    return render(Snapshot("gpu-07", NOW, (scrape,)), TEXT, 1).decode()


def test_an_agents_page_has_no_series_of_a_canary_which_take_no_room_from_others():
    assert agent_page(JOB, "team/llm") == agent_page("team/llm")
    assert 'rankscope_steps_total{job_id="team/llm",rank="0"} 7.0' in agent_page(JOB, "team/llm")


def values(found):
    return {(one.metric.name, *one.labels): one.value for one in found.samples()}


def test_reports_on_canaries_are_taken_out_and_say_whom_they_named():
    found, other = Canaries(), report(frame(SLOW, "team/llm"))
    steps = frame(SLOW, JOB)
    assert found.take([other, report(steps, job_id=JOB)], NOW) == [other]
    newest = float(steps.starts[-1].max())
    assert values(found) == {
        (STEP, JOB): newest,
        (NAMED, JOB, SYMPTOM, str(SLOW_RANK)): newest,
    }
    found.stand_by()
    assert values(found) == {}


def test_a_later_run_in_which_nobody_is_named_leaves_the_time_of_the_earlier_one():
    found, steps = Canaries(), frame(SLOW, JOB)
    begun = steps.rows(steps.steps < 100)
    found.take([report(begun, job_id=f"{JOB}-29384760")], NOW)
    found.take([report(steps, job_id=f"{JOB}-29384820", incidents=())], NOW)
    assert values(found) == {
        (STEP, JOB): float(steps.starts[-1].max()),
        (NAMED, JOB, SYMPTOM, str(SLOW_RANK)): float(begun.starts[-1].max()),
    }


def test_the_newest_of_several_runs_counts_in_whichever_order_they_are_judged():
    found, steps = Canaries(), frame(SLOW, JOB)
    begun, newest = steps.rows(steps.steps < 100), float(steps.starts[-1].max())
    runs = [report(steps, job_id=f"{JOB}-2"), report(begun, job_id=f"{JOB}-1")]
    found.take(runs, NOW)
    assert set(values(found).values()) == {newest}


def test_a_canary_without_steps_says_nothing():
    found = Canaries()
    assert found.take([report(frame(SLOW, JOB), job_id=JOB, frame=None)], NOW) == []
    assert values(found) == {}


def test_eight_of_those_whom_a_canary_named_are_remembered():
    found, steps = Canaries(), frame(SLOW, JOB)
    (incident,) = report(steps, job_id=JOB).incidents
    several = tuple(
        replace(incident, timing=replace(symptom(incident), where=Where(ranks=(rank,))))
        for rank in range(9)
    )
    found.take([report(steps, job_id=JOB, incidents=several)], NOW)
    assert len([key for key in values(found) if key[0] == NAMED]) == 8


def test_canaries_are_few_and_forgotten_a_day_after_their_last_step():
    found, steps = Canaries(), frame(SLOW, JOB)
    newest = float(steps.starts[-1].max())
    many = [report(steps, job_id=f"team-{i}/{NAME}") for i in range(17)]
    found.take(many, newest + 86_399)
    kept = {key[1] for key in values(found)}
    assert kept == {f"team-{i}/{NAME}" for i in range(1, 17)}
    found.take([], newest + 86_401)
    assert values(found) == {}
    assert (canaries.MOST_CANARIES, canaries.REMEMBERED_SECONDS) == (16, 86_400.0)


RIGHT, WRONG = (SYMPTOM, SLOW_RANK), (SYMPTOM, 1)


@pytest.mark.parametrize(
    ("found", "result", "reason"),
    [
        (Seen(NOW, NOW, {RIGHT: NOW - 30}), "named", "rank 2 was named after 40 s"),
        (Seen(NOW, NOW, {RIGHT: NOW - 40, WRONG: NOW}), "named", "rank 2 was named"),
        (
            Seen(NOW, NOW, {RIGHT: NOW - 41, WRONG: NOW}),
            "missed",
            "the watch named rank 1 (gpu_compute) instead of rank 2 (gpu_compute)",
        ),
        (
            Seen(NOW, NOW, {("data_loader", 2): NOW}),
            "missed",
            "the watch named rank 2 (data_loader) instead of rank 2 (gpu_compute)",
        ),
        (
            Seen(NOW, NOW - 5, {RIGHT: NOW - 3600}),
            "missed",
            "the watch judged steps until 5 s ago and named no rank",
        ),
        (Seen(NOW - 7, NOW - 3600), "missed", "7 s ago and has judged no step of the canary"),
        (Seen(NOW), "missed", "has judged no step of the canary"),
        (Seen(), "missed", "no watch evaluates"),
    ],
)
def test_what_is_seen_is_judged_by_the_steps_of_this_run_alone(found, result, reason):
    outcome = trial.judged(found, NOW - 40, NOW)
    assert outcome.result == result
    assert reason in outcome.reason


def serving_page(*lines):
    page = "".join(f"{line}\n" for line in lines).encode()
    return answering({"/metrics": Route(lambda _: Response(200, TEXT_TYPE, page), "open")})


def test_who_waits_at_a_terminal_is_told_why_the_rank_is_not_named_yet(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(trial.time, "sleep", lambda _: None)
    looks_left = [Seen(NOW), Seen(NOW - 1), Seen(NOW, 9e9), Seen(NOW, 9e9, {RIGHT: 9e9})]
    monkeypatch.setattr(looks, "on_pages", lambda *_: lambda _: looks_left.pop(0))
    assert cli.main(["canary", "--job", JOB]) == 0
    first, *told = capsys.readouterr().err.splitlines()
    assert first == f"{JOB}: waiting up to 4m for rank 2 to be named."
    assert ["has judged no step" in line for line in told] == [True, False]
    assert told[1].endswith("and named no rank")


def ask(capsys, *arguments):
    code = cli.main(["canary", "--json", "--patience", "0s", "--job", JOB, *arguments])
    return code, json.loads(capsys.readouterr().out)


def series(job_id, rank, at):
    return f'{NAMED}{{job_id="{job_id}",rank="{rank}",symptom="gpu_compute"}} {at}'


EVALUATED = f"rankscope_watch_last_evaluation_timestamp_seconds {NOW}"


def test_a_watch_that_named_the_rank_ends_the_trial_well(capsys):
    later = time.time() + 60
    with serving_page(EVALUATED, series(JOB, SLOW_RANK, later)) as url:
        code, outcome = ask(capsys, "--watch", url)
    assert (code, outcome["result"]) == (0, "named")


def test_another_canarys_rank_is_not_taken_for_this_ones(capsys):
    later = time.time() + 60
    with serving_page(EVALUATED, series(f"other/{NAME}", SLOW_RANK, later)) as url:
        code, outcome = ask(capsys, "--watch", url)
    assert (code, outcome["result"]) == (2, "missed")


def test_a_watch_on_standby_has_nothing_to_say(capsys):
    with serving_page("rankscope_watch_leading 0") as url:
        code, outcome = ask(capsys, "--watch", url)
    assert code == 2
    assert "no watch evaluates" in outcome["reason"]


@pytest.mark.parametrize("option", ["--watch", "--prometheus"])
def test_where_nobody_answers_nothing_is_known(option, capsys):
    code, outcome = ask(capsys, option, f"http://127.0.0.1:{free_port()}")
    assert (code, outcome["result"]) == (3, "unknown")
    assert "no answer: " in outcome["reason"]
    assert "agent" not in outcome["reason"]


@pytest.mark.parametrize("text", ["<html>", f"{NAMED}{{job_id=", f"{STEP} x"])
def test_what_is_no_page_of_a_watch_is_no_success(text, capsys):
    with serving_page(text) as url:
        code, _ = ask(capsys, "--watch", url)
    assert code in {2, 3}


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("MAX_PAGE_BYTES", 0, "/metrics answers more than 0 MiB: is it a watch?"),
        ("ANSWER_SECONDS", 0.0, " has not ended its answer in 0 s"),
    ],
)
def test_a_watch_has_ten_seconds_for_a_page_of_256_mib(limit, value, reason, monkeypatch, capsys):
    assert (looks.ANSWER_SECONDS, looks.MAX_PAGE_BYTES) == (10.0, 256 << 20)
    monkeypatch.setattr(looks, limit, value)
    with serving_page(EVALUATED) as url:
        code, outcome = ask(capsys, "--watch", url)
    assert (code, outcome["result"]) == (3, "unknown")
    assert f"{url}{reason}" in outcome["reason"]


@pytest.mark.parametrize(("status", "more"), [(503, ""), (401, ": give --token-file")])
def test_a_watch_that_refuses_is_quoted(status, more, capsys):
    """The page of a watch is fetched as those of agents are, and errors name the watch."""
    refusal = Route(lambda _: Response(status, TEXT_TYPE, b"no"), "open")
    with answering({"/metrics": refusal}) as url:
        code, outcome = ask(capsys, "--watch", url)
    assert (code, outcome["result"]) == (3, "unknown")
    assert f"no answer: {url}/metrics answers {status}{more}" in outcome["reason"]


class Prometheus(BaseHTTPRequestHandler):
    """Answers as a server that has scraped a watch which named the rank."""

    def do_POST(self):
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        labels = {"job_id": JOB, "rank": "2", "symptom": "gpu_compute"}
        found = [{"metric": labels, "value": [0, str(time.time() + 60)]}] if NAMED in query else []
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"result": found}}).encode())

    def log_message(self, *_):
        pass


def test_prometheus_is_asked_for_the_same_series(capsys):
    with HTTPServer(("127.0.0.1", 0), Prometheus) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        code, outcome = ask(capsys, "--prometheus", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert (code, outcome["result"]) == (0, "named"), outcome


def test_a_name_that_would_count_as_a_job_is_refused(capsys):
    assert cli.main(["canary", "--job", "team/llm"]) == 1
    assert "--job team/llm would count as a real job" in capsys.readouterr().err


def test_why_a_watch_could_not_be_asked_reaches_the_terminal_without_its_escapes(
    monkeypatch, capsys
):
    def refused(url, entry):
        def look(job_id):
            raise SilentError(f"{url}: answers 500 \x1b]0;owned\x07")

        return look

    monkeypatch.setattr(looks, "on_pages", refused)
    assert cli.main(["canary", "--watch", "http://w:1", "--patience", "0s"]) == 3
    printed = capsys.readouterr().out
    assert "owned" in printed
    assert printed.strip().isprintable()
