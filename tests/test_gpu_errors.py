"""Series of counters and time stamps become errors with their moment, their GPU and their job."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_analyzers.gpus.error_sources import from_pages
from rankscope_analyzers.gpus.errors import GpuError, errors
from rankscope_analyzers.intake.observed import Series
from rankscope_analyzers.intake.page_history import Page

NOW = 1_800_000_000.0
UUID = "GPU-00000000-1111-2222-3333-444444444444"
GPU = {"gpu": "3", "uuid": UUID, "pci": "0000:3b:00"}
NAN = float("nan")
GONE = "gpu_fallen_off_bus"


def readings(name: str, values: list[float], node: str = "gpu-07", **labels: str) -> Series:
    """Return a series that was read every minute from NOW on, NaN where it was not there."""
    known = np.isfinite(values)
    times = NOW + 60 * np.arange(len(values), dtype=np.float64)
    return Series(node, f"rankscope_{name}", labels, times[known], np.array(values)[known])


def xids(counts: list[float], moments: list[float], xid: str = "79") -> list[Series]:
    """Return an Xid's counter and its time stamps, these in seconds since NOW."""
    labels = {**GPU, "xid": xid, "severity": "fatal", "action": "reboot_node"}
    stamps = [NOW + moment for moment in moments]
    return [
        readings("gpu_xid_errors_total", counts, **labels),
        readings("gpu_xid_last_timestamp_seconds", stamps, **labels),
    ]


def told(found: tuple[GpuError, ...]) -> list[tuple[float, int]]:
    return [(one.unix_seconds - NOW, one.count) for one in found]


def test_a_code_that_appears_is_an_error_at_the_moment_of_its_time_stamp():
    (found,) = errors(xids([NAN, 3, 3], [NAN, 55, 55]), NOW)
    assert (found.code, found.kind, found.cause) == (79, "xid", "pcie")
    assert (found.severity, found.action, found.count) == ("fatal", "reboot_node", 3)
    assert (found.node, found.gpu, found.uuid, found.pci) == ("gpu-07", "3", UUID, "0000:3b:00")
    assert found.unix_seconds == NOW + 55


def test_what_was_counted_before_the_time_asked_for_is_left_out():
    assert errors(xids([5, 5, 5], [-900, -900, -900]), NOW) == ()
    assert told(errors(xids([5, 5, 7], [-900, -900, 100]), NOW)) == [(100.0, 2)]


def test_each_growth_is_an_error():
    assert told(errors(xids([1, 1, 4, 4, 5], [0, 0, 100, 100, 230]), NOW)) == [
        (0.0, 1),
        (100.0, 3),
        (230.0, 1),
    ]


def test_an_agent_that_counts_its_log_again_tells_nothing_new():
    assert told(errors(xids([7, 7, NAN, 7], [50, 50, NAN, 50.3]), NOW)) == [(50.0, 7)]
    assert told(errors(xids([7, 7, 2, 7], [50, 50, 50.2, 50.3]), NOW)) == [(50.0, 7)]


def test_what_follows_a_log_that_was_counted_again_is_new_alone():
    """Five errors, three of an earlier boot; the agent loses its state; there is another one."""
    assert told(errors(xids([5, 2, 3], [50, 50, 170]), NOW)) == [(50.0, 5), (170.0, 1)]
    assert told(errors(xids([7, 2, 9], [50, 50, 170]), NOW)) == [(50.0, 7), (170.0, 2)]


def test_after_a_reset_only_what_is_later_is_new():
    assert told(errors(xids([7, 7, 1], [50, 50, 170]), NOW)) == [(50.0, 7), (170.0, 1)]


def test_a_lost_gpu_without_an_xid_has_the_time_of_its_kind():
    series = [
        readings("gpu_fallen_off_bus_total", [0, 0, 1], **GPU),
        readings("kernel_last_event_timestamp_seconds", [NAN, NAN, NOW + 99], kind=GONE),
    ]
    (found,) = errors(series, NOW)
    assert (found.kind, found.code, found.cause) == ("gpu_fallen_off_bus", None, "pcie")
    assert found.unix_seconds == NOW + 99


def test_switches_and_what_is_unknown_are_taken_as_they_are():
    labels = {"pci": "0000:07:00", "sxid": "20034", "severity": "fatal"}
    series = [
        readings("nvswitch_sxid_errors_total", [1], **labels),
        readings("nvswitch_sxid_last_timestamp_seconds", [NOW], **labels),
        *xids([1], [5], xid="other"),
    ]
    switch, other = errors(series, NOW)
    assert (switch.code, switch.cause, switch.action) == (20034, "nvlink_fabric", "reset_gpu")
    assert (switch.gpu, switch.uuid) == ("", "")
    assert (other.code, other.cause) == (0, "driver")


