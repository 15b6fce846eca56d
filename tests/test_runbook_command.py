"""`rankscope runbook`: the runbook of a verdict, wherever Rankscope is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.preflight.checks import CHECKS, POD_CHECKS, POOL_CHECKS
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.verification.criteria import CRITERIA

FOLDER = Path(__file__).parent.parent / "docs" / "runbooks"


@pytest.mark.parametrize("name", ["RankscopeHang", "docs/runbooks/RankscopeHang.md"])
def test_a_runbook_is_printed_by_its_name_and_by_the_path_in_json(name, capsys):
    assert cli.main(["runbook", name]) == 0
    assert capsys.readouterr().out == (FOLDER / "RankscopeHang.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["preflight#numa", "docs/preflight.md#numa"])
def test_the_section_of_a_check_is_printed_by_the_page_in_json(name, capsys):
    assert cli.main(["runbook", name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("## numa\n")
    assert printed.count("\n## ") == 0
    assert printed.strip() in (FOLDER.parent / "preflight.md").read_text(encoding="utf-8")


def test_every_check_has_a_section_that_its_page_names(capsys):
    for check in (*CHECKS, *POOL_CHECKS, *POD_CHECKS, *CRITERIA):
        assert cli.main(["runbook", check.page]) == 0


def test_a_section_that_is_not_there_is_refused(capsys):
    assert cli.main(["runbook", "preflight#num"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, "did you mean numa?" in printed.err) == ("", True)


def test_without_a_name_all_are_listed(capsys):
    assert cli.main(["runbook"]) == 0
    *books, preflight, verify = capsys.readouterr().out.split()
    assert books == sorted(file.stem for file in FOLDER.glob("*.md"))
    assert (preflight, verify) == ("preflight", "verify")


@pytest.mark.parametrize(
    ("kind", "title"),
    [("hang", "# A job hangs\n"), ("gpu_compute", "# A rank computes longer than its peers\n")],
)
def test_the_class_of_a_verdict_leads_to_its_runbook(kind, title, capsys):
    assert cli.main(["runbook", kind]) == 0
    assert capsys.readouterr().out.startswith(title)


@pytest.mark.parametrize("name", ["RankscopeHangs", "../../README.md", ""])
def test_a_name_without_a_runbook_is_refused(name, capsys):
    assert cli.main(["runbook", name]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("rankscope runbook: there is no runbook ")
    assert ("did you mean RankscopeHang?" in printed.err) == (name == "RankscopeHangs")


def test_an_installation_without_runbooks_says_so(monkeypatch, capsys):
    monkeypatch.setattr(runbooks, "folder", lambda: None)
    assert cli.main(["runbook", "RankscopeHang"]) == 1
    assert "this installation has no runbooks" in capsys.readouterr().err
