"""What is kept in a ConfigMap is the leading watch's: whoever led before writes over none of it."""

from __future__ import annotations

import json

import pytest

from faulty_clusters import JOB, Cluster, pressure
from rankscope_analyzers.intake.kubernetes_api import Answer
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs
from rankscope_analyzers.watch.config_map_store import ConfigMapStore
from rankscope_analyzers.watch.election import Term
from rankscope_analyzers.watch.exporter import FindingsExporter
from rankscope_analyzers.watch.memory import Memory
from rankscope_analyzers.watch.store import ChangedError, Part, UnreachableError
from simulated_jobs import Fault, Job
from test_election import LEASE_SECONDS, Server
from test_election import Watch as Candidate

SLOW = Job(ranks=16, steps=120, faults=(Fault("compute", (13,), 0.5, first_step=60),))
OPEN = f'rankscope_job_observed_gpu_seconds_total{{job_id="{JOB}"}}'


class Maps:
    """An API server with one ConfigMap; it refuses writes that are not based on the newest one."""

    def __init__(self):
        self.map = {"metadata": {"resourceVersion": "1"}}

    def get(self, path, query, seconds):
        return Answer(200, json.loads(json.dumps(self.map)))

    def put(self, path, body, seconds):
        if body["metadata"]["resourceVersion"] != self.map["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "modified"})
        version = str(int(body["metadata"]["resourceVersion"]) + 1)
        self.map = {**json.loads(json.dumps(body)), "metadata": {"resourceVersion": version}}
        return self.get("", {}, 0.0)

    @property
    def term(self):
        return json.loads(self.map["data"]["term"])


class Watch:
    """One watch: its part in the election, and what it keeps."""

    def __init__(self, server, api, name):
        self.candidate = Candidate(server, name)
        self.store = ConfigMapStore(api, "state", "rankscope", lambda: self.candidate.term)
        self.exporter, self.followed, self.said = FindingsExporter(), FollowedJobs(), []
        self.memory = Memory(self.store, self.said.append)

    def look(self, reports, now):
        """Evaluate once, as who leads does; return what changed."""
        self.memory.begin(self.exporter, self.followed)
        self.exporter.update(reports, now, 0, ())
        self.memory.end(self.exporter, self.followed, changed=True)
        return [event.change for event in self.exporter.events]


@pytest.fixture(scope="module")
def report():
    return Cluster({"gpu-0": "healthy", "gpu-1": "thermal@5"}, SLOW, [pressure({})]).report()


@pytest.fixture
def pair():
    """Two watches, of which the first one leads, with their lease and their ConfigMap."""
    server, api = Server(), Maps()
    one, two = Watch(server, api, "one"), Watch(server, api, "two")
    assert one.candidate.tries()
    two.candidate.tries()
    return server, api, one, two


def taken_over(server, two):
    """The lease runs out unnoticed by who held it."""
    server.now += LEASE_SECONDS
    two.candidate.tries()
    assert two.candidate.holds


def test_what_is_kept_says_who_led_and_in_which_term(pair, report):
    server, api, one, two = pair
    one.look([report], 1000.0)
    assert (api.term["holder"], api.term["transitions"]) == ("one", 0)
    taken_over(server, two)
    two.look([report], 1030.0)
    assert (api.term["holder"], api.term["transitions"]) == ("two", 1)


def test_a_watch_that_takes_over_opens_no_incident_again(pair, report):
    server, _, one, two = pair
    assert one.look([report], 1000.0) == ["opened"]
    taken_over(server, two)
    assert two.look([report], 1030.0) == []
    assert OPEN in two.exporter.text()


def test_a_watch_that_does_not_know_that_it_lost_the_lease_writes_over_nothing(pair, report):
    server, api, one, two = pair
    one.look([], 1000.0)
    taken_over(server, two)
    assert two.look([report], 1030.0) == ["opened"]
    kept = api.map
    assert one.candidate.holds
    one.look([], 1031.0)  # its evaluation was under way all the time
    one.look([], 1062.0)
    assert api.map == kept
    assert any("written by two, which leads now" in said for said in one.said)


def test_nothing_is_written_over_between_a_reading_and_the_first_writing(pair, report):
    """A successor that has read, and judges for a minute, would find its state changed."""
    server, api, one, two = pair
    one.look([report], 1000.0)
    taken_over(server, two)
    two.memory.begin(two.exporter, two.followed)
    kept = api.map
    with pytest.raises(ChangedError, match="written by another watch"):
        one.store.write([Part("watch", "", {})], 1031.0)
    assert api.map == kept
    two.exporter.update([report], 1060.0, 0, ())
    assert two.memory.save(two.exporter, two.followed) is False, "not yet evaluated to its end"
    assert two.memory.end(two.exporter, two.followed, changed=True)


def test_a_watch_that_read_in_an_earlier_term_of_its_own_reads_again(pair, report):
    server, api, one, two = pair
    one.look([], 1000.0)
    taken_over(server, two)
    two.look([report], 1030.0)
    one.candidate.tries()
    server.now += LEASE_SECONDS
    one.candidate.tries()
    with pytest.raises(ChangedError, match="changed hands"):
        one.store.write([], 1060.0)
    one.memory.forget()
    assert one.look([report], 1061.0) == []
    assert api.term == {"holder": "one", "transitions": 2, "created": 0.0}


def test_who_does_not_hold_the_lease_reads_nothing_of_it_and_writes_nothing(pair):
    _, api, _, two = pair
    with pytest.raises(UnreachableError, match="the lease is not held"):
        two.store.read()
    with pytest.raises(ChangedError):
        two.store.write([], 1.0)
    assert "data" not in api.map


def test_a_lease_that_was_made_anew_counts_from_the_start_and_is_the_newer_one():
    old, new = Term("one", 9, 1000.0), Term("two", 1, 2000.0)
    assert old.is_before(new)
    assert not new.is_before(old)
    assert not new.is_before(new)
    assert Term("one", 1, 1000.0).is_before(Term("one", 2, 1000.0))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"holder": 1}', '{"holder":"x","transitions":1,'])
def test_a_term_that_makes_no_sense_holds_nobody_off(pair, report, text):
    _, api, one, _ = pair
    one.look([report], 1000.0)
    api.map["data"]["term"] = text
    one.memory.forget()
    assert one.look([report], 1030.0) == []
    assert api.term["holder"] == "one"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.6, 0.98])
