"""GPUs that get lost, hang or come back, and drivers that are away."""

from __future__ import annotations

import itertools
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_nodes import Clock, FaultyDevice, Library, device, library, read, session_of
from gpu_sessions import SHORT, gpus, until_responsive
from rankscope_agent.collecting.validation import Validator
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Scrape
from rankscope_agent.sources.collector import scrape
from rankscope_agent.sources.gpus.collector_nvml import NvmlCollector
from rankscope_agent.sources.gpus.nvml import UNSUPPORTED_CODES, Device, NvmlError

MAX_CLOSED_SECONDS = 60.0
MAX_REOPEN_SECONDS = 600.0
REOPEN_SECONDS = 5.0
SILENT_SECONDS = 30.0


def test_a_lost_gpu_is_lost_under_its_name_and_the_others_go_on():
    clock, devices = Clock(), gpus(3)
    session = session_of(Library(devices), clock)
    before = read(session)
    devices[1].codes["temperature"] = 15
    page = read(session)
    assert page.value(metrics.GPU_LOST, gpu=1) == 1
    assert page.of(metrics.GPU_INFO, 1).keys() == {
        (*labels[:-1], "") for labels in before.of(metrics.GPU_INFO, 1)
    }
    assert page.number(1) == 2, "nothing but who it is and that it is lost"
    for other in (0, 2):
        assert page.value(metrics.GPU_LOST, gpu=other) == 0
        assert page.value(metrics.GPU_TEMPERATURE, "core", gpu=other) is not None


def test_a_lost_gpu_keeps_the_names_of_its_parts():
    clock = Clock()
    one = FaultyDevice(device("h100x1-mig", 0, clock))
    nvml = Library([one])
    session = session_of(nvml, clock)
    parts = read(session).of(metrics.MIG_INFO)
    assert len(parts) == 7
    one.codes["fields"] = 15
    assert read(session).of(metrics.MIG_INFO) == parts
    nvml.devices = []
    clock.now += REOPEN_SECONDS
    page = read(session)
    assert (page.value(metrics.GPU_LOST), page.of(metrics.MIG_INFO)) == (1, parts)


def test_the_library_is_opened_again_after_a_loss_ever_more_rarely():
    clock, devices = Clock(), gpus(2)
    nvml = Library(devices)
    session = session_of(nvml, clock)
    read(session)
    devices[0].codes["fields"] = 15
    opened = []
    for _ in range(3000):
        clock.now += 1
        read(session)
        if nvml.opened != (opened[-1][1] if opened else 1):
            opened.append((clock.now, nvml.opened))
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(opened)]
    assert opened[0][0] == 1000 + 1 + REOPEN_SECONDS
    assert gaps == sorted(gaps)
    assert max(gaps) <= MAX_REOPEN_SECONDS + 1
    assert nvml.closed == nvml.opened - 1


def test_a_lost_gpu_that_is_back_is_read_again():
    clock, devices = Clock(), gpus(2)
    session = session_of(Library(devices), clock)
    read(session)
    devices[0].codes["fields"] = 15
    read(session)
    devices[0].codes.clear()
    clock.now += REOPEN_SECONDS
    page = read(session)
    assert page.value(metrics.GPU_LOST) == 0
    assert page.value(metrics.GPU_CLOCK, "sm") == 1980e6
    assert page.series[metrics.NVML_OPENED.name, ()] == 2


def test_a_gpu_that_a_new_session_does_not_find_stays_lost_under_its_name():
    clock, devices = Clock(), gpus(2)
    nvml = Library(devices)
    session = session_of(nvml, clock)
    uuid = read(session).samples[3].labels[1]
    devices[0].codes["fields"] = 15
    read(session)
    nvml.devices = [devices[1]]
    clock.now += REOPEN_SECONDS
    page = read(session)
    lost = [s for s in page.samples if s.metric == metrics.GPU_LOST and s.value == 1]
    assert [s.labels[1] for s in lost] == [uuid]
    assert page.value(metrics.GPU_LOST, gpu=1) == 0


@pytest.mark.parametrize("code", [15, 28])
def test_a_gpu_that_is_lost_before_it_could_say_who_it_is(code):
    page = read(session_of(Library([*gpus(1), code]), Clock()))
    assert page.series[metrics.GPU_LOST.name, ("1", "unknown", "unknown")] == 1
    assert page.value(metrics.GPU_LOST) == 0


