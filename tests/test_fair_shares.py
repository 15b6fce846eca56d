"""What is bounded goes round: groups share first, then their members, and nobody waits for ever."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope_agent.contract.fair_shares import allot, allot_to_holders, choose, take_turns


@pytest.mark.parametrize(
    ("wanted", "available", "shares"),
    [
        ((), 10, ()),
        ((4, 6), 10, (4, 6)),  # enough for all: nobody is held back
        ((64, 2), 10, (8, 2)),  # the small one gets all it wants
        ((64, 64, 1), 10, (4, 5, 1)),
        ((5, 5, 5), 10, (3, 3, 4)),
        ((9, 9, 9), 2, (0, 1, 1)),
        ((3, 0), 2, (2, 0)),
    ],
)
def test_a_share_is_what_leaves_nobody_with_less_than_others(wanted, available, shares):
    assert allot(dict(enumerate(wanted)), available) == dict(enumerate(shares))


@given(st.lists(st.integers(0, 64), max_size=40), st.integers(0, 200))
def test_shares_add_up_to_all_there_is_or_all_that_is_wanted(wanted, available):
    shares = allot(dict(enumerate(wanted)), available)
    assert sum(shares.values()) == min(sum(wanted), available)
    assert all(shares[one] <= want for one, want in enumerate(wanted))
    held_back = [shares[one] for one, want in enumerate(wanted) if shares[one] < want]
    assert max(shares.values(), default=0) <= min(held_back, default=64) + 1


def test_many_pods_of_a_namespace_get_no_more_than_one_pod_of_another():
    wanted = {("greedy", f"pod-{n}"): 64 for n in range(16)} | {("team", "pod"): 500}
    shares = allot_to_holders(wanted, 1024)
    assert shares["team", "pod"] == 500
    assert {shares["greedy", f"pod-{n}"] for n in range(16)} == {32, 33}


def test_of_each_holder_the_first_items_are_chosen_in_their_order():
    items = ["a1", "a2", "a3", "b1", "a4", "b2"]
    assert choose(items, lambda item: (item[0], ""), 3) == ["a1", "a2", "b1"]
    assert choose(items, lambda item: (item[0], ""), 100) == items


def test_namespaces_take_turns_and_in_each_its_pods():
    work = Counter({"x/a/1": 3, "x/a/2": 1, "x/b/1": 1, "y/c/1": 2})
    served = []

    def serve(item: str) -> bool:
        served.append(item)
        work[item] -= 1
        return work[item] > 0

    take_turns(list(work), lambda item: tuple(item.split("/")[:2]), serve)
    assert served == ["x/a/1", "y/c/1", "x/b/1", "y/c/1", "x/a/2", "x/a/1", "x/a/1"]