def test_a_state_that_is_torn_falls_back_to_the_one_before(pair, report, share):
    server, api, one, two = pair
    one.look([report], 1000.0)
    one.look([report], 1030.0)
    state = api.map["data"]["state"]
    api.map["data"]["state"] = state[: int(share * len(state))] or "\0"
    taken_over(server, two)
    assert two.look([report], 1060.0) == [], "the one before has the incident, too"
    assert any("the previous one is used" in said for said in two.said)


def test_a_torn_state_does_not_take_the_place_of_the_one_before(pair, report):
    _, api, one, _ = pair
    one.look([report], 1000.0)
    one.look([report], 1030.0)
    before = api.map["data"]["before"]
    api.map["data"]["state"] = api.map["data"]["state"][:-20]
    one.memory.forget()
    one.look([report], 1060.0)
    assert api.map["data"]["before"] == before
    one.look([report], 1090.0)
    assert api.map["data"]["before"] != before


def test_both_states_fit_into_a_config_map(pair):
    _, api, one, _ = pair
    one.store.read()
    large = [Part("job", str(number), "x" * 1000) for number in range(1000)]
    for now in (1.0, 2.0):
        assert one.store.write(large, now) > 0
    sizes = [len(text) for text in api.map["data"].values()]
    assert 1_000_000 < sum(sizes) <= 1 << 20, "1 MiB is what the API server takes"
    assert max(sizes) <= 512 << 10
