"""Which nodes of a directed graph are on cycles, in time proportional to its size (Tarjan)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)


def on_cycles(following: Mapping[Node, Collection[Node]]) -> frozenset[Node]:
    """Return the nodes that one comes back to by way of other nodes.

    Args:
        following: the nodes that follow each node; none follow those without a key.
    """
    search = _Search(following)
    for node in following:
        search.begin(node)
    return frozenset(search.found)


class _Search(Generic[Node]):
    """A search in depth; without recursion, as a cycle may be longer than Python's stack."""

    def __init__(self, following: Mapping[Node, Collection[Node]]) -> None:
        self.found: set[Node] = set()
        self._following = following
        self._number: dict[Node, int] = {}
        self._lowest: dict[Node, int] = {}  # of nodes whose component is not complete
        self._open: list[Node] = []
        self._path: list[tuple[Node, Iterator[Node]]] = []

    def begin(self, root: Node) -> None:
        """Search what can be reached from a node and was not reached so far."""
        if root not in self._number:
            self._enter(root)
        while self._path:
            node, left = self._path[-1]
            for after in left:
                if after not in self._number:
                    self._enter(after)
                    break
                if after in self._lowest:
                    self._lowest[node] = min(self._lowest[node], self._number[after])
            else:
                self._leave(node)

    def _enter(self, node: Node) -> None:
        self._number[node] = self._lowest[node] = len(self._number)
        self._open.append(node)
        self._path.append((node, iter(self._following.get(node, ()))))

    def _leave(self, node: Node) -> None:
        """Finish a node; the component that it is the first node of is complete."""
        self._path.pop()
        lowest = self._lowest[node]
        if self._path:
            before = self._path[-1][0]
            self._lowest[before] = min(self._lowest[before], lowest)
        if lowest == self._number[node]:
            self._complete(node)

    def _complete(self, first: Node) -> None:
        component = [self._open.pop()]
        while component[-1] != first:
            component.append(self._open.pop())
        for node in component:
            del self._lowest[node]
        if len(component) > 1:
            self.found.update(component)
