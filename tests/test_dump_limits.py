"""What is read of a Flight Recorder's dump, and of a pickle: at each limit and just beyond it."""

from __future__ import annotations

import json
import pickle
import struct

import pytest

from rankscope_agent.contract import flight_dump, untrusted_pickle
from rankscope_agent.contract.flight_dump import DumpError
from rankscope_agent.contract.pickle_limits import Limits, UnsafePickle
from rankscope_agent.contract.untrusted_pickle import Machine
from test_stalls import dump, entry


@pytest.mark.parametrize(("count", "skipped"), [(100_000, 100_000), (100_001, None)])
def test_a_file_has_100_000_entries_at_most(count, skipped):
    body = b'{"version":"2.10","entries":[' + b",".join([b"0"] * count) + b"]}"
    if skipped is not None:
        assert flight_dump.read(body).skipped == skipped
        return
    with pytest.raises(DumpError):
        flight_dump.read(body)


@pytest.mark.parametrize(("count", "reason"), [(4_000_000, "malformed"), (4_000_001, "too_large")])
def test_a_file_has_four_million_values_at_most(count, reason):
    with pytest.raises(DumpError) as caught:
        flight_dump.read(b"," * count)
    assert caught.value.reason == reason


def of(**changed):
    """Return what is read of one entry with these fields."""
    return flight_dump.read(dump(entry(1, 10**18, **changed)))


def test_64_frames_of_a_stack_are_kept_with_256_characters_each():
    frame = {"name": "f" * 257, "filename": "g" * 257, "line": 1}
    (found,) = of(frames=[frame] * 65).entries
    assert len(found.frames) == 64
    assert (found.frames[0].function, found.frames[0].file) == ("f" * 256, "g" * 256)


@pytest.mark.parametrize(("groups", "read"), [(10_000, 10_000), (10_001, 0)])
def test_a_dump_has_10_000_groups_at_most(groups, read):
    config = {str(number): {"ranks": "[0]"} for number in range(groups)}
    body = json.dumps({"version": "2.10", "entries": [], "pg_config": config}).encode()
    assert len(flight_dump.read(body).groups) == read


def refused(machine_or_data):
    """Return why a pickle is refused, "" if it is not."""
    try:
        if isinstance(machine_or_data, Machine):
            machine_or_data.run()
        else:
            untrusted_pickle.loads(machine_or_data)
    except UnsafePickle as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    ("size", "reason"), [(64 << 20, "refused_opcode"), ((64 << 20) + 1, "too_large")]
)
def test_a_pickle_has_64_mebibytes_at_most(size, reason):
    assert refused(bytes(size)) == reason


@pytest.mark.parametrize(("longer", "reason"), [(0, ""), (1, "too_large")])
def test_a_text_of_a_pickle_has_65536_bytes_and_an_integer_nine(longer, reason):
    assert refused(pickle.dumps("a" * (65_536 + longer), 4)) == reason
    assert refused(b"\x8a" + bytes([9 + longer]) + b"\1" * (9 + longer) + b".") == reason


@pytest.mark.parametrize(("version", "reason"), [(5, ""), (6, "malformed")])
def test_pickles_are_read_up_to_protocol_5(version, reason):
    assert refused(struct.pack("<BB", 0x80, version) + b"N.") == reason


@pytest.mark.parametrize(("levels", "reason"), [(32, ""), (33, "too_large")])
def test_containers_of_a_pickle_stand_32_deep_in_each_other(levels, reason):
    assert refused(b"]" * levels + b"a" * (levels - 1) + b".") == reason


@pytest.mark.parametrize(("made", "reason"), [(5_999_999, ""), (6_000_000, "too_large")])
def test_six_million_values_of_a_pickle_are_made(made, reason):
    assert refused(Machine(b"N.", Limits(), made=made)) == reason


@pytest.mark.parametrize(("open_now", "reason"), [(99_999, "malformed"), (100_000, "too_large")])
def test_100_000_values_of_a_pickle_are_open_at_once(open_now, reason):
    assert refused(Machine(b"N.", Limits(), stack=[None] * open_now)) == reason


@pytest.mark.parametrize(("known", "reason"), [(999_999, ""), (1_000_000, "too_large")])
def test_a_million_values_of_a_pickle_are_remembered(known, reason):
    memo = dict.fromkeys(range(1, known + 1))
    assert refused(Machine(b"Nq\0.", Limits(), memo=memo)) == reason


@pytest.mark.parametrize(("held", "reason"), [(7_999_999, ""), (8_000_000, "too_large")])
def test_eight_million_values_are_met_by_who_walks_a_pickle(held, reason):
    machine = Machine(b"Na.", Limits())
    machine.push_container([])
    (size,) = machine.sizes.values()
    size.total = held
    assert refused(machine) == reason


@pytest.mark.parametrize(("count", "skipped"), [(8000, 8000), (8001, None)])
def test_an_answer_of_a_worker_server_has_8000_entries_at_most(count, skipped):
    body = b'{"version":"2.10","entries":[' + b",".join([b"0"] * count) + b"]}"
    if skipped is not None:
        assert flight_dump.read(body, flight_dump.ANSWER_LIMITS).skipped == skipped
        return
    with pytest.raises(DumpError):
        flight_dump.read(body, flight_dump.ANSWER_LIMITS)


@pytest.mark.parametrize(("count", "reason"), [(512_000, "malformed"), (512_001, "too_large")])
def test_an_answer_of_a_worker_server_has_64_values_an_entry_at_most(count, reason):
    with pytest.raises(DumpError) as caught:
        flight_dump.read(b"," * count, flight_dump.ANSWER_LIMITS)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("field", "largest"),
    [
        ("record_id", 2**48),
        ("op_id", 2**48),
        ("time_created_ns", 4_102_444_800 * 10**9),
        ("duration_ms", 86_400_000),
    ],
)
def test_numbers_that_no_collective_has_are_left_out(field, largest):
    """Moments after the year 2099 and durations of more than a day among them."""
    assert [len(of(**{field: largest + more}).entries) for more in (0, 1)] == [1, 0]


def test_twelve_million_opcodes_of_a_pickle_are_obeyed(monkeypatch):
    counts = []
    once = iter([0])
    monkeypatch.setattr(
        untrusted_pickle, "range", lambda count: counts.append(count) or once, raising=False
    )
    assert (refused(b"NN."), counts) == ("too_large", [12_000_000])
