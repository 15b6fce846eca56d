"""Series of nodes from Prometheus: which labels are the agents' own, and what is one series."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankscope_agent.contract import catalogue
from rankscope_agent.contract.metrics import rdma
from rankscope_analyzers.intake import prometheus_nodes
from rankscope_analyzers.intake.prometheus_api import Matrix
from rankscope_analyzers.intake.prometheus_series import SCRAPED, series_of_nodes

NAN = math.nan
PORT = {"device": "mlx5_0", "port": "1"}
TIMES = np.array([0.0, 15.0, 30.0, 45.0])
SCRAPED_FROM = {
    "instance": "10.0.0.1:9877",
    "job": "rankscope",
    "pod": "rankscope-agent-x1",
    "namespace": "rankscope",
    "container": "agent",
    "endpoint": "metrics",
    "service": "rankscope-agent",
    "prometheus": "monitoring/k8s",
    "prometheus_replica": "prometheus-k8s-0",
}


def state(row, **labels):
    own = {"__name__": rdma.PORT_STATE.name, **PORT, **SCRAPED_FROM, "node": "n1", **labels}
    return own, row


def matrix(*rows):
    return Matrix(tuple(labels for labels, _ in rows), TIMES, np.array([row for _, row in rows]))


class Server:
    url = "http://prometheus"

    def __init__(self, *rows):
        self.answer = matrix(*rows)

    def range(self, query, start, end, step):
        return self.answer


def observed(*rows):
    nodes = {row[0]["instance"]: "n1" for row in rows}
    return prometheus_nodes.from_prometheus(Server(*rows), nodes, [rdma.PORT_STATE], 0.0, 45.0)


@pytest.mark.parametrize("changed", [*SCRAPED_FROM, "cluster"])
def test_what_scraping_adds_is_no_label_of_a_series(changed):
    (series,) = observed(state([4.0] * 4, **{changed: "other"})).all()
    assert series.labels == {**PORT, "node": "n1"}


def test_the_port_of_an_agent_that_was_replaced_is_one_series_with_the_newest_state():
    old = state([4.0, 4.0, NAN, NAN])
    new = state([NAN, NAN, 1.0, 1.0], pod="rankscope-agent-x2", instance="10.0.0.2:9877")
    for rows in ((old, new), (new, old)):
        (series,) = observed(*rows).all()
        assert (series.times.tolist(), series.last) == (TIMES.tolist(), 1.0)


def test_nodes_of_one_name_in_two_clusters_are_not_one():
    rows = (state([4.0] * 4, cluster="east"), state([1.0] * 4, cluster="west"))
    found = series_of_nodes([matrix(*rows)], lambda labels: labels["node"])
    assert sorted(one.last for one in found) == [1.0, 4.0]


def test_no_metric_has_a_label_of_its_own_that_scraping_adds():
    named = {label: metric.name for metric in catalogue.CATALOGUE for label in metric.labels}
    assert not SCRAPED & named.keys()


def test_values_that_are_no_finite_numbers_are_left_out_and_counted():
    seen = observed(
        state([math.inf, 4.0, NAN, -math.inf], job_id="team/a"), state([math.inf] * 4, port="2")
    )
    (series,) = seen.all()
    assert (series.times.tolist(), series.values.tolist()) == ([15.0], [4.0])
    assert seen.unread == {"n1": {"team/a": 2, "": 4}}
    assert seen.on(["n2"]).unread == {}
