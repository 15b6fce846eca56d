"""What NCCL Inspector's files say, by their text alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector_files import PROM, line, prom
from rankscope_agent.sources.nccl_inspector import records, textfile
from rankscope_agent.sources.nccl_inspector.records import Dropped, Record
from rankscope_agent.sources.nccl_inspector.textfile import Speed


def test_files_of_older_inspectors_hold_the_last_operation_of_each_communicator():
    text = "".join(
        prom("nccl_algorithm_bandwidth_gbs", value, message_size=size, coll_sn=9, rank=4)
        + prom("nccl_bus_bandwidth_gbs", value, message_size=size, coll_sn=9, rank=4)
        for size, value in (("512B", 0.01), ("2.50GB", 400), ("4.00MB", 100))
    )
    assert textfile.parse(text) == (
        Speed("AllReduce", "inter_node", 5 << 29, None, pytest.approx(400e9)),
    )


def test_times_with_a_decimal_point_are_taken():
    found = records.parse(line(coll_exec_time_us=5663.0, graphCaptured=True).encode())
    assert isinstance(found, Record)
    assert found.seconds == 0.005663


def test_the_slowest_of_several_communicators_counts():
    text = "".join(prom("nccl_bus_bandwidth_gbs", v, comm_name=f"c{v}") for v in (300, 120, 200))
    assert textfile.parse(text) == (
        Speed("AllReduce", "inter_node", 4 << 20, None, pytest.approx(120e9)),
    )


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "1e99", "", "x"])
def test_values_that_measure_nothing_are_absent(value):
    assert textfile.parse(prom("nccl_bus_bandwidth_gbs", value)) == ()


@pytest.mark.parametrize("name", ["metrics.prom", "nccl_inspector_metrics_x.prom", f"{PROM}.tmp"])
def test_other_files_are_of_no_gpu(name):
    assert textfile.gpu_uuid(name) is None


@settings(max_examples=200)
@given(st.binary(max_size=300), st.integers(0, 400), st.text(max_size=60))
def test_any_text_gives_values_or_none(noise, cut, label):
    for data in (noise, line().encode()[:cut] + noise + line().encode()[cut:]):
        found = records.parse(data)
        assert found is None or isinstance(found, Record | Dropped)
    for speed in textfile.parse(prom("nccl_bus_bandwidth_gbs", 3, message_size=label)):
        assert speed.bytes_per_second == pytest.approx(3e9)
