"""The table of Xid codes is whole and consistent."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rankscope_agent.contract.kernel.vocabulary import ACTIONS, CAUSES, SEVERITIES, stronger
from rankscope_agent.contract.kernel.xid import FAMILIES, RECOVERY_ACTIONS, XIDS, describe
from rankscope_agent.contract.kernel.xid_actions import PUBLISHED

CATALOGUE = Path(__file__).parent.parent.parent / "shared" / "data" / "xid_catalogue.csv"

ACTIONS_OF_CODES = Path(__file__).parent / "fixtures" / "xid_actions.csv"
SHORTER = {
    "Solo: RESTART_FM Not Solo: IGNORE (follow other Xid)": "RESTART_FM if it is alone",
    "IGNORE (sympathetic)": "IGNORE",
    "N/A Informational only regarding another Xid": "",
}


def test_every_code_from_1_to_176_is_described_once():
    codes = [code for family in FAMILIES for code in family.texts]
    assert sorted(codes) == list(range(1, 177))
    assert set(XIDS) == set(codes)


@pytest.mark.parametrize("xid", XIDS.values(), ids=lambda xid: str(xid.code))
def test_every_code_uses_the_vocabularies_and_has_words(xid):
    assert xid.cause in CAUSES
    assert xid.severity in SEVERITIES
    assert xid.action in ACTIONS
    assert xid.text
    assert len(xid.text) < 90


def test_faults_that_programs_make_ask_for_nothing_but_a_restart():
    assert {describe(code).cause for code in (13, 31, 43, 45)} == {"app"}
    assert [describe(code).action for code in (13, 31, 43)] == ["restart_app"] * 3


def test_an_unknown_code_is_looked_at_and_not_acted_upon():
    assert describe(999).action == "investigate"


def test_the_numbers_of_154_are_those_of_the_driver():
    assert list(RECOVERY_ACTIONS) == list(range(8))
    assert [RECOVERY_ACTIONS[number] for number in range(8)] == [
        *("none", "reset_gpu", "reboot_node", "drain", "drain"),
        *("investigate", "reset_gpu", "reboot_node"),
    ]


def test_of_two_actions_the_stronger_holds():
    assert stronger("restart_app", "reset_gpu") == stronger("reset_gpu", "restart_app")
    assert stronger("reset_gpu", "drain") == "drain"


@pytest.mark.skipif(not CATALOGUE.is_file(), reason=f"no catalogue at {CATALOGUE}")
def test_severity_and_action_are_those_of_the_catalogue():
    with CATALOGUE.open(newline="") as source:
        for row in csv.DictReader(source):
            known = describe(int(row["code"]))
            assert (known.severity, known.action) == (row["severity"], row["needs"]), row["code"]
            assert known.application == row["user_app_likely"]


def test_published_actions_are_those_of_the_catalogue_of_october_2025():
    with ACTIONS_OF_CODES.open(newline="") as source:
        rows = {int(row["code"]): row for row in csv.DictReader(source)}
    assert PUBLISHED.keys() == rows.keys()
    for code, row in rows.items():
        then = SHORTER.get(row["investigatory"], row["investigatory"])
        assert PUBLISHED[code] == (row["immediate"], then), code
