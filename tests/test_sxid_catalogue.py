"""SXids of NVSwitches have the severity that NVIDIA's fabric manager documents."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rankscope_agent.contract.kernel import sxid

CATALOGUE = Path(__file__).parent.parent.parent / "shared" / "data" / "sxid_catalogue.csv"


CORRECTED = ("single bit ecc", "replay", "short error rate")
"""What names of errors say that the hardware repaired."""


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
