"""GPUs that the kernel shows while NVIDIA's library says nothing of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pynvml
import pytest

from gpu_nodes import Clock, Library, read, session_of
from gpu_sessions import SHORT, gpus, read_until, until_responsive
from nvml_library import loaded, node
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus.bus import gpus_on_bus
from rankscope_agent.sources.gpus.nvidia import NvidiaLibrary
from rankscope_agent.sources.gpus.nvml import Identity
from rankscope_agent.sources.gpus.session import BOUND_SECONDS, MAX_REOPEN_SECONDS, SILENT_SECONDS

H100S = ("0000:3b:00.0", "10000:5e:00.0")


def listed_by_the_driver(procfs: Path) -> None:
    for name in H100S:
        (procfs / "driver/nvidia/gpus" / name).mkdir(parents=True)


def on_the_bus(sysfs: Path) -> None:
    for name, vendor, kind in (
        (H100S[0], "0x10de", "0x030200"),
        ("0000:3b:00.1", "0x10de", "0x040300"),  # its audio function
        (H100S[1], "0x10de", "0x030000"),
        ("0000:03:00.0", "0x1a03", "0x030000"),  # the board's own display
        ("0000:07:00.0", "0x10de", "0x068000"),  # an NVSwitch
    ):
        device = sysfs / "bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")


def test_gpus_that_the_driver_has_are_those_of_its_directory(tmp_path):
    listed_by_the_driver(tmp_path)
    assert NvidiaLibrary(pynvml, tmp_path, tmp_path).bound() == {"0000:3b:00", "10000:5e:00"}
    assert NvidiaLibrary(pynvml, tmp_path / "none", tmp_path).bound() is None


def test_gpus_on_the_bus_are_nvidias_display_controllers(tmp_path):
    on_the_bus(tmp_path)
    assert gpus_on_bus(tmp_path) == {"0000:3b:00", "10000:5e:00"}
    assert gpus_on_bus(tmp_path / "none") == frozenset()


@pytest.mark.parametrize("shown_by", [listed_by_the_driver, on_the_bus])
def test_while_nvmlinit_hangs_each_gpu_that_the_kernel_shows_is_unresponsive(shown_by, tmp_path):
    shown_by(tmp_path)
    clock, stuck = Clock(), threading.Event()
    library = node(2, {"nvmlInitWithFlags": lambda _: not stuck.wait()})
    with loaded(library) as module:
        session = session_of(NvidiaLibrary(module, tmp_path, tmp_path), clock, SHORT)
        read(session)
        clock.now += SILENT_SECONDS
        page = read(session)
        unresponsive = [one for one in page.samples if one.metric == metrics.GPU_UNRESPONSIVE]
        assert {one.labels[2]: one.value for one in unresponsive} == {
            "0000:3b:00": 1,
            "10000:5e:00": 1,
        }
        stuck.set()
        until_responsive(session, 0)


INFORMATION = "Model: \t\t H100\nDevice Minor: \t 1\nGPU Excluded:\t %s\n"


@pytest.mark.parametrize(
    ("information", "file", "named"),
    [
        (INFORMATION % "No", "nvidia1", {"10000:5e:00"}),
        (INFORMATION % "Yes", "nvidia1", set()),
        (INFORMATION % "No", "nvidia0", set()),
        ("", "nvidia", set()),
    ],
    ids=["missing", "excluded by the driver", "not given to the container", "not described"],
)
def test_a_gpu_that_the_driver_has_and_the_library_lacks_is_unresponsive_if_the_agent_may_use_it(
    information, file, named, tmp_path
):
    listed_by_the_driver(tmp_path)
    folders = sorted((tmp_path / "driver/nvidia/gpus").iterdir())
    for folder, text in zip(folders, ("Device Minor: 0\n", information), strict=True):
        (folder / "information").write_text(text)
    (tmp_path / file).touch()
    clock = Clock()
    with loaded(node(1)) as module:
        session = session_of(NvidiaLibrary(module, tmp_path, tmp_path, tmp_path), clock)
        pages = [read(session)]
        clock.now += MAX_REOPEN_SECONDS
        pages.append(read(session))
    for number, page in enumerate(pages, 1):
        unresponsive = [one for one in page.samples if one.metric == metrics.GPU_UNRESPONSIVE]
        assert {one.labels[2] for one in unresponsive if one.value == 1} == named
        assert page.value(metrics.GPU_CLOCK, "sm") == 1755e6
        assert page.series[metrics.NVML_OPENED.name, ()] == (number if named else 1)


def test_a_gpu_that_is_being_drained_is_not_unresponsive_although_the_library_lacks_it(tmp_path):
    listed_by_the_driver(tmp_path)
    for minor, folder in enumerate(sorted((tmp_path / "driver/nvidia/gpus").iterdir())):
        (folder / "information").write_text(f"Device Minor: {minor}\n")
        (tmp_path / f"nvidia{minor}").touch()
    asked = set()

    def drained(place, state):
        address = place.contents
        asked.add(address.busId)
        state._obj.value = (address.domain, address.bus, address.device) == (0x10000, 0x5E, 0)
        return pynvml.NVML_SUCCESS

    with loaded(node(1, {"nvmlDeviceQueryDrainState": drained})) as module:
        library = NvidiaLibrary(module, tmp_path, tmp_path, tmp_path)
        page = read(session_of(library, Clock()))
    unresponsive = [one for one in page.samples if one.metric == metrics.GPU_UNRESPONSIVE]
    assert [one.labels[2] for one in unresponsive if one.value == 1] == []
    assert asked == {"00000000:3B:00.0", "00010000:5E:00.0"}


@pytest.mark.parametrize(
    ("further", "shown"), [((), ["1"]), (("0000:3b:00", "0000:4b:00"), ["1", "unknown", "unknown"])]
)
def test_a_gpu_that_has_not_said_who_it_is_is_not_missing_as_well(further, shown):
    nvml = Library([*gpus(1), 999])
    nvml.present = frozenset({"0000:1b:00", "0000:2b:00", *further})
    page = read(session_of(nvml, Clock()))
    unresponsive = [one for one in page.samples if one.metric == metrics.GPU_UNRESPONSIVE]
    assert [one.labels[0] for one in unresponsive if one.value == 1] == shown


def test_files_of_the_driver_that_hang_cost_no_gpu_its_values_and_make_none_missing():
    stuck = threading.Event()
    nvml = Library(gpus(2))
    nvml.present = frozenset({"0000:1b:00", "0000:2b:00", "0000:3b:00"})
    nvml.given = lambda: nvml.present if stuck.wait() else frozenset()
    clock = Clock()
    session = session_of(nvml, clock, SHORT)
    for _ in range(2):
        page = until_responsive(session, 0)
        assert page.of(metrics.GPU_UNRESPONSIVE, "unknown") == {}
        clock.now += SILENT_SECONDS
    stuck.set()
    read_until(session, lambda page: page.of(metrics.GPU_UNRESPONSIVE, "unknown") == {(): 1})


def test_a_lost_gpu_stays_lost_when_its_slot_removes_it_until_it_or_another_is_there():
    clock, devices = Clock(), gpus(3)
    nvml = Library(devices[:2])
    addresses = [one.identity().pci for one in devices]
    nvml.present = frozenset(addresses[:2])
    session = session_of(nvml, clock)

    def lost(*present):
        nvml.devices = [devices[at] for at in present]
        nvml.present = frozenset(one.identity().pci for one in nvml.devices)
        clock.now += BOUND_SECONDS
        found = [one for one in read(session).samples if one.metric == metrics.GPU_LOST]
        return [one.labels[2] for one in found if one.value == 1]

    read(session)
    devices[1].codes["fields"] = 15
    assert lost(0, 1) == lost(0) == lost(0) == [addresses[1]]
    devices[1].codes.clear()
    assert lost(0, 1) == []
    devices[1].codes["fields"] = 15
    assert lost(0, 1) == lost(0) == [addresses[1]]
    devices[2].identity = lambda: Identity("1", "GPU-of-another", addresses[1])
    assert lost(0, 2) == []
