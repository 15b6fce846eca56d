"""How many objects of a cluster are asked for by name, and in which pages lists are read."""

from __future__ import annotations

import pytest

from rankscope_analyzers.intake.kubernetes_api import Answer
from rankscope_analyzers.intake.named_objects import NamedObjects


class Server:
    """Has so many pages of everything, and nothing by name."""

    def __init__(self, pages=1):
        self.left, self.queries, self.seconds = pages, [], []

    def get(self, path, query, seconds):
        self.queries.append((path, dict(query)))
        self.seconds.append(seconds)
        if "limit" not in query:
            return Answer(404, {})
        self.left -= 1
        metadata = {"continue": "more"} if self.left else {}
        return Answer(200, {"items": [], "metadata": metadata})


def claims(count):
    return [("PersistentVolumeClaim", "team", f"claim-{number}") for number in range(count)]


def nodes(count):
    return [("Node", "", f"node-{number}") for number in range(count)]


@pytest.mark.parametrize(("count", "unread"), [(512, 0), (513, 1)])
def test_512_objects_are_asked_for_one_by_one(count, unread):
    objects, server = NamedObjects(), Server()
    objects.read(server, claims(count))
    assert (len(server.queries), len(objects.unread)) == (512, unread)
    assert set(server.seconds) == {20.0}


@pytest.mark.parametrize(("count", "requests"), [(32, 32), (33, 1)])
def test_more_than_32_nodes_are_listed(count, requests):
    objects, server = NamedObjects(), Server()
    objects.read(server, nodes(count))
    assert len(server.queries) == requests
    assert len(objects.absent) == count


@pytest.mark.parametrize(("pages", "unread"), [(80, 0), (81, 33)])
def test_80_pages_of_250_nodes_are_read(pages, unread):
    objects, server = NamedObjects(), Server(pages)
    objects.read(server, nodes(33))
    assert len(server.queries) == 80
    assert server.queries[0] == ("/api/v1/nodes", {"limit": "250"})
    assert server.queries[-1] == ("/api/v1/nodes", {"limit": "250", "continue": "more"})
    assert len(objects.unread) == unread
    assert set(objects.unread.values()) <= {"there are more than 20000 of them"}


@pytest.mark.parametrize(
    ("pages", "why"), [(4, ""), (5, "there are more than 2000 of them"), (1, "")]
)
def test_four_pages_of_500_services_are_read(pages, why):
    server = Server(pages)
    assert NamedObjects().read_services(server, "team") == why
    assert server.queries[0][1] == {"limit": "500"}
