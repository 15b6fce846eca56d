"""Dumps of a Flight Recorder, true and false ones."""

from __future__ import annotations

import json

import pytest

from flight_servers import dump, entry
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import MESSAGES, Launch, read_launches

MAX_ENTRIES = 8_000

NOW = 1_795_272_662_623_976_391


def refusal(body: bytes) -> str:
    with pytest.raises(FlightError) as caught:
        read_launches(body)
    return caught.value.reason


def test_entries_become_launches_in_order_of_time() -> None:
    body = dump(
        entry(2, NOW + 9, process_group=["1", "mesh_tp"], profiling_name="gloo:all_gather"),
        entry(1, NOW),
    )
    read = read_launches(body)
    assert read.backend == "gloo"
    assert read.launches == (
        Launch("0", "all_reduce", 1, NOW, -1),
        Launch("1", "all_gather", 2, NOW + 9, -1),
    )


def test_durations_are_taken_where_collectives_are_timed() -> None:
    body = dump(
        entry(1, NOW, profiling_name="nccl:all_reduce", duration_ms=12.5),
        entry(2, NOW, profiling_name="nccl:all_reduce", duration_ms=None),
    )
    assert [launch.duration_us for launch in read_launches(body).launches] == [12_500, -1]


def test_messages_between_two_ranks_are_no_numbered_collectives() -> None:
    sent = entry(1, NOW, is_p2p=True, profiling_name="nccl:send 0->1")
    (launch,) = read_launches(dump(sent)).launches
    assert launch == Launch("0", "send", MESSAGES, NOW, -1)


def test_messages_that_gloo_does_not_record_show_in_its_count_of_operations() -> None:
    body = dump(
        entry(1, NOW, op_id=2),
        entry(1, NOW + 1, op_id=1, process_group=["1", "mesh_tp"]),
        entry(2, NOW + 2, op_id=5),
        entry(2, NOW + 3, op_id=2, process_group=["1", "mesh_tp"]),
        entry(3, NOW + 4, op_id=6),
    )
    found = [(launch.group, launch.seq) for launch in read_launches(body).launches]
    assert found == [("0", 1), ("1", 1), ("0", MESSAGES), ("0", 2), ("1", 2), ("0", 3)]
    # That of NCCL counts each part of what is coalesced, and has entries for messages.
    coalesced = dump(*(entry(n, NOW, op_id=3 * n, profiling_name="nccl:_x") for n in (1, 2)))
    assert [launch.seq for launch in read_launches(coalesced).launches] == [1, 2]


def test_recorder_says_whether_it_still_has_its_first_entry() -> None:
    assert read_launches(dump(entry(1, NOW))).whole
    assert not read_launches(dump(entry(2, NOW))).whole
    assert read_launches(dump()).whole


@pytest.mark.parametrize(
    "changed",
    [
        {"time_created_ns": "now"},
        {"time_created_ns": -5},
        {"time_created_ns": True},
        {"time_created_ns": 1 << 80},
        {"collective_seq_id": None},
        {"duration_ms": float("nan")},
        {"duration_ms": 1e300},
        {"duration_ms": 10**300},
        {"process_group": []},
        {"process_group": ["x" * 129, ""]},
        {"process_group": ['a"b\n', ""]},
        {"profiling_name": 7},
        {"op_id": "first"},
    ],
)
def test_entry_that_contradicts_itself_is_skipped_and_counted(changed) -> None:
    read = read_launches(dump(entry(1, NOW, **changed), entry(2, NOW)))
    assert [launch.seq for launch in read.launches if launch.seq != MESSAGES] == [2]
    assert read.skipped == 1


def test_number_of_more_digits_than_any_recorder_writes_costs_its_entry() -> None:
    read = read_launches(dump(entry(1, NOW, duration_ms=10**400), entry(2, NOW)))
    assert (read.skipped, [launch.seq for launch in read.launches if launch.seq > 0]) == (1, [2])


def test_unreadable_entry_of_a_known_time_leaves_a_launch_of_unknown_length() -> None:
    """A step that holds one must not pass for one without it."""
    read = read_launches(dump(entry(1, NOW), entry(2, NOW + 5, profiling_name="gloo:new op (3)")))
    assert read.launches[1:] == (Launch("unread", "unread", MESSAGES, NOW + 5, -1),)


def test_things_that_are_no_entries_are_skipped() -> None:
    body = json.dumps({"version": "2.10", "entries": [1, None, [], "x", {}]}).encode()
    assert read_launches(body).skipped == 5


@pytest.mark.parametrize("version", ["1.5", "3.0", "", "2"])
def test_other_versions_are_refused(version: str) -> None:
    assert refusal(dump(entry(1, NOW), version=version)) == "version"


@pytest.mark.parametrize(
    "body",
    [b"", b"\x80\x04}q\x00.", b"null", b"[1]", b"[" * 100_000, b'{"version": "2.1", "entries": 5}'],
)
def test_what_is_no_dump_is_refused(body: bytes) -> None:
    assert refusal(body) in {"malformed", "version"}


def test_more_values_than_a_dump_has_are_refused_before_they_become_objects() -> None:
    assert refusal(b'{"version":"2.1","entries":[' + b"{}," * 700_000 + b"{}]}") == "too_large"
    assert refusal(b" " * (5 << 20)) == "too_large"


def test_largest_recorder_is_read() -> None:
    entries = [entry(number, NOW + number) for number in range(1, MAX_ENTRIES + 1)]
    body = json.dumps({"version": "2.10", "entries": entries}, separators=(",", ":")).encode()
    assert len(read_launches(body).launches) == MAX_ENTRIES
