"""What a watch keeps loses no incident for want of room, and tells none twice from another node."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from faulty_clusters import Cluster, pressure
from rankscope_analyzers.commands import watch as watch_command
from rankscope_analyzers.commands.job_source import Exported, JobSource
from rankscope_analyzers.isolation.boundary import ErrorLog
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch import memory as watch_memory
from rankscope_analyzers.watch.announcer import Announcer
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.incident_history import ranks_of, spans_of
from rankscope_analyzers.watch.incident_log import IncidentLog
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import ChangedError, FileStore, Part, UnreachableError
from simulated_jobs import Fault, Job
from test_incident_log import Receiver, ended, line, lines_of, of_other_ranks, posting

SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))


@pytest.fixture(scope="module")
def report():
    return Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, SLOW, [pressure({})]).report()


class Watch:
    """A watch on a node of its own, and its log there; all reach the state."""

    def __init__(self, state, folder, **limits):
        folder.mkdir(exist_ok=True)
        self.log = folder / "log"
        self.exporter, self.followed, self.said = FindingsExporter(), FollowedJobs(), []
        self.announcer = Announcer(self.said.append, IncidentLog(self.log))
        store = FileStore(state, **limits)
        self.memory = Memory(store, self.said.append, {"announced": self.announcer.log})

    def look(self, reports, now):
        self.memory.begin(self.exporter, self.followed)
        self.exporter.update(reports, now, 0, ())
        self.announcer.tell(self.exporter.events, reports, now)
        self.memory.end(self.exporter, self.followed, changed=True)
        return [event.change for event in self.exporter.events]

    def stand_by(self):
        self.exporter.stand_by()
        self.memory.forget()
        self.announcer.forget()

    def lines(self):
        return lines_of(self.log) if self.log.exists() else []


def of(report, number):
    return replace(report, job_id=f"team/job-{number:04d}")


def test_incidents_that_go_on_find_room_before_sums_of_thousands_of_short_jobs(report, tmp_path):
    watch = Watch(tmp_path / "state", tmp_path / "one", most_bytes=60_000)
    for first in range(0, 1000, 100):
        over = [ended(of(report, number)) for number in range(first, first + 100)]
        watch.look([of(report, 5000), *over], 1000.0 + first)
    assert (tmp_path / "state").stat().st_size <= 60_000
    anew = Watch(tmp_path / "state", tmp_path / "two")
    assert anew.look([of(report, 5000)], 2100.0) == []
    newest, oldest = of(report, 999).job_id, of(report, 0).job_id
    page = anew.exporter.text()
    assert f'observed_gpu_seconds_total{{job_id="{newest}"}}' in page
    assert f'observed_gpu_seconds_total{{job_id="{oldest}"}}' not in page


def test_jobs_come_back_with_those_that_were_seen_last_at_the_end(report, tmp_path):
    watch = Watch(tmp_path / "state", tmp_path / "one")
    for number in (2, 1, 3):
        watch.look([of(report, number)], 1000.0 + number)
    anew = Watch(tmp_path / "state", tmp_path / "two")
    anew.memory.begin(anew.exporter, anew.followed)
    known = []
    anew.exporter.with_watch(lambda series: known.extend(series.state.history.kept()))
    assert known == [f"team/job-000{number}" for number in (2, 1, 3)]


def test_a_job_whose_sums_make_no_sense_costs_no_other(report, tmp_path):
    watch = Watch(tmp_path / "state", tmp_path / "one")
    watch.look([of(report, 1), of(report, 2)], 1000.0)
    text = (tmp_path / "state").read_text().splitlines()
    torn = [
        one.replace('"observed":', '"observed":-1e9,"was":')
        if '"sums"' in one and "job-0001" in one
        else one
        for one in text
    ]
    assert torn != text
    (tmp_path / "state").write_text("\n".join(torn))
    anew = Watch(tmp_path / "state", tmp_path / "two")
    assert anew.look([of(report, 1), of(report, 2)], 1030.0) == []
    assert any("'team/job-0001' are invalid" in said for said in anew.said)


def test_a_state_of_the_first_release_is_read(report, tmp_path):
    (incident,) = report.incidents
    key, kind = incident.timing.kind, incident.cause.kind
    states = {key: [kind, list(incident.where.ranks), incident.summary, None]}
    value = {
        "lost": {report.job_id: {kind: 3.0}},
        "observed": {report.job_id: 50.0},
        "lives": {report.job_id: states},
    }
    FileStore(tmp_path / "state").write([Part("watch", "", value)], 1.0)
    watch = Watch(tmp_path / "state", tmp_path / "one")
    assert watch.look([report], 1000.0) == []
    assert f'observed_gpu_seconds_total{{job_id="{report.job_id}"}} 50.0' in watch.exporter.text()


def test_a_watch_on_another_node_tells_no_incident_again_and_ends_it_by_its_name(report, tmp_path):
    one, two = (Watch(tmp_path / "state", tmp_path / name) for name in ("one", "two"))
    one.look([report], 1000.0)
    one.stand_by()
    two.look([report], 1030.0)
    assert two.lines() == []
    two.look([of_other_ranks(report)], 1060.0)
    two.stand_by()
    one.look([ended(report)], 1090.0)
    told = [*one.lines(), *two.lines()]
    assert sorted((each["sequence"], each["number"], each["change"]) for each in told) == [
        (1, 1, "opened"),
        (2, 2, "changed"),
        (3, 3, "closed"),
    ]
    assert len({each["incident"] for each in told}) == 1


def test_a_log_that_has_more_than_the_state_is_believed(report, tmp_path):
    watch = Watch(tmp_path / "state", tmp_path / "one")
    watch.look([], 1000.0)
    kept = (tmp_path / "state").read_bytes()
    watch.look([report], 1030.0)
    (tmp_path / "state").write_bytes(kept)  # the watch was killed before it was saved
    anew = Watch(tmp_path / "state", tmp_path / "one")
    anew.look([report], 1060.0)
    assert [each["change"] for each in anew.lines()] == ["opened"]


@pytest.mark.parametrize("junk", [[], {"sequence": 1}, {"sequence": 1, "open": [[1]]}, 3])
def test_what_was_told_and_makes_no_sense_is_begun_anew_and_said(junk, report, tmp_path):
    FileStore(tmp_path / "state").write([Part("announced", "", junk)], 1.0)
    watch = Watch(tmp_path / "state", tmp_path / "one")
    watch.look([report], 1000.0)
    assert any("announced is invalid" in said for said in watch.said)
    assert [each["change"] for each in watch.lines()] == ["opened"]


def test_lines_that_a_watch_on_another_node_did_not_get_posted_are_posted():
    with Receiver() as receiver, posting(receiver) as (first, _):
        receiver.answers = [500] * 1000
        first.post([line(number) for number in range(1, 41)])
        kept = json.loads(json.dumps(first.kept()))
    assert len(kept["waiting"]) == 32
    with Receiver() as receiver:
        of_its_own = [line(41)]
        with posting(receiver, lambda _: of_its_own) as (second, _):
            second.restore(kept)
            second.post(of_its_own)
            assert receiver.has(33)
            assert receiver.sequences()[-33:] == [*range(1, 33), 41]


def test_ranks_are_kept_by_their_stretches():
    assert spans_of(range(131_072)) == [(0, 131_071)]
    assert ranks_of(spans_of((5, 3, 4, 9))) == (3, 4, 5, 9)
    assert ranks_of([3, 4, [7, 8]]) == (3, 4, 7, 8)
    for spans in ([[5, 3]], [[0, 10**12]], [-1]):
        with pytest.raises(ValueError, match="not ranks"):
            ranks_of(spans)


class Later:
    """A store that cannot be read at first."""

    def __init__(self, store):
        self.store, self.down = store, True

    def read(self):
        if self.down:
            raise UnreachableError("nobody there")
        return self.store.read()

    def write(self, parts, now):
        return self.store.write(parts, now)


@pytest.fixture
def watching(report, tmp_path):
    """Give a function that makes a watch of a store, and evaluates at each call."""

    def made(store):
        said = []
        source = JobSource(lambda: exporter.update([report], 1000.0, 0, ()) and None)
        source.memory = Memory(store, said.append)
        source.announcer = Announcer(said.append, IncidentLog(tmp_path / "log"))
        source.exported = Exported([report])
        exporter = FindingsExporter()

        def look():
            watch_command.evaluate(source, exporter, ErrorLog(said.append))
            log = tmp_path / "log"
            return [each["change"] for each in lines_of(log)] if log.exists() else []

        return look

    return made


class Overtaken:
    """A store that another watch has written before the second write and the third one."""

    def __init__(self, store):
        self.store, self.writes = store, 0

    def read(self):
        return self.store.read()

    def write(self, parts, now):
        self.writes += 1
        if self.writes in {2, 3}:
            raise ChangedError("it was written by another watch")
        return self.store.write(parts, now)


@pytest.mark.parametrize("logged", [True, False])
def test_an_incident_is_said_to_have_opened_once_although_the_state_was_not_saved(
    report, logged, tmp_path
):
    said, opened = [], []
    exporter, source = FindingsExporter(), JobSource(lambda: None)
    source.memory = Memory(Overtaken(FileStore(tmp_path / "state")), said.append)
    source.announcer = Announcer(said.append, IncidentLog(tmp_path / "log") if logged else None)
    source.exported = Exported([report])
    other = of(report, 1)
    for number, reports in enumerate(([other], *[[other, report]] * 3)):
        source.memory.begin(exporter, None)
        exporter.update(reports, 1000.0 + number, 0, ())
        opened += [event for event in exporter.events if event.change == "opened"]
        source.tell(exporter, 1000.0 + number)
        source.memory.end(exporter, None, changed=True)
    assert len(opened) == 4, "what was not saved is seen again"
    assert len([sentence for sentence in said if ": opened: " in sentence]) == 2
    if logged:
        assert [one["change"] for one in lines_of(tmp_path / "log")] == ["opened"] * 2


def test_nothing_is_told_while_it_is_not_known_what_was(watching):
    look = watching(Later(None))
    assert [look() for _ in range(3)] == [[], [], []]


def test_after_a_minute_what_may_have_been_told_is_told(watching, monkeypatch):
    look = watching(Later(None))
    assert look() == []
    now = time.monotonic()
    monkeypatch.setattr(watch_memory.time, "monotonic", lambda: now + 59.0)
    assert look() == []
    monkeypatch.setattr(watch_memory.time, "monotonic", lambda: now + 61.0)
    assert look() == ["opened"]


def test_what_is_known_at_last_is_not_told_again(watching, report, tmp_path):
    before = Watch(tmp_path / "state", tmp_path)
    before.look([report], 1000.0)
    store = Later(FileStore(tmp_path / "state"))
    look = watching(store)
    assert look() == ["opened"]
    store.down = False
    assert look() == ["opened"]
