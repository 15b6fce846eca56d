"""What is read of one GPU: what it does not support, does not allow, or answers with nonsense."""

from __future__ import annotations

import pynvml
import pytest

from gpu_nodes import Clock, FaultyDevice, Page, device
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus.call_errors import CallErrors
from rankscope_agent.sources.gpus.nvml import FieldValue, NvmlError
from rankscope_agent.sources.gpus.reader import GpuReader


def reader(gpu, clock=None):
    return GpuReader(gpu, device("h100x1").identity(), CallErrors(), clock or Clock())


def test_units_are_ours():
    page = Page(reader(device("h100x8")).read())
    assert page.value(metrics.GPU_CLOCK, "sm") == 1980e6
    assert page.value(metrics.GPU_CLOCK_MAX, "sm") == 1980e6
    assert page.value(metrics.GPU_MEMORY_TOTAL) == 81559 * 2**20
    assert page.value(metrics.GPU_UTILIZATION) == 1
    assert page.value(metrics.GPU_POWER_LIMIT, "enforced") == 700
    assert page.value(metrics.GPU_POWER) == pytest.approx(629, abs=10)
    assert page.value(metrics.GPU_ENERGY) == pytest.approx(629 * 3600, rel=0.02)
    assert page.value(metrics.GPU_PCIE_WIDTH) == 16


def test_activity_needs_two_looks_and_is_a_share_that_replaces_a_coarser_one():
    one = reader(device("h100x8"))
    first, second = page_of(one), page_of(one)
    assert first.value(metrics.GPU_SM_ACTIVE) is None
    assert second.value(metrics.GPU_SM_ACTIVE) == pytest.approx(0.88)
    assert first.value(metrics.GPU_MEMORY_ACTIVITY) == second.value(metrics.GPU_DRAM_ACTIVE)
    assert second.value(metrics.GPU_MEMORY_ACTIVITY) is None


def page_of(gpu_reader):
    return Page(gpu_reader.read())


def test_an_unsupported_reading_is_absent_said_once_and_not_asked_for_again():
    gpu = FaultyDevice(device("h100x8"), {"temperature_margin": 3})
    one = reader(gpu)
    for _ in range(3):
        page = page_of(one)
        assert page.value(metrics.GPU_TEMPERATURE_MARGIN) is None
        unsupported = page.of(metrics.UNSUPPORTED)
        assert unsupported == {("temperature_margin_celsius", "unsupported"): 1}
    assert gpu.calls.count("temperature_margin") == 1


@pytest.mark.parametrize("code", [2, 13, 25, 26])
def test_an_older_library_or_driver_counts_as_unsupported(code):
    one = reader(FaultyDevice(device("h100x8"), {"fabric": code}))
    assert page_of(one).of(metrics.UNSUPPORTED) == {("fabric_state", "unsupported"): 1}


def test_a_forbidden_reading_is_told_from_an_unsupported_one():
    one = reader(FaultyDevice(device("h100x8"), {"power": 4}))
    assert page_of(one).of(metrics.UNSUPPORTED) == {("power_watts", "no_permission"): 1}


def test_unsupported_fields_are_left_out_of_the_next_request():
    gpu = FaultyDevice(device("h100x8"), fields={82: FieldValue(3, 0)})
    one = reader(gpu)
    first = page_of(one)
    assert first.value(metrics.GPU_TEMPERATURE, "memory") is None
    assert first.value(metrics.GPU_TEMPERATURE, "core") is not None
    assert not first.of(metrics.UNSUPPORTED), "the core's temperature is there"
    gpu.field_answers[82] = FieldValue(0, 50)
    assert page_of(one).value(metrics.GPU_TEMPERATURE, "memory") is None


