"""Several watches share the jobs, and find together what one alone finds."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import urllib.error
from collections import Counter

import pytest

from rankscope_agent.contract.shards import (
    WHOLE,
    Shard,
    covers,
    index_of,
    jump,
    shard_of_text,
)
from rankscope_agent.web.routes import Response
from rankscope_analyzers.arguments import watch as watch_options
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import watch, watch_shards, watch_streaming
from rankscope_analyzers.commands.job_source import JobSource
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.incident_log import IncidentLog
from ring_writer import RingWriter
from running_agent import running_agent
from serving import answering
from simulated_jobs import records
from test_watch_memory import OWN_RINGS_ALONE, go_on
from test_watch_streaming import SLOW, Clock, Node, Watch

NAMES = [f"team/job-{number}" for number in range(10_000)]


def test_the_hash_is_the_papers_and_the_same_on_every_machine():
    """Another one would give the jobs of running watches to others."""
    found = [index_of(name, 8) for name in ("team/llm", "a/b", "local/0a1b2c3d", "", "é/ü")]
    assert found == [0, 7, 4, 5, 6]
    assert {index_of(name, 1) for name in NAMES[:100]} == {0}


@pytest.mark.parametrize(
    ("key", "total", "bucket"),
    [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520)],
)
def test_buckets_are_those_of_other_implementations(key, total, bucket):
    """Of Guava and dgryski/go-jump."""
    assert jump(key, total) == bucket


def test_jobs_are_spread_evenly_and_each_has_one_watch():
    shards = [Shard(index, 8) for index in range(8)]
    assert all(sum(shard.has(name) for shard in shards) == 1 for name in NAMES[:500])
    counts = Counter(index_of(name, 8) for name in NAMES)
    assert 1100 < min(counts.values()) <= max(counts.values()) < 1400


def test_one_watch_more_moves_its_share_of_jobs_and_only_to_itself():
    moved = {name: index_of(name, 5) for name in NAMES if index_of(name, 5) != index_of(name, 4)}
    assert set(moved.values()) == {4}
    assert 1800 < len(moved) < 2200


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "0/0", "0/65", "0/2/3", "a/b", "0/2 "])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match="not a shard"):
        shard_of_text(text)


def test_a_reader_asks_for_a_job_a_shard_or_all():
    mine = next(name for name in NAMES if Shard(1, 2).has(name))
    assert [covers(jobs, mine) for jobs in (mine, "other", None, WHOLE)] == [
        True,
        False,
        True,
        True,
    ]
    assert covers(Shard(1, 2), mine)
    assert not covers(Shard(0, 2), mine)
    assert str(shard_of_text("0/4")) == "0/4"


def options(*words):
    parser = argparse.ArgumentParser()
    watch_options.add_arguments(parser)
    return parser.parse_args(["--agent", "x", *words])


@pytest.mark.parametrize(
    ("pod", "index"), [("rankscope-watch-0", 0), ("rankscope-watch-3", 3), ("rankscope-watch-5", 1)]
)
def test_pods_of_a_stateful_set_are_twice_as_many_as_shards(pod, index):
    assert watch_shards.shard_of(options("--total-shards=4"), pod) == Shard(index, 4)


def test_each_shard_has_its_own_lease_and_state_whatever_their_number():
    for total in (1, 4):
        chosen = options(f"--total-shards={total}")
        assert watch_shards.own_name("watch", chosen, Shard(0, total)) == "watch-0"
    assert watch_shards.own_name("watch", options(), WHOLE) == "watch"
    assert watch_shards.shard_of(options("--total-shards=4", "--shard=2")) == Shard(2, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shard=0"], "--shard needs --total-shards"),
        (["--total-shards=0"], "0/0 is not a shard"),
        (["--total-shards=-2"], "not a shard"),
        (["--total-shards=65"], "not a shard"),
        (["--total-shards=2", "--shard=2"], "2/2 is not a shard"),
        (["--total-shards=2", "--shard=x"], "is 'auto', or a number"),
        (["--total-shards=2", "--shard=0", "--publish-nodes"], "--publish-nodes needs a single"),
    ],
)
def test_options_that_name_no_shard_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        watch_shards.shard_of(options(*words), "pod-1")


def test_a_pod_without_a_number_is_refused():
    with pytest.raises(InputError, match="'watch-7f9c' does not end with a number"):
        watch_shards.shard_of(options("--total-shards=2"), "watch-7f9c")


JOBS = [f"team/job-{number}" for number in range(6)]
SLOW_JOBS = JOBS[::2]


@pytest.fixture
def node(tmp_path):
    """A real agent, and the rings of six jobs of four ranks each."""
    folder = tmp_path / "rings"
    folder.mkdir()
    rings = {
        job: [
            RingWriter(
                folder, f"{16 * number + rank}-1.ring", capacity=512, rank=rank, local_rank=rank,
                job_id=job,
            )
            for rank in range(4)
        ]
        for number, job in enumerate(JOBS)
    }  # fmt: skip
    with running_agent(tmp_path, *OWN_RINGS_ALONE) as agent:
        yield agent, rings


class ShardWatch(Watch):
    """A watch of one shard, that keeps nothing."""

    def __init__(self, urls, folder, shard=WHOLE):
        folder.mkdir()
        words = [word for url in urls for word in ("--agent", url)]
        parser = argparse.ArgumentParser()
        watch_options.add_arguments(parser)
        self.options = parser.parse_args(
            [*words, "--interval=1h", "--step-interval=1s", "--since=9000d", "--hang-after=9000d"]
        )
        self.said, self.log, self.followed = [], folder / "incidents", FollowedJobs()
        self.source = JobSource(lambda: None, followed=self.followed, shard=shard)
        self.source.hang_after_seconds = 1e9
        self.source.announcer = Announcer(self.said.append, IncidentLog(self.log))
        self.exporter = FindingsExporter(shard=shard)
        errors = ErrorLog(self.said.append)
        self.cycle = watch_streaming.cycle_of(
            self.options, self.source, self.exporter, errors, watch.evaluate, self.said.append
        )
        self.cycle._interval = 0.05

    def told(self):
        return {
            (line["job_id"], line["change"], line["fault"], *line["ranks"]) for line in self.lines()
        }

    def last(self):
        """Return of which shard the page tells when it was evaluated last."""
        name = "rankscope_watch_last_evaluation_timestamp_seconds"
        found = re.search(rf'(?m)^{name}{{shard="(.*)",shards="(.*)"}} \S+$', self.exporter.text())
        return found.groups()

    def jobs(self):
        return {report.job_id for report in self.source.exported.reports}


def test_two_shards_find_what_one_watch_finds(node, tmp_path):
    agent, rings = node
    shards = [Shard(index, 2) for index in range(2)]
    watches = [
        ShardWatch([agent.url], tmp_path / name, shard)
        for name, shard in zip(("one", "a", "b"), (WHOLE, *shards), strict=True)
    ]
    for slow_by in (0, 40_000_000, 0):
        for job, writers in rings.items():
            go_on(writers, 120, slow_by=slow_by if job in SLOW_JOBS else 0)
        for one in watches:
            one.evaluate()
            one.look(2)
    alone, *shared = watches
    assert [one.last() for one in watches] == [("0", "1"), ("0", "2"), ("1", "2")]
    assert {job for job, *_ in alone.told()} == set(SLOW_JOBS)
    assert {change for _, change, *_ in alone.told()} == {"opened", "closed"}
    assert shared[0].told() | shared[1].told() == alone.told()
    assert not shared[0].told() & shared[1].told()
    for one, shard in zip(shared, shards, strict=True):
        own = {job for job in JOBS if shard.has(job)}
        assert own
        assert own <= one.jobs(), "beside jobs of which this machine's own logs say something"
        assert all(map(shard.has, one.jobs()))
        assert set(one.cycle._fleet.stream.windows.jobs) == own
        rings_known = one.cycle._fleet.stream.agents[agent.url].rings
        assert {ring.job_id for ring in rings_known} == own, "it asked for no others"
    for one in watches:
        one.cycle.stand_by()


def test_an_agent_answers_for_the_jobs_of_a_shard(node):
    agent, rings = node
    for writers in rings.values():
        go_on(writers, 3)
    for index in range(2):
        own = {job for job in JOBS if Shard(index, 2).has(job)}
        answer = json.loads(agent.get(f"/api/v1/steps?shard={index}/2"))
        at = answer["columns"].index("job_id")
        assert {row[at] for row in answer["rows"]} == own
        starts = json.loads(agent.get(f"/api/v1/step_starts?since=9e9&shard={index}/2"))
        assert {row[at] for row in starts["rows"]} == own
        assert json.loads(agent.get(f"/api/v1/spans?shard={index}/2"))["rows"] == []
    for query in ("shard=2/2", "shard=x", "shard=0/2&job=team/job-1"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            agent.get(f"/api/v1/steps?{query}")


class Older(Node):
    """An agent of an earlier release: it knows no shards, and refuses what it does not know."""

    def __init__(self, *words):
        super().__init__(*words)
        self.asked = []

    def steps(self, request):
        self.asked.append("shard" in request.query)
        if "shard" in request.query:
            return Response(400, "text/plain", b"Unknown query parameter")
        return super().steps(request)


class Ignoring(Older):
    """One that answers for all jobs, whatever it is asked for."""

    def steps(self, request):
        self.asked.append("shard" in request.query)
        return Node.steps(self, request)


@pytest.mark.parametrize("kind", [Older, Ignoring])
def test_agents_that_know_no_shards_are_followed_too(kind, tmp_path):
    table = records(SLOW, seed=5)
    job = "team/job"
    clock = Clock()
    nodes = [kind(number, table, clock, job) for number in range(2)]
    clock.steps = 150
    own = Shard(index_of(job, 2), 2)
    other = Shard(1 - own.index, 2)
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(answering(node.routes())) for node in nodes]
        watches = [ShardWatch(urls, tmp_path / str(one.index), one) for one in (own, other)]
        for one in watches:
            one.evaluate()
            one.look(3)
        assert [line["ranks"] for line in watches[0].lines()] == [[5]]
        assert watches[1].jobs() == set()
        assert set(watches[1].cycle._fleet.stream.windows.jobs) == set()
        if kind is Older:
            assert [sum(node.asked) for node in nodes] == [2, 2], "each watch asked once"
        assert not any("does not answer" in said for one in watches for said in one.said)
        for one in watches:
            one.cycle.stand_by()
