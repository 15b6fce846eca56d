"""The last that is still taken and the first that is not, of each limit on GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpu_nodes import Library, read, session_of
from gpu_sessions import gpus
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus import session
from rankscope_agent.sources.gpus.dcgm import DcgmPage
from rankscope_agent.sources.gpus.dcgm_page import parse_page
from rankscope_agent.sources.gpus.events import EventCounts, EventThread
from rankscope_agent.sources.gpus.nvidia import NvidiaDevice
from rankscope_agent.sources.gpus.nvml import NvmlError
from rankscope_agent.sources.gpus.readings import BLANKS
from standing_clock import Clock
from test_dcgm import line


def test_50000_lines_of_a_page_are_read():
    for before, count in ((49_999, 1), (50_000, 0)):
        assert len(list(parse_page("#\n" * before + line("DCGM_FI_DEV_GPU_TEMP", 50)))) == count


@pytest.mark.parametrize(("length", "read"), [(4096, True), (4097, False)])
def test_a_line_of_a_page_has_4096_characters_at_most(length, read):
    text = line("DCGM_FI_DEV_GPU_TEMP", 50).rstrip("\n")
    head, _, rest = text.partition("{")
    text = head + '{x="' + "a" * (length - len(text) - 5) + '",' + rest
    assert len(text) == length
    (found,) = parse_page(text + "\n")
    assert (found is not None) is read


def test_16_instances_of_a_gpu_are_told():
    text = "".join(
        line("DCGM_FI_DEV_FB_USED", 100, GPU_I_ID=str(number), GPU_I_PROFILE="1g.6gb")
        for number in range(17)
    )
    page = DcgmPage(text)
    told = [sample for sample in page.samples() if sample.metric is metrics.MIG_MEMORY_USED]
    assert len(told) == 16
    assert page.ignored["too_many_instances"] == 1


@pytest.mark.parametrize("blank", [9223372036854775792, 9223372036854775807])
def test_the_blanks_of_64_bits_are_no_values(blank):
    assert DcgmPage(line("DCGM_FI_DEV_XID_ERRORS", blank)).ignored == {"blank": 1}


IDENTITY = SimpleNamespace(uuid="GPU-a", pci="0000:3b:00", labels=("0", "GPU-a", "0000:3b:00"))


def counted(*codes):
    counts = EventCounts(Clock())
    for code in codes:
        counts.add(IDENTITY, SimpleNamespace(kind=8, data=code))
    return {s.labels[3]: s.value for s in counts.samples() if s.metric is metrics.GPU_XIDS}


def test_xids_below_1000_are_told_apart():
    assert counted(999, 1000) == {"999": 1, "other": 1}


def test_16_xids_of_a_gpu_are_told_apart():
    found = counted(*range(18))
    assert (len(found), found["other"]) == (17, 2)


def test_events_are_waited_for_half_a_second_and_five_after_a_failure():
    waits, pauses = [], []

    def wait_event(seconds):
        waits.append(seconds)
        raise NvmlError("wait", 999)

    thread = EventThread.__new__(EventThread)
    thread._nvml = SimpleNamespace(wait_event=wait_event)
    thread._errors = SimpleNamespace(add=lambda error: None)
    thread._stop = SimpleNamespace(wait=pauses.append)
    thread.looked = SimpleNamespace(set=lambda: None)
    thread._early = ()
    assert thread._wait()
    assert (waits, pauses) == ([0.5], [5.0])


def test_values_with_all_bits_set_are_none():
    assert {2**32 - 1, 2**64 - 1} <= set(BLANKS)


@pytest.mark.parametrize(("healthy", "pause"), [(59.9, 40.0), (60.0, 5.0)])
def test_a_loss_after_a_healthy_minute_is_a_first_one_again(healthy, pause):
    clock = Clock()
    opened = session_of(Library(gpus(1, clock)), clock)
    read(opened)
    opened._attempt = 40.0
    clock.now += healthy
    opened._plan_reopening()
    assert opened._reopen_due - clock.now == pause


def test_64_gpus_are_taken_from_a_driver_and_as_many_named_that_the_kernel_shows():
    clock, nvml = Clock(), Library([])
    opened = session_of(nvml, clock)
    nvml.count = lambda: 65
    assert opened._new_session() == 64
    opened._bound = frozenset(f"0000:{number:02x}:00" for number in range(65))
    opened._opening_since = clock.now
    clock.now += 30.0
    assert len(list(opened._never_seen())) == 64


def test_events_have_a_fifth_of_a_second_to_be_on_the_first_page_and_two_to_end(monkeypatch):
    waits = []
    events = SimpleNamespace(looked=SimpleNamespace(wait=waits.append), stop=waits.append)
    monkeypatch.setattr(session, "EventThread", lambda *of: events)
    opened = session_of(Library(gpus(1)), Clock())
    read(opened)
    opened._reopen()
    assert waits == [0.2, 2.0]


def test_a_gpu_has_seven_mig_devices_at_most():
    asked = []
    library = SimpleNamespace(
        NVMLError=KeyError,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda gpu, number: asked.append(number),
    )
    gpu = SimpleNamespace(_pynvml=library, _handle=None, _mig_instance=lambda handle: handle)
    assert len(NvidiaDevice.mig_instances(gpu)) == 7
    assert asked == [0, 1, 2, 3, 4, 5, 6]
