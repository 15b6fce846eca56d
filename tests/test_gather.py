"""What `rankscope diagnose` reads beside step records, of agents that answer well or wrongly."""

import gzip
import json
import re
import socket
import threading
import time

import pytest

from answering_agents import SLOW, Agent
from dripping import DRIPS, PAUSE_SECONDS
from rankscope_agent.contract.metrics import training
from rankscope_analyzers.findings.finding import Where
from rankscope_analyzers.fusion import gather, job_reports
from rankscope_analyzers.fusion.gather import EarlierPolls, of_agents
from rankscope_analyzers.intake import agent_client, agent_timeouts, clock_skew
from rankscope_analyzers.intake.agent_timeouts import AgentTimeouts
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.layers.rank_locations import rank_locations
from rankscope_analyzers.layers.series_findings import query
from rankscope_analyzers.steps.job_records import JobRecords, SourceError
from rankscope_analyzers.steps.stored_traces import from_traces
from rankscope_analyzers.stragglers.diagnosis import TimingResults, diagnose_each
from simulated_jobs import records


class Refusing:
    """Accepts connections and answers with whatever bytes it was given, or never."""

    def __init__(self, answer):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, args=(answer,), daemon=True).start()

    def serve(self, answer):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection, answer), daemon=True).start()

    @staticmethod
    def talk(connection, answer):
        try:
            connection.recv(4096)
            for piece in answer():
                connection.sendall(piece)
                time.sleep(PAUSE_SECONDS if len(piece) < 2 else 0)
        except OSError:
            return
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def reported(found):
    return job_reports.reports(diagnose_each(found.jobs), found.evidence, time.time())


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("rankscope_analyzers.intake.agent_pages.POLL_SECONDS", 0.05)
    monkeypatch.setattr(agent_client, "TIMEOUT_SECONDS", 4.0)
    monkeypatch.setattr(agent_client, "WHOLE_ANSWER_SECONDS", 5.0)


def test_agents_give_records_and_pages():
    with Agent() as one, Agent("n1", range(4, 8)) as two:
        found = of_agents([one.url, two.url], None, 0.0)
    (said,) = reported(found)
    assert said.incidents[0].where.ranks == (5,)
    assert said.incidents[0].where.nodes == ("n1",)
    assert {location.node for location in said.locations.values()} == {"n0", "n1"}


def garbage():
    yield b"SSH-2.0-OpenSSH_9.2\r\n"


def trickle():
    yield b"HTTP/1.0 200 OK\r\n\r\n"
    for _ in range(600):
        time.sleep(0.05)
        yield b" "


def flood():
    yield b"HTTP/1.0 200 OK\r\n\r\n"
    for _ in range(1 << 14):
        yield b"x" * (1 << 16)


def bomb():
    yield b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    yield gzip.compress(b"\0" * (1 << 28), compresslevel=1)


def silence():
    time.sleep(8)
    yield b""


def nesting():
    yield b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000


DRIPPED = ("status line", "a chunk's size", "error body")
"""Of all drips: the others are tried on the client alone (test_deadline.py)."""

ODD_ANSWERS = [garbage, trickle, flood, bomb, silence, nesting, *(DRIPS[one] for one in DRIPPED)]


@pytest.mark.parametrize("answer", ODD_ANSWERS)
def test_an_agent_that_answers_anything_or_never_is_named_and_the_others_are_judged(answer):
    with Agent() as one, Agent("n1", range(4, 8)) as two, Refusing(answer) as bad:
        found = of_agents([one.url, bad.url, two.url], None, 0.0)
    (note,) = found.evidence.notes
    assert bad.url in note
    (said,) = reported(found)
    assert said.incidents[0].where.ranks == (5,)
    assert any(bad.url in sentence for sentence in said.unobserved)
    assert found.silent == 1