def test_a_gpu_that_the_agent_may_not_ask_is_said_to_be_so():
    page = read(session_of(Library([*gpus(1), 4]), Clock()))
    assert page.of(metrics.UNSUPPORTED, 1) == {("identity", "no_permission"): 1}
    assert page.of(metrics.GPU_LOST, 1) == {}


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_is_away_leaves_no_values_and_is_followed_when_it_is_back(code):
    clock, devices = Clock(), gpus(2)
    nvml = Library(devices)
    session = session_of(nvml, clock)
    read(session)
    for one in devices:
        one.codes["fields"] = code
    nvml.open_code = code
    away = read(session)
    clock.now += REOPEN_SECONDS
    still = read(session)
    for page in (away, still):
        for gpu in (0, 1):
            assert page.value(metrics.GPU_UNRESPONSIVE, gpu=gpu) == 1
            assert page.number(gpu) == 2
    nvml.open_code = 0
    for one in devices:
        one.codes.clear()
    clock.now += MAX_REOPEN_SECONDS
    assert read(session).value(metrics.GPU_CLOCK, "sm", gpu=1) == 1980e6


@pytest.mark.parametrize("code", [9, 12, 18])
def test_without_any_gpu_seen_the_reason_is_raised(code):
    nvml = Library(gpus(1))
    nvml.open_code = code
    session = session_of(nvml, Clock())
    for _ in range(2):
        with pytest.raises(NvmlError) as caught:
            read(session)
        assert caught.value.code == code


def test_a_gpu_plugged_in_is_found_and_one_taken_out_on_purpose_forgotten():
    clock, devices = Clock(), gpus(3)
    nvml = Library(devices[:2])
    addresses = [one.identity().pci for one in devices]
    nvml.present = frozenset(addresses[:2])
    session = session_of(nvml, clock)
    read(session)
    nvml.devices, nvml.present = devices[1:], frozenset(addresses[1:])
    clock.now += 4
    page = read(session)
    assert {s.labels[0] for s in page.samples if s.metric == metrics.GPU_INFO} == {"0", "1"}
    clock.now += 2
    page = read(session)
    assert {s.labels[0] for s in page.samples if s.metric == metrics.GPU_INFO} == {"1", "2"}
    assert not [s for s in page.samples if s.metric == metrics.GPU_LOST and s.value]


def test_a_hung_call_costs_its_gpu_only_and_no_old_value_stays():
    clock, devices = Clock(), gpus(3)
    session = session_of(Library(devices), clock, SHORT)
    read(session)
    stuck = threading.Event()
    temperature = devices[1].temperature
    devices[1].temperature = lambda: stuck.wait() and temperature()
    for _ in range(3):
        page = read(session)
        assert page.value(metrics.GPU_UNRESPONSIVE, gpu=1) == 1
        assert page.number(1) == 2, "nothing but who it is and that it hangs"
        assert page.value(metrics.GPU_LOST, gpu=1) is None, "nobody knows"
        for other in (0, 2):
            assert page.value(metrics.GPU_UNRESPONSIVE, gpu=other) == 0
            assert page.value(metrics.GPU_TEMPERATURE, "core", gpu=other) is not None
    stuck.set()
    page = until_responsive(session, 1)
    assert page.value(metrics.GPU_TEMPERATURE, "core", gpu=1) is not None


def test_what_a_hung_call_brings_late_is_thrown_away():
    clock, devices = Clock(), gpus(1)
    session = session_of(Library(devices), clock, SHORT)
    read(session)
    stuck = threading.Event()
    devices[0].temperature = lambda: stuck.wait() and 33
    read(session)
    devices[0].temperature = lambda: 44
    stuck.set()
    page = until_responsive(session, 0)
    assert page.value(metrics.GPU_TEMPERATURE, "core") == 44


def test_a_library_that_hangs_while_it_opens_does_not_hold_up_and_is_used_once_it_is_open():
    nvml, stuck = Library(gpus(1)), threading.Event()
    opens = nvml.open
    nvml.open = lambda: stuck.wait() and opens()
    session = session_of(nvml, Clock(), SHORT)
    assert read(session).of(metrics.GPU_INFO) == {}
    stuck.set()
    page = until_responsive(session, 0)
    assert page.value(metrics.GPU_CLOCK, "sm") == 1980e6
    assert nvml.opened == 1


