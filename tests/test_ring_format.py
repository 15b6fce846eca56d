"""Headers and records of rings: what is read, and every way of being refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankscope_probe
from rankscope_agent.contract import model
from rankscope_agent.sources.training import spans
from rankscope_agent.sources.training.format import (
    REASONS,
    RingError,
    RingHeader,
    is_plausible,
    parse_header,
    parse_run,
    seq_in_slot,
)
from ring_writer import HEADER, NS, RECORD, header_page, record_bytes

MAX_STEP_NS = 7 * 86_400 * 10**9


def refusal(page: bytes) -> RingError:
    with pytest.raises(RingError) as caught:
        parse_header(page)
    return caught.value


def plausible(**fields: int) -> bool:
    run = parse_run(record_bytes(1, **fields), 1, 16)
    assert run.taken == 1
    return bool(run.records)


def test_header_of_a_probe_is_read_field_by_field():
    header = parse_header(header_page(rank=3, local_rank=1, attempt=2, pod_uid="3f2a-77"))
    assert (header.rank, header.local_rank, header.world_size, header.attempt) == (3, 1, 4, 2)
    assert (header.job_id, header.node, header.pod_uid) == ("team/job", "gpu-07", "3f2a-77")
    assert (header.launcher, header.torch_version) == ("torchrun", "2.13.0+cpu")
    assert (header.pid, header.process_start_ticks, header.capacity) == (4242, 99, 16)
    assert header.file_size == 4096 + 16 * 64


def test_unknown_places_in_the_job_are_none_not_minus_one():
    header = parse_header(header_page(local_rank=-1, world_size=-1, local_world_size=-1))
    assert (header.local_rank, header.world_size, header.local_world_size) == (None, None, None)


def test_a_gpu_is_named_by_the_bytes_of_its_uuid_and_zeros_name_none():
    assert parse_header(header_page()).gpu_uuid == ""
    found = parse_header(header_page(gpu=bytes(range(16)))).gpu_uuid
    assert found == "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_groups_are_written_plus_one_as_zero_stands_for_unknown():
    header = parse_header(header_page(dp_group=4, tp_group=1, pp_stage=2))
    assert (header.dp_group, header.tp_group, header.pp_stage) == (3, 0, 1)
    header = parse_header(header_page())
    assert (header.dp_group, header.tp_group, header.pp_stage) == (None, None, None)


def test_a_job_id_may_fill_its_whole_field():
    assert parse_header(header_page(job_id="j" * 320)).job_id == "j" * 320


@pytest.mark.parametrize("size", [0, 1, 63, 4095])
def test_too_few_bytes_are_too_small(size):
    assert refusal(header_page()[:size]).reason == "too_small"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": b"RKSCRINg"}, "magic"),
        ({"magic": b"\0" * 8}, "magic"),
        ({"byte_order_mark": 0x04030201}, "byte_order"),
        ({"byte_order_mark": 0}, "byte_order"),
        ({"version": 2}, "version"),
        ({"version": 0}, "version"),
        ({"header_size": 8192}, "geometry"),
        ({"record_size": 56}, "geometry"),
        ({"capacity": 0}, "geometry"),
        ({"capacity": 65_537}, "geometry"),
        ({"capacity": 0xFFFFFFFF}, "geometry"),
        ({"created_unix_ns": 0}, "identity"),
        ({"created_unix_ns": 2**63 - 1}, "identity"),
        ({"pid": 0}, "identity"),
        ({"pid": 0xFFFFFFFF}, "identity"),
        ({"rank": -1}, "identity"),
        ({"rank": 1_048_576}, "identity"),
        ({"local_rank": -2}, "identity"),
        ({"world_size": 0}, "identity"),
        ({"local_world_size": 2**31 - 1}, "identity"),
        ({"job_id": ""}, "identity"),
        ({"job_id": 'a",rank="1'}, "identity"),
        ({"job_id": "two\nlines"}, "identity"),
        ({"job_id": b"half\0hidden"}, "identity"),
        ({"job_id": b"\xff\xfe"}, "identity"),
        ({"job_id": "Aufgabe-ü"}, "identity"),
        ({"node": "gpu 07"}, "identity"),
        ({"launcher": "<b>"}, "identity"),
        ({"pod_uid": "a b"}, "identity"),
        ({"torch_version": "2.13;rm"}, "identity"),
        ({"dp_group": 1}, "identity"),
        ({"dp_group": 1, "tp_group": 1, "pp_stage": 0xFFFFFFFF}, "identity"),
    ],
)
def test_each_bad_header_is_refused_for_its_own_reason(changes, reason):
    assert refusal(header_page(**changes)).reason == reason


def test_a_big_endian_header_is_refused_for_its_byte_order():
    fields = HEADER.unpack_from(header_page())
    swapped = struct.Struct(">" + HEADER.format.lstrip("<")).pack(*fields)
    error = refusal(swapped.ljust(4096, b"\0"))
    assert error.reason == "byte_order"
    assert "big-endian" in str(error)


def test_a_future_version_is_named_with_the_advice_to_update():
    assert "version 7" in str(refusal(header_page(version=7)))
    assert "update" in str(refusal(header_page(version=7)))


def test_a_refusal_shows_hostile_text_escaped():
    assert "\n" not in str(refusal(header_page(job_id="a\nforged log line")))


@settings(max_examples=150)
@given(st.binary(max_size=800))
def test_random_bytes_are_refused_with_a_known_reason(head):
    assert refusal(head.ljust(4096, b"\xff")).reason in REASONS


def header_or_reason(page: bytes) -> RingHeader | str:
    try:
        return parse_header(page)
    except RingError as error:
        return error.reason


@settings(max_examples=150)
@given(st.integers(0, 783), st.binary(min_size=1, max_size=16))
def test_a_damaged_header_is_read_or_refused_but_never_raises_otherwise(offset, damage):
    page = bytearray(header_page())
    page[offset : offset + len(damage)] = damage
    outcome = header_or_reason(bytes(page))
    if isinstance(outcome, str):
        assert outcome in REASONS
    else:
        assert 0 <= outcome.rank <= 1_048_575
        assert 1 <= outcome.capacity <= 65_536
        assert outcome.job_id.isprintable()


def test_records_that_follow_one_another_are_read_up_to_the_end_of_the_bytes():
    run = parse_run(b"".join(record_bytes(seq) for seq in (5, 6, 7)), 5, 16)
    assert [record.seq for record in run.records] == [5, 6, 7]
    assert (run.taken, run.corrupt, run.stopped_by) == (3, 0, "end")
    assert run.records[0].timing_source == "wall"


@pytest.mark.parametrize(
    "slot",
    [
        bytes(64),
        record_bytes(14, check=0),
        record_bytes(14, check=7),
        record_bytes(14 - 4),
        record_bytes(14 - 8),
        record_bytes(15),
        b"\xff" * 64,
    ],
    ids=[
        "empty",
        "no check",
        "wrong check",
        "one lap old",
        "two laps old",
        "of another slot",
        "1s",
    ],
)
def test_what_is_not_the_next_record_is_not_written_yet(slot):
    run = parse_run(record_bytes(13) + slot, 13, 4)
    assert ([record.seq for record in run.records], run.stopped_by) == ([13], "head")


def test_a_record_of_a_later_lap_is_an_overrun():
    run = parse_run(record_bytes(5 + 3 * 16), 5, 16)
    assert (run.taken, run.stopped_by, run.seq) == (0, "overrun", 53)


def test_a_damaged_slot_before_a_later_record_is_a_gap():
    slots = record_bytes(5) + record_bytes(6, check=0) + bytes(64) + record_bytes(8)
    run = parse_run(slots, 5, 16)
    assert (run.taken, run.stopped_by, run.seq) == (1, "gap", 8)


def test_an_incomplete_slot_at_the_end_is_ignored():
    run = parse_run(record_bytes(1) + record_bytes(2)[:63], 1, 16)
    assert ([record.seq for record in run.records], run.stopped_by) == ([1], "end")


def test_a_record_past_the_thirty_second_bit_is_checked_by_its_low_bits():
    seq = 2**32 + 3
    assert [record.seq for record in parse_run(record_bytes(seq), seq, 16).records] == [seq]
    assert seq_in_slot(record_bytes(seq), 2, 16) == seq


def test_a_number_that_does_not_belong_in_its_slot_is_no_record():
    assert seq_in_slot(record_bytes(5), 4, 16) == 5
    assert seq_in_slot(record_bytes(5), 5, 16) == 0
    assert seq_in_slot(bytes(64), 0, 16) == 0
    assert seq_in_slot(record_bytes(5, check=1), 4, 16) == 0


def test_times_that_cannot_be_true_make_a_record_corrupt():
    assert plausible()
    assert plausible(data_ns=-1, compute_ns=-1, sync_ns=-1)
    assert plausible(step_ns=0, data_ns=0, compute_ns=0, sync_ns=0)
    assert not plausible(step_ns=-1)
    assert not plausible(step_ns=MAX_STEP_NS + 1)
    assert not plausible(step_ns=2**63 - 1)
    assert not plausible(data_ns=-2)
    assert not plausible(data_ns=100_000_001)
    assert not plausible(compute_ns=NS)
    assert not plausible(sync_ns=-(2**63))
    assert not plausible(start_unix_ns=0)
    assert not plausible(start_unix_ns=2**63 - 1)


def test_a_corrupt_record_is_counted_and_left_out_and_the_next_one_read():
    run = parse_run(record_bytes(1) + record_bytes(2, step_ns=-5) + record_bytes(3), 1, 16)
    assert [record.seq for record in run.records] == [1, 3]
    assert (run.taken, run.corrupt) == (3, 1)


@settings(max_examples=200)
@given(st.binary(max_size=64 * 6), st.integers(1, 2**64 - 1), st.integers(1, 65_536))
def test_random_slots_never_raise_and_give_plausible_records_only(stretch, seq, capacity):
    run = parse_run(stretch, seq, capacity)
    assert run.taken <= len(stretch) // RECORD.size
    assert all(is_plausible(record) for record in run.records)
    assert run.taken == len(run.records) + run.corrupt


def test_bits_of_steps_and_spans_are_those_that_the_probe_sets():
    of_steps = (
        *(model.FLAG_CLOSURE, model.FLAG_SKIPPED, model.FLAG_EVALUATION),
        *(model.FLAG_FIRST, model.FLAG_CPU_WAIT, model.FLAG_SAMPLED),
    )
    assert of_steps == (4, 8, 16, 32, 64, 128)
    probe = rankscope_probe
    assert of_steps == (
        *(probe._CLOSURE, probe._SKIPPED, probe._EVALUATION),
        *(probe._FIRST, probe._CPU_WAIT, probe._SAMPLED),
    )
    of_spans = (
        *(spans.BESIDE_TRAINING, spans.AFTER_SIGTERM, spans.IN_MEMORY),
        *(spans.ONE_FILE, spans.NOT_THERE),
    )
    assert of_spans == (1, 2, 4, 8, 16)
    assert of_spans == (
        *(probe._BESIDE, probe._TERMINATING, probe._IN_MEMORY, probe._ONE_FILE, probe._NOT_THERE),
    )
