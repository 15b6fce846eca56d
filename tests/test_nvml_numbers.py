"""Numbers of NVIDIA's management library, set against the library's own Python binding."""

from __future__ import annotations

import pynvml
import pytest

from rankscope_agent.contract.model import Metric
from rankscope_agent.sources.gpus import dcgm, nvidia, nvlink, nvml, readings
from rankscope_agent.sources.gpus.dcgm import DcgmPage

ALL_LINKS = 0xFFFFFFFF

FIELDS = {
    ("clock_event_seconds_total", "sw_power_cap"): ("CLOCKS_EVENT_REASON_SW_POWER_CAP", 1e-9),
    ("clock_event_seconds_total", "sw_thermal_slowdown"): (
        "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
        1e-9,
    ),
    ("clock_event_seconds_total", "hw_thermal_slowdown"): (
        "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        1e-9,
    ),
    ("clock_event_seconds_total", "hw_power_brake"): (
        "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
        1e-9,
    ),
    ("clock_event_seconds_total", "sync_boost"): ("CLOCKS_EVENT_REASON_SYNC_BOOST", 1e-9),
    ("power_limit_watts", "default"): ("POWER_DEFAULT_LIMIT", 1e-3),
    ("energy_joules_total",): ("TOTAL_ENERGY_CONSUMPTION", 1e-3),
    ("temperature_celsius", "memory"): ("MEMORY_TEMP", 1),
    ("ecc_errors_total", "corrected", "aggregate"): ("ECC_SBE_AGG_TOTAL", 1),
    ("ecc_errors_total", "uncorrected", "aggregate"): ("ECC_DBE_AGG_TOTAL", 1),
    ("ecc_errors_total", "corrected", "volatile"): ("ECC_SBE_VOL_TOTAL", 1),
    ("ecc_errors_total", "uncorrected", "volatile"): ("ECC_DBE_VOL_TOTAL", 1),
    ("remapped_rows", "corrected"): ("REMAPPED_COR", 1),
    ("remapped_rows", "uncorrected"): ("REMAPPED_UNC", 1),
    ("row_remap_pending",): ("REMAPPED_PENDING", 1),
    ("row_remap_failure",): ("REMAPPED_FAILURE", 1),
    ("retired_pages", "corrected"): ("RETIRED_SBE", 1),
    ("retired_pages", "uncorrected"): ("RETIRED_DBE", 1),
    ("retired_pages_pending",): ("RETIRED_PENDING", 1),
    ("pcie_replays_total",): ("PCIE_REPLAY_COUNTER", 1),
    ("pcie_errors_total", "correctable"): ("PCIE_COUNT_CORRECTABLE_ERRORS", 1),
    ("pcie_errors_total", "nonfatal"): ("PCIE_COUNT_NON_FATAL_ERROR", 1),
    ("pcie_errors_total", "fatal"): ("PCIE_COUNT_FATAL_ERROR", 1),
    ("pcie_errors_total", "bad_tlp"): ("PCIE_COUNT_BAD_TLP", 1),
    ("pcie_errors_total", "bad_dllp"): ("PCIE_COUNT_BAD_DLLP", 1),
    ("pcie_errors_total", "receiver"): ("PCIE_COUNT_RECEIVER_ERROR", 1),
    ("pcie_errors_total", "lcrc"): ("PCIE_COUNT_LCRC_ERROR", 1),
    ("pcie_transmit_bytes_total",): ("PCIE_COUNT_TX_BYTES", 1),
    ("pcie_receive_bytes_total",): ("PCIE_COUNT_RX_BYTES", 1),
    ("nvlink_errors_total", "crc_flit"): ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 1),
    ("nvlink_errors_total", "crc_data"): ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 1),
    ("nvlink_errors_total", "replay"): ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", 1),
}
"""By metric and labels: the field, and its unit in ours."""

FIELDS_OF_LINKS = {
    ("nvlink_transmit_bytes_total",): (
        ("NVLINK_THROUGHPUT_DATA_TX", 1024),
        ("NVLINK_COUNT_XMIT_BYTES", 1),
    ),
    ("nvlink_receive_bytes_total",): (
        ("NVLINK_THROUGHPUT_DATA_RX", 1024),
        ("NVLINK_COUNT_RCV_BYTES", 1),
    ),
    ("nvlink_errors_total", "recovery"): (
        ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1),
        ("NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", 1),
    ),
    ("nvlink_errors_total", "receive"): (("NVLINK_COUNT_RCV_ERRORS", 1),),
    ("nvlink_errors_total", "local_link_integrity"): (
        ("NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", 1),
    ),
    ("nvlink_errors_total", "recovery_failed"): (("NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", 1),),
    ("nvlink_errors_total", "symbol"): (("NVLINK_COUNT_SYMBOL_ERRORS", 1),),
}
"""Likewise what GPUs count for all links: in fields of each generation, the older one first."""


