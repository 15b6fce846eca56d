"""The last that is still taken and the first that is not, of each limit on rings' records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope_agent.sources.training import cursor as ring_cursor
from rankscope_agent.sources.training import ring_rows
from rankscope_agent.sources.training.format import RingError, parse_header, parse_run, seq_in_slot
from ring_writer import NS, header_page, record_bytes


def header_error(**fields):
    try:
        parse_header(header_page(**fields))
    except RingError as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("capacity", 65_536),
        ("rank", 1_048_575),
        ("local_rank", 1_048_575),
        ("pid", 1 << 22),
        ("created_unix_ns", 4_102_444_800 * NS),
    ],
)
def test_fields_of_a_rings_header_have_limits(field, most):
    assert header_error(**{field: most}) is None
    assert header_error(**{field: most + 1}) is not None


@pytest.mark.parametrize(("overruns", "reads"), [(8, 9), (9, 9)])
def test_a_writer_that_overtakes_eight_times_is_left_for_now(monkeypatch, overruns, reads):
    run = ring_cursor.Run([], 0, 0, "overrun", 100)
    looks = []

    def look(self, descriptor, records):
        looks.append(records)
        return run if len(looks) <= overruns else run._replace(stopped_by="head")

    monkeypatch.setattr(ring_cursor.Cursor, "_look", look)
    monkeypatch.setattr(ring_cursor.Cursor, "_catch_up", lambda self, *of: None)
    cursor = ring_cursor.Cursor(4, 1)
    list(cursor.read(0, 1 << 20))
    assert len(looks) == reads
    assert cursor.at_newest is (overruns <= 8)
    assert looks[:2] == [32, 1024]


@pytest.mark.parametrize(("later", "stride"), [(119.0, 1), (121.0, 2049)])
def test_clocks_may_have_stepped_back_by_two_minutes(monkeypatch, later, stride):
    starts = {5000: 9000.0, 3976: 9000.0, 2952: 9000.0, 1928: 9000.0, 904: 9000.0}
    starts[2952] = 1000.0 - later

    def record(descriptor, seq, capacity):
        return SimpleNamespace(start_unix_ns=starts[seq] * NS)

    monkeypatch.setattr(ring_rows, "read_record", record)
    first = ring_rows._first_seq(0, 5000, 65_536, 1000.0)
    assert (first == 2952) is (stride > 1)


@pytest.mark.parametrize(("step_ns", "taken"), [(7 * 86_400 * NS, 1), (7 * 86_400 * NS + 1, 0)])
def test_a_step_lasts_a_week_at_most(step_ns, taken):
    assert len(parse_run(record_bytes(1, step_ns=step_ns), 1, 16).records) == taken


@pytest.mark.parametrize(("seq", "known"), [(1 << 48, True), ((1 << 48) + 1, False)])
def test_a_record_has_a_number_of_48_bits(seq, known):
    slot = (seq - 1) % 16
    assert (seq_in_slot(record_bytes(seq), slot, 16) == seq) is known
    assert (parse_run(record_bytes(seq), seq - 16, 16).stopped_by == "overrun") is known


def test_all_of_a_records_check_is_compared():
    assert seq_in_slot(record_bytes(1 << 31), ((1 << 31) - 1) % 16, 16) == 1 << 31