@pytest.mark.parametrize("listed", [None, frozenset({"0000:1b:00", "0000:2b:00"})])
def test_a_library_that_never_opens_is_said_with_every_gpu_that_the_kernel_shows(listed):
    clock, nvml, stuck = Clock(), Library(gpus(2)), threading.Event()
    opens = nvml.open
    nvml.open, nvml.present = lambda: stuck.wait() and opens(), listed
    session = session_of(nvml, clock, SHORT)
    assert session.silent_seconds is None
    assert read(session).of(metrics.GPU_UNRESPONSIVE, "unknown") == {}, "it may only be slow"
    clock.now += SILENT_SECONDS
    page = read(session)
    assert session.silent_seconds == SILENT_SECONDS
    unresponsive = [s for s in page.samples if s.metric == metrics.GPU_UNRESPONSIVE]
    assert {s.labels[2]: s.value for s in unresponsive} == {"0000:1b:00": 1, "0000:2b:00": 1}
    stuck.set()
    page = until_responsive(session, 0)
    assert session.silent_seconds is None
    assert page.of(metrics.GPU_UNRESPONSIVE, "unknown") == {}


def test_a_driver_that_does_not_answer_is_a_failed_run_with_what_is_known():
    nvml, stuck = Library(gpus(1)), threading.Event()
    nvml.open = stuck.wait
    collector = NvmlCollector(nvml, SHORT, SHORT)
    failures = set()
    for _ in range(2):
        run = scrape("gpu", collector, None)
        assert not run.success
        assert [s.metric for s in run.samples] == [metrics.NVML_OPENED]
        failures.add(run.failure)
    stuck.set()
    (failure,) = failures
    assert failure.startswith("the NVIDIA driver has not answered since 20")


def test_a_broken_library_costs_the_gpu_it_is_broken_for():
    devices = gpus(2)
    devices[0].memory = lambda: (1, 2, 3)
    page = read(session_of(Library(devices), Clock()))
    assert page.value(metrics.GPU_UNRESPONSIVE, gpu=0) == 1
    assert page.value(metrics.GPU_CLOCK, "sm", gpu=1) == 1980e6
    assert page.series[metrics.NVML_CALL_ERRORS.name, ("ValueError", "unknown")] == 1


def test_xids_and_other_events_are_counted_by_gpu():
    page = read(session_of(library("h100x8:xid79@1+ecc-storm@2", Clock()), Clock()))
    assert page.of(metrics.GPU_XIDS, 1) == {("79",): 1}
    assert page.of(metrics.GPU_XIDS, 2) == {("92",): 1}
    assert page.of(metrics.GPU_XIDS, 0) == {}
    assert page.of(metrics.GPU_EVENTS, 2) == {("single_bit_ecc_error_storm",): 1}
    assert page.value(metrics.GPU_XID_TIMESTAMP, "79", gpu=1) > 1.7e9


@pytest.mark.parametrize("code", [4, 999])
def test_a_gpu_that_no_longer_says_who_it_is_keeps_its_name_and_is_not_called_lost(code):
    clock, devices = Clock(), gpus(2)
    session = session_of(Library(devices), clock)
    before = read(session)
    devices[0].codes["fields"] = 15
    read(session)
    devices[0].codes.clear()
    devices[1].codes["identity"] = code
    clock.now += REOPEN_SECONDS
    page = read(session)
    assert page.of(metrics.GPU_UNRESPONSIVE, 1) == {(): 1}
    assert page.of(metrics.GPU_LOST, 1) == {}
    names = {s.labels[:3] for s in before.samples if s.labels[:1] == ("1",)}
    assert {s.labels[:3] for s in page.samples if s.labels[:1] == ("1",)} == names


def test_a_driver_that_goes_away_while_gpus_are_asked_who_they_are_is_followed():
    clock, devices = Clock(), gpus(2)
    nvml = Library([devices[0], 9])
    session = session_of(nvml, clock)
    with pytest.raises(NvmlError):
        read(session)
    nvml.devices = devices
    clock.now += REOPEN_SECONDS
    assert read(session).value(metrics.GPU_CLOCK, "sm", gpu=1) == 1980e6


