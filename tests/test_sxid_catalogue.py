"""SXids of NVSwitches have the severity that NVIDIA's fabric manager documents."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rankscope_agent.contract.kernel import sxid

CATALOGUE = Path(__file__).parent.parent.parent / "shared" / "data" / "sxid_catalogue.csv"


CORRECTED = ("single bit ecc", "replay", "short error rate")
"""What names of errors say that the hardware repaired."""


ALWAYS_FATAL = """
10003 12020 22003 22011 23001 23002 23003 23004 23005 23006 23007 23008 23009 23010 23011 23012
23013 23014 23015 23016 23017
"""
MAY_BE_FATAL = """
10001 10002 10004 10005 11001 11009 11013 11018 11019 11020 12001 12002 12022 12024 12025 12026
12027 12030 12031 12032 14017 15001 15006 15009 15010 15012 15013 19047 19048 19054 19056 19058
19060 19061 19063 19064 19066 19067 19069 19070 20034 22012 24004 24005 24006 24007
"""
REPAIRED = """
11012 11021 11022 11023 12021 12023 15008 15011 19049 19055 19057 19059 19062 19065 19068 19071
20001 20009 24001 24002 24003
"""
MILD = "11004 12028 19084 20012 22013"
"""Codes by their class in the fabric manager's user guide."""


def test_sxids_are_of_the_class_in_which_the_user_guide_lists_them():
    tables = (sxid.ALWAYS_FATAL, sxid.MAY_BE_FATAL, sxid.CORRECTED, sxid.OTHERS)
    lists = (ALWAYS_FATAL, MAY_BE_FATAL, REPAIRED, MILD)
    for table, listed in zip(tables, lists, strict=True):
        assert sorted(table) == [int(code) for code in listed.split()]


def documented():
    with CATALOGUE.open(newline="") as source:
        yield from csv.DictReader(source)


@pytest.mark.skipif(not CATALOGUE.is_file(), reason=f"no catalogue at {CATALOGUE}")
def test_every_documented_sxid_has_its_severity():
    always = {int(row["code"]) for row in documented() if row["always_fatal"] == "yes"}
    may_be = {int(row["code"]) for row in documented() if row["potentially_fatal"] == "yes"}
    mild = {int(row["code"]) for row in documented()} - always - may_be
    assert always == sxid.ALWAYS_FATAL
    assert may_be - always == sxid.MAY_BE_FATAL
    assert mild == sxid.CORRECTED | sxid.OTHERS


@pytest.mark.skipif(not CATALOGUE.is_file(), reason=f"no catalogue at {CATALOGUE}")
def test_what_is_corrected_is_a_single_bit_or_a_repeated_packet():
    names = {int(row["code"]): row["name"].lower() for row in documented()}
    for code in sxid.CORRECTED:
        assert any(word in names[code] for word in CORRECTED), names[code]
    for code in sxid.OTHERS:
        assert not any(word in names[code] for word in CORRECTED), names[code]
