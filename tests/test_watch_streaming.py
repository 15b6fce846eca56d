"""What the watch does between evaluations: it follows steps, and tells at once what changed."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import time
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest

from rankscope_agent.contract.model import (
    STEP_COLUMNS,
    FreshSteps,
    RankIdentity,
    RingBatch,
    RingHead,
)
from rankscope_agent.contract.step_blocks import MEDIA_TYPE, cursors_of
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_agent.serving.step_stream import steps_json
from rankscope_agent.web.routes import JSON_TYPE, TEXT_TYPE, Response, Route
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.commands import watch, watch_streaming
from rankscope_analyzers.commands.job_source import JobSource
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch import step_series
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.incident_log import IncidentLog
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import FileStore
from serving import answering
from simulated_jobs import Fault, Job, records

RANKS_OF_A_NODE = 4
NODES = 2


class Clock:
    """Steps that have ended so far."""

    def __init__(self):
        self.steps = 0


class Node:
    """A node whose ranks make the steps of a simulated job, up to the one of a clock."""

    def __init__(self, number, table, clock, job_id):
        namespace = job_id.partition("/")[0]
        self.name = f"{'' if namespace == 'team' else namespace + '-'}node-{number:05d}"
        ranks = range(number * RANKS_OF_A_NODE, (number + 1) * RANKS_OF_A_NODE)
        self.tables = {
            rank: table[table["rank"] == rank].sort_values("step").to_dict("records")
            for rank in ranks
        }
        self.clock, self.job_id = clock, job_id
        self.world = RANKS_OF_A_NODE * NODES

    def steps(self, request):
        if MEDIA_TYPE not in request.accept:
            return self.as_json(float(request.query["since"][0]))
        cursors = cursors_of(request.query.get("after", [""])[0])
        heads, batches = [], []
        for index, (rank, rows) in enumerate(self.tables.items()):
            name = f"{rank:016x}"
            first = cursors.get(name, 1)
            heads.append(RingHead(name, self.identity(rank), first, name not in cursors))
            told = [self.row(one) for one in rows if first - 1 <= one["step"] < self.clock.steps]
            batches.append(RingBatch(index, told, max(first, self.clock.steps + 1)))
        body = steps_blocks(FreshSteps(tuple(heads), iter(batches)), self.name)
        return Response(200, MEDIA_TYPE, body, compress=True)

    def identity(self, rank):
        namespace = self.job_id.partition("/")[0]
        return RankIdentity(
            self.job_id, rank, self.name, rank % RANKS_OF_A_NODE, self.world, None, 0,
            "kernel", "torchrun", "uid", 1, True, 0, rank, 0, pod_namespace=namespace,
        )  # fmt: skip

    def as_json(self, since):
        rows = [
            self.row(one)
            for told in self.tables.values()
            for one in told
            if one["step"] < self.clock.steps and one["t_start_unix_seconds"] >= since
        ]
        return Response(200, JSON_TYPE, steps_json(rows, self.name))

    def ranks(self, _):
        told = {"node": self.name, "ranks": [asdict(self.identity(rank)) for rank in self.tables]}
        return Response(200, JSON_TYPE, json.dumps(told).encode())

    def row(self, one):
        own = {"job_id": self.job_id, "timing_source": "kernel", "attempt": 0, "flags": 0}
        known = one | own
        return tuple(None if (value := known.get(name)) is None else value for name in STEP_COLUMNS)

    def page(self, _):
        text = f"rankscope_snapshot_timestamp_seconds {time.time()}\n"
        return Response(200, TEXT_TYPE, text.encode())

    def routes(self):
        healthy = json.dumps({"node": self.name}).encode()
        return {
            "/api/v1/steps": Route(self.steps, "open"),
            "/api/v1/ranks": Route(self.ranks, "open"),
            "/metrics": Route(self.page, "open"),
            "/healthz": Route(lambda _: Response(200, JSON_TYPE, healthy), "open"),
        }


class Watch:
    """A watch over agents that a test runs look by look."""

    def __init__(self, urls, folder):
        parser = argparse.ArgumentParser()
        watch_options.add_arguments(parser)
        words = [word for url in urls for word in ("--agent", url)]
        self.options = parser.parse_args([*words, "--interval=1h", "--step-interval=1s"])
        self.said = []
        self.log = folder / "incidents"
        self.followed = FollowedJobs()
        memory = Memory(FileStore(folder / "state"), self.said.append)
        self.source = JobSource(lambda: None, followed=self.followed, memory=memory)
        self.source.announcer = Announcer(self.said.append, IncidentLog(self.log))
        self.exporter = FindingsExporter()
        self.cycle = watch_streaming.cycle_of(
            self.options,
            self.source,
            self.exporter,
            ErrorLog(self.said.append),
            watch.evaluate,
            self.said.append,
        )
        self.cycle._interval = 0.05

    def look(self, times=1):
        for _ in range(times):
            self.cycle.run()

    def evaluate(self):
        """Look until all jobs were evaluated."""
        before = self.exporter.evaluated and self.source.exported
        self.cycle._pages._due = 0.0
        until = time.monotonic() + 30.0
        while self.source.exported is before or not self.exporter.evaluated:
            assert time.monotonic() < until, self.said
            self.look()

    def lines(self):
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def fleet(tmp_path):
    """Give a function that makes nodes, with their clock and addresses."""
    with contextlib.ExitStack() as stack:

        def made(job, job_id="team/job", node=Node):
            table = records(job, seed=5)
            table["t_start_unix_seconds"] += (
                time.time() - 400.0 - table["t_start_unix_seconds"].min()
            )
            clock = Clock()
            nodes = [node(number, table, clock, job_id) for number in range(NODES)]
            urls = [stack.enter_context(answering(node.routes())) for node in nodes]
            return clock, urls

        yield made


SLOW = Job(steps=200, ranks_per_node=4, faults=(Fault("compute", (5,), 0.6, 100, 160),))


def test_an_incident_is_told_between_evaluations_and_so_is_its_end(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    watched = Watch(urls, tmp_path)
    clock.steps = 90
    watched.evaluate()
    assert watched.lines() == []
    evaluations = watched.source.exported.extra
    for clock.steps in range(95, 200, 5):
        watched.look()
    assert [(line["change"], line["ranks"]) for line in watched.lines()] == [
        ("opened", [5]),
        ("closed", [5]),
    ]
    assert watched.source.exported.extra is evaluations
    page = watched.exporter.text()
    assert 'rankscope_finding_recovered_timestamp_seconds{job_id="team/job"' in page
    watched.cycle.stand_by()


def test_steps_that_go_on_as_before_renew_when_an_incident_was_seen(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    clock.steps = 130
    watched = Watch(urls, tmp_path)
    watched.evaluate()
    evaluated = time.time()
    for clock.steps in range(135, 150, 5):
        watched.look()
    page = watched.exporter.text()
    (seen,) = re.findall(r"(?m)^rankscope_finding_seen_timestamp_seconds{.*} (\S+)$", page)
    (last,) = re.findall(r"(?m)^rankscope_watch_last_evaluation_timestamp_seconds{.*} (\S+)$", page)
    assert float(last) <= evaluated < float(seen)
    watched.cycle.stand_by()


def test_a_job_with_more_records_than_its_share_gives_way_and_says_so(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    flood_clock, flood_urls = fleet(Job(steps=1000, ranks_per_node=4), "bad/x")
    clock.steps, flood_clock.steps = 90, 100
    watched = Watch([*urls, *flood_urls], tmp_path)
    watched.evaluate()
    timing = watched.cycle._fleet.timing
    for clock.steps in range(95, 130, 5):
        flood_clock.steps += 100
        timing.shares.note("bad/x", 1000, 1e6)
        watched.look()
    assert [(line["job_id"], line["ranks"]) for line in watched.lines()] == [("team/job", [5])]
    watched.evaluate()
    said = {one.job_id: one.unobserved for one in watched.source.exported.reports}
    assert any("step records were not judged" in text for text in said["bad/x"])
    assert not any("not judged" in text for text in said["team/job"])
    watched.cycle.stand_by()


def test_a_watch_that_is_started_anew_tells_nothing_twice_and_goes_on(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    clock.steps = 90
    first = Watch(urls, tmp_path)
    first.evaluate()
    for clock.steps in range(95, 130, 5):
        first.look()
    assert [line["change"] for line in first.lines()] == ["opened"]
    first.cycle.stand_by()
    second = Watch(urls, tmp_path)
    second.evaluate()
    for clock.steps in range(135, 200, 5):
        second.look()
    assert [line["change"] for line in second.lines()] == ["opened", "closed"]
    assert len({line["incident"] for line in second.lines()}) == 1
    second.cycle.stand_by()


def test_the_same_incident_is_found_by_streaming_and_by_looks_at_all_records(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    clock.steps = 90
    watched = Watch(urls, tmp_path)
    watched.evaluate()
    for clock.steps in range(95, 150, 5):
        watched.look()
    watched.evaluate()
    (streamed,) = watched.source.exported.reports
    read = watch.reader(watched.options, 30.0)
    source = JobSource(read)
    exporter = FindingsExporter()
    watch.evaluate(source, exporter, ErrorLog(lambda _: None))
    (whole,) = source.exported.reports
    assert [one.where for one in streamed.incidents] == [one.where for one in whole.incidents]
    assert [one.summary for one in streamed.incidents] == [one.summary for one in whole.incidents]
    (ours,), (theirs,) = streamed.incidents, whole.incidents
    assert ours.since_unix_seconds == pytest.approx(theirs.since_unix_seconds, abs=0.01)
    watched.cycle.stand_by()


def test_agents_that_do_not_answer_are_named_and_delay_nobody(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    clock.steps = 90
    watched = Watch([*urls, "http://127.0.0.1:1"], tmp_path)
    watched.evaluate()
    (report,) = watched.source.exported.reports
    assert any("127.0.0.1:1" in text for text in report.unobserved)
    for clock.steps in range(95, 130, 5):
        watched.look()
    assert [line["ranks"] for line in watched.lines()] == [[5]]
    watched.cycle.stand_by()


class Misnumbered(Node):
    """A node that says of its rank 3 that it is another one, which does not exist."""

    def identity(self, rank):
        return replace(super().identity(rank), rank=-1 if rank == 3 else rank)


def test_records_that_cannot_be_read_cost_no_others_and_are_counted(fleet, tmp_path):
    clock, urls = fleet(SLOW, node=Misnumbered)
    clock.steps = 90
    watched = Watch(urls, tmp_path)
    watched.look()
    watched.cycle._fleet._first_seen["team/job"] = -math.inf  # it has waited for its rank 3
    watched.evaluate()
    (report,) = watched.source.exported.reports
    assert f"90 rows of agent {urls[0]} could not be read" in report.unobserved
    assert report.frame.ranks.tolist() == [0, 1, 2, 4, 5, 6, 7]
    watched.cycle.stand_by()


def test_a_job_of_one_rank_and_short_jobs_come_and_go(fleet, tmp_path):
    clock, urls = fleet(Job(steps=40, ranks_per_node=4), "team/short")
    clock.steps = 20
    watched = Watch(urls, tmp_path)
    watched.evaluate()
    for clock.steps in range(22, 41, 2):
        watched.look()
    assert watched.lines() == []
    fleet_of_watch = watched.cycle._fleet
    assert list(fleet_of_watch.stream.windows.jobs) == ["team/short"]
    fleet_of_watch.stream.windows.trim(time.time() + 4000.0)
    watched.look()
    assert fleet_of_watch._first_seen == {}
    watched.cycle.stand_by()


def test_steps_are_asked_for_at_evaluations_alone_where_that_is_wanted():
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    make = partial(
        watch_streaming.cycle_of,
        source=JobSource(lambda: None),
        exporter=FindingsExporter(),
        log=ErrorLog(lambda _: None),
        evaluate=watch.evaluate,
        say=lambda _: None,
    )
    assert make(parser.parse_args(["--agent", "x", "--step-interval", "0s"])) is None
    assert make(parser.parse_args(["--prometheus", "http://x"])) is None
    assert make(parser.parse_args(["--agent", "x"])) is not None


def test_arrays_of_a_window_are_those_that_were_sent(fleet, tmp_path):
    clock, urls = fleet(Job(steps=30, ranks_per_node=4))
    clock.steps = 30
    watched = Watch(urls, tmp_path)
    watched.evaluate()
    found = watched.cycle._fleet.stream.windows.of("team/job").records()
    assert len(found) == 30 * NODES * RANKS_OF_A_NODE
    assert np.isfinite(found["compute_seconds"]).all()
    assert sorted(found["rank"].unique()) == list(range(8))
    watched.cycle.stand_by()


def test_a_watch_that_follows_steps_tells_of_its_looks(fleet, tmp_path):
    clock, urls = fleet(SLOW)
    clock.steps = 20
    watched = Watch([*urls, "http://127.0.0.1:1"], tmp_path)
    began = time.time()
    watched.evaluate()
    found = told(watched)
    assert began <= found["rankscope_watch_last_step_look_timestamp_seconds", ("0", "1")]
    assert found["rankscope_watch_step_agents", ("answering",)] == 2
    assert found["rankscope_watch_step_agents", ("new",)] == 1
    assert found["rankscope_watch_step_records_total", ("judged",)] == 20 * 8
    assert found["rankscope_job_silent_ranks", ("team/job",)] == 0
    agents = watched.cycle._fleet.stream.agents
    agents[urls[0]].failure = "does not answer"
    for one in agents.values():
        one.answered -= 61.0
        one.retry = time.monotonic() + 3600.0
    watched.look()
    found = told(watched)
    assert found["rankscope_watch_step_agents", ("silent",)] == 2
    assert found["rankscope_job_silent_ranks", ("team/job",)] == 4
    watched.cycle.stand_by()
    assert watched.source.step_look is None


def test_a_look_that_nobody_answers_does_not_renew_the_time_of_the_last(fleet, tmp_path):
    clock, urls = fleet(Job(steps=40, ranks_per_node=4))
    clock.steps = 20
    watched = Watch(urls, tmp_path)
    watched.evaluate()
    for one in watched.cycle._fleet.stream.agents.values():
        one.retry = time.monotonic() + 3600.0
    before = watched.source.step_look.answered_at
    watched.look(2)
    assert watched.source.step_look.answered_at == before
    watched.cycle.stand_by()


def told(watched):
    made = step_series.samples(watched.source.step_look, watched.source.shard)
    return {(one.metric.name, one.labels): one.value for one in made}
