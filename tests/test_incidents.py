"""What becomes one incident: causes in time, echoes, agreement of layers, and their order."""

import pytest

from rankscope_analyzers.findings.finding import Cost, Finding, RankLocation, Where
from rankscope_analyzers.fusion.incidents import fuse

NOW = 1_760_000_000.0
PLACES = {
    rank: RankLocation(rank, f"gpu-{rank // 4}", gpu=str(rank % 4), uuid=f"GPU-{rank}")
    for rank in range(8)
}
EVERYTHING = frozenset(("gpu", "kernel", "link", "nccl", "environment", "host", "pod", "log"))


def slow(kind="gpu_compute", ranks=(3,), hours=10.0, since=NOW, until=None, **changes):
    """Return what step times say."""
    nodes = tuple(dict.fromkeys(PLACES[rank].node for rank in ranks))
    values = {
        "kind": kind,
        "layer": "training",
        "severity": "ticket",
        "job_id": "job",
        "where": Where(nodes, tuple(ranks)),
        "summary": f"{kind} of {ranks}",
        "action": f"look at {kind}",
        "evidence": (),
        "cost": Cost(0.2, hours),
        "confidence": 0.6,
        "runbook": kind,
        "since_unix_seconds": since,
        "until_unix_seconds": until,
    }
    return Finding(**values | changes)


def seen(kind="thermal_slowdown", layer="gpu", since=NOW, until=None, where=None, **changes):
    """Return what another layer says, of rank 3's GPU by default."""
    values = {
        "kind": kind,
        "layer": layer,
        "severity": "ticket",
        "job_id": "",
        "where": where or Where(nodes=("gpu-0",), uuids=("GPU-3",), gpus=("3",)),
        "summary": f"{kind} of {layer}",
        "action": f"look at {kind}",
        "runbook": kind,
        "since_unix_seconds": since,
        "until_unix_seconds": until,
    }
    return Finding(**values | changes)


def judged(timed, others=(), observed=EVERYTHING, locations=PLACES):
    return fuse(timed, others, locations, observed)


def causes(found):
    return [incident.cause.kind for incident in found.incidents]


@pytest.mark.parametrize(
    ("began", "is_cause"),
    [(-7200, True), (0, True), (+119, True), (+121, False), (+900, False), (None, True)],
)
def test_a_cause_may_be_noticed_two_minutes_after_the_slow_steps_and_no_later(began, is_cause):
    since = None if began is None else NOW + began
    found = judged([slow()], [seen(since=since)])
    assert causes(found) == ["thermal_slowdown" if is_cause else "gpu_compute"]
    assert len(found.observations) == (not is_cause)


@pytest.mark.parametrize(
    ("ended", "is_cause"), [(None, True), (+60, True), (-119, True), (-121, False), (-900, False)]
)
def test_a_cause_that_was_gone_two_minutes_before_the_slow_steps_is_none(ended, is_cause):
    until = None if ended is None else NOW + ended
    found = judged([slow()], [seen(since=NOW - 3600, until=until)])
    assert causes(found) == ["thermal_slowdown" if is_cause else "gpu_compute"]


@pytest.mark.parametrize("stuck", ["collective_timeout", "init_incomplete"])
@pytest.mark.parametrize(("ended", "is_cause"), [(-2399, True), (-2401, False)])
def test_what_stops_a_job_may_be_forty_minutes_past_when_watchdogs_notice(stuck, ended, is_cause):
    everybody = seen(stuck, "log", where=Where())
    lost = seen("oom_kill", "pod", since=NOW - 5000, until=NOW + ended)
    found = judged([], [everybody, lost])
    assert len(found.incidents) == (1 if is_cause else 2)
    assert (everybody in found.incidents[0].findings) is is_cause


def test_a_cause_on_another_gpu_explains_nothing():
    elsewhere = Where(nodes=("gpu-0",), uuids=("GPU-2",), gpus=("2",))
    found = judged([slow()], [seen(where=elsewhere)])
    assert causes(found) == ["gpu_compute"]
    assert [finding.kind for finding in found.observations] == ["thermal_slowdown"]


@pytest.mark.parametrize(("bad", "explained"), [(3, False), (4, True), (8, True)])
def test_gpus_with_bad_links_slow_the_whole_job_down_if_half_have_them(bad, explained):
    ranks = tuple(range(bad))
    where = Where(ranks=ranks, uuids=tuple(f"GPU-{rank}" for rank in ranks))
    found = judged([slow("global_slowdown", ())], [seen("nvlink_degraded", where=where)])
    assert causes(found) == ["nvlink_degraded" if explained else "global_slowdown"]


@pytest.mark.parametrize(
    ("second", "is_echo"),
    [
        (slow("network_link", (5,), 4.9), True),
        (slow("network_link", (5,), 5.1), False),
        (slow("network_link", (5, 3), 9.0), True),
        (slow("global_slowdown", (), 9.0), True),
        (slow("network_link", (5,), 0.1, since=NOW - 900, until=NOW - 1), False),
        (slow("network_link", (5,), 0.1, since=NOW - 900, until=NOW + 1), True),
    ],
    ids=["cheaper", "dear", "of the same rank", "of nobody", "over before", "over after"],
)
def test_a_second_finding_is_an_echo_if_it_costs_less_than_half_or_shares_ranks(second, is_echo):
    found = judged([slow(), second])
    assert len(found.incidents) == (1 if is_echo else 2)
    assert [finding.kind for finding in found.incidents[0].findings] == [second.kind] * is_echo


def test_a_second_finding_with_a_physical_cause_of_its_own_is_no_echo():
    other = Where(nodes=("gpu-1",), uuids=("GPU-5",), gpus=("1",))
    found = judged([slow(), slow("gpu_compute", (5,), 0.1)], [seen(where=other)])
    assert causes(found) == ["gpu_compute", "thermal_slowdown"]


