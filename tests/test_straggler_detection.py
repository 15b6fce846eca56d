"""What the incremental analysis says about jobs whose fault is known."""

import numpy as np
import pytest

from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import cause_selection, feed
from rankscope_analyzers.stragglers.incidents import same_culprit
from rankscope_analyzers.stragglers.view import Candidate
from suite_jobs import fault, found, incidents, made

FAULTS = {
    "one gpu": fault("gpu_compute", "gpu", 1.4),
    "gpus of a node": fault("gpu_compute", "node", 1.4),
    "a gpu now and then": fault("gpu_compute", "intermittent", 1.5, duty=0.6),
    "a gpu from the start": fault("gpu_compute", "born", 1.4, first=0),
    "a gpu more and more": fault("gpu_compute", "ramp", 1.5),
    "input of a rank": fault("data_loader", "rank", 0.4),
    "input of a node": fault("data_loader", "node", 0.4),
    "link of a rank": fault("network_link", "rank", 4.0),
    "links of a node": fault("network_link", "node", 4.0),
    "input of all": fault("storage_checkpoint", "shared_input", 0.3),
    "one writer": fault("storage_checkpoint", "writer", 6.0),
    "all writers": fault("storage_checkpoint", "all_writers", 6.0),
    "all compute": fault("global_slowdown", "compute", 1.3),
    "all exchange": fault("global_slowdown", "fabric", 3.0),
    "a heavy stage": fault("partition_imbalance", "stage", 1.4, stage=1),
    "unequal sequences": fault("partition_imbalance", "sequence_length", 0.18),
    "garbage collection": fault("host_transient", "garbage_collection", 0.5, duty=0.6),
    "a noisy host": fault("host_transient", "noisy_host", 0.5, duty=0.3),
}


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize("name", FAULTS)
def test_the_class_and_the_culprit_are_named(name, timing):
    injected = FAULTS[name]
    simulated = made(injected, timing=timing)
    (label,) = simulated.labels["faults"]
    (said,) = found(simulated)
    assert said.kind == injected.kind
    if label["culprit_stage"] >= 0:
        assert said.stage == label["culprit_stage"]
    elif label["accept_ranks"]:
        assert said.ranks[0] in label["accept_ranks"]
    else:
        assert said.ranks == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_trace_cut_at_the_verdict_gives_the_same_verdict(name):
    simulated = made(FAULTS[name])
    (said,) = found(simulated)
    rows = simulated.records
    ends = rows["t_start_unix_seconds"] + rows["step_seconds"]
    (again,) = incidents(simulated.meta, rows[ends <= said.detected_at])
    assert again.detected_at == said.detected_at
    assert (again.kind, again.ranks, again.stage) == (said.kind, said.ranks, said.stage)
    assert again.lost_fraction == said.lost_fraction
    newest = rows["step"][ends <= said.detected_at].max()
    assert incidents(simulated.meta, rows[rows["step"] < newest]) == ()


@pytest.mark.parametrize("name", ["one gpu", "links of a node", "one writer", "a noisy host"])
def test_one_step_at_a_time_gives_what_the_whole_trace_gives(name):
    simulated = made(FAULTS[name])
    assert found(simulated, block_rows=1) == found(simulated)


@pytest.mark.parametrize("timing", ["kernel", "wall"])
@pytest.mark.parametrize(
    ("world", "tensor", "pipeline"), [(8, 1, 1), (8, 2, 2), (16, 1, 4), (32, 8, 1), (64, 2, 2)]
)
def test_a_healthy_job_accuses_nobody(world, tensor, pipeline, timing):
    simulated = made(world=world, tensor=tensor, pipeline=pipeline, timing=timing)
    assert found(simulated) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluation_period": 40, "evaluation_seconds": 8.0},
        {"restart": 110},
        {"restart": 110, "shrinks": True},
        {"silent_node": 2},
        {"dark": 7},
        {"missing": 0.05},
    ],
)
def test_what_happens_to_healthy_jobs_accuses_nobody(changes):
    assert found(made(**changes)) == ()


@pytest.mark.parametrize(
    "changes", [{"dark": 7}, {"silent_node": 3}, {"restart": 40}, {"restart": 60, "shrinks": True}]
)
def test_a_fault_is_found_in_spite_of_what_happens_to_jobs(changes):
    simulated = made(FAULTS["one gpu"], **changes)
    (label,) = simulated.labels["faults"]
    (said,) = found(simulated)
    assert said.kind == "gpu_compute"
    assert said.ranks[0] in label["accept_ranks"]


def test_a_fault_that_outlives_a_restart_is_one_incident():
    (said,) = found(made(fault("gpu_compute", "gpu", 1.4, last=220), restart=140))
    assert said.until is None


