"""Verdicts out of a real Prometheus that holds what agents' counters would have been."""

import itertools
import json
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from prometheus_blocks import serving_samples
from rankscope_analyzers import cli
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError, parse_matrix
from rankscope_analyzers.intake.prometheus_steps import from_prometheus
from rankscope_analyzers.steps.job_records import SourceError
from rankscope_analyzers.stragglers.diagnosis import diagnose_each
from rankscope_analyzers.stragglers.followed_jobs import FollowedJobs

SCRAPE = 15
RANKS = 8
SCRAPES = 80
GAP = range(30, 34)  # nothing was scraped
RESET = 50  # all ranks restart
MOVES = 40  # job ml/moved goes on with fewer ranks on another node


def seconds(rank: int, scrape: int) -> tuple[float, float]:
    """Compute and sync of a mean step: rank 5 computes longer in the second half."""
    slow = 0.4 if scrape >= SCRAPES // 2 else 0.0
    compute = 1.0 + 0.002 * ((rank * 7 + scrape * 3) % 5) + (slow if rank == 5 else 0.0)
    return compute, 1.05 + slow - compute


def exposition(start: int) -> Iterator[str]:
    names = ("steps", "step_seconds", "data_seconds", "compute_seconds", "sync_seconds")
    series: dict[str, list[str]] = {name: [] for name in names}
    for rank in range(RANKS):
        totals = dict.fromkeys(names, 0.0)
        for scrape in range(SCRAPES):
            if scrape == RESET:
                totals = dict.fromkeys(names, 0.0)
            compute, sync = seconds(rank, scrape)
            done = 10
            more = (done, done * (compute + sync + 0.02), done * 0.02, done * compute, done * sync)
            totals = {name: totals[name] + value for name, value in zip(names, more, strict=True)}
            if scrape not in GAP:
                for name in names:
                    labels = f'{{job_id="ml/llm",rank="{rank}",{scraped(rank)}}}'
                    stamp = start + scrape * SCRAPE
                    series[name].append(
                        f"rankscope_{name}_total{labels} {totals[name]:.6f} {stamp}"
                    )
    for name in names:
        yield f"# TYPE rankscope_{name} counter"
        yield from series[name]
        yield from moved_counters(name, start)
    yield "# TYPE rankscope_rank_info gauge"
    yield from moved_infos(start)
    for rank in range(RANKS):
        where = f'job_id="ml/llm",rank="{rank}",node="gpu-{rank // 4}",local_rank="{rank % 4}"'
        where += f',uuid="{uuid(rank)}",{scraped(rank)}'
        for scrape in range(SCRAPES):
            stamp = start + scrape * SCRAPE
            yield f'rankscope_rank_info{{{where},world_size="{RANKS}"}} 1 {stamp}'
    yield from gpus(start)
    yield from of_watch(start)
    yield "# EOF"


ATTEMPTS = (("a", 4, range(SCRAPES), MOVES), ("b", 3, range(MOVES, SCRAPES), SCRAPES))
"""Of ml/moved: node, ranks, scrapes in which its agent reports them, end of its steps."""


def moved_counters(name: str, start: int) -> Iterator[str]:
    """Counters of ended processes stand still, for as long as their agent reports them."""
    for node, size, reported, end in ATTEMPTS:
        for rank in range(size):
            labels = f'job_id="ml/moved",rank="{rank}",instance="10.0.1.{node}:9877"'
            for scrape in reported:
                done = 10 * (min(scrape, end) - reported[0])
                value = done if name == "steps" else done * (0.5 if node == "a" else 0.7)
                yield f"rankscope_{name}_total{{{labels}}} {value} {start + scrape * SCRAPE}"


def moved_infos(start: int) -> Iterator[str]:
    for node, size, reported, _ in ATTEMPTS:
        for rank in range(size):
            where = f'rank="{rank}",node="{node}",world_size="{size}"'
            labels = f'job_id="ml/moved",{where},instance="10.0.1.{node}:9877"'
            for scrape in reported:
                yield f"rankscope_rank_info{{{labels}}} 1 {start + scrape * SCRAPE}"


def scraped(rank: int) -> str:
    """Return the labels that Prometheus adds."""
    return f'instance="10.0.0.{rank // 4}:9877",job="rankscope-agent"'


def uuid(rank: int) -> str:
    return f"GPU-{rank:08d}"


