"""Step records as blocks of columns: from rings, through an agent, to the reader."""

from __future__ import annotations

import contextlib
import json
import math
import urllib.request

import numpy as np
import pytest

from rankscope_agent.contract import step_blocks as form
from rankscope_agent.contract.model import (
    STEP_COLUMNS,
    FreshSteps,
    RankIdentity,
    RingBatch,
    RingHead,
)
from rankscope_agent.contract.step_blocks import cursors_of, cursors_text
from rankscope_agent.serving.step_blocks import steps_blocks
from rankscope_agent.sources.training.reader import RingStepSource
from rankscope_analyzers.intake.step_columns import parsed
from ring_writer import HEADER_FIELDS, NS, RingWriter
from running_agent import running_agent

RANK = RankIdentity("a/b", 3, "node-1", 3, 8, None, 0, "kernel", "torchrun", "uid", 1, True, 0, 3)

HOUR_LATER = HEADER_FIELDS["created_unix_ns"] // NS + 3600


def row(step, start=100.0, seconds=0.5, timing="kernel"):
    known = {"step": step, "t_start_unix_seconds": start, "step_seconds": seconds, "samples": 32}
    own = {"job_id": "a/b", "rank": 3, "node": "node-1", "timing_source": timing}
    return tuple((known | own).get(name) for name in STEP_COLUMNS)


def written(*batches, rings=1, **limits):
    heads = tuple(RingHead(f"{n:016x}", RANK, 1, whole=True) for n in range(rings))
    made = (RingBatch(ring, rows, behind) for ring, rows, behind in batches)
    return b"".join(steps_blocks(FreshSteps(heads, made), "node-1", **limits))


def test_what_is_written_is_read():
    found = parsed(written((0, [row(1, 1767225600.123457), row(2, seconds=0.123456789)], 3)))
    assert found.head.node == "node-1"
    assert not found.truncated
    assert found.numbers["step"].tolist() == [1.0, 2.0]
    assert found.numbers["t_start_unix_seconds"].tolist() == [1767225600.123457, 100.0]
    assert found.numbers["step_seconds"].tolist() == [0.5, 0.123456789]
    assert np.isnan(found.numbers["sync_seconds"]).all()
    (ring,) = found.rings
    assert (found.next_numbers, ring.whole, ring.job_id) == ((3,), True, "a/b")
    assert (ring.rank["world_size"], ring.rank["alive"], ring.rank["pod_uid"]) == (8, True, "uid")
    timing = [found.timing_sources[int(one)] for one in found.numbers["timing"]]
    assert timing == ["kernel", "kernel"]


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 8192, 10000])
def test_rows_are_the_same_wherever_blocks_end(count):
    batches = [(0, [row(step)], step + 1) for step in range(1, count + 1)]
    found = parsed(written(*batches))
    assert found.numbers["step"].tolist() == [float(step) for step in range(1, count + 1)]


def test_rows_of_several_rings_stand_in_one_block():
    found = parsed(written((1, [row(7)], 8), (0, [row(5), row(6)], 7), rings=3))
    assert found.ring.tolist() == [1, 0, 0]
    assert found.next_numbers == (7, 8, 0)


def test_an_answer_that_is_full_ends_before_the_batch_that_does_not_fit():
    found = parsed(written((0, [row(1), row(2)], 3), (0, [row(3), row(4)], 5), max_rows=3))
    assert (found.truncated, len(found), found.next_numbers) == (True, 2, (3,))


def test_an_answer_that_is_cut_off_anywhere_is_none():
    whole = written((0, [row(1), row(2)], 3), (0, [row(3)], 4))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r".+"):
            parsed(whole[:length])
    with pytest.raises(ValueError, match="follow its end"):
        parsed(whole + b"\0")


