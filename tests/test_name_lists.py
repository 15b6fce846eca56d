import pytest

from rankscope_analyzers.text.name_lists import listed, named, ranks_listed, ranks_named

LISTS = {
    "": [],
    "7": [7],
    "0, 1": [1, 0, 1],
    "0-2": [2, 0, 1],
    "1-3, 9": [3, 1, 2, 9],
    "0-4095": range(4096),
    "0, 2, 4, 6, 8, 10, 12, 14 and 42 more": range(0, 100, 2),
    "0-2, 10-12, 20-22, 30-32, 40-42, 50-52, 60-62, 70-72 and 4 more": [
        *(rank for rank in range(80) if rank % 10 < 3),
        *(100, 101, 102, 103),
    ],
}


@pytest.mark.parametrize(("text", "ranks"), LISTS.items(), ids=LISTS)
def test_ranks_are_listed_in_order_with_runs_and_the_rest_counted(text, ranks):
    assert ranks_listed(ranks) == text


def test_one_rank_is_a_rank_and_several_are_ranks():
    assert ranks_named([3, 3]) == "rank 3"
    assert ranks_named([5, 3]) == "ranks 3, 5"


def test_names_keep_their_order_and_the_rest_is_counted():
    assert listed(["b", "a"]) == "b, a"
    assert listed("abcdefghij") == "a, b, c, d, e, f, g, h and 2 more"
    assert named(["a"], "node") == "node a"
    assert named(["a", "b"], "node") == "nodes a, b"
    assert named(["a", "b"], "leaf switch", "leaf switches") == "leaf switches a, b"