def gpus(start: int) -> Iterator[str]:
    """GPU 1 of gpu-1, which is rank 5's, is too hot in the second half."""
    yield "# TYPE rankscope_gpu_clock_event_seconds counter"
    samples: dict[str, list[str]] = {}
    for rank in range(RANKS):
        labels = f'gpu="{rank % 4}",uuid="{uuid(rank)}",pci="0000:{rank:02x}:00",{scraped(rank)}'
        held = 0.0
        for scrape in range(SCRAPES):
            hot = rank == 5 and scrape >= SCRAPES // 2
            held += SCRAPE if hot else 0.0
            stamp = start + scrape * SCRAPE
            for name, extra, value in (
                ("clock_event_seconds_total", ',reason="hw_thermal_slowdown"', held),
                ("info", ',model="H100"', 1),
                ("utilization_ratio", "", 0.98),
                ("clock_hertz", ',domain="sm"', 1.2e9 if hot else 1.98e9),
                ("temperature_celsius", ',sensor="core"', 88 if hot else 60),
                ("power_watts", "", 400 if hot else 640),
            ):
                line = f"rankscope_gpu_{name}{{{labels}{extra}}} {value} {stamp}"
                samples.setdefault(name, []).append(line)
    yield from samples.pop("clock_event_seconds_total")
    for name, lines in samples.items():
        yield f"# TYPE rankscope_gpu_{name} gauge"
        yield from lines


def of_watch(start: int) -> Iterator[str]:
    """A watch with --cluster-jobs knows that the cloud takes gpu-1 back; nodes are hidden later."""
    watch = 'instance="10.0.0.9:9878",job="rankscope-watch"'
    at = start + (SCRAPES - 8) * SCRAPE
    notice = f'job_id="ml/llm",node="gpu-1",notice="spot_interruption",{watch}'
    yield "# TYPE rankscope_job_node_notice_timestamp_seconds gauge"
    for scrape in range(4):
        stamp = at + scrape * SCRAPE
        yield f"rankscope_job_node_notice_timestamp_seconds{{{notice}}} {at} {stamp}"
    yield "# TYPE rankscope_watch_object_kinds gauge"
    for scrape in range(SCRAPES):
        kind = f'resource="nodes",condition="forbidden",{watch}'
        yield f"rankscope_watch_object_kinds{{{kind}}} 1 {start + scrape * SCRAPE}"


@pytest.fixture(scope="module")
def start() -> int:
    return (int(time.time()) // SCRAPE) * SCRAPE - SCRAPES * SCRAPE


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory, start) -> Iterator[str]:
    with serving_samples(tmp_path_factory.mktemp("prometheus"), exposition(start)) as url:
        yield url


def test_the_slow_rank_is_named_with_its_node_and_onset(prometheus, start, capsys):
    code = cli.main(["diagnose", "--prometheus", prometheus, "--since", "25m", "--json"])
    document = json.loads(capsys.readouterr().out)["ml/llm"]
    verdict = document["verdict"]
    assert code == 0
    assert (verdict["class"], verdict["ranks"]) == ("gpu_compute", [5])
    assert (verdict["cause"]["kind"], verdict["cause"]["nodes"]) == ("thermal_slowdown", ["gpu-1"])
    assert verdict["runbook"] == "docs/runbooks/RankscopeGpuThermalSlowdown.md"
    (incident,) = document["incidents"]
    assert (incident["gpu_uuids"], incident["layers"]) == (["GPU-00000005"], ["gpu", "training"])
    assert abs(incident["since_unix_seconds"] - (start + 40 * SCRAPE)) < 4 * SCRAPE
    assert verdict["nodes"] == ["gpu-1"]
    assert any("means over intervals of 15 s" in sentence for sentence in document["unobserved"])
    # The notice is younger than the fault and says nothing of steps.
    (noted,) = document["observations"]
    assert (noted["kind"], noted["nodes"]) == ("node_leaving", ["gpu-1"])
    assert "notices of nodes: to rankscope watch nodes are forbidden" in document["unobserved"]


