import io
import json
import math

import pytest

from rankscope_analyzers.profiles import json_stream
from rankscope_analyzers.profiles.json_stream import JsonStream, JsonStreamError

CHUNK_CHARACTERS = 1 << 20

TRACE = {
    "schemaVersion": 1,
    "info": {"rank": 3, "name": 'a "quoted" } ] name'},
    "events": [{"ts": 1.25, "args": {"deep": [1, [2]]}}, 12345, "x", None],
    "empty": {},
    "last": 98765,
}


def read(text, chunk=None, maximum=1 << 20):
    source = io.StringIO(text)
    stream = JsonStream(lambda size: source.read(chunk or size), maximum)
    return list(stream.members("events"))


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, None])
@pytest.mark.parametrize("indent", [None, 2])
def test_members_and_items_are_the_same_however_the_text_is_cut(chunk, indent):
    expected = [(name, value) for name, value in TRACE.items() if name != "events"]
    expected[2:2] = [("events", item) for item in TRACE["events"]]
    assert read(json.dumps(TRACE, indent=indent), chunk) == expected


def test_tabs_and_line_ends_inside_of_texts_are_taken():
    """The profiler writes call stacks and kernels' names as they are."""
    assert read('{"events": ["a\tb\nc"]}') == [("events", "a\tb\nc")]


def test_an_integer_of_more_digits_than_python_converts_costs_its_own_item_alone():
    text = f'{{"events": [{{"ts": 1}}, {{"ts": {"9" * 5000}}}, {{"ts": 2}}]}}'
    found = [item["ts"] for _, item in read(text, 64)]
    assert found == [1, math.inf, 2]


def test_an_empty_object_and_an_empty_array_hold_nothing():
    assert read("{}") == []
    assert read('{"events": []}') == []


def test_an_array_of_another_name_is_one_value():
    assert read('{"other": [1, 2]}') == [("other", [1, 2])]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has the end at character 0, expected '{'"),
        ("[1]", "has '\\[' at character 0, expected '{'"),
        ('{"events": [1, 2', "expected ',' or ']'"),
        ('{"events": [{"ts": 1}, {"ts', "at character 23, expected a JSON value"),
        ('{"events": [1 2]}', "has '2' at character 14, expected ',' or ']'"),
        ('{"events": [1]', "has the end at character 14, expected ',' or '}'"),
        ('{"a" 1}', "expected ':'"),
        ('{"a": nonsense}', "expected a JSON value"),
    ],
)
@pytest.mark.parametrize("chunk", [1, None])
def test_what_is_not_whole_json_is_refused_with_its_place(text, complaint, chunk):
    with pytest.raises(JsonStreamError, match=complaint):
        read(text, chunk)


def test_a_text_beyond_its_limit_is_refused():
    text = json.dumps({"events": list(range(1000))})
    with pytest.raises(JsonStreamError, match="more than 999 characters"):
        read(text, maximum=999)


def test_a_value_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(json_stream, "MAXIMUM_VALUE_CHARACTERS", 5_000)
    taken = []

    def read_on(size):
        taken.append(100)
        return "x" * 100 if len(taken) > 1 else '{"events": ["'

    with pytest.raises(JsonStreamError, match="no end of a value"):
        list(JsonStream(read_on, 1 << 40).members("events"))
    assert sum(taken) < 6_000


def test_deeply_nested_values_are_refused():
    with pytest.raises(JsonStreamError, match="nested too deeply"):
        read('{"events": [' + "[" * 200_000 + "]" * 200_000 + "]}")


def test_only_what_is_being_read_is_held():
    sizes = []
    item = json.dumps({"name": "x" * 1000})
    pieces = iter(['{"events": [', *[f"{item}," for _ in range(5000)], f"{item}]}}"])

    def read_on(size):
        sizes.append(size)
        return next(pieces, "")

    assert sum(1 for _ in JsonStream(read_on, 1 << 40).members("events")) == 5001
    assert max(sizes) == CHUNK_CHARACTERS
