"""Each check of a manifest passes, warns, fails and cannot decide where it should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight_endurance_cases import ENDURANCE_CASES
from preflight_jobs import CLAIM, GONE, IDS, JOB, NETWORK, changed, outcomes, read
from preflight_network_cases import MASTERS, NETWORK_CASES, network
from preflight_placement_cases import PLACEMENT_CASES
from preflight_resource_cases import RESOURCE_CASES
from preflight_transport_cases import TRANSPORT_CASES
from preflight_unstated_cases import CLAIMED_CASES, RUNTIME_CASES
from preflight_variable_cases import VARIABLE_CASES
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.preflight.budget_check import leaving_bytes
from rankscope_analyzers.preflight.job import Settings
from rankscope_analyzers.preflight.master_check import attachment_master
from rankscope_analyzers.preflight.network_checks import matching
from rankscope_analyzers.preflight.outcome import outcome_of

CLUSTER = Configuration(fabric=("10.1.0.0/16", "fd00::/64"), projects={"ml": "llm"})
MEASURED = Settings(checkpoint_seconds=120, configuration=CLUSTER)

CASES = [
    *NETWORK_CASES,
    *TRANSPORT_CASES,
    *RESOURCE_CASES,
    *VARIABLE_CASES,
    *PLACEMENT_CASES,
    *ENDURANCE_CASES,
    *CLAIMED_CASES,
    *RUNTIME_CASES,
]

NEVER = {
    ("fabric-addresses", "warn"): "one of the networks is of the fabric, or none",
    ("job-project", "fail"): "the job runs, and nobody knows whose it is",
    ("attachment-definition", "warn"): "a definition is there and can be read, or not",
    ("pod-addresses", "warn"): "two pods have one address, or not",
    ("single-network", "fail"): "the job runs, below its speed",
    ("algorithm-tuning", "fail"): "the job runs, perhaps below its speed",
}
"""Verdicts that a check does not have, and why."""


@pytest.mark.parametrize(("verdict", "seen", "master", "nodes"), MASTERS)
def test_a_network_hangs_on_an_interface_of_every_node(verdict, seen, master, nodes):
    (job,) = read(JOB, network(master=master)).jobs
    outcome = outcome_of(lambda: attachment_master(replace(job, interfaces=nodes)))
    got = "undecided" if outcome.undecided else outcome.verdict
    assert (got, seen in outcome.seen) == (verdict, True), outcome


@pytest.mark.parametrize(
    ("layout", "nodes", "leaving"),
    [
        ("all-reduce", 2, 1.0),
        ("all-reduce", 4, 1.5),
        ("sharded", 4, 2.25),
        ("sharded", 1000, 2.997),
    ],
)
def test_what_leaves_a_node_follows_from_the_layout(layout, nodes, leaving):
    assert leaving_bytes(layout, nodes, 1.0) == pytest.approx(leaving)


@pytest.mark.parametrize(
    ("check", "verdict", "seen", "manifests"), CASES, ids=[f"{c}-{v}-{s}" for c, v, s, _ in CASES]
)
def test_a_check_concludes(check, verdict, seen, manifests):
    outcome = outcomes(*manifests, settings=MEASURED)[check]
    got = "undecided" if outcome.undecided else outcome.verdict
    assert (got, seen in outcome.seen) == (verdict, True), outcome
    assert bool(outcome.remedy) == bool(outcome.expected) == (verdict in {"warn", "fail"})


def test_each_check_is_seen_with_each_verdict_that_it_has():
    seen = {(check, verdict) for check, verdict, _, _ in CASES}
    seen |= {("attachment-master", verdict) for verdict, *_ in MASTERS}
    for check in IDS:
        for verdict in ("pass", "warn", "fail", "undecided"):
            assert ((check, verdict) in seen) != ((check, verdict) in NEVER), (check, verdict)
    assert {check for check, _ in NEVER} <= set(IDS)


def test_nothing_is_wrong_with_the_job_that_the_others_are_made_from():
    found = outcomes(JOB, NETWORK, CLAIM, settings=MEASURED)
    assert {name for name, one in found.items() if one.verdict in {"warn", "fail"}} == set()
    assert not any(one.undecided for one in found.values())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("eth", ["eth0", "eth1"]),
        ("=eth", []),
        ("=eth1,net1", ["eth1", "net1"]),
        ("^eth", ["lo", "net1"]),
        ("^=eth0", ["eth1", "lo", "net1"]),
        ("net,lo", ["lo", "net1"]),
    ],
)
def test_interfaces_are_matched_as_nccl_does(value, expected):
    assert matching(value, ["eth0", "eth1", "lo", "net1"]) == expected


def test_checks_by_the_configuration_are_left_where_there_is_none_or_it_says_nothing():
    for settings, why in ((Settings(), "--config"), (Settings(configuration=Configuration()), "")):
        found = outcomes(JOB, NETWORK, settings=settings)["fabric-addresses"]
        assert (found.verdict, found.undecided) == ("skip", False)
        assert why in found.seen
    assert outcomes(JOB, settings=Settings())["job-project"].verdict == "skip"


def test_a_job_in_which_no_pods_are_found_is_not_decided():
    specs = JOB["spec"]["pytorchReplicaSpecs"]
    found = outcomes(changed({"spec pytorchReplicaSpec": specs, "spec pytorchReplicaSpecs": GONE}))
    assert "misspelt" in found["rdma-transport"].seen
    assert found["rdma-transport"].undecided
    assert found["shared-memory"].undecided
