"""Limits of sentences, lists, logs' reports and fields of objects: at each and just beyond it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rankscope_agent.contract.failures.signs import Quote
from rankscope_agent.contract.failures.verdict import Attempt, Failure, Victim
from rankscope_analyzers.logs import (
    failure_report,
    kernel_report,
    merged_logs,
    nccl_explanation,
    nccl_findings,
    nccl_report,
    watchdog_suspects,
)
from rankscope_analyzers.numeric import medians, peers
from rankscope_analyzers.numeric.arrays import distinct
from rankscope_analyzers.text import name_lists, sanitize, wording
from rankscope_analyzers.workloads import fields, jobs, pods
from rankscope_analyzers.workloads.state import Owner, Progress, WorkloadState


@pytest.mark.parametrize(
    ("count", "written"),
    [(8, "0, 1, 2, 3, 4, 5, 6, 7"), (9, "0, 1, 2, 3, 4, 5, 6, 7 and 1 more")],
)
def test_a_sentence_names_eight_things_and_counts_the_others(count, written):
    assert name_lists.listed(range(count)) == written


@pytest.mark.parametrize(
    ("ranks", "written"),
    [
        ((0, 1), "0, 1"),
        ((0, 1, 2), "0-2"),
        (range(0, 20, 2), "0, 2, 4, 6, 8, 10, 12, 14 and 2 more"),
    ],
)
def test_three_ranks_in_a_row_are_a_run_and_eight_runs_are_named(ranks, written):
    assert name_lists.ranks_listed(ranks) == written


@pytest.mark.parametrize(("characters", "kept"), [(253, 253), (254, 250)])
def test_a_name_has_253_characters(characters, kept):
    assert sanitize.name("n" * characters).count("n") == kept


@pytest.mark.parametrize(("characters", "kept"), [(2000, 2000), (2001, 1997)])
def test_a_sentence_has_2000_characters(characters, kept):
    assert sanitize.visible("n" * characters).count("n") == kept


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (14400, "4.0 h")],
)
def test_from_two_of_the_next_unit_on_that_unit_is_said(seconds, written):
    assert wording.age(seconds) == written


@pytest.mark.parametrize(
    ("number", "unit", "written"),
    [
        (999, "Hz", "999 Hz"),
        (1000, "Hz", "1 kHz"),
        (999_999, "W", "1000 kW"),
        (1e6, "W", "1 MW"),
        (2e9, "bytes", "2 GB"),
        (3e12, "bytes/s", "3 TB/s"),
        (999.4, "events", "999.4 events"),
        (1000.4, "events", "1,000 events"),
        (1500.0, "ratio", "1,500"),
        (600.6, "ratio", "600.6"),
    ],
)
def test_numbers_have_prefixes_of_a_thousand_and_separators_from_it_on(number, unit, written):
    assert wording.value(number, unit) == written


@pytest.mark.parametrize(("given", "kept"), [(253, 253), (300, 253)])
def test_texts_of_objects_have_253_characters_and_lists_4096_items(given, kept):
    assert len(fields.text({"name": "n" * given}, "name")) == kept
    assert len(fields.objects({"items": [{}] * 4096}, "items")) == 4096
    assert len(fields.objects({"items": [{}] * 5000}, "items")) == 4096


def owned(number, of):
    owner = Owner("Job", str(number + 1), str(number + 1)) if number < of else None
    return WorkloadState("Job", "n", str(number), str(number), 0.0, "", owner, Progress("running"))


def test_five_owners_above_an_object_are_followed():
    by_uid = {str(number): owned(number, 9) for number in range(10)}
    assert jobs._above(by_uid["0"], by_uid) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(("before", "reason"), [(1024 - 20, "gpus"), (1024, "other")])
def test_1024_characters_of_the_schedulers_sentence_are_read(before, reason):
    found = pods.unschedulable("x" * before + "insufficient nvidia.com/gpu"[:20])
    whole = pods.unschedulable("insufficient nvidia.com/gpu"[:20])
    assert (found == whole) is (reason == "gpus")
    assert whole != "other"


@pytest.mark.parametrize(
    ("values", "middle"), [((1, 9), 1), ((1, 5, 9), 5), ((1, 3, 5, 9), 4), ((1, np.nan, 9), 1)]
)
def test_of_up_to_three_members_the_lower_median_is_taken(values, middle):
    assert medians.median(np.array(values, float), 0).item() == middle


def test_of_four_members_of_whom_one_is_unknown_the_median_is_that_of_three():
    assert medians.median(np.array([1.0, np.nan, 5.0, 9.0]), 0).item() == 5.0
    assert medians.median(np.array([1.0, np.nan, 3.0, 5.0, 9.0]), 0).item() == 4.0


@pytest.mark.parametrize(("members", "reference"), [(32, 10.0), (33, 16.0)])
def test_of_up_to_32_members_the_lower_third_is_healthy(members, reference):
    assert medians.reference(np.arange(members, dtype=float), 0).item() == reference


def test_noise_is_the_standard_deviation_of_normal_values():
    chance = np.random.default_rng(7)
    found = peers.noise(chance.normal(0.0, 1.0, (4000, 8)))
    np.testing.assert_allclose(found, 1.0, rtol=0.06)


@pytest.mark.parametrize("values", [[0, 4], [0, 8, 8], [0, 9, 3], [5, 5], [0, 10**12]])
def test_distinct_values_are_the_same_counted_or_sorted(values):
    known, index = distinct(np.array(values))
    assert known.tolist() == sorted(set(values))
    assert known[index].tolist() == values


def failure(rank, cause="host_oom"):
    return Failure(rank, cause, True, "text", "", None, "a.log", 1, None, None, False, False)


def attempt(others=0, victims=0, silent=0):
    return Attempt(
        0,
        "host_oom",
        failure(0),
        tuple(failure(1 + number) for number in range(others)),
        tuple(Victim(number, f"way {chr(97 + number % 26)}") for number in range(victims)),
        (range(silent),),
    )


def test_4096_ranks_of_an_attempt_are_written_out():
    written = failure_report._attempt(attempt(4097, 4097, 4097))
    assert [len(written[key]) for key in ("also_failed", "victims", "silent_ranks")] == [4096] * 3


@pytest.mark.parametrize(("others", "shown"), [(8, 8), (10, 9)])
def test_eight_further_failures_are_shown_and_the_others_counted(others, shown):
    lines = list(failure_report._attempt_lines(attempt(others)))
    assert sum(line.startswith("also failed") for line in lines) == shown
    assert (f"also failed: {others - 8} more in --json" in lines) is (others > 8)


def test_eight_ways_in_which_ranks_were_taken_along_are_shown():
    assert len(list(failure_report._victim_lines(attempt(victims=20).victims))) == 8


def test_five_lines_of_no_known_kind_are_shown():
    quotes = tuple(Quote("a.log", number, "Error: odd") for number in range(9))
    found = failure_report.JobLogExplanation.__new__(failure_report.JobLogExplanation)
    found._attempts, found._quotes = (), quotes
    lines = list(found._quote_lines())
    assert len(lines) == 6
    assert lines[-1] == "not explained: 4 more kinds of lines in --json"


def kernel_lines(monkeypatch, incidents=0, events=0, harmless=0):
    def one(text, cause="gpu"):
        event = SimpleNamespace(text=text, cause=cause, pci=None)
        return SimpleNamespace(event=event, count=1)

    shown = tuple(one(f"event {number}") for number in range(events))
    incident = SimpleNamespace(
        summary="s", events=shown, severity="page", action="none", cause="gpu",
        first_time="", last_time="",
    )  # fmt: skip
    verdict = SimpleNamespace(
        summary="s", cause="gpu", action="none", incidents=(incident,) * incidents
    )
    monkeypatch.setattr(kernel_report, "judge", lambda *_: verdict)
    monkeypatch.setattr(kernel_report, "_published", lambda _: None)
    monkeypatch.setattr(kernel_report, "counted", lambda seen: seen)
    seen = [one(f"event {number}", "benign") for number in range(harmless)]
    log = SimpleNamespace(seen=seen, beyond_limits=0, boot=0)
    return list(kernel_report.lines(log))


@pytest.mark.parametrize(("incidents", "more"), [(20, []), (23, ["3 more incidents in --json"])])
def test_twenty_incidents_of_a_kernel_log_are_shown(monkeypatch, incidents, more):
    lines = kernel_lines(monkeypatch, incidents)
    assert [line for line in lines if "more incidents" in line] == more


def test_four_events_of_an_incident_and_four_harmless_ones_are_shown(monkeypatch):
    lines = kernel_lines(monkeypatch, 1, 6)
    assert sum(line.startswith("  1x event") for line in lines) == 4
    assert "  ... 2 more kinds of events" in lines
    lines = kernel_lines(monkeypatch, harmless=9)
    assert sum(line.startswith("harmless:") for line in lines) == 4


STAMP = b"2026-01-02T03:04:05Z"


@pytest.mark.parametrize(("before", "known"), [(61, True), (62, False)])
def test_the_time_of_a_line_stands_in_its_first_80_bytes(before, known):
    raw = b"x" * (before - 1) + b" " + STAMP + b" words\n"
    (line,) = merged_logs.lines("a", [raw])
    assert (line.at is not None) is known


def test_4096_bytes_of_a_line_are_shown():
    (line,) = merged_logs.lines("a", [b"x" * 9000 + b"\n"])
    assert len(line.text) == 4096


@pytest.mark.parametrize(("before", "found"), [((1 << 20) - 20, True), (1 << 20, False)])
def test_a_mebibyte_of_a_log_without_its_mark_is_read_once_more(monkeypatch, before, found):
    fed = []
    parser = SimpleNamespace(feed=fed.append, facts=SimpleNamespace(informed=False, unparsed=0))
    text = b"x" * (before - 1) + b"\nChannel 00/02 : 0 1\n"
    monkeypatch.setattr(nccl_explanation, "chunks", lambda _, **__: [text])
    nccl_explanation._read_one("a", parser, print)
    assert any(b"NCCL INFO Channel" in text for text in fed) is found


@pytest.mark.parametrize(("nranks", "absent"), [(1024, 1024), (5000, 1024)])
def test_1024_missing_ranks_are_listed(nranks, absent):
    assert len(nccl_findings._absent((), nranks)) == absent


def test_256_settings_of_a_job_are_kept_with_eight_values_each():
    settings = {f"NCCL_X{number}": "0" for number in range(300)}
    processes = {0: SimpleNamespace(environment=settings)}
    facts = SimpleNamespace(processes=processes)
    assert len(nccl_report.environment(facts)) == 256
    facts.processes = {n: SimpleNamespace(environment={"NCCL_A": str(n)}) for n in range(20)}
    assert len(nccl_report.environment(facts)["NCCL_A"]) == 8


def test_64_suspects_are_listed(monkeypatch):
    monkeypatch.setattr(watchdog_suspects, "TESTS", watchdog_suspects.TESTS[:1])
    culprit = SimpleNamespace(finished=None, missing=7)
    watchdog = SimpleNamespace(
        culprits=dict.fromkeys(range(99), culprit), states={}, timeouts={}, ranks={}
    )
    facts = SimpleNamespace(watchdog=watchdog)
    assert len(watchdog_suspects.suspects(facts)) == 64


def test_131072_ranks_are_written_out_one_by_one():
    found = nccl_report._finding(
        SimpleNamespace(
            kind="missing_rank",
            summary="s",
            source="",
            where=SimpleNamespace(ranks=range((1 << 17) + 1), nodes=()),
            runbook="RankscopeMissingRank",
        )
    )
    assert len(found["ranks"]) == 1 << 17


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, "0 s"), (2e-6, "2 us"), (99e-6, "99 us"), (1e-4, "0.1 ms"), (0.9994, "999.4 ms"),
     (1.0, "1.00 s")],
)  # fmt: skip
def test_a_time_is_written_with_the_unit_in_which_something_is_left_of_it(seconds, written):
    assert wording.duration(seconds) == written


@pytest.mark.parametrize(("usual", "written"), [(0.0, "1.50 s"), (0.1, "1.50 s against 100.0 ms")])
def test_what_has_no_usual_time_is_set_against_none(usual, written):
    assert wording.against(1.5, usual) == written