def test_a_driver_that_stays_away_costs_no_more_threads_with_each_attempt():
    clock, nvml = Clock(), Library([9] * 4)
    before = set(threading.enumerate())
    session = session_of(nvml, clock)
    for _ in range(5):
        with pytest.raises(NvmlError):
            read(session)
        clock.now += MAX_REOPEN_SECONDS
    assert nvml.opened == 5
    mine = [one for one in threading.enumerate() if one not in before]
    for thread in mine:
        thread.join(1.0 if re.fullmatch(r"gpu-\d+", thread.name) else 0.0)
    assert [one.name for one in mine if one.is_alive()] == ["gpu-driver", "gpus-given"]


def test_a_driver_that_is_loaded_after_the_agent_started_is_found_at_once():
    clock = Clock()
    nvml = Library(gpus(1))
    nvml.open_code = 12
    session = session_of(nvml, clock)
    for _ in range(200):
        clock.now += 10
        with pytest.raises(NvmlError):
            read(session)
    nvml.open_code, nvml.present = 0, frozenset({"0000:1b:00"})
    clock.now += 6
    assert read(session).value(metrics.GPU_CLOCK, "sm") == 1980e6


def test_a_driver_whose_list_of_gpus_is_hidden_is_found_within_a_minute():
    clock = Clock()
    nvml = Library(gpus(1))
    nvml.open_code = 12
    session = session_of(nvml, clock)
    for _ in range(200):
        clock.now += 10
        with pytest.raises(NvmlError):
            read(session)
    nvml.open_code = 0
    clock.now += MAX_CLOSED_SECONDS
    assert read(session).value(metrics.GPU_CLOCK, "sm") == 1980e6


EVERY = tuple(name for name in vars(Device) if not name.startswith("_"))
CALLS = ("fields", "identity", "temperature", "mig_enabled", "activity", "nvlink_active", "fabric")


@pytest.mark.parametrize("code", [10, 17, 27, 29, 999])
def test_a_gpu_whose_every_call_fails_is_unresponsive_until_one_answers(code):
    clock, devices = Clock(), gpus(2)
    session = session_of(Library(devices), clock)
    read(session)
    devices[1].codes |= dict.fromkeys(EVERY, code)
    clock.now += 60
    page = read(session)
    assert page.value(metrics.GPU_UNRESPONSIVE, gpu=1) == 1
    assert page.number(1) == 2, "nothing but who it is and that it does not answer"
    assert page.value(metrics.GPU_UNRESPONSIVE) == 0
    del devices[1].codes["power"]
    page = read(session)
    assert page.value(metrics.GPU_UNRESPONSIVE, gpu=1) == 0
    assert page.value(metrics.GPU_POWER, gpu=1)


CODES = (0, 1, 2, 3, 4, 6, 9, 10, 13, 15, 16, 18, 25, 27, 28, 999, 4242)

TROUBLE = st.tuples(
    st.integers(0, 2),
    st.tuples(st.sampled_from(CALLS).map(lambda call: (call,)), st.sampled_from(CODES))
    | st.tuples(st.just(EVERY), st.sampled_from(sorted({*CODES} - {*UNSUPPORTED_CODES}))),
    st.sampled_from([0, 1, 7, 70]),
)


@settings(max_examples=30)
@given(st.lists(TROUBLE, max_size=25))
def test_whatever_calls_answer_each_gpu_is_read_or_said_not_to_be(troubles):
    clock, devices = Clock(), gpus(3)
    session = session_of(Library(devices), clock)
    names = {labels[1] for name, labels in read(session).series if name == metrics.GPU_INFO.name}
    for gpu, (calls, code), seconds in troubles:
        devices[gpu].codes |= dict.fromkeys(calls, code)
        if not code:
            devices[gpu].codes.clear()
        clock.now += seconds
        page = read(session)
        assert (
            Validator()
            .validate([Scrape("nvml", True, 0.0, tuple(page.samples), "", None)])[0]
            .success
        )
        states = {metrics.GPU_LOST, metrics.GPU_UNRESPONSIVE}
        told = {s.labels[1] for s in page.samples if s.metric in states}
        wrong = {s.labels[1] for s in page.samples if s.metric in states and s.value == 1}
        silent = {*states, metrics.GPU_INFO}
        known = {s.labels[1] for s in page.samples if s.labels and s.metric not in silent}
        assert names <= told & (known | wrong)
    for one in devices:
        one.codes.clear()
    for _ in range(3):
        clock.now += MAX_REOPEN_SECONDS
        page = read(session)
    assert [page.value(metrics.GPU_CLOCK, "sm", gpu=gpu) for gpu in range(3)] == [1980e6] * 3
