"""Pages of dcgm-exporters: old and new names, blanks, partitioned GPUs, and pages that lie."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_nodes import Page
from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Scrape
from rankscope_agent.sources.gpus.dcgm import DcgmPage
from rankscope_agent.sources.gpus.dcgm_page import parse_page

MAX_GPUS = 64

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpora" / "dcgm"

UUID = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"


def line(field: str, value: object, uuid: str = UUID, gpu: str = "0", **labels: str) -> str:
    pairs = {"gpu": gpu, "UUID": uuid, "pci_bus_id": "00000000:3B:00.0", **labels}
    text = ",".join(f'{name}="{content}"' for name, content in pairs.items())
    return f"{field}{{{text}}} {value}\n"


def read(text: str) -> Page:
    return Page(list(DcgmPage(text).samples()))


@pytest.mark.parametrize(
    ("old", "new", "raw", "metric", "labels", "expected"),
    [
        ("DEV_SM_CLOCK", "DEV_SM_CLOCK", 1410, metrics.GPU_CLOCK, ("sm",), 1.41e9),
        ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", 87, metrics.GPU_UTILIZATION, (), 0.87),
        ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", 1, metrics.GPU_UTILIZATION, (), 0.01),
        ("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", 0.87, metrics.GPU_SM_ACTIVE, (), 0.87),
        (
            "PROF_PIPE_TENSOR_ACTIVE",
            "PROF_TENSOR_UTIL_RATIO",
            0.5,
            metrics.GPU_TENSOR_ACTIVE,
            (),
            0.5,
        ),
        ("DEV_FB_USED", "DEV_FB_USED", 512, metrics.GPU_MEMORY_USED, (), 512 * 2**20),
        ("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", 301.5, metrics.GPU_POWER, (), 301.5),
        (
            "DEV_ENFORCED_POWER_LIMIT",
            "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
            400,
            metrics.GPU_POWER_LIMIT,
            ("enforced",),
            400,
        ),
        (
            "DEV_TOTAL_ENERGY_CONSUMPTION",
            "DEV_TOTAL_ENERGY_CONSUMPTION",
            4335301032,
            metrics.GPU_ENERGY,
            (),
            4335301.032,
        ),
        ("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", 61, metrics.GPU_TEMPERATURE, ("core",), 61),
        ("DEV_XID_ERRORS", "DEV_XID_ERROR", 79, metrics.GPU_LAST_XID, (), 79),
        (
            "DEV_PCIE_REPLAY_COUNTER",
            "DEV_PCIE_REPLAY_TOTAL",
            3,
            metrics.GPU_PCIE_REPLAYS,
            (),
            3,
        ),
        (
            "DEV_ROW_REMAP_FAILURE",
            "DEV_ROW_REMAP_FAILED",
            1,
            metrics.GPU_REMAP_FAILURE,
            (),
            1,
        ),
        (
            "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
            "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
            2_500_000_000,
            metrics.GPU_CLOCK_EVENT_SECONDS,
            ("hw_thermal_slowdown",),
            2.5,
        ),
    ],
)
def test_old_and_new_names_mean_the_same_in_our_units(old, new, raw, metric, labels, expected):
    for name in (old, new):
        page = read(line(f"DCGM_FI_{name}", raw))
        assert page.value(metric, *labels) == pytest.approx(expected)
        assert ("0", UUID, "0000:3b:00") in {s.labels[:3] for s in page.samples}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("00010000:01:00.0", "10000:01:00"),
        ("0000:3b:00.0", "0000:3b:00"),
        ("n/a", "unknown"),
    ],
)
def test_addresses_are_written_as_the_kernels_log_has_them(given, shown):
    page = read(line("DCGM_FI_DEV_GPU_TEMP", 50, pci_bus_id=given))
    (info,) = [one for one in page.samples if one.metric is metrics.GPU_INFO]
    assert info.labels[2] == shown


@pytest.mark.parametrize("name", ["CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS"])
def test_a_mask_of_reasons_becomes_one_series_a_reason(name):
    page = read(line(f"DCGM_FI_DEV_{name}", 8 | 64))
    active = {reason for (reason,), on in page.of(metrics.GPU_CLOCK_EVENT).items() if on}
    assert active == {"hw_slowdown", "hw_thermal_slowdown"}
    assert page.value(metrics.GPU_CLOCK_EVENT, "sw_power_cap") == 0


@pytest.mark.parametrize(
    "blank",
    [
        9223372036854775792,
        9223372036854775794,
        "9.223372036854775794e+18",
        2147483632,
        2147483635,
        140737488355328,
        140737488355330.0,
        "NaN",
        "+Inf",
    ],
)
def test_blanks_are_no_values(blank):
    page = DcgmPage(line("DCGM_FI_DEV_MEMORY_TEMP", blank) + line("DCGM_FI_DEV_GPU_TEMP", 50))
    assert page.ignored == {"blank": 1}
    assert Page(list(page.samples())).value(metrics.GPU_TEMPERATURE, "memory") is None


@pytest.mark.parametrize("field", ["CLOCKS_EVENT_REASONS", "GPU_RECOVERY_ACTION"])
def test_a_mask_or_an_action_that_is_no_number_costs_itself_alone(field):
    page = read(line(f"DCGM_FI_DEV_{field}", "NaN") + line("DCGM_FI_DEV_GPU_TEMP", 50))
    assert page.value(metrics.GPU_TEMPERATURE, "core") == 50


def test_values_of_a_whole_gpu_are_counted_once_though_every_instance_repeats_them():
    text = "".join(
        line("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 4, GPU_I_ID=str(number), GPU_I_PROFILE="1g.6gb")
        + line("DCGM_FI_DEV_FB_USED", 100 + number, GPU_I_ID=str(number), GPU_I_PROFILE="1g.6gb")
        for number in (3, 4, 5)
    )
    page = read(text)
    assert page.of(metrics.GPU_PCIE_REPLAYS) == {(): 4}
    assert page.of(metrics.GPU_MEMORY_USED) == {}, "an instance's memory is not the GPU's"
    assert page.of(metrics.MIG_MEMORY_USED) == {
        (str(number), "", "1g.6gb"): (100 + number) * 2**20 for number in (3, 4, 5)
    }


def test_activity_of_an_instance_is_not_that_of_its_gpu():
    fields = ("SM_OCCUPANCY", "GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO")
    text = "".join(line(f"DCGM_FI_PROF_{field}", 0.5, GPU_I_ID="3") for field in fields)
    page = DcgmPage(text)
    assert page.ignored == {"instance": 3}
    whole = read(line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5))
    assert whole.of(metrics.GPU_ENGINE_UTILIZATION) == {("graphics",): 0.5}


def test_one_gpu_shared_by_pods_is_one_series():
    text = line("DCGM_FI_DEV_GPU_UTIL", 50, pod="a") + line("DCGM_FI_DEV_GPU_UTIL", 50, pod="b")
    page = DcgmPage(text)
    assert page.ignored == {"repeated": 1}


@pytest.mark.parametrize(
    "text",
    [
        line("DCGM_FI_DEV_GPU_TEMP", 511),
        line("DCGM_FI_DEV_GPU_UTIL", 4000),
        line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", -5),
        line("DCGM_FI_PROF_SM_ACTIVE", 1.5),
        line("DCGM_FI_DEV_PCIE_LINK_WIDTH", 63),
        line("DCGM_FI_DEV_GPU_UTIL", 1, gpu="../../etc"),
        line("DCGM_FI_DEV_GPU_UTIL", 1, uuid="GPU-\\n# x"),
        line("DCGM_FI_DEV_GPU_UTIL", 1, uuid="G" * 100),
        line("DCGM_FI_DEV_POWER_VIOLATION", 1),
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1 2 3\n',
        'DCGM_FI_DEV_GPU_UTIL{gpu="0} 1\n',
        "node_load1 0.5\n",
        "<html><body>404</body></html>\n",
        "x" * 5000,
    ],
)
def test_what_cannot_be_is_left_out_and_counted(text):
    page = DcgmPage(text)
    values = [
        sample
        for sample in page.samples()
        if sample.metric not in {metrics.DCGM_SERIES_IGNORED, metrics.GPU_INFO}
    ]
    assert values == []
    assert sum(page.ignored.values()) == 1


def test_a_page_of_too_many_gpus_ends_at_the_limit():
    text = "".join(
        line("DCGM_FI_DEV_GPU_TEMP", 50, uuid=f"GPU-{number}", gpu=str(number))
        for number in range(100)
    )
    assert len(DcgmPage(text).gpus) == MAX_GPUS


def test_a_model_with_control_characters_is_no_label():
    page = read(line("DCGM_FI_DEV_GPU_TEMP", 50, modelName="H100\x1b[31m"))
    (labels,) = page.of(metrics.GPU_INFO)
    assert labels[1] == ""


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.prom")) or [None], ids=str)
def test_users_pages_are_taken_over_without_loss(path):
    if path is None:
        pytest.skip("the corpus of users' pages is not here")
    expected = json.loads(path.with_suffix(".json").read_text())["samples"]
    text = path.read_text()
    assert len([sample for sample in parse_page(text) if sample is not None]) == expected
    page = DcgmPage(text)
    taken = [
        s for s in page.samples() if s.metric not in {metrics.GPU_INFO, metrics.DCGM_SERIES_IGNORED}
    ]
    assert set(page.ignored) <= {"blank", "repeated"}
    assert len(taken) + sum(page.ignored.values()) == expected


def vetted(text: str) -> None:
    scrape = Scrape("dcgm", True, 0.0, tuple(DcgmPage(text).samples()), "", None)
    assert Validator().validate([scrape])[0].success


@given(st.text(max_size=400))
def test_any_text_gives_a_page_that_prometheus_takes(text):
    vetted(text)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["DEV_GPU_TEMP", "DEV_FB_USED", "PROF_SM_ACTIVE", "DEV_GPU_UTIL"]),
            st.floats(),
            st.text(max_size=8),
            st.text(max_size=8),
            st.text(max_size=8),
        ),
        max_size=8,
    )
)
def test_any_labels_and_values_give_a_page_that_prometheus_takes(rows):
    vetted(
        "".join(
            line(f"DCGM_FI_{field}", value, uuid, gpu, GPU_I_ID=instance)
            for field, value, uuid, gpu, instance in rows
        )
    )
