"""Limits of commands, captures, records of runs and criteria of a job: at each and beyond it."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from large_bytes import Large
from observed_series import observed, series
from rankscope_agent.contract.metrics import rdma
from rankscope_analyzers.captures.evidence import CaptureEvidence
from rankscope_analyzers.captures.objects import without_secrets
from rankscope_analyzers.command import InputError, age_seconds
from rankscope_analyzers.commands import diff, watch, watch_setup, watch_streaming
from rankscope_analyzers.commands.watch_streaming import AgentPages, StreamingCycle
from rankscope_analyzers.datasets.comparison import Compared
from rankscope_analyzers.datasets.explanation import DatasetExplanation, explain
from rankscope_analyzers.datasets.manifest import Shard
from rankscope_analyzers.intake.credentials import CredentialsError
from rankscope_analyzers.intake.job_objects import JobObjects
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.runs.record import RecordFormatError, differences
from rankscope_analyzers.verification import rank_criteria
from rankscope_analyzers.verification.checkpoint_criterion import checkpoint
from rankscope_analyzers.verification.evidence import Evidence, Settings, evidence
from rankscope_analyzers.workloads.quantities import quantity
from test_watch import watch_command_options


@pytest.mark.parametrize(
    ("age", "seconds"), [("1s", 1.0), ("1m", 60.0), ("1.5h", 5400.0), ("1d", 86_400.0)]
)
def test_ages_are_in_seconds_minutes_hours_and_days(age, seconds):
    assert age_seconds(age, "--since") == seconds


def test_an_age_is_no_longer_than_a_pause_can_be():
    with pytest.raises(OverflowError):
        time.sleep(106_752 * 86_400.0)
    assert age_seconds("100000d", "--interval") == 8.64e9
    with pytest.raises(InputError, match="takes an age"):
        age_seconds("100001d", "--interval")


@pytest.mark.parametrize(
    ("after", "word"),
    [(1.049, "no change."), (1.051, "slower"), (0.96, "no change."), (0.95, "faster")],
)
def test_a_run_is_slower_from_five_percent_on(after, word):
    found = diff._headline({"median_step_seconds": 1.0}, {"median_step_seconds": after}, after)
    assert word in found


def run_record(version):
    names = ("images", "command", "environment", "versions")
    return {"format": version, **{name: {} for name in names}, "ranks": []}


def test_records_of_runs_have_format_1():
    assert list(differences(run_record(1), run_record(1))) == []
    with pytest.raises(RecordFormatError):
        list(differences(run_record(2), run_record(2)))


@pytest.mark.parametrize(("count", "last"), [(64, "why 63"), (65, "and 1 more")])
def test_64_sentences_say_what_a_capture_lacks(count, last):
    objects = JobObjects((), (), [f"why {number}" for number in range(count)])
    assert CaptureEvidence(objects=objects).not_read()[-1] == last


@pytest.mark.parametrize(("levels", "kept"), [(64, True), (65, False)])
def test_objects_of_64_levels_are_captured(levels, kept):
    found = "leaf"
    for _ in range(levels):
        found = {"spec": found}
    assert ("leaf" in json.dumps(without_secrets(found))) is kept


def test_8192_characters_of_a_text_are_captured():
    found = without_secrets({"note": "x" * 9000, "args": ["y" * 9000]})
    assert [len(found["note"]), len(found["args"][0])] == [8192, 8192]


def odd_shards(count):
    shard = Shard("a.tar", 1, "", "")
    return DatasetExplanation([Compared(shard, "damaged", "")] * count, None, count)


@pytest.mark.parametrize(("count", "more"), [(20, False), (21, True)])
def test_twenty_damaged_shards_are_listed(count, more):
    lines = list(odd_shards(count).lines())
    assert sum("a.tar" in line for line in lines) == 20
    assert ("and 1 more (--json lists all)" in lines) is more


def test_the_manifest_of_a_dataset_has_256_mib(tmp_path):
    asked = []

    class File:
        def open(self, mode):
            return self

        def read(self, most):
            asked.append(most)
            return Large(most)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    with pytest.raises(ValueError, match="more than 268435456 bytes"):
        explain(File(), tmp_path, names=None, deep=False)
    assert asked == [(256 << 20) + 1]


@pytest.mark.parametrize(
    ("suffix", "factor"),
    [
        *(("n", 1e-9), ("u", 1e-6), ("m", 1e-3), ("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9)),
        *(("T", 1e12), ("P", 1e15), ("E", 1e18), ("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30)),
        *(("Ti", 2**40), ("Pi", 2**50), ("Ei", 2**60), ("e3", 1e3)),
    ],
)
def test_suffixes_of_quantities_are_those_of_kubernetes(suffix, factor):
    assert quantity(f"3{suffix}") == 3 * factor


@pytest.mark.parametrize(("characters", "number"), [(64, 10.0**63), (65, None)])
def test_a_quantity_has_64_characters(characters, number):
    assert quantity("1" + "0" * (characters - 1)) == number


def judged(pace=1.0, wanted=1.0, confidence=1.0, steps=500):
    verdict = SimpleNamespace(
        unexplained_loss=0.0,
        steps=steps,
        median_step_seconds=pace,
        confidence=confidence,
        unobserved=("times",),
    )
    report = SimpleNamespace(
        job_id="job", incidents=(), verdict=verdict, missing=(), locations={},
        frame=SimpleNamespace(unobserved=(), ranks=SimpleNamespace(tolist=lambda: [0, 1])),
    )  # fmt: skip
    return Evidence(report, Observed({}), (), Settings(None, wanted, 0.3, "auto", frozenset()))


@pytest.mark.parametrize(("pace", "status"), [(1.09, "met"), (1.11, "broken")])
def test_a_step_may_take_a_tenth_longer_than_expected(pace, status):
    assert rank_criteria.steps(judged(pace)).status == status


@pytest.mark.parametrize(("confidence", "status"), [(0.5, "met"), (0.49, "unknown")])
def test_half_a_confidence_is_enough_for_no_straggler(confidence, status):
    assert rank_criteria.straggler(judged(confidence=confidence)).status == status


def test_three_problems_of_a_checkpoint_are_named():
    problems = [SimpleNamespace(file=f"f{number}", detail="is cut off") for number in range(5)]
    newest = SimpleNamespace(state="damaged", name="step-1", problems=problems)
    found = SimpleNamespace(
        of_ranks=lambda metric: {},
        checkpoints=SimpleNamespace(checkpoints=[newest], root="/ckpt"),
    )
    assert checkpoint(found).seen.count("is cut off") == 3


@pytest.mark.parametrize(("state", "up"), [(4.0, True), (3.0, False)])
def test_a_port_carries_rdma_from_state_4_on(monkeypatch, state, up):
    told = []
    monkeypatch.setattr(
        "rankscope_analyzers.verification.nccl_readings.of_logs",
        lambda *_, rdma: told.append(rdma),
    )
    ports = series(rdma.PORT_STATE, state)
    report = SimpleNamespace(job_id="job", locations={})
    evidence(
        report, observed(ports), Settings(None, None, 0.3, "auto", frozenset()), (None, ()), ()
    )
    assert told == [up]


class Fleet:
    """What a cycle of the watch asks of its fleet; it notes how long it waits."""

    def __init__(self):
        self.waits, self.budgets = [], []
        self.stream = SimpleNamespace(connections=self, has_newcomers=False)

    def idle(self, seconds):
        self.waits.append(seconds)
        self.stream.has_newcomers = len(self.waits) > 2

    def set_agents(self, urls, cluster):
        pass

    def look(self, now, seconds):
        self.budgets.append(seconds)
        raise CredentialsError("no token")


class Pages:
    agents, ready = SimpleNamespace(stale="", urls=(), cluster=None), False


def cycle(**given):
    told = {"say": lambda text: None, "pages": Pages(), "fleet": Fleet, **given}
    source = SimpleNamespace(read=None)
    return StreamingCycle(source, given.get("exporter"), None, None, step_interval=5.0, **{
        name: told[name] for name in ("say", "pages", "fleet")
    })  # fmt: skip


def test_a_look_for_steps_hangs_after_a_quarter_of_an_hour():
    deadlines = []
    exporter = SimpleNamespace(set_deadline=lambda seconds: deadlines.append(seconds) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cycle(exporter=exporter).run()
    assert deadlines == [905.0]


def test_punctual_agents_are_waited_for_two_seconds_and_pages_asked_for_ten_times_a_second():
    fleet = Fleet()
    assert cycle()._looked(fleet) == ()
    assert fleet.budgets == [2.0]
    cycle()._wait(fleet, float("inf"))
    assert fleet.waits == [0.1, 0.1, 0.1]


@pytest.mark.parametrize(("seconds", "due"), [(5.0, 130.0), (6.0, 130.0), (7.0, 135.0)])
def test_evaluations_of_all_jobs_take_a_fifth_of_the_time(seconds, due):
    pages = AgentPages(lambda answered: None, None, 60.0, 30.0)
    pages._asked_at, pages.cpu_seconds = 100.0, 1.0
    pages.postpone(seconds - 1.0)
    assert pages._due == pytest.approx(max(due, 100.0 + 5.0 * seconds))
    assert pages._due == pytest.approx(due)


def test_collectives_are_compared_for_a_seventh_of_the_interval(monkeypatch):
    budgets = []
    monkeypatch.setattr(watch, "EarlierPolls", lambda seconds, reads: budgets.append(seconds))
    watch.reader(watch_command_options("--agent", "a:1"), 20.0)
    pages = AgentPages(lambda answered: None, None, 60.0, 40.0)
    monkeypatch.setattr(
        watch_streaming, "StreamedFleet", lambda entry, since, seconds, *_, **__: seconds
    )
    options = watch_command_options("--agent", "a:1", "--interval", "60s")
    source = SimpleNamespace(read=None, followed=None, shard=None)
    made = watch_streaming.cycle_of(options, source, None, None, None, None)
    assert budgets == [3.0]
    assert pages._earlier.comparison_seconds == pytest.approx(6.0)
    assert made._made() == pytest.approx(9.0)


def test_states_of_eight_shards_and_of_the_time_before_are_looked_at(monkeypatch):
    names = []
    monkeypatch.setattr(watch_setup, "ConfigMapStore", lambda api, name, _: names.append(name))
    monkeypatch.setattr(watch_setup, "states_of", list)
    options = SimpleNamespace(state_config_map="state", namespace="n")
    found = watch_setup._other_states(options, None, SimpleNamespace(index=2))
    assert [index for index, _ in found] == [0, 0, 1, 3, 4, 5, 6, 7]
    assert names == ["state", *(f"state-{number}" for number in (0, 1, 3, 4, 5, 6, 7))]