HOT = seen()
HOTTER = seen(summary="it is hotter than its neighbours")
LANES = seen("gpu_pcie_degraded")
BUS = seen("pcie", "kernel")


@pytest.mark.parametrize(
    ("findings", "confidence"),
    [
        ([], 0.6 * 0.95),
        ([HOT], 1 - 0.4 * 0.5),
        ([LANES, BUS], 1 - 0.4 * 0.5**2),
        ([LANES, HOTTER], 1 - 0.4 * 0.5),
    ],
    ids=["nobody", "one", "two", "one, twice"],
)
def test_every_other_layer_that_agrees_halves_the_doubt(findings, confidence):
    incident = judged([slow()], findings).incidents[0]
    assert incident.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("observed", "confidence"),
    [
        (EVERYTHING, 0.6 * 0.95),
        (EVERYTHING - {"gpu"}, 0.6 * 0.93 * 0.95),
        (EVERYTHING - {"gpu", "host"}, 0.6 * 0.93**2),
        (EVERYTHING - {"link"}, 0.6 * 0.95),
    ],
)
def test_a_layer_that_could_have_confirmed_it_and_did_not_leaves_less(observed, confidence):
    (incident,) = judged([slow()], (), observed).incidents
    assert incident.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(("severity", "confidence"), [("page", 0.8), ("ticket", 0.6)])
def test_what_no_step_time_confirms_is_as_sure_as_it_is_severe(severity, confidence):
    (incident,) = judged([], [seen("link_down", "link", severity=severity)]).incidents
    assert incident.confidence == pytest.approx(confidence)
    assert incident.cost is None


def test_nothing_is_ever_certain():
    findings = [LANES, BUS]
    (incident,) = judged([slow(confidence=0.99)], findings).incidents
    assert incident.confidence == 0.99


def test_an_incident_speaks_of_its_cause_and_of_its_symptoms_time_and_cost():
    found = slow(since=NOW + 30, until=NOW + 400)
    (incident,) = judged([found], [seen(severity="page")]).incidents
    assert (incident.cause.kind, incident.action) == (
        "thermal_slowdown",
        "look at thermal_slowdown",
    )
    assert incident.runbook == "thermal_slowdown"
    assert incident.summary == "gpu_compute of (3,), because thermal_slowdown of gpu"
    assert incident.severity == "page"
    assert incident.cost == found.cost
    assert (incident.since_unix_seconds, incident.until_unix_seconds) == (NOW, NOW + 400)
    assert (incident.where.ranks, incident.where.uuids) == ((3,), ("GPU-3",))
    assert incident.layers == ("gpu", "training")


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (seen("power_limit_differs"), seen("thermal_slowdown", where=Where(nodes=("gpu-0",)))),
        (seen("thermal_slowdown"), seen("power_cap")),
        (seen("thermal_slowdown", severity="page"), seen("power_brake")),
        (seen("thermal_slowdown", since=NOW - 60), seen("power_brake", since=NOW - 30)),
    ],
    ids=["of one GPU", "nearer to the cause", "severe", "early"],
)
def test_of_two_causes_one_is_the_root(narrow, wide):
    for findings in ([narrow, wide], [wide, narrow]):
        found = judged([slow()], findings)
        main = next(i for i in found.incidents if i.cost)
        assert main.cause.kind == narrow.kind


@pytest.mark.parametrize("second", ["thermal_slowdown", "pcie"])
def test_of_two_slow_ranks_the_cause_of_the_worse_one_is_named_and_the_other_is_not_harmless(
    second,
):
    other = Where(nodes=("gpu-1",), uuids=("GPU-5",), gpus=("1",))
    first = seen(summary="b")
    of_second = seen(second, where=other, summary="a", severity="page")
    found = judged([slow(ranks=(3, 5))], [of_second, first])
    incident = next(one for one in found.incidents if one.timing)
    assert (incident.cause, found.observations) == (first, ())
    if second == "pcie":  # an incident of its own
        assert (len(found.incidents), incident.other_causes) == (2, ())
    else:
        assert (incident.other_causes, incident.severity) == ((of_second,), "page")


def test_what_goes_on_comes_before_what_is_over_then_pages_then_what_costs_more():
    found = judged(
        [
            slow("gpu_compute", (0,), 50.0, since=NOW - 900, until=NOW - 10),
            slow("data_loader", (1,), 30.0, since=NOW - 5),
            slow("network_link", (2,), 40.0),
            slow("host_transient", (6,), 35.0, severity="page"),
        ]
    )
    assert causes(found) == ["host_transient", "network_link", "data_loader", "gpu_compute"]


def test_what_neither_costs_nor_explains_anything_is_an_observation():
    found = judged([], [seen("power_low"), seen("link_down", "link")])
    assert causes(found) == ["link_down"]
    assert [finding.kind for finding in found.observations] == ["power_low"]


@pytest.mark.parametrize(
    ("kind", "ago", "explains"),
    [
        ("oom_kill", 60, True),
        ("oom_kill", 200, False),
        ("app", 200, False),
        ("gpu_lost", 200, True),
    ],
)
def test_a_process_killed_long_before_a_job_was_started_keeps_nobody_from_a_first_step(
    kind, ago, explains
):
    """A lost GPU does: it is still lost."""
    hang = slow("hang", ranks=())
    before = seen(kind, "kernel", since=NOW - ago, where=Where(("gpu-0",), (3,)))
    found = judged([hang], [before])
    assert (found.incidents[0].cause.kind == kind) == explains
    assert found.incidents[0].where.ranks == ((3,) if explains else ())