@pytest.mark.parametrize("code", [999, 10, 19, 20, 23])
def test_a_passing_failure_costs_this_runs_value_and_is_counted(code):
    gpu = FaultyDevice(device("h100x8"), {"utilization": code})
    errors = CallErrors()
    one = GpuReader(gpu, device("h100x8").identity(), errors, Clock())
    assert page_of(one).value(metrics.GPU_UTILIZATION) is None
    (counted,) = errors.samples()
    assert counted.labels[0] == "utilization"
    assert counted.value == 1
    gpu.codes.clear()
    assert page_of(one).value(metrics.GPU_UTILIZATION) == 1


@pytest.mark.parametrize("call", ["fields", "utilization", "mig_enabled", "activity", "fabric"])
@pytest.mark.parametrize("code", [1, 9, 15, 18, 28])
def test_a_lost_gpu_or_driver_ends_the_reading_whichever_call_says_so(call, code):
    with pytest.raises(NvmlError) as caught:
        reader(FaultyDevice(device("h100x8"), {call: code})).read()
    assert caught.value.code == code


def test_one_field_that_says_lost_ends_the_reading():
    with pytest.raises(NvmlError):
        reader(FaultyDevice(device("h100x8"), fields={94: FieldValue(15, 0)})).read()


def test_a_gpu_that_needs_a_reset_says_so():
    gpu = FaultyDevice(device("h100x8"), {"memory": 16}, {230: FieldValue(3, 0)})
    page = page_of(reader(gpu))
    assert page.of(metrics.GPU_RECOVERY_ACTION) == {("gpu_reset",): 1}


@pytest.mark.parametrize("raw", [2**32 - 1, 2**64 - 1])
def test_registers_of_all_ones_are_no_values(raw):
    gpu = FaultyDevice(device("h100x8"), fields={94: FieldValue(0, raw), 82: FieldValue(0, raw)})
    page = page_of(reader(gpu))
    assert page.value(metrics.GPU_PCIE_REPLAYS) is None
    assert page.value(metrics.GPU_TEMPERATURE, "memory") is None


def test_a_width_that_no_slot_has_is_no_value():
    gpu = FaultyDevice(device("h100x8"))
    gpu.pcie_link = lambda: (0, 63)
    assert page_of(reader(gpu)).value(metrics.GPU_PCIE_WIDTH) is None


def test_rare_counters_appear_with_their_first_error_and_stay():
    gpu = FaultyDevice(device("h100x8"))
    one = reader(gpu)
    assert ("fatal",) not in page_of(one).of(metrics.GPU_PCIE_ERRORS)
    gpu.field_answers[180] = FieldValue(0, 2)
    assert page_of(one).value(metrics.GPU_PCIE_ERRORS, "fatal") == 2
    gpu.field_answers[180] = FieldValue(0, 0)
    assert page_of(one).value(metrics.GPU_PCIE_ERRORS, "fatal") == 0


def test_a_rare_counter_that_is_still_zero_is_no_unsupported_one():
    unsupported = FieldValue(pynvml.NVML_ERROR_NOT_SUPPORTED, 0)
    page = page_of(reader(FaultyDevice(device("h100x8"), fields={182: unsupported})))
    assert page.of(metrics.GPU_PCIE_ERRORS) == {}
    assert page.of(metrics.UNSUPPORTED) == {}


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("sw_power_cap", "SwPowerCap"),
        ("sw_thermal_slowdown", "SwThermalSlowdown"),
        ("hw_thermal_slowdown", "HwThermalSlowdown"),
        ("hw_power_brake", "HwPowerBrakeSlowdown"),
        ("idle", "GpuIdle"),
        ("application_clocks", "ApplicationsClocksSetting"),
        ("hw_slowdown", "HwSlowdown"),
        ("sync_boost", "SyncBoost"),
        ("display_clock", "DisplayClockSetting"),
        ("board_limit", "BoardLimit"),
        ("reliability", "Reliability"),
    ],
)
def test_a_clock_is_low_for_the_reason_whose_bit_nvml_sets(reason, name):
    gpu = FaultyDevice(device("h100x8"))
    gpu.clock_event_reasons = lambda: getattr(pynvml, f"nvmlClocksThrottleReason{name}")
    page = page_of(reader(gpu))
    assert page.value(metrics.GPU_CLOCK_EVENT, reason) == 1
    assert sum(page.of(metrics.GPU_CLOCK_EVENT).values()) == 1