def test_an_agent_that_is_silent_once_costs_the_next_looks_little_and_comes_back(monkeypatch):
    class Hanging(Agent):
        hangs = True

        def answer(self, path):
            if self.hangs and path == "/healthz":
                ended.wait()
            return super().answer(path)

    asked, ended, earlier = [], threading.Event(), EarlierPolls(1.0)
    monkeypatch.setattr(agent_timeouts, "LATE_SECONDS", 0.5)
    monkeypatch.setattr(agent_timeouts, "SHORTER", 0.1)
    real = AgentTimeouts.deadline

    def noted(known, url, path, seconds, silence_seconds):
        made = real(known, url, path, seconds, silence_seconds)
        asked.append((url, made.seconds))
        return made

    monkeypatch.setattr(AgentTimeouts, "deadline", noted)
    with Agent() as one, Hanging("n1", range(4, 8)) as late:
        urls = [one.url, late.url]
        assert of_agents(urls, None, 0.0, earlier=earlier).silent == 1
        assert dict(asked)[late.url] == 5.0
        (said,) = reported(of_agents(urls, None, 0.0, earlier=earlier))
        assert dict(asked)[late.url] == 0.5
        assert all(seconds > 1.0 for url, seconds in asked if url == one.url)
        assert any("no records of 4 of 8 ranks" in sentence for sentence in said.unobserved)
        Hanging.hangs = False
        ended.set()
        monkeypatch.setattr(agent_timeouts, "LATE_SECONDS", 60.0)
        monkeypatch.setattr(agent_client, "WHOLE_ANSWER_SECONDS", 60.0)
        found = of_agents(urls, None, 0.0, earlier=earlier)
    assert found.silent == 0
    (said,) = reported(found)
    assert said.incidents[0].where.ranks == (5,)


def test_when_no_agent_answers_that_is_an_error_of_a_few_lines():
    with pytest.raises(SourceError, match="and 92 more"):
        of_agents([f"127.0.0.1:{port}" for port in range(1, 101)], None, 0.0)


def test_clocks_hours_apart_are_said_and_times_are_ours():
    with Agent() as one, Agent("n1", range(4, 8), ahead=7200.0) as two:
        found = of_agents([one.url, two.url], None, 0.0)
    (said,) = reported(found)
    assert said.incidents[0].where.ranks == (5,)
    assert any("clock of node n1 is 7200 s ahead" in text for text in said.unobserved)
    (job,) = found.jobs
    starts = job.records.groupby("node")["t_start_unix_seconds"].min()
    assert abs(starts["n0"] - starts["n1"]) < 60


def test_variables_that_differ_are_named():
    with Agent() as one, Agent("n1", range(4, 8), environment={6: "mlx5_bad"}) as two:
        found = of_agents([one.url, two.url], None, 0.0)
    (said,) = reported(found)
    (odd,) = [finding for finding in said.observations if finding.kind == "environment_differs"]
    assert "NCCL_IB_HCA is 'mlx5' on 7 of 8 ranks, but 'mlx5_bad' on rank 6" in odd.summary


def test_a_job_without_records_is_judged_by_its_nodes():
    class Bare(Agent):
        def steps(self):
            return json.dumps({"columns": ["job_id"], "rows": [], "truncated": False}).encode()

    timeouts = 'rankscope_nccl_collective_timeouts_total{pod_namespace="",pod_name="",op="X"} 3\n'
    with Bare(page=timeouts) as one:
        (said,) = reported(of_agents([one.url], None, 0.0))
    assert said.verdict is None
    assert [incident.cause.kind for incident in said.incidents] == ["collective_timeout"]
    assert any("without the probe" in sentence for sentence in said.unobserved)


def test_nobody_knows_more_of_a_trace_than_its_steps(tmp_path):
    rows = records(SLOW)
    rows.to_csv(tmp_path / "records.csv", index=False)
    found = gather.of_files(from_traces, [tmp_path])
    (said,) = reported(found)
    assert said.incidents[0].cause.kind == "gpu_compute"
    assert any("only step records were given" in sentence for sentence in said.unobserved)


def test_lines_that_are_no_series_and_lying_labels_are_harmless():
    info = training.RANK_INFO.name
    text = (
        f'{info}{{job_id="a\\"}} 1\n{info}{{job_id="j",rank="-1"}} 1\n'
        f'{info}{{job_id="j",rank="99999999999"}} 1\n{info}{{job_id="j",rank="3",node="x"}} 1\n'
        f'{info}{{job_id="j",rank="4"}} NaN\n{info} 1\n\0\xff garbage {{}} {{\n'
    )
    locations = rank_locations(from_pages([Page("n", 1.0, text)], [training.RANK_INFO]))
    assert set(locations.jobs["j"]) == {3}


