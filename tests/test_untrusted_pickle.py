"""Pickles of plain values, read without pickle, and what attackers write instead."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope_agent.contract.pickle_limits import Limits, UnsafePickle
from rankscope_agent.contract.untrusted_pickle import ACTIONS, KEYS, loads

PLAIN_TYPES = (type(None), bool, int, float, str, bytes, list, tuple, dict, set)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=50)
    | st.binary(max_size=50)
)
KEY = st.text(max_size=9) | st.integers(-(2**40), 2**40) | st.binary(max_size=9)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(KEY, inner, max_size=5)
        | st.sets(KEY, max_size=5)
    ),
    max_leaves=30,
)


@settings(max_examples=300)
@given(PLAIN, st.integers(4, 5))
def test_plain_values_come_out_as_pickle_reads_them(value, protocol):
    body = pickle.dumps(value, protocol)
    read = loads(body)
    assert read == value
    assert repr(read) == repr(pickle.loads(body))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=50),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=30,
    ),
    st.integers(2, 3),
)
@settings(max_examples=200)
def test_older_protocols_that_torch_writes_are_read_as_well(value, protocol):
    assert loads(pickle.dumps(value, protocol)) == value


@settings(max_examples=1000)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_plain_value_or_one_kind_of_error(body):
    with contextlib.suppress(UnsafePickle):
        assert isinstance(loads(b"\x80\x02" + body), PLAIN_TYPES)


@settings(max_examples=1000)
@given(st.lists(st.sampled_from([*ACTIONS, b"\x01", b"\x00\x00\x00\x00", b"."]), max_size=60))
def test_any_order_of_known_opcodes_gives_a_plain_value_or_one_kind_of_error(parts):
    with contextlib.suppress(UnsafePickle):
        assert isinstance(loads(b"".join(parts) + b"."), PLAIN_TYPES)


def test_values_that_are_shared_stay_one_value():
    one = ["shared"]
    read = loads(pickle.dumps({"a": one, "b": (one, one)}, 4))
    assert read["a"] is read["b"][0] is read["b"][1]


class Caller:
    def __reduce__(self):
        return os.system, ("touch /tmp/owned",)


@pytest.mark.parametrize("protocol", range(6))
def test_what_would_call_something_is_refused_at_its_first_opcode(protocol):
    with pytest.raises(UnsafePickle) as caught:
        loads(pickle.dumps(Caller(), protocol))
    assert caught.value.reason == "refused_opcode"


CALLS = {
    "GLOBAL": b"\x80\x02cposix\nsystem\n.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
    "INST": b"(S'true'\nios\nsystem\n.",
    "OBJ": b"\x80\x02(N)o.",
    "NEWOBJ": b"\x80\x02N)\x81.",
    "NEWOBJ_EX": b"\x80\x04N)}\x92.",
    "REDUCE": b"\x80\x02N)R.",
    "BUILD": b"\x80\x02N}b.",
    "EXT1": b"\x80\x02\x82\x01.",
    "PERSID": b"P1\n.",
    "BINPERSID": b"\x80\x02NQ.",
    "BYTEARRAY8": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b".",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "LONG as text": b"L" + b"9" * 100 + b"L\n.",
    "INT as text": b"I1\n.",
}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_every_opcode_beyond_plain_values_is_refused(body):
    with pytest.raises(UnsafePickle) as caught:
        loads(body)
    assert caught.value.reason == "refused_opcode"


def bomb(levels: int) -> bytes:
    """Return a pickle of a list of two, each of which is a list of two, and so on."""
    level = b"]" + b"(h\x00h\x00eq\x00"
    return b"\x80\x02]Naq\x000" + (level + b"0") * levels + b"h\x00."


TOO_LARGE = {
    "nine bytes that announce an integer of 4 GB": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "an integer wider than 64 bits": b"\x80\x02\x8a\x0a" + b"\x01" * 10 + b".",
    "a text of 4 GB": b"\x80\x02X\xff\xff\xff\xff.",
    "a text of 2^60 bytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b".",
    "bytes of 4 GB": b"\x80\x03B\xff\xff\xff\xff.",
    "a list of 2^60 in 60 levels": bomb(60),
    "a list of 2^26 in 26 levels": bomb(26),
    "lists in lists": b"\x80\x02" + b"]" * 500 + b"a" * 499 + b".",
    "tuples in tuples": b"\x80\x02)" + b"\x85" * 500 + b".",
}


@pytest.mark.parametrize("body", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_too_large_is_refused_before_it_is_made(body):
    with pytest.raises(UnsafePickle) as caught:
        loads(body)
    assert caught.value.reason == "too_large"


SMALL = Limits(data_bytes=100, values=20, memo=3, stack=10, total=12, opcodes=45)
BEYOND = {
    "102 bytes, at most 100": b"\x80\x02" + b"N0" * 49 + b"N.",
    "more than 20 values": b"\x80\x02" + b"N0" * 20 + b"N.",
    "more than 3 values in the memo": b"\x80\x02Nq\x01q\x02q\x03q\x04.",
    "more than 10 values at once": b"\x80\x02" + b"N" * 11 + b"0" * 10 + b".",
    "13 values in 1 levels, at most 12": b"\x80\x02](" + b"N" * 6 + b"e(" + b"N" * 6 + b"e.",
    "more than 45 opcodes": b"\x80\x02" * 45 + b"N.",
}


@pytest.mark.parametrize(("words", "body"), BEYOND.items())
def test_each_bound_holds_by_itself(words, body):
    with pytest.raises(UnsafePickle, match=words) as caught:
        loads(body, SMALL)
    assert caught.value.reason == "too_large"
    loads(body)


MALFORMED = {
    "nothing": b"",
    "no end": b"\x80\x02N",
    "nothing is left": b"\x80\x02.",
    "two values are left": b"\x80\x02NN.",
    "a mark is left": b"\x80\x02(.",
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "a list in a list that it is put into": b"\x80\x02]q\x00]h\x00aa.",
    "a dict that holds itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    "a list that is filled after it was put away": b"\x80\x02]q\x00]h\x00ah\x00Na.",
    "a key without a value": b"\x80\x02}(Nu.",
    "an append to a number": b"\x80\x02K\x01Na.",
    "an append to a tuple": b"\x80\x02)Na.",
    "no mark": b"\x80\x02]e.",
    "an append across a mark": b"\x80\x02](Na.",
    "nothing was remembered": b"\x80\x02h\x07.",
    "nothing to be remembered": b"\x80\x02q\x00.",
    "a text that is none": b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
    "a frame beyond the end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "a protocol of the future": b"\x80\x09N.",
    "a number that is cut": b"\x80\x02J\x01",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_what_breaks_the_grammar_is_malformed(body):
    with pytest.raises(UnsafePickle) as caught:
        loads(body)
    assert caught.value.reason == "malformed"


def test_keys_whose_comparison_takes_time_are_refused():
    for value in ({(1, 2): 3}, {frozenset({1}): 2}, {1.5: 2}, {(1,)}):
        with pytest.raises(UnsafePickle):
            loads(pickle.dumps(value, 4))
    assert tuple not in KEYS


def test_every_known_opcode_is_one_that_pickle_has():
    names = {
        code: name
        for name, code in vars(pickle).items()
        if name.isupper() and isinstance(code, bytes) and len(code) == 1
    }
    assert set(ACTIONS) <= set(names)
    dangerous = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX",
                 "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"}  # fmt: skip
    assert not {names[code] for code in ACTIONS} & dangerous


def test_an_error_names_the_place():
    with pytest.raises(UnsafePickle, match=r"at byte 4: opcode b'c' is not one of plain values"):
        loads(b"\x80\x02Ncos\nsystem\n.")
