"""Simulated GPU nodes under a clock of the test, and libraries that answer wrongly on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_agent.contract.model import Metric, Sample
from rankscope_agent.settings.simulation import parse_simulation
from rankscope_agent.sources.gpus.nvml import Device, Event, FieldRequest, FieldValue, NvmlError
from rankscope_agent.sources.gpus.session import Session
from rankscope_agent.sources.gpus.simulation.nvml import SimulatedNvml, pci_address

PATIENCE = 5.0  # of tests in which nothing hangs, on a busy machine


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def library(text: str, clock: Clock) -> SimulatedNvml:
    simulation = parse_simulation(text)
    assert simulation is not None
    return SimulatedNvml(simulation, clock)


def device(text: str, index: int = 0, clock: Clock | None = None) -> Device:
    return library(text, clock or Clock()).device(index)


class FaultyDevice:
    """A device whose named methods raise, and whose field answers are replaced by id."""

    def __init__(
        self,
        real: Device,
        codes: Mapping[str, int] | None = None,
        fields: Mapping[int, FieldValue] | None = None,
    ) -> None:
        self._real = real
        self.codes = dict(codes or {})
        self.field_answers = dict(fields or {})
        self.calls: list[str] = []

    def fields(self, requests: Sequence[FieldRequest]) -> Sequence[FieldValue]:
        self.calls.append("fields")
        if "fields" in self.codes:
            raise NvmlError(self.codes["fields"], "fields")
        answers = self._real.fields(requests)
        asked = zip(requests, answers, strict=True)
        return [self.field_answers.get(field, answer) for (field, _), answer in asked]

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.codes:
                raise NvmlError(self.codes[name], name)
            return getattr(self._real, name)(*arguments)

        return call


class Library:
    """A library of given devices; `None` stands for one that answers as lost when asked for."""

    def __init__(self, devices: Sequence[Device | int]) -> None:
        self.devices = list(devices)
        self.opened = 0
        self.closed = 0
        self.open_code = 0
        self.present: frozenset[str] | None = None

    def open(self) -> None:
        if self.open_code:
            raise NvmlError(self.open_code, "open")
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def count(self) -> int:
        return len(self.devices)

    def device(self, index: int) -> Device:
        found = self.devices[index]
        if isinstance(found, int):
            raise NvmlError(found, "device")
        return found

    def wait_event(self, timeout_seconds: float) -> Event | None:
        raise NvmlError(3, "events")

    def bound(self) -> frozenset[str] | None:
        return self.present

    def given(self) -> frozenset[str]:
        return self.present or frozenset()

    def on_bus(self) -> frozenset[str]:
        return frozenset(pci_address(index) for index in range(len(self.devices)))


class Page:
    """What one run gave, by metric name and labels; a series that comes twice is an error."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = list(samples)
        self.series = {(s.metric.name, s.labels): s.value for s in self.samples}
        assert len(self.series) == len(self.samples), "a series came twice"

    def of(self, metric: Metric, gpu: int | str = 0) -> dict[tuple[str, ...], float]:
        """Return the values of a GPU by their further labels."""
        return {
            s.labels[3:]: s.value
            for s in self.samples
            if s.metric == metric and s.labels[0] == str(gpu)
        }

    def value(self, metric: Metric, *labels: str, gpu: int = 0) -> float | None:
        return self.of(metric, gpu).get(labels)

    def number(self, gpu: int) -> int:
        """Count the series of a GPU."""
        return sum(s.labels[:1] == (str(gpu),) for s in self.samples)


def session_of(nvml: Any, clock: Clock, patience: float = PATIENCE) -> Session:
    return Session(nvml, patience, patience, clock)


def read(session: Session) -> Page:
    return Page(list(session.read()))