def test_labels_of_another_vocabulary_fall_back_on_the_code():
    labels = {**GPU, "xid": "79", "severity": "<b>", "action": "format_disk"}
    series = [
        readings("gpu_xid_errors_total", [1], **labels),
        readings("gpu_xid_last_timestamp_seconds", [NOW], **labels),
    ]
    (found,) = errors(series, NOW)
    assert (found.severity, found.action) == ("fatal", "reboot_node")


def held(values: list[float], job_id: str, rank: str = "", uuid: str = UUID) -> Series:
    return readings("gpu_allocation_info", values, uuid=uuid, job_id=job_id, rank=rank)


@pytest.mark.parametrize(
    ("holders", "wanted"),
    [
        ([held([1, 1, 1], "ml/a", "13")], ("ml/a", "13")),
        ([held([1, NAN, NAN], "ml/a", "13")], ("ml/a", "13")),
        ([held([1, NAN, NAN], "ml/a"), held([NAN, 1, 1], "ml/b", "2")], ("ml/b", "2")),
        ([held([1, 1, 1], "ml/a", "1"), held([1, 1, 1], "ml/b", "2")], ("", "")),
        ([held([1, 1, 1], "ml/a", "", f"{UUID}::2")], ("ml/a", "")),
        ([held([1, 1, 1], "ml/a", "", "GPU-of-another")], ("", "")),
        ([held([NAN, NAN, 1], "ml/b")], ("ml/b", "")),
        ([], ("", "")),
    ],
)
def test_an_error_is_its_holders_at_that_time(holders, wanted):
    (found,) = errors([*xids([NAN, 1, 1], [NAN, 70, 70]), *holders], NOW)
    assert (found.job_id, found.rank) == wanted


def test_who_held_a_gpu_long_ago_is_not_its_holder():
    old = held([1], "ml/a")
    (found,) = errors([*xids([NAN] * 9 + [1], [NAN] * 9 + [540.0]), old], NOW)
    assert found.job_id == ""


def test_the_rank_is_taken_from_where_the_training_runs():
    rank = readings("rank_info", [1, 1], uuid=UUID, job_id="ml/a", rank="13", node="gpu-07")
    (found,) = errors([*xids([NAN, 1], [NAN, 60]), rank, held([1, 1], "ml/a")], NOW)
    assert (found.job_id, found.rank) == ("ml/a", "13")


LABELS = f'{{gpu="3",uuid="{UUID}",pci="0000:3b:00",xid="%s",severity="%s",action="%s"}}'
LOST = LABELS % ("79", "fatal", "reboot_node")
FAULT = LABELS % ("31", "error", "restart_app")
PAGE = f"""# HELP rankscope_gpu_xid_errors_total x
# TYPE rankscope_gpu_xid_errors_total counter
rankscope_gpu_xid_errors_total{LOST} 2.0
rankscope_gpu_xid_last_timestamp_seconds{LOST} {NOW - 60}
rankscope_gpu_xid_errors_total{FAULT} 9.0
rankscope_gpu_xid_last_timestamp_seconds{FAULT} {NOW - 9e5}
rankscope_gpu_allocation_info{{uuid="{UUID}",job_id="ml/\\"a\\"",rank="1"}} 1.0
rankscope_gpu_xid_errors_total{{garbage 1
rankscope_gpu_xid_errors_total{{xid="1"}} many
"""


def test_an_agents_page_is_read_as_it_stands():
    log = from_pages([Page("gpu-07", NOW, PAGE)], NOW - 3600)
    (found,) = log.errors
    assert (found.code, found.count, found.job_id) == (79, 2, 'ml/"a"')
    assert log.gpu_hours is None


@pytest.mark.parametrize("text", ["", "\x00\xff", "{}", "a" * 10_000, 'x{a="' * 500])
def test_garbage_instead_of_a_page_has_no_errors(text):
    assert from_pages([Page("gpu-07", NOW, text)], 0.0).errors == ()


@pytest.mark.parametrize(("moment", "new"), [(55.9, []), (56.1, [(56.1, 2)])])
def test_a_counter_that_falls_within_a_second_was_corrected_and_later_began_again(moment, new):
    found = told(errors(xids([NAN, 3, 2], [NAN, 55, moment]), NOW))
    assert found == [(55.0, 3), *[(pytest.approx(at), count) for at, count in new]]