def replaced(**changes):
    """Return an answer whose head says something else."""
    whole = written((0, [row(1)], 2))
    length = form.HEAD.unpack_from(whole)[3]
    end = form.HEAD.size + length
    head = json.loads(whole[form.HEAD.size : end])
    ring = head["rings"][0] | changes.pop("ring", {})
    text = json.dumps(head | {"rings": [ring]} | changes).encode()
    return form.HEAD.pack(form.MAGIC, form.VERSION, 0, len(text)) + text + whole[end:]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rings": []}, "no cursor for each of 0 rings"),
        ({"columns": ["ring"]}, "missing"),
        ({"columns": 7}, "not a list"),
        ({"columns": [*form.NUMBERS[:-1], "ring"]}, "unique names"),
        ({"timing_sources": [1]}, "not unique names"),
        ({"ring": {"rank": -1}}, "no rank"),
        ({"ring": {"rank": 1_048_576}}, "no rank"),
        ({"ring": {"rank": True}}, "no rank"),
        ({"ring": {"job_id": 5}}, "not a text"),
        ({"ring": {"job_id": "\ud800"}}, "surrogates"),
        ({"ring": {"ring": "x"}}, "no name"),
    ],
    ids=str,
)
def test_an_answer_that_contradicts_itself_is_none(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        parsed(replaced(**changes))


def test_another_version_and_another_page_are_said():
    whole = written((0, [row(1)], 2))
    later = form.HEAD.pack(form.MAGIC, 2, 0, 2) + whole[form.HEAD.size :]
    with pytest.raises(ValueError, match="version 2, expected 1"):
        parsed(later)
    with pytest.raises(ValueError, match="begins with"):
        parsed(b'{"node": "n", "columns": []}')


def test_a_block_that_claims_more_rows_than_were_sent_costs_no_memory():
    whole = written()
    end = form.HEAD.size + form.HEAD.unpack_from(whole)[3]
    with pytest.raises(ValueError, match="does not fit"):
        parsed(whole[:end] + form.BLOCK.pack(2**32 - 1, 0) + b"\0" * 64)


def test_a_head_that_is_the_same_is_not_read_again():
    first = parsed(written((0, [row(1)], 2)))
    again = parsed(written((0, [row(2)], 3)), first.head)
    assert again.head is first.head
    assert again.next_numbers == (3,)
    assert parsed(written((0, [row(2)], 3), rings=2), first.head).head is not first.head


def test_cursors_are_read_as_they_are_written():
    cursors = {"0123456789abcdef": 1, "f" * 16: 2**59}
    assert cursors_of(cursors_text(cursors)) == cursors
    assert cursors_of("") == {}
    many = {f"{n:016x}": 1 for n in range(321)}
    assert len(cursors_of(cursors_text(many))) == 320
    for text in ("x", "0123456789abcdef", "0123456789abcdef:-1", "0123456789abcdef:1e9", ",", ",,"):
        with pytest.raises(ValueError, match="RING:NUMBER"):
            cursors_of(text)
    with pytest.raises(ValueError, match="320"):
        cursors_of(",".join(f"{n:016x}:1" for n in range(321)))


def fresh(source, cursors=None, since=0.0, **limits):
    found = source.fresh(None, since, cursors or {})
    return parsed(b"".join(steps_blocks(found, "node-1", **limits)))


def cursors_in(found):
    return dict(zip((ring.name for ring in found.rings), found.next_numbers, strict=True))


def steps_in(found):
    return found.numbers["step"].astype(int).tolist()


@pytest.fixture
def rings(tmp_path):
    return RingStepSource(tmp_path, tmp_path / "no-kubelet", "node-1")


def ring_in(directory, **header):
    """Return the ring of a living process, which counts its steps from 0."""
    directory.mkdir(exist_ok=True)
    return contextlib.closing(Ring(directory, **header))


class Ring(RingWriter):
    close = RingWriter.end


def test_a_reader_that_comes_back_gets_what_it_does_not_have(tmp_path, rings):
    with ring_in(tmp_path, capacity=64) as writer:
        writer.step(5)
        first = fresh(rings)
        assert steps_in(first) == [0, 1, 2, 3, 4]
        assert first.rings[0].whole
        assert len(fresh(rings, cursors_in(first))) == 0
        writer.step(3)
        second = fresh(rings, cursors_in(first))
        assert steps_in(second) == [5, 6, 7]
        assert not second.rings[0].whole
        assert second.next_numbers == (9,)


def test_a_cursor_from_the_future_is_answered_from_since_on(tmp_path, rings):
    with ring_in(tmp_path, capacity=64) as writer:
        writer.step(4)
        (name,) = cursors_in(fresh(rings))
        assert steps_in(fresh(rings, {name: 5})) == []
        ahead = fresh(rings, {name: 6})
        assert (steps_in(ahead), ahead.rings[0].whole) == ([0, 1, 2, 3], True)
        assert steps_in(fresh(rings, {name: 0})) == [0, 1, 2, 3]
        assert steps_in(fresh(rings, {name: 6}, since=4e9)) == []


def test_a_reader_that_was_away_for_long_gets_what_the_ring_still_has(tmp_path, rings):
    with ring_in(tmp_path, capacity=8) as writer:
        writer.step(3)
        before = cursors_in(fresh(rings))
        writer.step(20)
        assert steps_in(fresh(rings, before)) == list(range(15, 23))


def test_a_ring_whose_steps_are_all_older_is_followed_from_its_end_on(tmp_path, rings):
    with ring_in(tmp_path, capacity=64) as writer:
        writer.step(5)
        first = fresh(rings, since=HOUR_LATER)
        second = fresh(rings, cursors_in(first), since=HOUR_LATER)
        assert (len(first), len(second)) == (0, 0)
        writer.step(2)
        third = fresh(rings, cursors_in(second), since=HOUR_LATER)
        assert steps_in(third) == [5, 6], "even if its clock is behind"


def test_a_ring_that_did_not_fit_is_answered_from_since_on_the_next_time(tmp_path, rings):
    with (
        ring_in(tmp_path, name="1-1.ring", pid=1, rank=0) as full,
        ring_in(tmp_path, name="2-2.ring", pid=2, rank=1) as later,
    ):
        full.step(3, start_unix_ns=HOUR_LATER * NS)
        later.step(2)
        later.step(3, start_unix_ns=HOUR_LATER * NS)
        first = fresh(rings, since=HOUR_LATER, max_rows=4)
        assert (first.truncated, steps_in(first)) == (True, [0, 1, 2])
        assert steps_in(fresh(rings, cursors_in(first), since=HOUR_LATER)) == [2, 3, 4]


def test_the_ring_of_a_process_that_is_started_anew_is_another_one(tmp_path, rings):
    with ring_in(tmp_path, capacity=64) as writer:
        writer.step(4)
        before = cursors_in(fresh(rings))
    with ring_in(tmp_path, name="4343-99.ring", capacity=64, attempt=1, pid=4343) as writer:
        writer.step(2)
        after = fresh(rings, before)
    assert len(cursors_in(after)) == 2
    assert steps_in(after) == [0, 1]


def asked(url, accept, query=""):
    request = urllib.request.Request(f"{url}/api/v1/steps{query}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read()


def test_an_agent_sends_blocks_to_those_who_accept_them_and_json_to_all_others(tmp_path):
    with ring_in(tmp_path / "rings", capacity=64) as writer, running_agent(tmp_path) as agent:
        writer.step(5)
        kind, body = asked(agent.url, f"{form.MEDIA_TYPE}, application/json;q=0.5")
        assert kind == form.MEDIA_TYPE
        found = parsed(body)
        kind, text = asked(agent.url, "*/*")
        assert kind == "application/json"
        rows = [dict(zip(STEP_COLUMNS, one, strict=True)) for one in json.loads(text)["rows"]]
        for name in form.RECORD_NUMBERS:
            told = [math.nan if one[name] is None else float(one[name]) for one in rows]
            np.testing.assert_array_equal(found.numbers[name], told, name)
        writer.step(1)
        query = f"?since=0&after={cursors_text(cursors_in(found))}"
        assert steps_in(parsed(asked(agent.url, form.MEDIA_TYPE, query)[1])) == [5]
        with pytest.raises(urllib.error.HTTPError, match="400"):
            asked(agent.url, form.MEDIA_TYPE, "?after=nonsense")
