"""NVIDIA's library through the real nvidia-ml-py: structures, versions, errors, events, MIG."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pynvml
import pytest

from gpu_nodes import Clock, read, session_of
from gpu_sessions import SHORT, read_until
from nvml_library import (
    EVENT_SET,
    FIRST_HANDLE,
    FIRST_MIG_HANDLE,
    MEBI,
    CLibrary,
    Code,
    address_of,
    fields_of,
    hopper,
    loaded,
    node,
    number,
    point,
)
from rankscope_agent.contract.kernel.events import pci_address
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.settings.simulation import parse_simulation
from rankscope_agent.sources.collector import NoData
from rankscope_agent.sources.gpus import collector_dcgm as dcgm
from rankscope_agent.sources.gpus import collector_nvml as nvml
from rankscope_agent.sources.gpus.collector_nvml import NvmlCollector
from rankscope_agent.sources.gpus.nvidia import NvidiaLibrary
from rankscope_agent.sources.gpus.nvml import NvmlError

REOPEN_SECONDS = 5.0

PER_GPU = sorted(set(hopper(0)) - {"nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet"})


def pages(library, tmp_path, runs=2, module=None):
    """Return what each run of a collector gives on this library."""
    with loaded(library) as real:
        session = session_of(NvidiaLibrary(module or real, tmp_path, tmp_path), Clock())
        return [read(session) for _ in range(runs)]


def test_every_reading_comes_in_our_unit(tmp_path):
    _, page = pages(node(1), tmp_path)
    expected = {
        (metrics.GPU_UTILIZATION,): 0.97,
        (metrics.GPU_MEMORY_TOTAL,): 81559 * MEBI,
        (metrics.GPU_MEMORY_USED,): 70000 * MEBI,
        (metrics.GPU_CLOCK, "sm"): 1755e6,
        (metrics.GPU_CLOCK, "memory"): 2619e6,
        (metrics.GPU_CLOCK_MAX, "sm"): 1980e6,
        (metrics.GPU_CLOCK_EVENT, "sw_power_cap"): 1,
        (metrics.GPU_CLOCK_EVENT, "hw_thermal_slowdown"): 1,
        (metrics.GPU_CLOCK_EVENT_SECONDS, "sw_power_cap"): 12.5,
        (metrics.GPU_CLOCK_EVENT_SECONDS, "hw_thermal_slowdown"): 3,
        (metrics.GPU_POWER,): 698.5,
        (metrics.GPU_POWER_LIMIT, "enforced"): 700,
        (metrics.GPU_POWER_LIMIT, "default"): 700,
        (metrics.GPU_ENERGY,): 2**40 / 1000,
        (metrics.GPU_TEMPERATURE, "core"): 71,
        (metrics.GPU_TEMPERATURE, "memory"): 78,
        (metrics.GPU_TEMPERATURE_MARGIN,): -3,
        (metrics.GPU_ECC_ERRORS, "uncorrected", "aggregate"): 2,
        (metrics.GPU_SRAM_THRESHOLD,): 1,
        (metrics.GPU_RECOVERY_ACTION, "node_reboot"): 1,
        (metrics.GPU_PCIE_GENERATION,): 5,
        (metrics.GPU_PCIE_GENERATION_MAX,): 5,
        (metrics.GPU_PCIE_WIDTH,): 8,
        (metrics.GPU_PCIE_WIDTH_MAX,): 16,
        (metrics.GPU_NVLINK_TRANSMIT,): 1000 * 1024,
        (metrics.GPU_NVLINKS_UP,): 18,
        (metrics.GPU_FABRIC_STATE, "completed", "success"): 1,
        (metrics.GPU_FABRIC_UNHEALTHY, "degraded_bandwidth"): 1,
        (metrics.GPU_FABRIC_UNHEALTHY, "route_unhealthy"): 0,
        (metrics.GPU_SM_ACTIVE,): 0.88,
        (metrics.GPU_TENSOR_ACTIVE,): 0.615,
        (metrics.GPU_DRAM_ACTIVE,): 0.40,
    }
    found = {key: page.value(key[0], *key[1:]) for key in expected}
    assert found == pytest.approx(expected)
    assert page.of(metrics.GPU_PCIE_REPLAYS) == {}, "all ones are no count"
    info = ("nvidia", "NVIDIA H100 80GB HBM3", "1654925000001", "590.48.01", "96.00.A5.00.01")
    assert page.of(metrics.GPU_INFO) == {(*info, "disabled"): 1}
    assert {s.labels[2] for s in page.samples if s.labels} == {"0000:3b:00"}


@pytest.mark.parametrize("bus_id", ["00000000:3B:00.0", "0000:C1:1f.0", "00010000:0A:00.0"])
def test_addresses_are_those_of_the_kernel_log_also_in_large_domains(tmp_path, bus_id):
    library = node(1)
    library.gpus[0]["nvmlDeviceGetPciInfo_v3"] = {"busId": bus_id.encode()}
    (info,) = (s for s in pages(library, tmp_path)[1].samples if s.metric == metrics.GPU_INFO)
    assert info.labels[2] == pci_address(bus_id)


@pytest.mark.parametrize(
    ("raw", "joules"), [(2**40, 2**40 / 1000), (5, 0.005), (1500.0, 1.5), (-1, -0.001)]
)
def test_fields_are_read_by_the_type_they_come_with(tmp_path, raw, joules):
    library = node(1)
    library.gpus[0]["nvmlDeviceGetFieldValues"] = fields_of({(83, 0): raw})
    assert pages(library, tmp_path)[1].value(metrics.GPU_ENERGY) == pytest.approx(joules)


@pytest.mark.parametrize("function", PER_GPU)
def test_whichever_call_says_that_a_gpu_is_lost_the_other_goes_on(tmp_path, function):
    library = node(2)
    whole = pages(node(2), tmp_path)[1].number(0)
    library.gpus[1][function] = Code(pynvml.NVML_ERROR_GPU_IS_LOST)
    page = pages(library, tmp_path)[1]
    assert page.number(0) == whole
    optional = function in {"nvmlDeviceGetName", "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion"}
    assert page.of(metrics.GPU_LOST, 1) == {(): 0 if optional else 1}


@pytest.mark.parametrize("function", PER_GPU)
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN, 4242])
def test_whichever_call_fails_the_other_gpu_has_all_its_values(tmp_path, function, code):
    library = node(2)
    whole = pages(node(2), tmp_path)[1].number(0)
    library.gpus[1][function] = Code(code)
    page = pages(library, tmp_path)[1]
    assert page.number(0) == whole
    assert page.of(metrics.GPU_LOST, 1).get((), 0) == 0
    assert page.number(1) >= 1, "it is never just gone"


@pytest.mark.parametrize("function", PER_GPU)
def test_a_library_without_a_call_gives_everything_else(tmp_path, function):
    library = node(1)
    whole = len(pages(node(1), tmp_path)[1].samples)
    del library.gpus[0][function]
    page = pages(library, tmp_path)[1]
    if function in {"nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"}:
        assert page.of(metrics.UNSUPPORTED) == {("identity", "unsupported"): 1}
        return
    fields = function == "nvmlDeviceGetFieldValues"
    assert len(page.samples) >= whole - (20 if fields else 8)
    assert (("energy_joules_total", "unsupported") in page.of(metrics.UNSUPPORTED)) is fields
    assert page.value(metrics.GPU_LOST) == 0
    assert not [s for s in page.samples if s.metric == metrics.NVML_CALL_ERRORS]


@pytest.mark.parametrize(
    "missing",
    [
        "c_nvmlGpuFabricInfo_v2_t",
        "c_nvmlEccSramErrorStatus_v1_t",
        "nvmlDeviceGetMarginTemperature",
        "nvmlGpmQueryDeviceSupport",
        "nvmlMemory_v2",
    ],
)
def test_an_nvidia_ml_py_that_is_older_than_a_call_gives_everything_else(tmp_path, missing):
    older = SimpleNamespace(**{k: v for k, v in vars(pynvml).items() if k != missing})
    page = pages(node(1), tmp_path, module=older)[1]
    whole = pages(node(1), tmp_path)[1]
    more = page.of(metrics.UNSUPPORTED).keys() - whole.of(metrics.UNSUPPORTED).keys()
    assert {reason for _, reason in more} == {"unsupported"}
    assert page.value(metrics.GPU_CLOCK, "sm") == 1755e6


def test_the_reasons_of_older_drivers_are_read_under_their_old_name(tmp_path):
    library = node(1)
    answers = library.gpus[0]
    answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = (128,)
    del answers["nvmlDeviceGetCurrentClocksEventReasons"]
    page = pages(library, tmp_path)[1]
    assert page.value(metrics.GPU_CLOCK_EVENT, "hw_power_brake") == 1


def test_a_text_that_is_none_costs_only_itself(tmp_path):
    library = node(2)
    library.gpus[1]["nvmlDeviceGetSerial"] = b"\xff\xfe\x80"
    page = pages(library, tmp_path)[1]
    assert [labels[2] for labels in page.of(metrics.GPU_INFO, 1)] == [""]
    assert page.value(metrics.GPU_CLOCK, "sm", gpu=1) == 1755e6


def test_a_uuid_that_is_none_costs_only_its_gpu(tmp_path):
    library = node(2)
    library.gpus[1]["nvmlDeviceGetUUID"] = b"\xff\xfe\x80"
    page = pages(library, tmp_path)[1]
    assert page.of(metrics.UNSUPPORTED, 1) == {("identity", "error"): 1}
    assert page.value(metrics.GPU_CLOCK, "sm") == 1755e6


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, 9, 999])
def test_a_library_that_cannot_be_opened_says_why(tmp_path, code):
    with loaded(node(1, {"nvmlInitWithFlags": Code(code)})) as module:
        collector = NvmlCollector(NvidiaLibrary(module, tmp_path, tmp_path), 1.0, 1.0)
        with pytest.raises(NoData if code == 9 else NvmlError) as caught:
            collector.collect()
    assert str(caught.value).startswith(
        ("open: library_driver_mismatch", "the NVIDIA", "open: unk")
    )


def test_without_the_library_there_is_no_gpu_here(tmp_path):
    with loaded(None) as module:
        if module_loads(module):
            pytest.skip("this machine has NVIDIA's library")
        with pytest.raises(NoData, match=r"libnvidia-ml\.so\.1 not found"):
            NvmlCollector(NvidiaLibrary(module, tmp_path, tmp_path), 1.0, 1.0).collect()


def module_loads(module):
    try:
        module.nvmlInit()
    except module.NVMLError:
        return False
    return True


def events_of(found, registered):
    """Return calls about events: `found` are (GPU's index, kind, data) to be reported in turn."""
    left = list(found)

    def wait(_, data, timeout):
        if not left:
            time.sleep(min(0.01, number(timeout) / 1000))
            return pynvml.NVML_ERROR_TIMEOUT
        index, data._obj.eventType, data._obj.eventData = left.pop(0)
        point(data, FIRST_HANDLE + index)  # the handle is the first member
        return pynvml.NVML_SUCCESS

    def register(handle, mask, _):
        registered.append(number(mask))
        return pynvml.NVML_SUCCESS

    system = {
        "nvmlEventSetCreate": lambda event_set: point(event_set, EVENT_SET),
        "nvmlEventSetWait_v2": wait,
        "nvmlEventSetFree": lambda _: pynvml.NVML_SUCCESS,
    }
    return system, {
        "nvmlDeviceGetSupportedEventTypes": (8 | 2 | 16,),
        "nvmlDeviceRegisterEvents": register,
    }


def test_events_are_counted_for_the_gpu_that_had_them_though_another_refuses(tmp_path):
    registered: list[int] = []
    system, per_gpu = events_of([(2, 8, 79), (0, 2, 0), (2, 8, 79)], registered)
    library = node(3, system)
    for gpu in library.gpus:
        gpu.update(per_gpu)
    library.gpus[1]["nvmlDeviceRegisterEvents"] = Code(pynvml.NVML_ERROR_NO_PERMISSION)
    page = pages(library, tmp_path)[1]
    assert page.of(metrics.GPU_XIDS, 2) == {("79",): 2}
    assert page.of(metrics.GPU_XIDS, 0) == {}
    assert page.of(metrics.GPU_EVENTS, 0) == {("double_bit_ecc_error",): 1}
    assert registered == [8 | 2] * 2, "only wanted events, and of these what the GPU supports"


@pytest.mark.parametrize("others_report_events", [True, False])
def test_events_of_a_gpu_that_answers_late_are_counted(tmp_path, others_report_events):
    registered: list[int] = []
    system, per_gpu = events_of([(1, 8, 79)], registered)
    stuck = threading.Event()

    def handle(index, handle):
        assert number(index) == 0 or stuck.wait(60)
        return point(handle, FIRST_HANDLE + number(index))

    wait = system["nvmlEventSetWait_v2"]
    timeout = Code(pynvml.NVML_ERROR_TIMEOUT)
    system["nvmlEventSetWait_v2"] = lambda *given: (
        wait(*given) if stuck.is_set() and len(registered) > others_report_events else timeout
    )
    library = node(2, system | {"nvmlDeviceGetHandleByIndex_v2": handle})
    for gpu in library.gpus[not others_report_events :]:
        gpu.update(per_gpu)
    with loaded(library) as module:
        session = session_of(NvidiaLibrary(module, tmp_path, tmp_path), Clock(), SHORT)
        assert read(session).value(metrics.GPU_UNRESPONSIVE, gpu=1) == 1
        stuck.set()
        page = read_until(session, lambda page: page.of(metrics.GPU_XIDS, 1))
    assert page.of(metrics.GPU_XIDS, 1) == {("79",): 1}
    assert len(registered) == 1 + others_report_events


def partitioned():
    """Return a GPU with two MIG devices, of which the first two numbers of seven exist."""
    answers = hopper(0)

    def device(_, index, handle):
        if number(index) > 1:
            return pynvml.NVML_ERROR_NOT_FOUND
        return point(handle, FIRST_MIG_HANDLE + FIRST_HANDLE * number(index))

    def memory(handle, info):
        info._obj.total, info._obj.used = 10 * MEBI, 7 * MEBI
        return pynvml.NVML_SUCCESS

    def by_handle(value):
        return lambda handle, pointer: store(pointer, value(handle))

    def instance(handle):
        return (address_of(handle) - FIRST_MIG_HANDLE) // FIRST_HANDLE

    def uuid(handle, text, _):
        part = address_of(handle) >= FIRST_MIG_HANDLE
        text.value = f"MIG-{instance(handle)}".encode() if part else b"GPU-0"
        return pynvml.NVML_SUCCESS

    answers |= {
        "nvmlDeviceGetMigMode": (1, 1),
        "nvmlDeviceGetMigDeviceHandleByIndex": device,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetGpuInstanceId": by_handle(lambda handle: 7 + instance(handle)),
        "nvmlDeviceGetComputeInstanceId": (0,),
        "nvmlDeviceGetName": b"NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetUtilizationRates": Code(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "nvmlGpmSampleGet": Code(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "nvmlGpmMigSampleGet": lambda *_: pynvml.NVML_SUCCESS,
    }
    return answers


def store(pointer, value):
    pointer._obj.value = value
    return pynvml.NVML_SUCCESS


def test_mig_devices_have_their_profile_memory_and_activity(tmp_path):
    whole = node(1)
    library = CLibrary([partitioned()], whole.system)
    library.system["nvmlDeviceGetCount_v2"] = lambda count: store(count, 1)
    for name in ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet"):
        library.gpus[0].pop(name)
    page = pages(library, tmp_path)[1]
    devices = {("7", "0", "1g.10gb"), ("8", "0", "1g.10gb")}
    named = {(*labels[:2], uuid) for *labels, uuid in page.of(metrics.MIG_INFO)}
    assert named == {("7", "0", "MIG-0"), ("8", "0", "MIG-1")}
    assert page.of(metrics.MIG_MEMORY_TOTAL) == dict.fromkeys(devices, 10 * MEBI)
    assert page.of(metrics.MIG_MEMORY_USED) == dict.fromkeys(devices, 7 * MEBI)
    assert page.of(metrics.MIG_SM_ACTIVE) == dict.fromkeys(devices, 0.88)
    assert page.of(metrics.GPU_UTILIZATION) == {}


def test_activity_samples_are_freed_with_their_session(tmp_path):
    library = node(2, {"nvmlGpmSampleFree": Code(15)})  # that fails must not keep it open
    with loaded(library) as module:
        clock = Clock()
        session = session_of(NvidiaLibrary(module, tmp_path, tmp_path), clock)
        for run in range(5):
            read(session)
            library.gpus[0]["nvmlDeviceGetPowerUsage"] = (1,) if run % 2 else Code(15)
            clock.now += 100 * REOPEN_SECONDS
            read(session)
    shut = library.calls.count("nvmlShutdown")
    assert shut >= 2
    assert library.calls.count("nvmlGpmSampleFree") == 4 * shut
    assert library.calls.count("nvmlGpmSampleAlloc") == 4 * (shut + 1)


def test_the_agent_makes_no_call_that_holds_the_driver_up(tmp_path):
    library = node(1)
    pages(library, tmp_path, runs=5)
    slow = {name for name in library.calls if "PcieThroughput" in name or "Process" in name}
    assert slow == set()


def settings(tmp_path, **changed):
    usual = {
        "procfs": tmp_path,
        "dcgm_url": "",
        "simulate": None,
        "node_name": "n",
        "deadline_seconds": 10.0,
    }
    return SimpleNamespace(**usual | changed)


def test_gpus_are_read_from_one_source_only(tmp_path):
    url, simulated = "http://127.0.0.1:9400/metrics", parse_simulation("h100x2")
    with pytest.raises(NoData, match=r"dcgm-exporter"):
        nvml.create(settings(tmp_path, dcgm_url=url))
    with pytest.raises(NoData, match=r"--dcgm\.url is not set"):
        dcgm.create(settings(tmp_path))
    with pytest.raises(NoData, match=r"simulated"):
        dcgm.create(settings(tmp_path, dcgm_url=url, simulate=simulated))
    simulated_gpus = nvml.create(settings(tmp_path, dcgm_url=url, simulate=simulated)).collect()
    assert sum(s.metric == metrics.GPU_INFO for s in simulated_gpus) == 2
