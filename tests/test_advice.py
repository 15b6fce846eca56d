"""The advice on findings leads to runbooks that there are."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.failures import causes
from rankscope_analyzers.findings.advice import (
    ADVICE,
    CABLE_REPORTED,
    FROZEN_HOST,
    FROZEN_INPUT,
    MEMORY_EXHAUSTED,
    NVLINK_ERRORS,
)
from rankscope_analyzers.gpus.xid_incidents import LOST_GPU, ROW_REMAP_RUNBOOK
from rankscope_analyzers.text import runbooks

OTHERS = (
    *(CABLE_REPORTED, MEMORY_EXHAUSTED, NVLINK_ERRORS, LOST_GPU),
    *(FROZEN_HOST, FROZEN_INPUT),
)


@pytest.mark.parametrize("advice", [*ADVICE.values(), *OTHERS], ids=lambda one: one.runbook)
def test_the_runbook_that_advice_names_can_be_read(advice):
    assert runbooks.text(advice.runbook)


def test_the_runbook_on_rows_to_remap_can_be_read():
    assert runbooks.text(ROW_REMAP_RUNBOOK)


def test_of_processes_killed_for_want_of_memory_logs_and_nodes_give_the_same_advice():
    assert ADVICE["oom_kill"].action == causes.ACTIONS[causes.HOST_OOM]
