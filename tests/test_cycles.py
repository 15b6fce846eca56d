"""Nodes on cycles of directed graphs."""

from __future__ import annotations

import random

from rankscope_analyzers.hangs.cycles import on_cycles


def reached(graph, start):
    seen, left = set(), [*graph[start]]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left.extend(graph.get(node, ()))
    return seen


def test_nodes_are_on_cycles_if_one_comes_back_to_them():
    dice = random.Random(5)
    for _ in range(300):
        nodes = range(dice.randint(2, 9))
        graph = {
            one: {other for other in nodes if other != one and dice.random() < 0.25}
            for one in nodes
            if dice.random() < 0.9
        }
        expected = {one for one in graph if one in reached(graph, one)}
        assert on_cycles(graph) == expected


def test_a_cycle_may_be_longer_than_the_stack_of_python():
    size = 50_000
    ring = {one: ((one + 1) % size,) for one in range(size)}
    assert len(on_cycles({**ring, -1: (0,)})) == size
