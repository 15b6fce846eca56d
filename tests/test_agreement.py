"""One fault that the kernel's log and a counter of the host report is one finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faulty_series import FAULTS, JOB, NODES, NOW, PLACES, VIEW, Reading, event, observed
from rankscope_agent.contract.metrics import host, kernel_log, training
from rankscope_analyzers import layers
from rankscope_analyzers.fusion.agreement import agreed
from rankscope_analyzers.fusion.incidents import fuse
from test_incidents import seen

COUNTED = FAULTS["host_memory"]
LOGGED = event("memory_uncorrected")
EDAC, KERNEL = host.EDAC_ERRORS.name, kernel_log.KERNEL_LAST_EVENT.name
ENDED = Reading(training.RANK_ALIVE, {"job_id": JOB, "rank": "5"}, 0)


def judged(*odd: Reading):
    found = layers.findings_of_job(observed(*odd), VIEW).findings
    return fuse((), found, PLACES, frozenset(("kernel", "host", "pod")))


@pytest.mark.parametrize(
    ("logged", "order"),
    [(NOW - 300, ("kernel", "host")), (NOW - 1, ("host", "kernel"))],
    ids=["log first", "counter first"],
)
def test_a_memory_error_of_a_node_is_one_finding_whatever_came_first(logged, order):
    (finding,) = judged(*COUNTED, replace(LOGGED[0], last=logged)).observations
    assert (finding.kind, finding.where.nodes, finding.layers) == ("host_memory", NODES[1:], order)
    sources = {"kernel": KERNEL, "host": EDAC}
    assert [one.source for one in finding.evidence] == [sources[layer] for layer in order]
    assert finding.source == " or ".join(sources[layer] for layer in order)
    assert set(finding.seen_by.split(" and ")) == {"kernel log", "host pressure"}
    assert finding.since_unix_seconds == (logged if order[0] == "kernel" else NOW - 210)


@pytest.mark.parametrize(
    "other",
    [
        event("machine_check"),
        [replace(LOGGED[0], node=NODES[0])],
    ],
    ids=["a machine check", "of another node"],
)
def test_what_may_be_another_fault_is_a_finding_of_its_own(other):
    found = judged(*COUNTED, *other).observations
    assert [one.layers for one in found] == [("kernel",), ("host",)]


def test_errors_that_were_corrected_are_no_evidence_of_those_that_were_not():
    corrected = Reading(host.EDAC_ERRORS, {"severity": "corrected"}, 9, 0)
    (finding,) = judged(corrected, *LOGGED).observations
    assert (finding.layers, len(finding.evidence)) == (("kernel",), 1)


def test_two_layers_that_agree_on_the_cause_leave_less_doubt_than_one():
    both, logged, counted = (
        judged(ENDED, *odd).incidents[0] for odd in ([*COUNTED, *LOGGED], LOGGED, COUNTED)
    )
    assert both.cause.kind == logged.cause.kind == counted.cause.kind == "host_memory"
    assert set(both.layers) == {"kernel", "host", "training"}
    assert both.confidence > logged.confidence == counted.confidence


def test_one_finding_of_several_is_as_severe_as_the_worst_and_lasts_as_long_as_the_last():
    one = seen(since=10.0, until=20.0, fault="x", layer="host")
    two = seen(since=None, until=30.0, fault="x", layer="kernel", severity="page", source="y")
    (found,) = agreed([one, two])
    assert (found.severity, found.since_unix_seconds, found.until_unix_seconds) == (
        *("page", None),
        30.0,
    )
    assert (found.layers, found.source) == (("kernel", "host"), "y")
    (found,) = agreed([one, replace(two, until_unix_seconds=None)])
    assert found.until_unix_seconds is None
    assert len(list(agreed([one, replace(two, fault="")]))) == 2
