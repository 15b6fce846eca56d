"""`--json` of a command that fails: an object that says why, for the program that reads it."""

import json

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.command import InputError
from rankscope_analyzers.commands import xids

FAILING = [
    ("diagnose", "--agent", "localhost:1"),
    ("diagnose", "--trace", "."),
    ("jobs", "--agent", "localhost:1"),
    ("preflight", "nowhere.yaml"),
    ("explain", "job-log", "nowhere.log"),
    ("logs", "--errors", "--from", "nowhere.log"),
    ("diff", "nowhere.json", "nowhere.json"),
]


@pytest.mark.parametrize("words", FAILING, ids=" ".join)
def test_a_program_reads_the_reason_that_a_person_reads(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "--json"]) == 1
    printed = capsys.readouterr()
    (member,) = json.loads(printed.out).items()
    assert member[0] == "error"
    assert printed.err.endswith(f"rankscope {words[0]}: {member[1]}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", "--json"),
        ("diagnose", "--json", "--agent"),
        ("diagnose", "--agnet", "x", "--json"),
        ("demo", "--fault", "slow-moon", "--json"),
        ("jobs", "--agent", "x", "-z", "--json"),
        ("diagnos", "--json"),
        ("runbook", "--json", "x"),
    ],
    ids=" ".join,
)
def test_wrong_options_are_told_to_the_program_as_well(words, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.err.endswith(f": {json.loads(printed.out)['error']}\n")
    assert "--help" in printed.err


@pytest.mark.parametrize("words", [("diagnose",), ("diagnose", "-z", "--", "--json")])
def test_wrong_options_alone_leave_standard_output_empty(words, capsys):
    with pytest.raises(SystemExit):
        cli.main(words)
    assert capsys.readouterr().out == ""


def test_without_the_option_standard_output_stays_empty(capsys):
    assert cli.main(["diff", "nowhere.json", "nowhere.json"]) == 1
    assert capsys.readouterr().out == ""


def test_a_failure_after_the_result_leaves_one_object(monkeypatch, capsys):
    def run(options):
        print("{}")
        raise InputError("cannot write the report")

    monkeypatch.setattr(xids, "run", run)
    assert cli.main(["xids", "--agent", "localhost:1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {}