def test_only_what_a_node_dates_is_moved():
    text = (
        "rankscope_snapshot_timestamp_seconds 5000\nrankscope_boot_timestamp_seconds 4000\n"
        'rankscope_rank_info{job_id="j",rank="0"} 1\n'
    )
    metrics = job_reports.READS
    seen = from_pages([Page("n", 1000.0, text)], metrics)
    ahead = clock_skew.ahead(seen)
    assert ahead == {"n": 4000.0}
    moved = clock_skew.of_series(seen, ahead)
    (series,) = moved.named("rankscope_snapshot_timestamp_seconds")
    assert series.last == 1000.0
    (info,) = moved.named("rankscope_rank_info")
    assert info.last == 1


def test_a_time_that_is_no_time_moves_nothing():
    seen = from_pages(
        [Page("n", 1000.0, "rankscope_snapshot_timestamp_seconds +Inf\n")], job_reports.READS
    )
    assert clock_skew.ahead(seen) == {}


def test_a_job_whose_records_make_no_sense_costs_no_other_job():
    good = records(SLOW)
    bad = good.drop(columns="step_seconds")
    jobs = [
        JobRecords("bad\x1b", bad, 8, (), live=True),
        JobRecords("good", good, 8, (), live=True),
    ]
    found = diagnose_each(jobs)
    assert [one.frame.job_id for one in found.diagnoses] == ["good"]
    (sentence,) = found.unusable.values()
    assert "step_seconds" in sentence
    assert "\x1b" not in sentence


def test_time_between_pages_is_that_between_their_snapshots():
    text = (
        "rankscope_snapshot_timestamp_seconds {}\n"
        'rankscope_host_pressure_seconds_total{{resource="cpu",kind="some"}} {}\n'
    )
    seen = from_pages(
        [
            Page("n", at, text.format(taken, value))
            for at, taken, value in ((1000.9, 5000.0, 10.0), (1003.1, 5003.0, 11.5))
        ],
        job_reports.READS,
    )
    (series,) = seen.named("rankscope_host_pressure_seconds_total")
    assert series.rate() == pytest.approx(0.5)
    assert clock_skew.ahead(seen)["n"] == pytest.approx(5003 - 1003.1)


def test_a_signal_says_by_which_query_it_is_seen_again():
    where = Where(nodes=("n",), uuids=("GPU-1",))
    name = "rankscope_gpu_clock_hertz"
    assert query(name, "t/j", where) == 'rankscope_gpu_clock_hertz{uuid="GPU-1"}'
    assert query("step records", "t/j", where) == "step records"
    assert query("rankscope_job_pods", 'a"b', where) == 'rankscope_job_pods{job_id="a\\"b"}'


def test_pages_that_differ_are_put_together_series_by_series():
    """A series may come, go, stand elsewhere on the page, twice on it, or be no number."""
    name = training.LAST_STEP.name
    texts = {
        30.0: f'{name}{{job_id="a",rank="1"}} 3\n{name}{{job_id="a",rank="0"}} 7\n',
        10.0: f'{name}{{job_id="a",rank="0"}} 5\n{name}{{job_id="a",rank="1"}} 1\n',
        20.0: f'{name}{{job_id="a",rank="0"}} 6\n{name}{{job_id="a",rank="2"}} 4\n',
        40.0: f'{name}{{job_id="a",rank="0"}} NaN\n{name}{{job_id="a",rank="1"}} x\n',
        50.0: f'{name}{{job_id="a",rank="2"}} 8\n{name}{{job_id="a",rank="2"}} 9\n',
    }
    pages = [Page("n", at, text) for at, text in texts.items()]
    seen = from_pages(pages, [training.LAST_STEP])
    found = {
        one.labels["rank"]: [*zip(one.times.tolist(), one.values.tolist(), strict=True)]
        for one in seen.of(training.LAST_STEP)
    }
    assert found == {
        "0": [(10.0, 5.0), (20.0, 6.0), (30.0, 7.0)],
        "1": [(10.0, 1.0), (30.0, 3.0)],
        "2": [(20.0, 4.0), (50.0, 8.0)],
    }