def number(field):
    return getattr(pynvml, f"NVML_FI_DEV_{field}")


def key(field):
    return (field.metric.name.removeprefix("rankscope_gpu_"), *field.labels)


def test_each_series_is_read_from_the_field_of_its_name_in_its_unit():
    expected = {name: ((number(field), unit),) for name, (field, unit) in FIELDS.items()}
    expected |= {
        name: tuple((number(field), unit) for field, unit in fields)
        for name, fields in FIELDS_OF_LINKS.items()
    }
    found = {}
    for field in readings.FIELDS:
        found[key(field)] = (*found.get(key(field), ()), (field.id, field.scale))
    assert found == expected


def test_all_links_are_asked_for_at_once_where_a_field_is_one_links():
    of_links = {field.id for field in readings.FIELDS if field.scope == ALL_LINKS}
    assert {field.scope for field in readings.FIELDS} == {0, ALL_LINKS}
    assert of_links == {138, 139, 202, 204, 208, 211, 213, 214, 221}


def test_single_links_are_read_from_the_fields_of_both_generations():
    older = number("NVLINK_THROUGHPUT_DATA_TX"), number("NVLINK_THROUGHPUT_DATA_RX"), 1024
    fifth = number("NVLINK_COUNT_XMIT_BYTES"), number("NVLINK_COUNT_RCV_BYTES"), 1
    assert tuple(nvlink.BYTE_FIELDS) == (older, fifth)


@pytest.mark.parametrize("code", range(30))
def test_codes_have_the_librarys_names(code):
    ours = {
        "success": None,
        "lib_rm_version_mismatch": "library_driver_mismatch",
        "freq_not_supported": "frequency_not_supported",
        "vgpu_ecc_not_supported": None,
    }
    names = {
        value: name.removeprefix("NVML_ERROR_").lower()
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") or name == "NVML_SUCCESS"
    }
    name = names[code].removeprefix("nvml_")
    assert nvml.CODE_NAMES.get(code) == ours.get(name, name)


