"""The page: what it says, in which format, how large, and how often it is written."""

from __future__ import annotations

import gzip
import math
import subprocess
import threading

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from rankscope_agent import __version__
from rankscope_agent.collecting.registry import all_collectors
from rankscope_agent.contract.catalogue import CATALOGUE
from rankscope_agent.contract.metrics import topology, training
from rankscope_agent.contract.model import HistogramValue, Sample, Scrape, Snapshot
from rankscope_agent.contract.sources import COMES_WITH_JOBS
from rankscope_agent.serving.exposition import (
    OPENMETRICS,
    TEXT,
    Format,
    PageCache,
    choose_format,
    render,
)
from rankscope_agent.sources.flight_recorder.windows import FlightWindows
from rankscope_agent.sources.pods.directory import PodDirectory
from rankscope_agent.web.content_coding import accepts_gzip
from servers import require_server

RANK = {"job_id": "ns/train", "rank": "3"}
HISTOGRAM = HistogramValue(((0.1, 1), (2.5, 3)), 4, 7.5)


def snapshot_of(*samples: Sample, name: str = "training") -> Snapshot:
    return Snapshot("node-1", 1.8e9, (Scrape(name, True, 0.25, samples, "", 1.7e9),))


def values(page: bytes, read=read_text) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(page.decode())
        for sample in family.samples
    }


FULL = snapshot_of(
    training.STEPS.sample(12, **RANK),
    training.LAST_STEP_SECONDS.sample(0.125, **RANK),
    training.STEP_LATENCY.sample(HISTOGRAM, job_id="ns/train"),
)


@pytest.mark.parametrize(("form", "read"), [(TEXT, read_text), (OPENMETRICS, read_openmetrics)])
def test_both_formats_carry_every_value(form, read):
    found = values(render(FULL, form, None), read)
    rank = (("job_id", "ns/train"), ("rank", "3"))
    job = ("job_id", "ns/train")
    assert found["rankscope_steps_total", rank] == 12
    assert found["rankscope_last_step_seconds", rank] == 0.125
    assert found["rankscope_step_latency_seconds_bucket", (job, ("le", "0.1"))] == 1
    assert found["rankscope_step_latency_seconds_bucket", (job, ("le", "2.5"))] == 3
    assert found["rankscope_step_latency_seconds_bucket", (job, ("le", "+Inf"))] == 4
    assert found["rankscope_step_latency_seconds_count", (job,)] == 4
    assert found["rankscope_step_latency_seconds_sum", (job,)] == 7.5


def test_the_text_format_declares_each_metric_as_the_catalogue_does():
    page = render(FULL, TEXT, None).decode()
    assert f"# HELP rankscope_steps_total {training.STEPS.help}\n" in page
    assert "# TYPE rankscope_steps_total counter\n" in page
    assert "# TYPE rankscope_last_step_seconds gauge\n" in page
    assert "# TYPE rankscope_step_latency_seconds histogram\n" in page


def test_openmetrics_names_a_counters_family_without_total_and_ends_the_page():
    page = render(FULL, OPENMETRICS, None).decode()
    assert "# TYPE rankscope_steps counter\n" in page
    assert page.endswith("# EOF\n")


def test_the_agent_says_how_it_and_its_collectors_do():
    never = Scrape("nvml", False, 12.0, (), "still running", None)
    once = Scrape("rdma", False, 0.1, (), "OSError: gone", 1.7e9)
    absent = Scrape("dcgm", False, 0.1, (), "no data: no exporter", None)
    found = values(render(Snapshot("n", 1.8e9, (*FULL.scrapes, never, once, absent)), TEXT, None))
    training, nvml, rdma, dcgm = (
        (("collector", name),) for name in ("training", "nvml", "rdma", "dcgm")
    )
    assert found["rankscope_collector_success", training] == 1
    assert found["rankscope_collector_success", nvml] == 0
    assert found["rankscope_collector_duration_seconds", nvml] == 12
    assert ("rankscope_collector_duration_seconds", dcgm) not in found
    assert found["rankscope_collector_last_success_timestamp_seconds", rdma] == 1.7e9
    for at in (training, nvml, dcgm):  # that of the first is the page's time
        assert ("rankscope_collector_last_success_timestamp_seconds", at) not in found
    assert found["rankscope_snapshot_timestamp_seconds", ()] == 1.8e9
    (build,) = [dict(labels) for name, labels in found if name == "rankscope_build_info"]
    assert build["version"] == __version__