def test_pages_of_the_same_series_are_a_table_in_the_order_of_time():
    name = training.LAST_STEP.name
    lines = "".join(f'{name}{{job_id="a",rank="{rank}"}} @{rank}@\n' for rank in range(3))
    texts = {at: re.sub("@([0-9])@", rf"{at:.0f}\1", lines) for at in (30.0, 10.0, 20.0)}
    seen = from_pages([Page("n", at, text) for at, text in texts.items()], [training.LAST_STEP])
    for rank, one in enumerate(seen.of(training.LAST_STEP)):
        assert one.times.tolist() == [10.0, 20.0, 30.0]
        assert one.values.tolist() == [100.0 + rank, 200.0 + rank, 300.0 + rank]
        assert one.values.flags["C_CONTIGUOUS"]


def test_a_second_look_asks_for_new_steps_alone_and_knows_what_the_first_did():
    class Stepping(Agent):
        asked, shown = (), 60

        def answer(self, path):
            self.asked = (*self.asked, path)
            return super().answer(path)

        def steps(self):
            rows = json.loads(super().steps())
            location = rows["columns"].index("step")
            rows["rows"] = [row for row in rows["rows"] if row[location] < self.shown]
            return json.dumps(rows).encode()

    earlier = gather.EarlierPolls(5.0)
    with Stepping(ranks=range(8)) as one:
        (first,) = of_agents([one.url], None, 0.0, earlier=earlier).jobs
        assert one.asked.count("/metrics") == 2
        one.asked, one.shown = (), 80
        found = of_agents([one.url], None, 0.0, earlier=earlier)
    assert one.asked.count("/metrics") == 1
    assert (len(first.records), len(found.jobs[0].records)) == (8 * 60, 8 * 80)
    assert not found.jobs[0].records.duplicated(["rank", "step"]).any()
    assert reported(found)[0].incidents[0].where.ranks == (5,)
    (snapshot,) = found.evidence.observed.named("rankscope_snapshot_timestamp_seconds")
    assert len(snapshot.times) == 3


def test_a_job_is_judged_by_its_own_nodes_alone():
    """A node without any of its ranks belongs to it when it says something of the job."""
    failed = 'rankscope_job_pods{job_id="t/j",phase="Failed"} 1\n'
    stalls = 'rankscope_host_pressure_seconds_total{{resource="io",kind="some"}} {}\n'
    pages = [
        Page(node, at, text + stalls.format(at * share))
        for at in (1000.0, 1060.0)
        for node, text, share in (
            (
                "n0",
                "".join(f'rankscope_rank_info{{job_id="t/j",rank="{n}"}} 1\n' for n in (0, 1)),
                0,
            ),
            ("n1", 'rankscope_rank_info{job_id="t/j",rank="2"} 1\n', 0.5),
            ("n2", failed, 0.9),
            ("n3", 'rankscope_rank_info{job_id="other",rank="0"} 1\n', 0.0),
        )
    ]
    evidence = job_reports.JobEvidence(from_pages(pages, job_reports.READS))
    job = next(
        one for one in job_reports.reports(TimingResults(), evidence, 1060.0) if one.job_id == "t/j"
    )
    found = {finding.kind: finding.where.nodes for finding in job.observations}
    found |= {one.cause.kind: one.where.nodes for one in job.incidents}
    assert found == {"pod_failed": ("n2",), "io_pressure": ("n1",)}


def stepped(job_id, ago):
    """Return what an agent's page says of two ranks that ended a step so many seconds ago."""
    return "".join(
        f'rankscope_rank_alive{{job_id="{job_id}",rank="{rank}"}} 1\n'
        f'rankscope_last_step_timestamp_seconds{{job_id="{job_id}",rank="{rank}"}}'
        f" {time.time() - ago - rank}\n"
        for rank in range(2)
    )


@pytest.mark.parametrize(("job_id", "left"), [("t/j", -540.0), ("t/going", 60.0), (None, 60.0)])
def test_jobs_that_stand_are_looked_at_again_sooner(monkeypatch, job_id, left):
    asked = []
    monkeypatch.setattr(gather.agent_pages, "seconds_between", lambda to: asked.append(to) or 0.0)
    unborn = 'rankscope_rank_alive{job_id="t/j",rank="2"} 1\n'
    with Agent(page=stepped("t/j", 600.0) + stepped("t/going", 0.0) + unborn) as one:
        of_agents([one.url], job_id, 0.0)
    assert asked == [pytest.approx(left, abs=30.0)]
