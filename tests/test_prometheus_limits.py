"""How much Prometheus is asked for and may answer, over how long, and at which intervals."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope_agent.contract.metrics import training
from rankscope_analyzers.intake import prometheus_instances, prometheus_nodes, prometheus_steps
from rankscope_analyzers.intake.prometheus_api import Matrix, Prometheus, PrometheusError
from rankscope_analyzers.steps.job_records import SourceError
from recording_entry import Entry


def test_prometheus_has_a_minute_for_a_byte_and_two_for_an_answer_of_a_gibibyte():
    entry = Entry()
    with pytest.raises(PrometheusError, match="not answer as Prometheus"):
        Prometheus("http://p", entry).instant("up", 1.0)
    (given,) = entry.deadlines
    assert (given.seconds, given.silence_seconds) == (120.0, 60.0)
    assert entry.answer.sizes == [(1 << 30) + 1]


@pytest.mark.parametrize(("points", "asked"), [(11_000, 1), (11_001, 0)])
def test_prometheus_gives_eleven_thousand_points(points, asked):
    entry = Entry()
    with pytest.raises(PrometheusError, match="not a matrix" if asked else "11000"):
        Prometheus("http://p", entry).range("up", 0.0, points - 1.0, 1.0)
    assert len(entry.deadlines) == asked


class Server:
    """Prometheus; notes the windows that it is asked for."""

    url = "http://p"

    def __init__(self, labels=(), rows=()):
        self.windows, self.instants, self.labels, self.rows = [], [], labels, rows

    def range(self, query, start, end, step):
        self.windows.append((query, start, end, step))
        times = np.arange(start, end + 1, step)
        values = np.array([np.resize(row, len(times)) for row in self.rows])
        return Matrix(tuple(self.labels), times, values)

    def instant(self, query, at):
        self.instants.append(query)
        return []


@pytest.mark.parametrize(
    ("since", "start", "step"),
    [(0.0, 6400.0, 150.0), (9640.0, 9640.0, 15.0), (9520.0, 9520.0, 20.0)],
)
def test_nodes_are_read_at_24_moments_of_the_last_hour(since, start, step):
    server = Server()
    prometheus_nodes.from_prometheus(server, {"a": "n"}, [training.STEPS], since, 10_000.0)
    assert [window[1:] for window in server.windows] == [(start, 10_000.0, step)]


@pytest.mark.parametrize(("nodes", "queries"), [(64, 1), (65, 2), (129, 3)])
def test_64_nodes_are_named_in_one_query(nodes, queries):
    server = Server()
    names = {f"i{number}": "n" for number in range(nodes)}
    prometheus_nodes.from_prometheus(server, names, [training.STEPS], 0.0, 100.0)
    assert len(server.windows) == queries


@pytest.mark.parametrize(
    ("length", "interval"), [(600.0, 15.0), (10_800.0, 15.0), (21_600.0, 30.0)]
)
def test_steps_are_read_over_720_intervals_of_a_quarter_minute_or_longer(length, interval):
    server = Server()
    with pytest.raises(SourceError, match="has no"):
        prometheus_steps.from_prometheus(server, None, 100_000.0, 100_000.0 + length)
    assert {window[3] for window in server.windows} == {interval}


@pytest.mark.parametrize(("now", "end"), [(995.0, 990.0), (994.0, 975.0)])
def test_samples_are_settled_after_five_seconds(now, end):
    server = Server()
    with pytest.raises(SourceError, match="has no"):
        prometheus_steps.from_prometheus(server, None, now - 150.0, now)
    (last,) = {window[2] for window in server.windows}
    assert last == end + 15.0 / 4


@pytest.mark.parametrize(("minutes", "refused"), [(6, 0), (7, 2)])
def test_agents_of_one_node_that_are_there_together_for_six_minutes_are_refused(minutes, refused):
    both = np.array([1.0] * minutes + [np.nan] * (61 - minutes))
    server = Server([{"instance": "a"}, {"instance": "b"}], [both, both])
    addresses = {"a": ("", "n"), "b": ("", "n")}
    found = prometheus_instances._believed(addresses, server, 10_000.0)
    assert len(found.refused) == refused
    assert server.windows[0][1:] == (6400.0, 10_000.0, 60.0)


def test_agents_are_looked_for_in_the_last_hour():
    server = Server()
    prometheus_instances.known(server, None, 0.0, 10_000.0)
    assert all("[3600s]" in query for query in server.instants)