def test_rare_clock_events_stay_once_seen():
    gpu = FaultyDevice(device("h100x8"))
    gpu.clock_event_reasons = lambda: 16 | 512
    one = reader(gpu)
    assert page_of(one).value(metrics.GPU_CLOCK_EVENT, "sync_boost") == 1
    gpu.clock_event_reasons = lambda: 1
    page = page_of(one)
    assert page.value(metrics.GPU_CLOCK_EVENT, "sync_boost") == 0
    assert page.value(metrics.GPU_CLOCK_EVENT, "idle") == 1


def test_the_fifth_generation_of_nvlink_is_read_from_its_own_fields():
    old = dict.fromkeys((138, 139, 38, 45, 52, 59), FieldValue(3, 0))
    new = {202: FieldValue(0, 5_000), 204: FieldValue(0, 6_000), 208: FieldValue(0, 7)}
    page = page_of(reader(FaultyDevice(device("h100x8"), fields=old | new)))
    assert page.value(metrics.GPU_NVLINK_TRANSMIT) == 5_000
    assert page.value(metrics.GPU_NVLINK_RECEIVE) == 6_000
    assert page.value(metrics.GPU_NVLINK_ERRORS, "receive") == 7


def test_a_change_of_partitioning_asks_for_everything_again():
    clock = Clock()
    gpu = FaultyDevice(device("h100x8", clock=clock), {"utilization": 3})
    one = reader(gpu, clock)
    page_of(one)
    gpu.mig_enabled = lambda: True
    del gpu.codes["utilization"]
    clock.now += 11
    page = page_of(one)
    assert page.value(metrics.GPU_UTILIZATION) is not None
    assert {labels[-1] for labels in page.of(metrics.GPU_INFO)} == {"enabled"}


def test_a_gpu_that_is_partitioned_tells_nothing_of_nvlinks_that_are_all_down():
    clock = Clock()
    gpu, real = FaultyDevice(device("h100x8", clock=clock)), device("h100x8", clock=clock)
    gpu.nvlink_active = lambda link: real.nvlink_active(link) and False
    one = reader(gpu, clock)
    assert page_of(one).value(metrics.GPU_NVLINKS_UP) == 0
    gpu.mig_enabled = lambda: True
    clock.now += 11
    assert page_of(one).value(metrics.GPU_NVLINKS_UP) is None


def test_a_partitioned_gpu_says_what_it_hides_and_shows_its_instances():
    one = reader(device("h100x8-mig"))
    page_of(one)
    page = page_of(one)
    assert page.value(metrics.GPU_UTILIZATION) is None
    assert {reading for reading, _ in page.of(metrics.UNSUPPORTED)} >= {
        "utilization",
        "memory_retirement",
    }
    instances = page.of(metrics.MIG_MEMORY_USED)
    assert len(instances) == 7
    named = {labels[:3]: labels[3] for labels in page.of(metrics.MIG_INFO)}
    assert named.keys() == instances.keys()
    assert len({uuid for uuid in named.values() if uuid.startswith("MIG-")}) == 7
    assert {profile for _, _, profile in instances} == {"1g.10gb"}
    assert len(page.of(metrics.MIG_SM_ACTIVE)) == 7
    assert len(page.of(metrics.GPU_ENERGY)) == 1, "the GPU's own values come once"


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ("h100x1", set()),
        ("h200x1", set()),
        (
            "a100x1",
            {"activity", "fabric_state", "pcie_counters", "temperature_margin_celsius"},
        ),
        ("l40sx1", {"activity", "fabric_state", "memory_retirement", "nvlink"}),
    ],
)
def test_each_model_lacks_what_such_cards_lack(model, missing):
    page = page_of(reader(device(model)))
    assert {reading for reading, _ in page.of(metrics.UNSUPPORTED)} == missing
