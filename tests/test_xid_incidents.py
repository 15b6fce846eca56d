"""GPU errors of many nodes become one finding per GPU and root; programs are told from hardware."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope_agent.contract.kernel.vocabulary import ACTIONS, SEVERITIES
from rankscope_agent.contract.kernel.xid import XIDS, describe
from rankscope_analyzers.findings.advice import ADVICE
from rankscope_analyzers.gpus import xid_incidents
from rankscope_analyzers.gpus.errors import GpuError
from rankscope_analyzers.gpus.failure_rates import rates
from rankscope_analyzers.gpus.xid_incidents import analyze
from rankscope_analyzers.text import runbooks

PUBLISHED_GPU_HOURS = 16_384 * 54 * 24

START = 1_800_000_000.0
ROOT = Path(__file__).parent.parent


def error(
    code: int,
    gpu: int = 3,
    node: str = "gpu-07",
    seconds: float = 0.0,
    job_id: str = "ml/llm-7b",
    count: int = 1,
    **given: str,
) -> GpuError:
    known = describe(code)
    return GpuError(
        unix_seconds=START + seconds,
        node=node,
        gpu=str(gpu),
        uuid=f"GPU-{node}-{gpu}",
        pci=f"0000:{gpu:02x}:00",
        kind="xid",
        code=code,
        cause=known.cause,
        severity=given.get("severity", known.severity),
        action=given.get("action", known.action),
        count=count,
        job_id=job_id,
        rank=given.get("rank", ""),
    )


def brief(*errors: GpuError) -> list[tuple[str, str, str]]:
    return [(one.cause, one.action, one.where.gpu) for one in analyze(errors)]


def test_without_errors_there_is_nothing():
    assert analyze(()) == ()


def test_a_lost_gpu_takes_its_jobs_clean_up_on_all_nodes_into_one_incident():
    lost = error(79, rank="13")
    clean_up = [
        error(45, gpu, f"gpu-{node:02d}", 20.0 + gpu, count=1470)
        for node in range(5, 9)
        for gpu in range(8)
    ]
    (found,) = analyze([*clean_up, lost])
    assert (found.cause, found.action, found.finding.severity) == ("pcie", "reboot_node", "page")
    assert (found.where.node, found.where.gpu, found.ranks) == ("gpu-07", "3", ("13",))
    assert found.codes == {"Xid 79": 1, "Xid 45": 4 * 8 * 1470}
    assert len(found.affected) == 31
    assert found.finding.summary.startswith(
        "GPU 3 of node gpu-07 (0000:03:00, GPU-gpu-07-3), rank 13 of job ml/llm-7b: Xid 79, "
    )
    assert found.finding.summary.endswith("31 more GPUs are hit")
    assert found.finding.since_unix_seconds == START
    assert found.finding.until_unix_seconds == START + 27


def test_order_of_delivery_does_not_matter():
    errors = [error(79), error(45, 4, seconds=3), error(48, 6, seconds=9), error(31, 1, "gpu-01")]
    wanted = analyze(errors)
    for seed in range(10):
        random.Random(seed).shuffle(errors)
        assert analyze(errors) == wanted


def test_what_other_jobs_do_meanwhile_is_not_its_effect():
    found = brief(error(79), error(31, 5, seconds=5, job_id="ml/vision"))
    assert found == [("pcie", "reboot_node", "3"), ("app", "restart_app", "5")]


def test_effects_end_some_time_after_the_cause():
    assert len(brief(error(79), error(31, 3, seconds=8000), error(43, 3, seconds=8001))) == 2
    assert len(brief(error(79), error(45, 3, "gpu-01", seconds=880))) == 1


def test_a_programs_fault_on_many_gpus_is_one_incident_of_the_program():
    faults = [error(31, gpu, f"gpu-{gpu % 2}", gpu / 10) for gpu in range(8)]
    (found,) = analyze([*faults, error(43, 9, "gpu-5", 30.0)])
    assert (found.cause, found.action, found.finding.severity) == ("app", "restart_app", "ticket")
    assert len(found.affected) == 8


def test_clean_up_alone_is_nothing_to_act_on():
    assert analyze([error(45, gpu, count=9) for gpu in range(8)]) == ()


@pytest.mark.parametrize("code", [13, 31])
def test_a_gpu_on_which_two_unrelated_jobs_fault_is_suspected(code):
    errors = [error(code, job_id="ml/llm-7b"), error(code, seconds=9000, job_id="vision/resnet")]
    (found,) = analyze(errors)
    assert (found.cause, found.action, found.where.gpu) == ("gpu_hardware", "drain", "3")
    assert found.job_ids == ("ml/llm-7b", "vision/resnet")
    assert found.finding.runbook == "RankscopeGpuHardwareFault"
    assert "2 jobs that have nothing in common" in found.finding.summary


@pytest.mark.parametrize(
    ("what", "others"),
    [
        ("the same job again", [error(31, seconds=9000)]),
        ("another run of the program", [error(31, seconds=9000, job_id="ml/llm-7b-2026-x7k2q")]),
        ("another GPU", [error(31, 4, seconds=9000, job_id="vision/resnet")]),
        ("an unknown job", [error(31, seconds=9000, job_id="")]),
        (
            "a program that faults elsewhere too",
            [
                error(31, seconds=9000, job_id="vision/resnet"),
                error(31, 1, "gpu-01", seconds=9001, job_id="vision/resnet"),
            ],
        ),
        ("clean-up only", [error(45, seconds=9000, job_id="vision/resnet")]),
    ],
)
def test_programs_are_not_cleared_by_less(what, others):
    assert {kind for kind, _, _ in brief(error(31), *others)} == {"app"}, what


def test_the_same_fault_again_and_again_is_one_incident():
    (found,) = analyze([error(94, seconds=7200.0 * n) for n in range(5)])
    assert found.cause == "gpu_memory"
    assert "5 times" in found.finding.summary
    assert found.finding.until_unix_seconds - found.finding.since_unix_seconds == 4 * 7200


def test_a_row_remap_is_a_ticket_for_the_jobs_boundary():
    (found,) = analyze([error(63)])
    assert (found.action, found.finding.severity) == ("reset_gpu", "ticket")
    assert "next boundary, not before" in found.finding.summary
    assert found.finding.runbook == "RankscopeGpuRowRemapPending"


def test_the_drivers_advice_decides_the_action():
    advice = error(154, action="drain", seconds=1)
    assert brief(error(48), advice) == [("gpu_memory", "drain", "3")]


def test_gpus_that_are_lost_together_are_one_incident_of_what_they_share():
    lost = [error(79, gpu, seconds=gpu / 10) for gpu in range(8)]
    (found,) = analyze(lost)
    assert (found.where.gpu, len(found.affected)) == ("0", 7)
    assert len(analyze([error(79, 0), error(79, 0, "gpu-08")])) == 2


def test_both_ends_of_a_link_are_one_incident_on_any_nodes_of_the_job():
    (found,) = analyze([error(149, 0, "tray-1"), error(149, 2, "tray-7", 4.0)])
    assert (found.cause, found.action) == ("nvlink_fabric", "drain")
    assert len(analyze([error(149, 0, "tray-1"), error(149, 2, "tray-7", 4.0, "ml/x")])) == 2


def test_a_gpu_lost_without_an_xid_is_an_incident_and_with_one_the_same():
    def gone(node: str) -> GpuError:
        return GpuError(
            START, node, "3", f"GPU-{node}-3", "0000:03:00", "gpu_fallen_off_bus", None, "pcie",
            "fatal", "reboot_node", 1, "ml/llm-7b",
        )  # fmt: skip

    assert brief(gone("gpu-01")) == [("pcie", "reboot_node", "3")]
    (found,) = analyze([gone("gpu-07"), error(79)])
    assert found.codes == {"Xid 79": 1, "gpu fallen off bus": 1}


def test_on_a_node_without_known_jobs_time_and_place_bind_errors():
    clean_up = [error(45, gpu, seconds=2, job_id="") for gpu in range(8)]
    assert len(analyze([error(79, job_id=""), *clean_up])) == 1
    assert len(analyze([error(31, job_id=""), *clean_up])) == 1


@pytest.mark.parametrize("code", sorted(XIDS))
def test_every_code_alone_is_an_incident_or_harmless_and_its_runbook_exists(code):
    found = analyze([error(code)])
    known = XIDS[code]
    assert (found == ()) == (known.action == "none" and known.severity == "info")
    for one in found:
        assert one.cause == known.cause
        assert (one.finding.severity == "page") == (known.severity == "fatal")
        assert (ROOT / runbooks.path(one.finding.runbook)).is_file()


def test_every_cause_has_advice():
    assert {known.cause for known in XIDS.values()} <= set(ADVICE)


ERRORS = st.builds(
    error,
    st.sampled_from([*sorted(XIDS), 0, 9999]),
    gpu=st.integers(0, 2),
    node=st.sampled_from(["a", "b"]),
    seconds=st.floats(0, 9000),
    job_id=st.sampled_from(["", "x/1", "y/2"]),
    severity=st.sampled_from(SEVERITIES),
    action=st.sampled_from(ACTIONS),
)


@settings(max_examples=150)
@given(errors=st.lists(ERRORS, max_size=25))
def test_no_error_is_lost_or_counted_twice(errors):
    found = analyze(errors)
    told = sum(sum(one.codes.values()) for one in found)
    assert told <= len(errors)
    grave = [e for e in errors if e.severity in {"error", "fatal"} and e.action != "none"]
    assert bool(found) >= bool(grave)
    if all(e.severity == "fatal" for e in errors):
        assert told == len(errors)


@pytest.mark.parametrize(
    ("what", "code", "seconds"), [("_follows", 119, 0.1), ("_is_of_program", 31, 9000.0)]
)
def test_an_error_is_compared_with_those_of_its_job_and_node_only(monkeypatch, what, code, seconds):
    """A fleet without power has an incident on every node."""
    compared = []
    judge = getattr(xid_incidents, what)
    monkeypatch.setattr(xid_incidents, what, lambda *two: compared.append(two) or judge(*two))
    nodes = [
        error(code, gpu, f"gpu-{n}", n * seconds, f"ml/{'abcdefghij'[n % 10] * (n + 1)}")
        for n in range(100)
        for gpu in range(4)
    ]
    assert len(analyze(nodes)) == 100
    assert len(compared) <= 10 * len(nodes)


def test_rates_stand_beside_published_ones():
    found = analyze([error(79), error(48, 1, seconds=4000), error(63, 2, seconds=8000)])
    by_name = {one.name: one for one in rates(found, None, 1000.0)}
    everything, faulty = by_name["all unexpected interruptions"], by_name["faulty GPU"]
    memory, processor = by_name["GPU memory (HBM3 and SRAM)"], by_name["GPU system processor"]
    assert by_name["GPU lost"].count == 1
    assert (by_name["GPU hardware"].count, by_name["NVLink"].count) == (0, 0)
    assert by_name["GPU lost"].published_per_thousand_gpu_hours is None
    assert by_name["GPU lost"].expected is None
    assert (everything.count, faulty.count, memory.count, processor.count) == (2, 1, 1, 0)
    assert everything.per_thousand_gpu_hours == pytest.approx(2.0)
    assert everything.low_per_thousand_gpu_hours == pytest.approx(0.2422, rel=1e-3)
    assert everything.high_per_thousand_gpu_hours == pytest.approx(7.225, rel=1e-3)
    assert processor.low_per_thousand_gpu_hours == 0.0
    assert processor.high_per_thousand_gpu_hours == pytest.approx(3.689, rel=1e-3)
    assert round(everything.published_per_thousand_gpu_hours, 3) == 0.020
    assert round(faulty.published_per_thousand_gpu_hours, 3) == 0.007
    assert PUBLISHED_GPU_HOURS == 21_233_664
    assert rates(found, None, None)[0].per_thousand_gpu_hours is None
    assert rates(found, None, None)[0].high_per_thousand_gpu_hours is None
