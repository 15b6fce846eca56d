"""From which values on a GPU deviates from its peers: tables of just below and just above."""

import pandas as pd
import pytest

from rankscope_agent.contract.kernel.xid import describe
from rankscope_analyzers.gpus.errors import GpuError
from rankscope_analyzers.gpus.frames import GPU_COLUMNS
from rankscope_analyzers.gpus.throttle import analyze
from rankscope_analyzers.gpus.xid_incidents import analyze as incidents

BEGIN = 1_760_000_000.0
SECONDS = 60.0
CLOCK = 2e9


def judged(count=8, all_of_them=(), **odd):
    """Return what is said of GPUs that are alike, GPU 1 excepted, as (kind, GPUs).

    Args:
        all_of_them: pairs of columns and values of every GPU.
        odd: columns of GPU 1; `<reason>_share` is the part of the time that its counter grows by.
    """
    rows = readings(count, all_of_them, **odd)
    return analyze(pd.DataFrame(rows, columns=list(GPU_COLUMNS)))


def readings(count, all_of_them=(), **odd):
    rows = []
    for gpu in range(count):
        for at in (0.0, SECONDS / 2, SECONDS):
            row = dict.fromkeys(GPU_COLUMNS, 0.0) | {
                "time": BEGIN + at,
                "node": "node-0",
                "gpu": str(gpu),
                "uuid": f"GPU-{gpu}",
                "pci": f"0000:{gpu:02x}:00",
                "model": "NVIDIA H100 80GB HBM3",
                "job_id": "team/job",
                "utilization_ratio": 0.98,
                "sm_clock_hertz": CLOCK,
                "power_watts": 600.0,
                "power_limit_watts": 700.0,
                "temperature_celsius": 60.0,
            }
            for column, value in (*all_of_them, *(odd.items() if gpu == 1 else ())):
                reason = column.removesuffix("_share")
                if reason == column:
                    row[column] = value
                else:
                    row[f"{reason}_seconds"] = value * at
            rows.append(row)
    return rows


def kinds(*args, **odd):
    return [(found.kind, found.where.gpus) for found in judged(*args, **odd)]


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("sm_clock_hertz", 0.955 * CLOCK, None),
        ("sm_clock_hertz", 0.945 * CLOCK, "clock_low"),
        ("hw_thermal_slowdown_share", 0.045, None),
        ("hw_thermal_slowdown_share", 0.055, "thermal_slowdown"),
        ("sw_thermal_slowdown_share", 0.045, None),
        ("sw_thermal_slowdown_share", 0.055, "thermal_slowdown"),
        ("hw_power_brake_share", 0.009, None),
        ("hw_power_brake_share", 0.011, "power_brake"),
        ("power_limit_watts", 0.985 * 700, None),
        ("power_limit_watts", 0.975 * 700, "power_limit_differs"),
        ("power_watts", 0.71 * 600, None),
        ("power_watts", 0.69 * 600, "power_low"),
        ("temperature_celsius", 71.5, None),
        ("temperature_celsius", 72.5, "temperature_high"),
    ],
)
def test_what_one_reading_alone_says_of_a_gpu(column, value, kind):
    assert kinds(**{column: value}) == ([] if kind is None else [(kind, ("1",))])


@pytest.mark.parametrize(("busy", "told"), [(0.45, False), (0.55, True)])
def test_a_gpu_that_is_idle_half_of_the_time_is_not_judged_by_its_clock(busy, told):
    found = kinds(8, [("utilization_ratio", busy)], sm_clock_hertz=1.5e9)
    assert found == [("clock_low", ("1",))] * told


@pytest.mark.parametrize(("count", "told"), [(2, False), (3, True)])
def test_it_takes_two_peers_to_say_which_gpu_is_odd(count, told):
    assert kinds(count, sm_clock_hertz=1.5e9) == [("clock_low", ("1",))] * told


@pytest.mark.parametrize(("busy", "told"), [(0.79, True), (0.77, False)])
def test_gpus_that_are_busier_by_more_than_a_fifth_are_no_peers(busy, told):
    found = kinds(utilization_ratio=busy, sm_clock_hertz=1.5e9)
    assert found == [("clock_low", ("1",))] * told


@pytest.mark.parametrize(("count", "usual"), [(64, CLOCK), (66, 0.75 * CLOCK)])
def test_one_of_more_than_64_gpus_is_not_left_out_of_what_is_usual(count, usual):
    rows = [
        {**row, "sm_clock_hertz": CLOCK / 2 if int(row["gpu"]) % 2 else CLOCK}
        for row in readings(count)
    ]
    (found,) = analyze(pd.DataFrame(rows, columns=list(GPU_COLUMNS)))
    assert found.evidence[0].expected == usual
    assert f"SM clock 1.00 GHz against {usual / 1e9:.2f}" in found.summary


@pytest.mark.parametrize(("share", "kind"), [(0.19, "clock_low"), (0.21, "power_cap")])
def test_a_fifth_of_the_time_under_the_power_cap_is_why_a_clock_is_low(share, kind):
    assert kinds(sm_clock_hertz=0.94 * CLOCK, sw_power_cap_share=share) == [(kind, ("1",))]


@pytest.mark.parametrize(
    ("pace", "kind"), [(0.94, None), (0.91, None), (0.89, "power_cap"), (0.8, "power_cap")]
)
def test_boards_that_all_are_at_their_power_limit_may_differ_by_a_tenth(pace, kind):
    found = kinds(8, [("sw_power_cap_share", 0.9)], sm_clock_hertz=pace * CLOCK)
    assert found == ([] if kind is None else [(kind, ("1",))])


def test_the_time_lost_is_told_in_hours_of_the_gpu():
    (found,) = judged(sm_clock_hertz=0.5 * CLOCK)
    assert found.cost.lost_fraction == pytest.approx(0.5)
    assert found.cost.gpu_hours == pytest.approx(0.5 * SECONDS / 3600)


def xid(code, gpu, seconds, node="gpu-07"):
    known = describe(code)
    return GpuError(
        unix_seconds=BEGIN + seconds,
        node=node,
        gpu=str(gpu),
        uuid=f"GPU-{node}-{gpu}",
        pci=f"0000:{gpu:02x}:00",
        kind="xid",
        code=code,
        cause=known.cause,
        severity=known.severity,
        action=known.action,
        count=1,
        job_id="ml/llm",
        rank="",
    )


@pytest.mark.parametrize(
    ("after", "together"), [(-6.0, False), (-4.0, True), (890.0, True), (910.0, False)]
)
def test_clean_up_within_a_quarter_of_an_hour_on_another_node_is_the_lost_gpus(after, together):
    (found,) = incidents([xid(79, 3, 0.0), xid(45, 1, after, "gpu-08")])
    assert found.codes == {"Xid 79": 1} | ({"Xid 45": 1} if together else {})


@pytest.mark.parametrize(("after", "together"), [(890.0, True), (910.0, False)])
def test_a_programs_faults_within_a_quarter_of_an_hour_are_one_incident(after, together):
    found = incidents([xid(31, 3, 0.0), xid(31, 1, after, "gpu-08")])
    assert len(found) == (1 if together else 2)


def test_a_refused_access_of_a_peer_is_left_when_the_gpu_at_the_other_end_has_failed():
    (found,) = incidents([xid(79, 3, 0.0), xid(137, 1, 5.0, "gpu-08")])
    assert found.codes == {"Xid 79": 1, "Xid 137": 1}
    assert found.where.gpu == "3"
