"""What is known of nodes from their last pages, of which each is parsed once."""

import math

import pytest

from rankscope_agent.contract.metrics import agent, training
from rankscope_analyzers.intake import page_columns
from rankscope_analyzers.intake.page_columns import labels
from rankscope_analyzers.intake.page_history import Page, PageHistory, from_pages

STEP = training.LAST_STEP
READS = (STEP, agent.SNAPSHOT_TIMESTAMP)


def page(time, values, node="n", taken=None):
    """A page of a node, with the last step of each rank in `values`."""
    stamp = "" if taken is None else f"{agent.SNAPSHOT_TIMESTAMP.name} {taken}\n"
    lines = [f'{STEP.name}{{job_id="a",rank="{rank}"}} {value}\n' for rank, value in values.items()]
    return Page(node, time, stamp + "".join(lines))


def seen(observed):
    return {
        (one.node, one.labels["rank"]): [*zip(one.times.tolist(), one.values.tolist(), strict=True)]
        for one in observed.of(STEP)
    }


def test_only_the_last_looks_are_kept():
    history = PageHistory(READS, polls=3)
    for at in range(6):
        history.add([page(at, {0: at * 10})])
    assert seen(history.observed()) == {("n", "0"): [(3.0, 30.0), (4.0, 40.0), (5.0, 50.0)]}


def test_series_that_are_called_alike_on_many_nodes_share_their_labels():
    found = from_pages([page(0, {0: 1, 1: 2}, node=f"n{number}") for number in range(9)], READS)
    several = list(found.of(STEP))
    assert len(several) == 18
    assert len({id(one.labels) for one in several}) == 2


def test_only_series_that_are_read_again_are_kept_until_the_next_look():
    history = PageHistory(READS, polls=3)
    history.add([page(0, {0: 1})])
    (node,) = history.observed().by_node.values()
    first, again, later = (node[STEP.name] for _ in range(3))
    assert first is not again
    assert later is again
    history.add([page(1, {0: 2})])
    assert seen(history.observed()) == {("n", "0"): [(0.0, 1.0), (1.0, 2.0)]}


def test_a_node_that_falls_silent_is_forgotten_when_its_looks_are_over():
    history = PageHistory(READS, polls=3)
    history.add([page(0, {0: 1}), page(0, {1: 1}, node="m")])
    for at in (1, 2):
        history.add([page(at, {0: 1})])
        assert history.observed().nodes == {"n", "m"}
    history.add([page(3, {0: 1})])
    assert history.observed().nodes == {"n"}
    history.add([page(4, {0: 1}), page(4, {1: 2}, node="m")])
    assert seen(history.observed())["m", "1"] == [(4.0, 2.0)]


def test_looks_from_before_a_long_pause_are_not_compared_with_those_after_it():
    history = PageHistory(READS, polls=3)
    history.add([page(100, {0: 1}), page(100, {0: 1}, node="gone")], oldest=-1700.0)
    history.add([page(9000, {0: 50})], oldest=7200.0)
    assert seen(history.observed()) == {("n", "0"): [(9000.0, 50.0)]}


def test_series_come_go_and_change_places_between_looks():
    history = PageHistory(READS, polls=4)
    for at, values in enumerate(({0: 1, 1: 2}, {1: 3, 0: 4}, {0: 5}, {2: 6, 0: 7})):
        history.add([page(at, values)])
    assert seen(history.observed()) == {
        ("n", "0"): [(0.0, 1.0), (1.0, 4.0), (2.0, 5.0), (3.0, 7.0)],
        ("n", "1"): [(0.0, 2.0), (1.0, 3.0)],
        ("n", "2"): [(3.0, 6.0)],
    }
    for at in range(4, 8):
        history.add([page(at, {2: at, 0: at})])
    assert seen(history.observed()) == {
        ("n", rank): [(float(at), float(at)) for at in range(4, 8)] for rank in ("0", "2")
    }


def test_two_series_that_change_places_keep_their_values():
    history = PageHistory(READS, polls=4)
    history.add([page(0, {0: 1, 1: 2})])
    history.add([page(1, {1: 3, 0: 4})])
    assert seen(history.observed()) == {
        ("n", "0"): [(0.0, 1.0), (1.0, 4.0)],
        ("n", "1"): [(0.0, 2.0), (1.0, 3.0)],
    }


def test_a_series_that_comes_leaves_those_of_other_metrics_as_they_were():
    history = PageHistory(READS, polls=4)
    history.add([page(0, {0: 1, 1: 2})])
    history.add([page(1, {0: 3, 1: 4}, taken=1)])
    observed = history.observed()
    assert seen(observed) == {
        ("n", "0"): [(0.0, 1.0), (1.0, 3.0)],
        ("n", "1"): [(0.0, 2.0), (1.0, 4.0)],
    }
    (stamp,) = observed.of(agent.SNAPSHOT_TIMESTAMP)
    assert (stamp.times.tolist(), stamp.values.tolist()) == ([1.0], [1.0])


def test_what_was_observed_before_stays_as_it_was():
    history = PageHistory(READS, polls=2)
    history.add([page(0, {0: 1})])
    before = history.observed()
    history.add([page(1, {0: 2})])
    history.observed()
    assert seen(before) == {("n", "0"): [(0.0, 1.0)]}


def test_labels_of_series_that_stay_are_read_once():
    history = PageHistory(READS, polls=3)
    history.add([page(0, {0: 1})])
    (first,) = history.observed().of(STEP)
    history.add([page(1, {0: 1, 1: 1})])
    assert next(iter(history.observed().of(STEP))).labels is first.labels


def test_times_follow_a_clock_that_was_set_right():
    """The clock was an hour ahead; once pages from then are gone nothing reminds of it."""
    history = PageHistory(READS, polls=2)
    history.add([page(1000, {0: 1}, taken=4600)])
    for at in (1030, 1060):
        history.add([page(at, {0: 1}, taken=at - 0.5)])
    (one,) = history.observed().of(STEP)
    assert one.times.tolist() == [1030.0, 1060.0]


@pytest.mark.parametrize("stamp", ["1.2.3", "e", "1e999", "NaN", "-5", "soon"])
def test_pages_that_do_not_say_when_they_were_taken_are_as_old_as_the_answer(stamp):
    (one,) = from_pages([page(7, {0: 1}, taken=stamp)], READS).of(STEP)
    assert one.times.tolist() == [7.0] or (stamp == "1e999" and math.isnan(one.times[0]))


def test_labels_are_what_stands_between_the_braces():
    assert labels(r'a="x\"y\\z\n",b="",c="}, d=\"1\""') == {
        "a": 'x"y\\z\n',
        "b": "",
        "c": '}, d="1"',
    }
    assert labels("garbage") == {}


@pytest.mark.parametrize(
    ("read", "value", "kept"),
    [
        (page_columns.labels, 'rank="{}"', 16_384),
        (page_columns._spans, (("rankscope_step_{}", 1),), 1024),
    ],
)
def test_so_many_texts_of_labels_and_kinds_of_pages_are_kept_parsed(read, value, kept):
    def numbered(number):
        if isinstance(value, str):
            return value.format(number)
        return tuple((name.format(number), count) for name, count in value)

    read.cache_clear()
    first = read(numbered(0))
    for number in range(1, kept):
        read(numbered(number))
    assert read(numbered(0)) is first
    for number in range(1, kept + 1):
        read(numbered(number))
    assert read(numbered(0)) is not first