def test_an_incident_is_closed_when_its_cause_ends():
    simulated = made(fault("gpu_compute", "gpu", 1.4, first=60, last=120))
    (said,) = found(simulated)
    ends = simulated.labels["exec_end_unix"]
    assert ends[110] < said.until < ends[150]


def test_two_faults_are_two_incidents():
    simulated = made(
        fault("gpu_compute", "gpu", 1.4, first=40, last=80),
        fault("data_loader", "rank", 0.4, first=150, last=210, slot=20),
    )
    assert [said.kind for said in found(simulated)] == ["gpu_compute", "data_loader"]


def test_a_dark_rank_is_never_convicted():
    simulated = made(FAULTS["one gpu"], dark=13)
    assert all(13 not in said.ranks for said in found(simulated))


def test_the_clocks_of_nodes_do_not_matter():
    simulated = made(FAULTS["one gpu"])
    (before,) = found(simulated)
    offset = simulated.records["node"].map({"node-00000": 0.05, "node-00001": -0.05}).fillna(0.0)
    moved = simulated.records.assign(
        t_start_unix_seconds=simulated.records["t_start_unix_seconds"] + offset
    )
    (after,) = incidents(simulated.meta, moved)
    assert (after.kind, after.ranks) == (before.kind, before.ranks)
    assert after.lost_fraction == pytest.approx(before.lost_fraction)


@pytest.mark.parametrize("name", ["one gpu", "input of a rank", "all compute", "a heavy stage"])
def test_the_cost_is_what_the_same_run_without_the_fault_saves(name):
    simulated = made(FAULTS[name])
    (label,) = simulated.labels["faults"]
    (said,) = found(simulated)
    assert said.lost_fraction == pytest.approx(label["lost_fraction"], abs=0.03)


def test_a_verdict_comes_within_twenty_steps():
    simulated = made(FAULTS["one gpu"])
    (said,) = found(simulated)
    steps = int(np.searchsorted(simulated.labels["exec_end_unix"], said.detected_at - 0.1)) - 80
    assert 0 <= steps < 20


def test_a_rank_that_reports_late_may_stall():
    simulated = made(fault("host_transient", "noisy_host", 0.5, duty=0.3))
    rows = simulated.records
    late = rows[~((rows["node"] == "node-00001") & (rows["step"] < 30))]
    assert {said.kind for said in incidents(simulated.meta, late)} <= {"host_transient"}


def test_slow_checkpoints_do_not_split_the_incident_of_a_slow_gpu():
    said = found(
        made(
            fault("gpu_compute", "gpu", 1.4, first=60, last=220),
            fault("storage_checkpoint", "all_writers", 6.0, first=100, last=150),
        )
    )
    assert [incident.kind for incident in said] == ["gpu_compute", "storage_checkpoint"]
    assert said[0].until is None
    assert said[1].until is not None


def test_another_rank_with_the_same_fault_is_another_incident():
    said = found(
        made(
            fault("gpu_compute", "gpu", 1.4, first=60, last=120, slot=13),
            fault("gpu_compute", "gpu", 1.5, first=120, last=220, slot=20),
        )
    )
    assert [(incident.kind, incident.ranks[0]) for incident in said] == [
        ("gpu_compute", 13),
        ("gpu_compute", 20),
    ]
    assert said[0].until is not None
    assert said[1].until is None


def test_a_culprit_that_flaps_is_one_incident():
    said = found(made(fault("gpu_compute", "intermittent", 1.5, first=60, last=220, duty=0.5)))
    assert len(said) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"ranks": (3, 4)}, {"ranks": (4, 9)}, True),
        ({"ranks": (3,)}, {"ranks": (9,)}, False),
        ({"ranks": ()}, {"ranks": (9,)}, True),
        ({"stage": 1}, {"stage": 2}, False),
        ({"stage": 1}, {"stage": -1}, True),
    ],
)
def test_which_diagnoses_of_a_class_are_of_one_cause(one, other, same):
    usual = {"ranks": (), "stage": -1, "observed": 1.0, "expected": 1.0}
    first, second = (Candidate("gpu_compute", 0.1, **(usual | it)) for it in (one, other))
    assert same_culprit(first, second) is same


CONCURRENT = {
    "a slow GPU and slow input of another node": (
        "kernel",
        fault("gpu_compute", "gpu", 1.4, first=60, last=220, slot=13),
        fault("data_loader", "rank", 0.5, first=110, last=220, slot=20),
    ),
    "a slow GPU and a slow link": (
        "kernel",
        fault("gpu_compute", "gpu", 1.4, first=60, last=220, slot=13),
        fault("network_link", "rank", 4.0, first=110, last=220, slot=20),
    ),
    "a slow link and stalls anywhere": (
        "kernel",
        fault("network_link", "rank", 4.0, first=60, last=220, slot=20),
        fault("host_transient", "garbage_collection", 0.5, first=110, last=220, duty=0.7),
    ),
    "slow input and a slow link under wall timing": (
        "wall",
        fault("data_loader", "rank", 0.5, first=60, last=220, slot=20),
        fault("network_link", "rank", 5.0, first=110, last=220, slot=3),
    ),
}


