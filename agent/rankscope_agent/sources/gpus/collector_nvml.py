"""The node's GPUs, read with NVIDIA's management library, or those of a simulated node.

Driver calls are made by threads, because they may hang; what does not return in time is left off
the page. See `gpus.session`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timezone

from rankscope_agent.contract.model import Sample
from rankscope_agent.settings.config import Config
from rankscope_agent.sources.collector import Incomplete, NoData
from rankscope_agent.sources.gpus.nvml import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, Nvml, NvmlError
from rankscope_agent.sources.gpus.session import Session

TIMEOUT_SECONDS = 2.0
"""How long a run waits for the driver: a thousand times what the calls of a healthy GPU take."""

ABSENT = {
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 not found: no NVIDIA driver, or it is not mounted",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
}
"""Answers on a machine without GPUs, or in a container that was given none."""


def create(config: Config) -> NvmlCollector:
    """Create the collector of the node's GPUs.

    Raises:
        NoData: the GPUs are read elsewhere, or the library is missing.
    """
    if config.simulate is None and config.dcgm_url:
        raise NoData(f"the GPUs are read from dcgm-exporter, as --dcgm.url is {config.dcgm_url}")
    patience = min(TIMEOUT_SECONDS, config.deadline_seconds / 4)
    return NvmlCollector(_library(config), patience, config.deadline_seconds / 2)


def _library(config: Config) -> Nvml:
    if config.simulate is not None:
        from rankscope_agent.sources.gpus.simulation.nvml import SimulatedNvml

        return SimulatedNvml(config.simulate, time.time, config.node_name)
    try:
        import pynvml
    except ImportError:
        raise NoData("the Python package nvidia-ml-py is not installed") from None
    from rankscope_agent.sources.gpus.nvidia import NvidiaLibrary

    return NvidiaLibrary(pynvml, config.procfs, config.sysfs)


class NvmlCollector:
    """Reads all GPUs of a library.

    Args:
        nvml: the library.
        timeout_seconds: how long a run waits for calls that do not return.
        opening_seconds: how long the first run waits for the library to open.
    """

    def __init__(self, nvml: Nvml, timeout_seconds: float, opening_seconds: float) -> None:
        self._session = Session(nvml, timeout_seconds, opening_seconds, time.monotonic)
        self._silence = ""

    def collect(self) -> Iterable[Sample]:
        """Return what is known about each GPU.

        Raises:
            NoData: there is no driver.
            NvmlError: the library is unusable, for instance after a driver upgrade without a
                reload.
            Incomplete: the driver has not answered since the library was opened.
        """
        try:
            samples = tuple(self._session.read())
        except NvmlError as error:
            if error.code in ABSENT:
                raise NoData(ABSENT[error.code]) from None
            raise
        if silence := self._described_silence():
            raise Incomplete(samples, silence)
        return samples

    def _described_silence(self) -> str:
        """Say since when the driver has not answered, in the same words for as long as it lasts."""
        seconds = self._session.silent_seconds
        if seconds is None:
            self._silence = ""
        elif not self._silence:
            since = datetime.fromtimestamp(time.time() - seconds, timezone.utc)
            self._silence = (
                f"the NVIDIA driver has not answered since {since:%Y-%m-%d %H:%M:%S} UTC"
            )
        return self._silence