@pytest.mark.parametrize("job", ['a"b', "a\\b", "a\nb", "a}b", "日本", "# EOF", "", "a\rb"])
@pytest.mark.parametrize(("form", "read"), [(TEXT, read_text), (OPENMETRICS, read_openmetrics)])
def test_any_label_value_comes_through(job, form, read):
    snapshot = snapshot_of(training.STEPS.sample(1, job_id=job, rank="0"))
    found = values(render(snapshot, form, None), read)
    assert found["rankscope_steps_total", (("job_id", job), ("rank", "0"))] == 1


@pytest.mark.parametrize("value", [0, 0.1, 1e-9, 123456789.5, 1e300, -3, math.inf, -math.inf])
def test_values_come_through_exactly(value):
    found = values(render(snapshot_of(training.RINGS.sample(value)), TEXT, None))
    assert found["rankscope_training_rings", ()] == value


def test_series_beyond_the_limit_are_left_off_and_counted():
    ranks = [training.STEPS.sample(1, job_id="a", rank=str(rank)) for rank in range(10)]
    found = values(render(snapshot_of(*ranks), TEXT, 4))
    shown = [labels for name, labels in found if name == "rankscope_steps_total"]
    assert shown == [(("job_id", "a"), ("rank", str(rank))) for rank in range(4)]
    assert found["rankscope_series_dropped", (("collector", "training"),)] == 6


def test_a_histogram_counts_with_all_its_series_and_is_never_cut():
    histogram = training.STEP_LATENCY.sample(HISTOGRAM, job_id="a")  # 2 + 3 series
    for limit, dropped in ((5, 0), (4, 5)):
        found = values(render(snapshot_of(histogram), TEXT, limit))
        assert found.get(("rankscope_series_dropped", (("collector", "training"),)), 0) == dropped
        assert (("rankscope_step_latency_seconds_sum", (("job_id", "a"),)) in found) == (
            not dropped
        )


def test_after_the_first_series_that_does_not_fit_none_does_in_any_collector():
    histogram = training.STEP_LATENCY.sample(HISTOGRAM, job_id="a")
    nearest = topology.GPU_NIC_INFO.sample(1, uuid="a", device="b", distance="PIX")
    first = snapshot_of(histogram, name="one").scrapes[0]
    second = snapshot_of(nearest, name="two").scrapes[0]
    found = values(render(Snapshot("n", 1.0, (second, first)), TEXT, 4))
    assert found["rankscope_series_dropped", (("collector", "one"),)] == 5
    assert found["rankscope_series_dropped", (("collector", "two"),)] == 1


def test_without_a_limit_nothing_is_left_off():
    ranks = [training.STEPS.sample(1, job_id="a", rank=str(rank)) for rank in range(3000)]
    found = values(render(snapshot_of(*ranks), TEXT, None))
    assert found["rankscope_page_series_dropped", ()] == 0
    assert sum(name == "rankscope_steps_total" for name, _ in found) == 3000


PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF_FIRST = f"application/vnd.google.protobuf;proto=x;encoding=delimited,{PROMETHEUS_2}"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        (PROTOBUF_FIRST, OPENMETRICS),
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", TEXT),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text;version=one;q=much;;=,,", TEXT),
    ],
)
def test_the_format_is_the_one_preferred_and_never_an_error(accept, form):
    assert choose_format(accept) is form


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("gzip;q=0", False),
        ("gzip;q=0.0, *", False),
        ("identity", False),
        ("gzip;q=x", False),
    ],
)
def test_gzip_is_sent_to_whom_takes_it(header, accepted):
    assert accepts_gzip(header) is accepted


