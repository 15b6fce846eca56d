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