def test_records_are_the_means_of_intervals_without_gaps_and_resets(prometheus, start):
    (job,) = from_prometheus(Prometheus(prometheus), "ml/llm", start, start + SCRAPES * SCRAPE)
    assert job.world_size == RANKS
    rows = job.records[job.records["rank"] == 2]
    found = dict(zip(rows["step"] - start // SCRAPE, rows["compute_seconds"], strict=True))
    assert RESET - 1 not in found
    assert found[10] == pytest.approx(seconds(2, 11)[0], abs=1e-5)
    assert found[60] == pytest.approx(seconds(2, 61)[0], abs=1e-5)
    assert job.records["compute_seconds"].between(0.9, 1.5).all()


def read(prometheus, since, until):
    (job,) = from_prometheus(Prometheus(prometheus), "ml/llm", since, until)
    return job


@pytest.mark.parametrize("length", [600.0, 10_000.0, 17_000.0])
def test_who_asks_again_gets_the_same_records_and_newer_ones(prometheus, start, length):
    end = start + (SCRAPES - 10) * SCRAPE
    rows = [read(prometheus, now - length, now).records for now in (end, end + 37.3, end + 101.9)]
    by_step = [one.set_index(["rank", "step"]).sort_index() for one in rows]
    for before, after in itertools.pairwise(by_step):
        both = before.index.intersection(after.index)
        assert len(both) > 0.6 * len(before)
        pd.testing.assert_frame_equal(before.loc[both], after.loc[both])
        assert after["t_start_unix_seconds"].max() > before["t_start_unix_seconds"].max()


def test_a_job_is_judged_from_poll_to_poll_by_its_own_beginning(prometheus, start):
    """When the newest poll shows nothing but the slow time, its onset is still known."""
    followed = FollowedJobs()
    for now in np.arange(start + 200.0, start + SCRAPES * SCRAPE, 47.0):
        (said,) = diagnose_each([read(prometheus, now - 300.0, now)], followed).diagnoses
    assert now - 300.0 > start + 45 * SCRAPE
    assert (said.verdict.cause.kind, said.verdict.cause.where.ranks) == ("gpu_compute", (5,))
    since = said.verdict.cause.since_unix_seconds
    assert abs(since - (start + SCRAPES // 2 * SCRAPE)) < 4 * SCRAPE


def test_a_job_that_goes_on_elsewhere_has_its_steps_there(prometheus, start):
    """The first node's agent reports its ended processes all the while."""
    end = start + SCRAPES * SCRAPE
    (job,) = from_prometheus(Prometheus(prometheus), "ml/moved", start, end)
    assert job.world_size == 3
    after = job.records[job.records["step"] > start // SCRAPE + MOVES]
    assert after.groupby("rank").size().to_dict() == dict.fromkeys(range(3), SCRAPES - MOVES - 2)
    assert set(after["node"]) == {"b"}
    assert after["step_seconds"].to_numpy() == pytest.approx(0.7)
    before = job.records[job.records["step"] < start // SCRAPE + MOVES]
    assert before["step_seconds"].to_numpy() == pytest.approx(0.5)


def test_a_job_that_prometheus_does_not_know_is_an_error(prometheus, start):
    with pytest.raises(SourceError, match="no rankscope_steps_total of job x"):
        from_prometheus(Prometheus(prometheus), "x", start, start + 600)


def test_a_job_name_cannot_leave_its_quotes(prometheus, start):
    name = 'x"} or rankscope_steps_total{job_id="ml/llm'
    with pytest.raises(SourceError, match="no rankscope_steps_total"):
        from_prometheus(Prometheus(prometheus), name, start, start + 600)


def test_a_refused_query_says_why(prometheus, start):
    with pytest.raises(PrometheusError, match=r"answers 400: .*parse error"):
        Prometheus(prometheus).range("sum(", start, start + 60, 15)


def test_a_server_that_is_not_there_is_an_error(start):
    with pytest.raises(PrometheusError, match="cannot be reached"):
        Prometheus("127.0.0.1:9").range("up", start, start + 60, 15)


def test_too_many_points_are_refused_before_they_are_asked_for():
    with pytest.raises(PrometheusError, match="20001 points"):
        Prometheus("127.0.0.1:9").range("up", 0, 20_000, 1)


def matrix(*series: str) -> bytes:
    text = ",".join(series)
    return f'{{"status":"success","data":{{"resultType":"matrix","result":[{text}]}}}}'.encode()


TIMES = np.array([100.0, 115.0, 130.0])


def test_gaps_infinities_and_odd_labels_are_read():
    body = matrix(
        '{"metric":{"a":"]],\\"values\\":[ {\\"metric\\":"},"values":[[100,"1"],[130,"+Inf"]]}',
        '{"metric":{},"values":[[115,"NaN"],[130.001,"-2.5e-3"]]}',
        '{"metric":{"h":"1"},"histograms":[[100,{"count":"1"}]]}',
    )
    found = parse_matrix(body, TIMES)
    assert found.labels == ({"a": ']],"values":[ {"metric":'}, {})
    expected = [[1, np.nan, np.inf], [np.nan, np.nan, -0.0025]]
    np.testing.assert_array_equal(found.values, expected)


def test_an_answer_without_series_is_an_empty_matrix():
    found = parse_matrix(matrix(), TIMES)
    assert found.values.shape == (0, 3)
    assert found.labels == ()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"status":"error","error":"x"}',
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        matrix('{"metric":{},"values":[[100,"1"'),
        matrix('{"metric":{"a":},"values":[[100,"1"]]}'),
        matrix('{"metric":[],"values":[[100,"1"]]}'),
        matrix('{"metric":{},"values":[[100,"one"]]}'),
        matrix('{"metric":{},"values":[[100,"1"],[115]]}'),
    ],
)
def test_what_is_no_matrix_is_refused(body):
    with pytest.raises(PrometheusError):
        parse_matrix(body, TIMES)
