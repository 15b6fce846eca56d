"""Lists of pods as large as etcd takes them, from a fake API server into the memory of a pod."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_api_server import FakeApiServer
from memory_groups import limit_of_the_pod, memory_group
from pod_json import pod
from rankscope_agent.sources.pods import json_items
from rankscope_agent.sources.pods.json_items import JsonItems
from running_agent import COMMAND, running_agent
from test_agent_process import until

READ_BYTES = 65536
PODS = 110  # the kubelet's default
LARGE = 1_000_000


def with_a_long_variable(name, number):
    return pod(name, number=number, env={"NOTES": "x" * LARGE})


def with_many_variables(name, number):
    env = {f"NCCL_{other:05d}_{'x' * 60}": "y" * 20 for other in range(LARGE // 120)}
    return pod(name, number=number, env=env)


def with_many_labels(name, number):
    labels = {f"{'x' * 50}-{other:05d}": "y" * 60 for other in range(LARGE // 120)}
    return pod(name, number=number, labels=labels)


def with_many_annotations(name, number):
    notes = {f"{'x' * 50}-{other:05d}": "y" * 60 for other in range((256 << 10) // 120)}
    return pod(name, number=number, annotations=notes, env={"NOTES": "x" * LARGE})


KINDS = (with_a_long_variable, with_many_variables, with_many_labels, with_many_annotations)


@pytest.fixture
def api():
    made = FakeApiServer()
    yield made
    made.close()


def test_a_hundred_pods_of_a_megabyte_do_not_end_an_agent_with_the_memory_of_its_pod(tmp_path, api):
    for number in range(PODS):
        api.put(KINDS[number % len(KINDS)](f"train-{number:03d}", number))
    flags = (f"--kubernetes.api={api.url}", "--kubernetes.start-jitter=0", "--node-name=n1")
    with (
        memory_group(limit_of_the_pod()) as group,
        running_agent(tmp_path, *flags, command=group.command(*COMMAND)) as agent,
    ):
        listed = json.loads(until(agent, "/api/v1/pods", "train-109"))
        names = {found["name"] for found in listed["pods"]}
        assert names == {f"train-{number:03d}" for number in range(PODS)}
        assert group.kills() == 0
        assert agent.process.poll() is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def in_pieces(body, sizes):
    """Return a reader that gives a body in pieces of some sizes, whatever it is asked for."""
    source, left = io.BytesIO(body), iter(sizes)
    return lambda wanted: source.read(min(wanted, next(left, wanted)))


@given(
    st.dictionaries(st.text(), VALUES, max_size=4),
    st.lists(VALUES, max_size=6),
    st.lists(st.integers(1, 40), max_size=60),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_items_and_rest_are_those_of_the_whole_document(rest, items, sizes, indent, ascii_only):
    rest.pop("items", None)
    document = {**dict(list(rest.items())[:2]), "items": items, **rest}
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(
        errors="surrogatepass"
    )
    try:
        body.decode()
    except UnicodeDecodeError:  # a lone surrogate, which no server can send
        return
    found = JsonItems(in_pieces(body, sizes))
    assert list(found) == items
    assert found.rest == rest


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"null",
            b"[]",
            b"{",
            b'{"items"',
            b'{"items": [',
            b'{"items": [1',
            b'{"items": [1,]}',
        ),
        *(b'{"items": 3}', b'{"items": {}}', b'{"a": 1', b'{"a" 1}', b'{"a": 1 "b": 2}', b"\xff"),
        *(b'{"items": ["\xff"]}', b'{"items": [' + b"[" * 100_000, b"<html>"),
    ],
)
def test_what_is_no_list_is_an_error(body):
    with pytest.raises((ValueError, RecursionError)):
        list(JsonItems(io.BytesIO(body).read))


@pytest.mark.parametrize("body", [b"{}", b'{"items": null}', b'{"items": []}', b' {"items":[ ] } '])
def test_a_list_may_be_empty(body):
    assert list(JsonItems(io.BytesIO(body).read)) == []


@pytest.mark.parametrize("digits", [309, 5000])
def test_an_integer_that_no_float_holds_costs_no_other_item(digits):
    body = b'{"items": [{"uid": 1}, {"uid": %b}, {"uid": 2}]}' % (b"9" * digits)
    found = [item["uid"] for item in JsonItems(io.BytesIO(body).read)]
    assert found == [1, math.inf, 2]


def test_no_more_is_read_ahead_than_an_item_is_long():
    item = {"name": "x" * 300_000}
    source = io.BytesIO(json.dumps({"metadata": {}, "items": [item] * 50}).encode())
    for number, _ in enumerate(JsonItems(source.read), 1):
        assert source.tell() < number * 300_020 + 2 * 300_020 + READ_BYTES
    assert number == 50


def test_a_value_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(json_items, "MAX_VALUE", 1 << 20)
    taken = []

    def endless(size):
        taken.append(size)
        return b"x" * size

    with pytest.raises(ValueError, match="a value is longer than 1 Mi"):
        list(
            JsonItems(
                lambda size: b'{"items": ["' if not taken and not endless(0) else endless(size)
            )
        )
    assert sum(taken) < 4 << 20
