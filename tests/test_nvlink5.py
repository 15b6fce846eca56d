"""Unit, sub-code and status of NVLink 5 lines decide what to do."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rankscope_agent.contract.kernel import nvlink5

PUBLISHED = Path(__file__).parent / "fixtures" / "nvlink5_rules.csv"
RULES = Path(__file__).parent.parent.parent / "shared" / "data" / "nvlink5_subcodes.csv"

RESOLUTIONS = {"IGNORE": "none", "RESET_GPU": "reset_gpu", "XID_154_EVAL": "restart_app"}


def line(unit: str, subcode: int, status: int, severity: str = "Nonfatal", link: str = "04") -> str:
    words = f"0x{subcode << 20 | 0x1C6:08x} 0x{status:08x} 0x0 0x0 0x0 0x0"
    return f"{unit} {severity} XC0 i0 Link {link} ({words})"


@pytest.mark.parametrize(
    ("unit", "subcode", "status", "action", "fatal"),
    [
        ("SAW_MVB", 0, 0x2, "reset_gpu", True),
        ("SAW_MVB", 0, 0x1, "none", False),
        ("SAW_MVB", 0, 0x3, "reset_gpu", True),
        ("RLW_REMAP", 0, 0x4, "restart_app", False),
        ("TLW_RX_PIPE1", 0, 0x4, "reset_gpu", True),
        ("NETIR_LINK_EVT", 0x25, 0, "reset_gpu", True),
        ("NETIR_LINK_DOWN", 0x26, 0, "none", True),
        ("NETIR_BER_EVENT", 0, 3, "none", False),
        ("MSE_WATCHDOG", 0, 0, "reset_gpu", True),
    ],
)
def test_a_known_error_is_resolved_as_published(unit, subcode, status, action, fatal):
    found = nvlink5.read(line(unit, subcode, status))
    assert found is not None
    assert (found.rule.action, found.rule.fatal) == (action, fatal)


def test_an_unknown_error_follows_the_severity_that_is_printed():
    fatal = nvlink5.read(line("NEW_UNIT", 1, 1, "Fatal"))
    mild = nvlink5.read(line("NEW_UNIT", 1, 1, "Nonfatal"))
    assert (fatal.rule.action, mild.rule.action) == ("reset_gpu", "none")


def test_a_line_may_be_about_no_link_and_a_cut_line_says_nothing():
    whole = line("NETIR", 0, 0, "Fatal", "-1")
    assert nvlink5.read(whole).link == -1
    assert nvlink5.read(whole[:24]) is None


PADDED = "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x0 0x0 0x0 0x0)"
CUT = "RLW_RXPIPE   Nonfatal XC0 i0 Link 11 (...)"
BRACKETS = "NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]"


@pytest.mark.parametrize(
    ("message", "link", "action", "follow_up"),
    [
        (PADDED, 9, "reset_gpu", nvlink5.PEER),
        (CUT, 11, "none", nvlink5.VENDOR),
        (BRACKETS, 1, "reset_gpu", nvlink5.VENDOR),
    ],
    ids=["padded to columns", "without words", "with one word in brackets"],
)
def test_lines_of_other_drivers_and_cut_ones_are_read(message, link, action, follow_up):
    found = nvlink5.read(message)
    assert found is not None
    assert (found.link, found.rule.action, found.rule.then) == (link, action, follow_up)


@pytest.mark.parametrize(
    ("first", "status", "promoted"),
    [
        (0x0409A0C2, 0x4, False),
        (0x0409A4C2, 0x4, True),
        (0x0409A4C2, 0x8, False),
        (0x00000006, 0x1, False),
        (0x00000086, 0x1, True),
        (0x00000086, 0x80000000, False),
    ],
)
def test_an_error_that_the_driver_made_fatal_asks_for_a_reset(first, status, promoted):
    found = nvlink5.read(f"RLW_RXPIPE Fatal XC0 i0 Link 13 (0x{first:08x} 0x{status:08x} 0x0)")
    assert found is not None
    assert found.rule.fatal is promoted
    assert found.rule.action == ("reset_gpu" if promoted else "none")


def test_of_several_bits_the_worst_decides_though_none_asks_for_an_action():
    found = nvlink5.read(line("TLW_RX_PIPE0", 0, 0x3))
    assert found is not None
    assert found.rule.then == nvlink5.VENDOR


@pytest.mark.parametrize(("printed", "action"), [("Fatal", "reset_gpu"), ("Nonfatal", "none")])
def test_a_bit_that_is_not_listed_has_the_severity_that_is_printed(printed, action):
    found = nvlink5.read(line("SAW_MVB", 0, 0x44, printed))
    assert found is not None
    assert (found.rule.action, found.rule.fatal) == (action, printed == "Fatal")


def then(investigate: str, resolution: str) -> str:
    """Return what is looked for after the first action, by the published table's word for it."""
    if resolution == "XID_154_EVAL":
        return ""
    words = {
        "CONTACT_SUPPORT": "the vendor",
        "REPORT_ISSUE": "the vendor",
        "INVESTIGATE_LINK_SI": "cables",
        "INVESTIGATE_SW": "software",
        "INVESTIGATE_PEER": "other end",
        "INVESTIGATE_HOST": "the host",
    }
    known = [word for name, word in words.items() if investigate.startswith(name)]
    texts = (nvlink5.VENDOR, nvlink5.CABLES, nvlink5.SOFTWARE, nvlink5.PEER, nvlink5.HOST)
    return next((text for text in texts if known and known[0] in text), "")


def test_each_status_of_each_unit_is_resolved_as_the_catalogue_of_october_2025_says():
    texts = {"vendor": nvlink5.VENDOR, "cables": nvlink5.CABLES, "peer": nvlink5.PEER}
    texts |= {"software": nvlink5.SOFTWARE, "host": nvlink5.HOST, "": ""}
    with PUBLISHED.open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 125
    for row in rows:
        printed = "Nonfatal" if row["fatal"] else "Fatal"  # which an unknown status would follow
        words = int(row["subcode"], 16), int(row["status"], 16)
        found = nvlink5.read(line(row["unit"], *words, printed))
        assert found is not None
        known = found.rule.fatal, found.rule.action, found.rule.then
        assert known == (row["fatal"] == "fatal", row["action"], texts[row["then"]]), row


@pytest.mark.skipif(not RULES.is_file(), reason=f"no published rules at {RULES}")
def test_every_published_rule_is_followed():
    with RULES.open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) > 90
    for row in rows:
        subcode = int(row["intrinfo_pattern_v1"].strip("-")[:6], 2)
        for unit in row["unit"].split("/"):
            found = nvlink5.read(line(unit, subcode, int(row["error_status"], 16)))
            assert found is not None
            assert found.rule.action == RESOLUTIONS[row["resolution"]], row
            assert found.rule.then == then(row["investigate"], row["resolution"]), row
            severity = row["severity"].lower()
            assert found.rule.fatal == severity.startswith(("fatal", "link fatal")), row