@pytest.mark.parametrize(
    ("module", "ours", "name"),
    [
        (nvml, "SUCCESS", "NVML_SUCCESS"),
        (nvml, "UNINITIALIZED", "NVML_ERROR_UNINITIALIZED"),
        (nvml, "NOT_SUPPORTED", "NVML_ERROR_NOT_SUPPORTED"),
        (nvml, "NO_PERMISSION", "NVML_ERROR_NO_PERMISSION"),
        (nvml, "NOT_FOUND", "NVML_ERROR_NOT_FOUND"),
        (nvml, "DRIVER_NOT_LOADED", "NVML_ERROR_DRIVER_NOT_LOADED"),
        (nvml, "TIMEOUT", "NVML_ERROR_TIMEOUT"),
        (nvml, "LIBRARY_NOT_FOUND", "NVML_ERROR_LIBRARY_NOT_FOUND"),
        (nvml, "FUNCTION_NOT_FOUND", "NVML_ERROR_FUNCTION_NOT_FOUND"),
        (nvml, "GPU_IS_LOST", "NVML_ERROR_GPU_IS_LOST"),
        (nvml, "RESET_REQUIRED", "NVML_ERROR_RESET_REQUIRED"),
        (nvml, "LIB_RM_VERSION_MISMATCH", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
        (nvml, "NOT_READY", "NVML_ERROR_NOT_READY"),
        (nvml, "UNKNOWN", "NVML_ERROR_UNKNOWN"),
        (nvml, "EVENT_XID", "nvmlEventTypeXidCriticalError"),
        (nvml, "CLOCK_SM", "NVML_CLOCK_SM"),
        (nvml, "CLOCK_MEMORY", "NVML_CLOCK_MEM"),
        (readings, "RECOVERY_FIELD", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
    ],
)
def test_numbers_that_are_asked_with_are_the_librarys(module, ours, name):
    assert getattr(module, ours) == getattr(pynvml, name)


def test_answers_that_will_be_the_same_next_time():
    same = {
        "INVALID_ARGUMENT": "unsupported",
        "NOT_SUPPORTED": "unsupported",
        "NO_PERMISSION": "no_permission",
        "FUNCTION_NOT_FOUND": "unsupported",
        "ARGUMENT_VERSION_MISMATCH": "unsupported",
        "DEPRECATED": "unsupported",
    }
    expected = {getattr(pynvml, f"NVML_ERROR_{name}"): what for name, what in same.items()}
    assert expected == nvml.UNSUPPORTED_CODES
    gone = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_GPU_NOT_FOUND}
    assert gone == nvml.GONE_CODES
    closed = {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
    assert closed == nvml.CLOSED_CODES


def test_events_and_counters_have_the_librarys_numbers():
    names = {
        "double_bit_ecc_error": "DoubleBitEccError",
        "single_bit_ecc_error_storm": "SingleBitEccErrorStorm",
        "dram_retirement": "DramRetirementEvent",
        "dram_retirement_failure": "DramRetirementFailure",
        "non_fatal_poison_error": "NonFatalPoisonError",
        "fatal_poison_error": "FatalPoisonError",
        "gpu_unavailable": "GpuUnavailableError",
        "recovery_action": "GpuRecoveryAction",
    }
    expected = {getattr(pynvml, f"nvmlEventType{name}"): event for event, name in names.items()}
    assert expected == nvml.EVENT_NAMES
    counters = {"replay": "REPLAY", "recovery": "RECOVERY"}
    counters |= {"crc_flit": "CRC_FLIT", "crc_data": "CRC_DATA"}
    expected = {
        getattr(pynvml, f"NVML_NVLINK_ERROR_DL_{name}"): counter
        for counter, name in counters.items()
    }
    assert expected == nvml.NVLINK_COUNTERS


def test_actions_bits_and_activities_have_the_librarys_numbers():
    for action, name in readings.RECOVERY_ACTIONS.items():
        assert getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{name.upper()}") == action
    assert len(readings.RECOVERY_ACTIONS) == 8
    bits = {
        "sw_power_cap": "SwPowerCap",
        "sw_thermal_slowdown": "SwThermalSlowdown",
        "hw_thermal_slowdown": "HwThermalSlowdown",
        "hw_power_brake": "HwPowerBrakeSlowdown",
        "idle": "GpuIdle",
        "application_clocks": "ApplicationsClocksSetting",
        "hw_slowdown": "HwSlowdown",
        "sync_boost": "SyncBoost",
        "display_clock": "DisplayClockSetting",
    }
    found = {name: bit for bit, name in readings.CLOCK_EVENT_BITS.items()}
    found |= {name: bit for bit, name in readings.RARE_CLOCK_EVENT_BITS.items()}
    newer = {"board_limit": 512, "reliability": 1024}  # not in the binding
    expected = {
        name: getattr(pynvml, f"nvmlClocksEventReason{theirs}") for name, theirs in bits.items()
    }
    assert found == expected | newer
    activities = {
        "rankscope_gpu_sm_active_ratio": pynvml.NVML_GPM_METRIC_SM_UTIL,
        "rankscope_gpu_tensor_active_ratio": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        "rankscope_gpu_dram_active_ratio": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    }
    assert activities == {m.name: metric for metric, m in readings.ACTIVITY_METRICS.items()}


def test_values_are_read_from_the_member_of_their_type():
    types = {"dVal": "DOUBLE", "uiVal": "UNSIGNED_INT", "ulVal": "UNSIGNED_LONG"}
    types |= {"ullVal": "UNSIGNED_LONG_LONG", "sllVal": "SIGNED_LONG_LONG", "siVal": "SIGNED_INT"}
    types |= {"usVal": "UNSIGNED_SHORT"}
    expected = {getattr(pynvml, f"NVML_VALUE_TYPE_{kind}"): name for name, kind in types.items()}
    assert expected == nvidia.VALUE_MEMBERS


def unit_of(field):
    """Return a field's unit in ours, by what DCGM's name of it says."""
    if field.endswith("_NS"):
        return 1e-9
    if field.endswith("_CLOCK"):
        return 1e6
    if field.startswith("FB_"):
        return 2.0**20
    if field == "TOTAL_ENERGY_CONSUMPTION":
        return 1e-3
    return 0.01 if "UTIL" in field else 1


@pytest.mark.parametrize("field", dcgm.GPU_FIELDS)
def test_fields_of_dcgm_are_shown_in_our_units(field):
    page = f'DCGM_FI_DEV_{field}{{gpu="0",UUID="GPU-1"}} 1\n'
    metric: Metric = dcgm.GPU_FIELDS[field][0]
    (value,) = [one.value for one in DcgmPage(page).samples() if one.metric.name == metric.name]
    assert value == pytest.approx(unit_of(field), rel=1e-12)
