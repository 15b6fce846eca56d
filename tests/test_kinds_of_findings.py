"""Every kind of finding comes: from series or step records of a running job, by its analyzer.

What the table of causes, the table of advice and the alerts speak of is held against that, so that
nothing waits for a kind that nobody makes.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import faulty_series
from faulty_series import BY_ANOTHER_LAYER, FAULTS, VIEW
from rankscope_agent.contract.kernel.events import Kind as KernelEvent
from rankscope_analyzers import layers
from rankscope_analyzers.findings.advice import ADVICE
from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.fusion import causality
from rankscope_analyzers.layers import kernel_log
from rankscope_analyzers.logs import nccl_findings
from rankscope_analyzers.steps.job_records import JobRecords
from rankscope_analyzers.stragglers.diagnosis import diagnosis
from rankscope_dashboards.rules import alerts
from suite_jobs import fault, made, running

OF_NCCL_LOGS = frozenset(get_args(nccl_findings.Kind))
"""What `explain nccl-log` finds; a job's report has what its agents export of it."""

SLOW = {
    "gpu_compute": fault("gpu_compute", "gpu", 1.5, last=220),
    "data_loader": fault("data_loader", "rank", 0.5, last=220),
    "network_link": fault("network_link", "rank", 5.0, last=220),
    "storage_checkpoint": fault("storage_checkpoint", "shared_input", 0.4, last=220),
    "global_slowdown": fault("global_slowdown", "compute", 1.4, last=220),
    "partition_imbalance": fault("partition_imbalance", "stage", 1.5, stage=1, last=220),
    "host_transient": fault("host_transient", "noisy_host", 0.6, last=220, duty=0.25),
}
"""For each kind that step times can show: the fault that makes it come."""

PRODUCED = frozenset(FAULTS) | frozenset(SLOW)
SEEN = [*FAULTS.values(), *BY_ANOTHER_LAYER.values()]


def found(*odd):
    """Return what the layers of a running job say of these readings."""
    said = layers.findings_of_job(faulty_series.observed(*odd), VIEW)
    assert said.errors == ()
    return said.findings


def found_by_each(known, *odd):
    """Return that, and the kinds that each of the layers' modules made of the same readings.

    Args:
        known: what modules made of the series that they declare to read: those that differ from
            fault to fault are few.
        odd: the readings.
    """
    kinds = {}

    def noted(subject):
        names = {metric.name for metric in subject.reads}

        def findings(observed, view):
            read, key = only(observed, names)
            if (subject, key) not in known:
                known[subject, key] = tuple(subject.findings(read, view))
            kinds[subject.findings] = {one.kind for one in known[subject, key]}
            return known[subject, key]

        return replace(subject, findings=findings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "SUBJECTS", tuple(map(noted, layers.SUBJECTS)))
        return found(*odd), kinds


def only(observed, names):
    """Return the series of these names alone, and what tells them from others."""
    by_node = {
        node: {name: found[name] for name in found if name in names}
        for node, found in observed.by_node.items()
    }
    return replace(observed, by_node=by_node), frozenset(
        (node, name, frozenset(one.labels.items()), one.times.tobytes(), one.values.tobytes())
        for node, found in by_node.items()
        for name, several in found.items()
        for one in several
    )


@pytest.fixture(scope="module")
def amid():
    """What is found amid each fault, by all together and by each module: every test asks that."""
    known = {}
    return [found_by_each(known, *readings) for readings in SEEN]


def test_healthy_series_make_no_finding():
    assert found() == ()


@pytest.mark.parametrize("action", ["none", ""])
def test_a_gpu_that_needs_no_recovery_makes_no_finding(action):
    (asked,) = FAULTS["gpu_recovery_needed"]
    assert found(replace(asked, labels={**asked.labels, "action": action})) == ()


@pytest.mark.parametrize(("number", "kind"), list(enumerate(FAULTS)), ids=FAULTS)
def test_every_kind_that_series_show_comes_of_a_running_job(number, kind, amid):
    told, _ = amid[number]
    assert {one.kind for one in told} == {kind}


@pytest.mark.parametrize("kind", SLOW)
def test_every_kind_that_step_times_show_comes_of_a_running_job(kind):
    rows = running(made(SLOW[kind]))
    assert diagnosis(JobRecords("job", rows, None, (), live=True)).verdict.cause.kind == kind


def test_step_times_make_the_kinds_that_they_declare():
    assert set(SLOW) == set(get_args(FaultClass))


@pytest.mark.parametrize("subject", layers.SUBJECTS, ids=lambda one: one.findings.__module__)
def test_a_layers_module_makes_all_kinds_that_it_declares_and_no_others(subject, amid):
    made_of = [kinds[subject.findings] for _, kinds in amid]
    assert set().union(*made_of) == subject.kinds


@pytest.mark.parametrize("subject", layers.SUBJECTS, ids=lambda one: one.findings.__module__)
def test_a_layers_module_declares_the_kinds_that_its_source_names(subject):
    module = importlib.import_module(subject.findings.__module__)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    quoted = set(re.findall(r'"(\w+)"(?!:)', source))
    assert quoted & set(ADVICE) <= subject.kinds


def test_every_event_that_is_looked_for_is_one_that_kernel_logs_are_read_for():
    assert set(kernel_log.EVENTS) <= set(get_args(KernelEvent))


def test_the_table_of_causes_has_every_kind_that_comes_and_no_other():
    assert set(causality.KINDS) == PRODUCED


def test_there_is_advice_on_every_kind_that_comes_and_on_no_other():
    assert set(ADVICE) == PRODUCED | OF_NCCL_LOGS


def named_by_alerts() -> set[str]:
    named: set[str] = set()
    for alert in alerts.ALERTS:
        for texts in re.findall(r"rankscope_finding_\w+\{([^}]*)\}", alert.expression):
            for values in re.findall(r'(?:kind|symptom)=~?"([^"]*)"', texts):
                named.update(values.split("|"))
    return named


def test_every_kind_or_symptom_that_an_alert_waits_for_comes():
    named = named_by_alerts()
    assert len(named) > 5
    assert named <= PRODUCED
