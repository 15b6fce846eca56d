"""The advice on findings leads to runbooks that there are."""

from __future__ import annotations

from typing import get_args

import pytest

from rankscope_agent.contract.failures import causes
from rankscope_analyzers import cli
from rankscope_analyzers.findings.advice import (
    ADVICE,
    CABLE_REPORTED,
    FEWER_NVLINKS,
    FROZEN_HOST,
    FROZEN_INPUT,
    MEMORY_EXHAUSTED,
    MOST_SLOWER,
    NVLINK_ERRORS,
    OWNERS_OF_CAUSES,
)
from rankscope_analyzers.findings.finding import Owner
from rankscope_analyzers.gpus.xid_incidents import LOST_GPU, ROW_REMAP_RUNBOOK
from rankscope_analyzers.text import runbooks
from rankscope_dashboards.rules.alerts import ALERTS
from rankscope_dashboards.rules.ownership import WITHOUT_FINDING
from rankscope_dashboards.rules.rule_files import Links, rule

OTHERS = (
    *(CABLE_REPORTED, MEMORY_EXHAUSTED, FEWER_NVLINKS, NVLINK_ERRORS, LOST_GPU),
    *(FROZEN_HOST, FROZEN_INPUT, MOST_SLOWER),
)


@pytest.mark.parametrize("advice", [*ADVICE.values(), *OTHERS], ids=lambda one: one.runbook)
def test_the_runbook_that_advice_names_can_be_read(advice):
    assert runbooks.text(advice.runbook)


def test_the_command_that_keeps_the_evidence_of_a_hang_has_all_that_it_needs(capsys):
    command = ADVICE["hang"].action.partition("(rankscope ")[2].partition(";")[0]
    assert cli.main(command.replace("FILE.tar.gz", "/nowhere/FILE").split()) == 1
    assert "there is no directory /nowhere" in capsys.readouterr().err


def test_the_runbook_on_rows_to_remap_can_be_read():
    assert runbooks.text(ROW_REMAP_RUNBOOK)


def test_of_processes_killed_for_want_of_memory_logs_and_nodes_give_the_same_advice():
    assert ADVICE["oom_kill"].action == causes.ACTIONS[causes.HOST_OOM]


def test_every_cause_of_a_failed_attempt_has_an_owner():
    assert OWNERS_OF_CAUSES.keys() == causes.CAUSES.keys()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_an_alert_says_who_acts_on_it_and_findings_with_its_runbook_agree(alert):
    owner = rule(alert, Links())["labels"]["owned_by"]
    owners = {advice.owner for advice in ADVICE.values() if advice.runbook == alert.name}
    assert owner in (owners or get_args(Owner))


def test_owners_without_a_finding_are_of_alerts_that_there_are():
    assert WITHOUT_FINDING.keys() <= {alert.name for alert in ALERTS}
    assert not WITHOUT_FINDING.keys() & {advice.runbook for advice in ADVICE.values()}
