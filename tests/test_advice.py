"""Every kind of finding has advice, is made by somebody, and is what alerts and causes speak of."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from rankscope_analyzers import layers
from rankscope_analyzers.findings.advice import (
    ADVICE,
    CABLE_REPORTED,
    FROZEN_HOST,
    FROZEN_INPUT,
    MEMORY_EXHAUSTED,
    NVLINK_ERRORS,
)
from rankscope_analyzers.findings.finding import FaultClass
from rankscope_analyzers.fusion import causality
from rankscope_analyzers.gpus.xid_incidents import LOST_GPU, ROW_REMAP_RUNBOOK
from rankscope_analyzers.logs import nccl_findings
from rankscope_analyzers.text import runbooks
from rankscope_dashboards.rules import alerts

OF_LOGS = frozenset(get_args(nccl_findings.Kind))
"""What `explain nccl-log` finds; a job's report has what its agents export of it."""

NOT_OF_RUNNING_JOBS = frozenset(("storage_checkpoint",))
"""Kinds that only traces show so far. This list may only become shorter."""

OF_STEP_TIMES = frozenset(get_args(FaultClass)) - NOT_OF_RUNNING_JOBS


def of_layers() -> frozenset[str]:
    return frozenset(kind for subject in layers.SUBJECTS for kind in subject.kinds)


def test_every_kind_in_the_table_of_causes_is_made_by_an_analyzer_of_running_jobs():
    assert set(causality.KINDS) - of_layers() - OF_STEP_TIMES == NOT_OF_RUNNING_JOBS


def test_every_kind_that_a_layer_makes_has_its_place_among_causes():
    assert of_layers() <= set(causality.KINDS)


def test_there_is_advice_for_all_that_is_made_and_for_nothing_else():
    assert set(ADVICE) == of_layers() | OF_LOGS | set(get_args(FaultClass))


def test_every_runbook_that_advice_names_can_be_read():
    others = (
        *(CABLE_REPORTED, MEMORY_EXHAUSTED, NVLINK_ERRORS, LOST_GPU),
        *(FROZEN_HOST, FROZEN_INPUT),
    )
    for advice in (*ADVICE.values(), *others):
        assert runbooks.text(advice.runbook), advice
    assert runbooks.text(ROW_REMAP_RUNBOOK)


def named_by_alerts() -> set[str]:
    found: set[str] = set()
    for alert in alerts.ALERTS:
        for texts in re.findall(r"rankscope_finding_\w+\{([^}]*)\}", alert.expression):
            for values in re.findall(r'(?:kind|symptom)=~?"([^"]*)"', texts):
                found.update(values.split("|"))
    return found


def test_every_kind_or_symptom_that_an_alert_waits_for_can_come():
    named = named_by_alerts()
    assert len(named) > 5
    assert named - of_layers() - OF_STEP_TIMES <= NOT_OF_RUNNING_JOBS


@pytest.mark.parametrize("subject", layers.SUBJECTS, ids=lambda one: one.signals.__module__)
def test_a_layers_module_declares_the_kinds_that_its_source_names(subject):
    module = importlib.import_module(subject.signals.__module__)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    quoted = set(re.findall(r'"(\w+)"(?!:)', source))
    assert quoted & set(ADVICE) <= subject.kinds