class Writer:
    """Counts its pages, and is slow enough for two callers to meet in it."""

    def __init__(self):
        self.pages = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def write(self, samples, names):
        self.pages += 1
        self.entered.set()
        assert self.go_on.wait(20)
        return b"page %d" % self.pages


def test_a_page_is_written_once_for_each_snapshot_and_format():
    writer = Writer()
    writer.go_on.set()
    one, two = Format("a", "a", writer.write), Format("b", "b", writer.write)
    cache = PageCache(2000)
    pages = [
        cache.page(FULL, form, gzipped=packed) for form in (one, two) for packed in (False, True)
    ] * 2
    assert writer.pages == 2
    assert pages[0] == gzip.decompress(pages[1]) == b"page 1"
    assert pages[2] == gzip.decompress(pages[3]) == b"page 2"
    assert cache.page(snapshot_of(), one, gzipped=False) == b"page 3"


def test_scrapers_that_come_at_once_share_one_writing():
    writer, cache, pages = Writer(), PageCache(2000), []
    form = Format("a", "a", writer.write)

    def take():
        pages.append(cache.page(FULL, form, gzipped=False))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert writer.entered.wait(20)
    writer.go_on.set()
    for thread in threads:
        thread.join(20)
    assert pages == [b"page 1"] * 4


def test_promtool_finds_nothing_wrong_with_a_page_of_every_metric():
    promtool = require_server("promtool")
    of_the_agent = render(snapshot_of(), TEXT, None).decode()
    samples = [
        Sample(metric, ("x",) * len(metric.labels), HISTOGRAM if metric.kind == "histogram" else 1)
        for metric in CATALOGUE
        if f"# TYPE {metric.name} " not in of_the_agent
    ]
    page = render(snapshot_of(*samples), TEXT, None)
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def failing(
    failure: str, last_success: float | None, success: bool = False, name: str = "nvml"
) -> list[str]:
    scrape = Scrape(name, success, 0.1, (), failure, last_success)
    found = values(render(Snapshot("node-1", 1.8e9, (scrape,)), TEXT, None))
    return [dict(labels)["collector"] for name, labels in found if name.endswith("_failing")]


def test_a_collector_fails_if_it_broke_or_lost_its_source_not_if_it_never_had_one():
    hour = 3600.0
    assert failing("OSError: [Errno 5] Input/output error", None) == ["nvml"]
    assert failing("no data: no NVIDIA driver", 1.8e9 - hour) == ["nvml"]
    assert failing("no data: no NVIDIA driver", None) == []
    assert failing("no data: no NVIDIA driver", 1.8e9 - 7 * hour) == []
    assert failing("", 1.8e9, success=True) == []


@pytest.mark.parametrize("name", sorted(COMES_WITH_JOBS))
def test_a_source_that_comes_with_jobs_is_not_missed_when_they_end(name):
    assert failing("no data: no live rank", 1.8e9 - 60, name=name) == []
    assert failing("OSError: [Errno 5] Input/output error", 1.8e9 - 60, name=name) == [name]
    assert name in all_collectors(PodDirectory(), FlightWindows())


def test_series_left_off_the_page_are_added_up_over_collectors():
    samples = tuple(training.STEPS.sample(1, job_id="a", rank=str(n)) for n in range(8))
    scrapes = tuple(Scrape(name, True, 0.1, samples, "", 1.7e9) for name in ("one", "two"))
    found = values(render(Snapshot("node-1", 1.8e9, scrapes[:1]), TEXT, 5))
    assert found["rankscope_page_series_dropped", ()] == 3
    assert values(render(FULL, TEXT, None))["rankscope_page_series_dropped", ()] == 0
