"""Limits of what the agent reads and keeps of one source: at each and just beyond it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Sample
from rankscope_agent.sources.collector import Incomplete, NoData, scrape
from rankscope_agent.sources.flight_recorder.failures import FlightError
from rankscope_agent.sources.flight_recorder.launches import read_launches
from rankscope_agent.sources.gpus.nvlink import NvlinkReader
from rankscope_agent.sources.kernel_log.kmsg import KmsgSource
from rankscope_agent.sources.nccl_log.segments import Segment
from rankscope_agent.sources.training.collector import TrainingCollector

ONE = Sample(metrics.GPU_NVLINKS_UP, (), 1.0)


@pytest.mark.parametrize(("count", "success"), [(200_000, True), (200_001, False)])
def test_200000_samples_are_taken_of_one_run(count, success):
    found = scrape("x", SimpleNamespace(collect=lambda: [ONE] * count), None)
    assert found.success is success
    assert len(found.samples) == (count if success else 0)


def raising(error):
    def collect():
        raise error

    return SimpleNamespace(collect=collect)


@pytest.mark.parametrize(
    "error", [NoData("x" * 999), Incomplete((), "x" * 999), ValueError("x" * 999)]
)
def test_500_characters_of_a_failure_are_kept(error):
    assert len(scrape("x", raising(error), None).failure) == 500


class Links:
    """A GPU with links of the fifth generation that have moved so many bytes each second."""

    def __init__(self, *rates):
        self.rates, self.seconds, self.fields_asked = rates, 0.0, 0

    def nvlink_active(self, link):
        return link < len(self.rates)

    def fields(self, requests):
        self.fields_asked += 1
        found = []
        for field, link in requests:
            known = field in {202, 204}
            value = self.rates[link] * self.seconds / 2 if known else 0.0
            found.append(SimpleNamespace(code=0 if known else 3, value=value))
        return found


def shares(*rates, seconds=10.0):
    links, reader = Links(*rates), NvlinkReader()
    reader.read(links, 0.0, erring=False)
    links.seconds = seconds
    values = reader.read(links, 10.0, erring=False)
    return {labels[0] for metric, labels, _ in values if metric is metrics.GPU_NVLINK_LINK_SHARE}


@pytest.mark.parametrize(("share", "named"), [(0.51, set()), (0.49, {"2"})])
def test_a_link_with_less_than_half_of_its_siblings_traffic_is_named(share, named):
    assert shares(1e9, 1e9, 1e9 * share) == named


@pytest.mark.parametrize(("rate", "named"), [(0.99e6, set()), (1.01e6, {"2"})])
def test_shares_of_less_than_a_megabyte_a_second_are_chance(rate, named):
    assert shares(rate, rate, 0.0) == named


@pytest.mark.parametrize(("later", "looks"), [(9.9, 1), (10.0, 2)])
def test_single_links_are_looked_at_every_ten_seconds(later, looks):
    links, reader = Links(1e9, 1e9, 1e9), NvlinkReader()
    reader.read(links, 0.0, erring=False)
    asked = links.fields_asked
    reader.read(links, later, erring=False)
    assert links.fields_asked == looks * asked


def test_a_record_of_the_kernel_is_read_with_16_kibibytes():
    sizes = []
    KmsgSource(3, lambda _, size: sizes.append(size) or b"")
    assert sizes == [16 << 10]


def test_64_kibibytes_of_a_log_are_read_at_a_time(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\n" * (1 << 20))
    segment = Segment(os.open(path, os.O_RDONLY), 0, compressed=False)
    assert len(segment.read()) == segment.offset == 64 << 10
    segment.close()


def dump(size):
    start = b'{"version": "2.9", "entries": []'
    return start + b" " * (size - len(start) - 1) + b"}"


@pytest.mark.parametrize(("size", "taken"), [(4 << 20, True), ((4 << 20) + 1, False)])
def test_a_dump_of_the_flight_recorder_has_four_mebibytes(size, taken):
    if taken:
        assert not read_launches(dump(size)).launches
        return
    with pytest.raises(FlightError, match="at most 4194304"):
        read_launches(dump(size))


@pytest.mark.parametrize(("late", "failed"), [(9.9, False), (10.0, True)])
def test_a_look_for_rings_that_lasts_ten_seconds_is_a_failure(tmp_path, late, failed):
    collector = TrainingCollector(tmp_path, tmp_path, "n", lambda: 0.0)
    collector._jobs = {"j": SimpleNamespace(ranks={}, samples=lambda *_: (), forget=lambda *_: 0)}
    collector._follower = SimpleNamespace(
        close_disowned=lambda _: (),
        close_renamed=lambda: (),
        rescan=lambda _: None,
        close_finished=lambda: None,
        take_lost=lambda: (),
        rings=(),
        late_seconds=late,
        late_at="x",
        directories=("x",),
        loaded_pods=frozenset(),
    )
    for name in ("_read", "_forget"):
        setattr(collector, name, lambda _: None)
    collector._attempts = dict
    collector._samples = lambda: ()
    run = collector.collect()
    if not failed:
        assert list(run) == []
        return
    with pytest.raises(Incomplete, match="lasted 10 s"):
        list(run)