@pytest.mark.parametrize("name", CONCURRENT)
def test_a_second_cause_is_found_beside_the_first(name):
    timing, *faults = CONCURRENT[name]
    simulated = made(*faults, timing=timing)
    said = found(simulated)
    assert [incident.kind for incident in said] == [fault.kind for fault in faults]
    assert [incident.until for incident in said] == [None, None]
    for incident, label in zip(said, simulated.labels["faults"], strict=True):
        if label["accept_ranks"]:
            assert incident.ranks[0] in label["accept_ranks"]


def test_the_second_cause_goes_on_as_the_same_incident_when_the_first_ends():
    said = found(
        made(
            fault("gpu_compute", "gpu", 1.4, first=60, last=150, slot=13),
            fault("data_loader", "rank", 0.5, first=90, last=220, slot=20),
        )
    )
    assert [incident.kind for incident in said] == ["gpu_compute", "data_loader"]
    assert [incident.until is None for incident in said] == [False, True]


FLAT = {"tensor": 1, "pipeline": 1, "timing": "wall"}
STALLS = fault("host_transient", "garbage_collection", 0.6, first=110, last=220, duty=0.4)


@pytest.mark.parametrize(
    "first",
    [
        fault("storage_checkpoint", "shared_input", 0.3, first=60, last=220),
        fault("data_loader", "rank", 0.4, first=60, last=220, slot=20),
        fault("network_link", "rank", 4.0, first=60, last=220, slot=20),
        fault("global_slowdown", "fabric", 4.0, first=60, last=220),
    ],
    ids=lambda one: one.kind,
)
def test_stalls_are_found_beside_slow_input_or_exchanges_where_compute_holds_no_waits(first):
    said = found(made(first, STALLS, checkpoint_period=0, **FLAT))
    assert {incident.kind for incident in said} == {first.kind, "host_transient"}


def test_waits_of_peers_for_slow_input_are_no_stalls_where_compute_holds_them():
    slow = fault("data_loader", "intermittent", 0.5, first=60, last=220, slot=20, duty=0.5)
    said = found(made(slow, timing="wall"))
    assert "host_transient" not in {incident.kind for incident in said}


def cause(kind, shown_by=""):
    return Candidate(kind, 0.1, (), -1, 2.0, 1.0, shown_by=shown_by)


@pytest.mark.parametrize("kind", cause_selection.INDEPENDENT)
@pytest.mark.parametrize("contents", ["kernels", "stalls", "waits"])
def test_no_cause_stands_beside_its_own_class(kind, contents):
    assert not cause_selection.are_independent(cause(kind), cause(kind), contents)


@pytest.mark.parametrize(
    ("first", "second", "contents"),
    [
        ("host_transient", cause("global_slowdown", "exchange"), ("kernels", "stalls", "waits")),
        ("network_link", cause("global_slowdown", "exchange"), ()),
        ("network_link", cause("global_slowdown"), ("kernels", "stalls")),
        ("host_transient", cause("global_slowdown"), ("kernels",)),
        ("network_link", cause("host_transient"), ("kernels", "stalls")),
        ("data_loader", cause("gpu_compute"), ("kernels", "stalls")),
        ("gpu_compute", cause("data_loader"), ("kernels", "stalls", "waits")),
    ],
)
def test_what_compute_contains_hides_other_causes(first, second, contents):
    for one in ("kernels", "stalls", "waits"):
        seen = cause_selection.are_independent(cause(first), second, one)
        assert seen is (one in contents)


@pytest.mark.parametrize("dark", [8, 10, 40])
@pytest.mark.parametrize("timing", ["kernel", "wall"])
def test_a_dark_rank_that_waits_for_slow_input_is_no_slow_link(dark, timing):
    slow = fault("data_loader", "node", 0.5, first=76, last=190, slot=40)
    simulated = made(slow, world=64, tensor=8, pipeline=2, timing=timing, dark=dark)
    assert {incident.kind for incident in found(simulated)} == {"data_loader"}


def test_a_short_run_after_a_restart_is_judged_by_its_own_length():
    slow = fault("data_loader", "rank", 1.0, slot=5, first=110, last=220)
    brief = {"compute": 0.022, "data": 0.001, "transfer": 0.005, "checkpoint_period": 0}
    simulated = made(slow, world=8, tensor=1, pipeline=1, restart=110, **brief)
    judging = feed.Feed(layout(simulated.meta, 0))
    judging.add(FrameTable(simulated.records))
    known = judging.finish().incidents
    assert [(one.kind, one.ranks) for one in known] == [("data_loader", (5,))]
