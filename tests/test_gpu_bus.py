"""GPUs that the kernel shows while NVIDIA's library says nothing of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pynvml
import pytest

from gpu_nodes import Clock, read, session_of
from gpu_sessions import SHORT, until_responsive
from nvml_library import loaded, node
from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.sources.gpus.bus import gpus_on_bus
from rankscope_agent.sources.gpus.nvidia import NvidiaLibrary
from rankscope_agent.sources.gpus.session import SILENT_SECONDS

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
