"""The comparison of the collector with nvidia-smi, on answers of a made-up library."""

from __future__ import annotations

import pytest
from benchmarks.gpu_check import QUERIES, compare, measure, report

from gpu_nodes import Clock, read, session_of
from nvml_library import loaded, node
from rankscope_agent.sources.gpus.nvidia import NvidiaLibrary

UUID = "GPU-00000000-0000-0000-0000-000000000000"

SMI = {
    "utilization.gpu": "97",
    "memory.total": "81559",
    "memory.reserved": "479",
    "memory.used": "70000",
    "clocks.current.sm": "1755",
    "clocks.current.memory": "2619",
    "clocks.max.sm": "1980",
    "power.draw.average": "690.13",
    "enforced.power.limit": "700.00",
    "power.default_limit": "700.00",
    "temperature.gpu": "71",
    "temperature.memory": "78",
    "temperature.gpu.tlimit": "-3",
    "pcie.link.gen.current": "5",
    "pcie.link.gen.max": "5",
    "pcie.link.width.current": "8",
    "pcie.link.width.max": "16",
    "ecc.errors.corrected.aggregate.total": "[N/A]",
    "ecc.errors.uncorrected.aggregate.total": "2",
    "remapped_rows.correctable": "[N/A]",
    "remapped_rows.uncorrectable": "[N/A]",
    "clocks_event_reasons_counters.sw_power_cap": "12500000",
    "clocks_event_reasons_counters.sw_thermal_slowdown": "[N/A]",
    "clocks_event_reasons_counters.hw_thermal_slowdown": "3000000",
    "clocks_event_reasons_counters.hw_power_brake_slowdown": "[N/A]",
}


@pytest.fixture
def samples(tmp_path):
    with loaded(node(1)) as module:
        session = session_of(NvidiaLibrary(module, tmp_path, tmp_path), Clock())
        read(session)
        return read(session).samples


def differing(samples, **changed):
    says = SMI | {name.replace("__", "."): value for name, value in changed.items()}
    table = ", ".join([UUID, *(says[query.name] for query in QUERIES)]) + "\n"
    return [one.query.name for one in compare(samples, table) if not one.agrees]


def test_the_same_values_in_other_units_agree(samples):
    assert differing(samples) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory.total", "81500"),
        ("clocks.max.sm", "1995"),
        ("temperature.gpu", "60"),
        ("clocks_event_reasons_counters.hw_thermal_slowdown", "9000000"),
        ("ecc.errors.corrected.aggregate.total", "0"),
        ("pcie.link.width.current", "[N/A]"),
    ],
)
def test_a_value_that_one_says_otherwise_or_alone_differs(samples, name, value):
    assert differing(samples, **{name.replace(".", "__"): value}) == [name]


def test_a_machine_without_nvidia_smi_is_no_failure(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert report(measure()) == "no GPU to look at: nvidia-smi is not here"


def test_a_machine_with_gpus_has_calls_and_page_reported(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    table = ", ".join([UUID, *({**SMI, "clocks.max.sm": "1"}[at.name] for at in QUERIES)])
    program.write_text(f"#!/bin/sh\necho '{table}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with loaded(node(1)):
        text = report(measure(looks=2))
    assert f"{len(QUERIES)} values compared with nvidia-smi's, 1 differ" in text
    assert f"{UUID} clocks.max.sm: 1980000000.0 here, 1000000.0 there" in text
    assert "(2 calls)" in text
    assert f'rankscope_gpu_power_watts{{gpu="0",pci="0000:3b:00",uuid="{UUID}"}} 698.5' in text
