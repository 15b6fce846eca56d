"""What `python -m benchmarks` says of itself."""

from __future__ import annotations

import pytest
from benchmarks import __main__ as command
from benchmarks import rule_cost, straggler_speed
from benchmarks.__main__ import BENCHMARKS, main


def test_help_lists_every_benchmark_unbroken(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    said = capsys.readouterr().out.replace(",", " ").replace(".", " ").split()
    assert ended.value.code == 0
    assert set(BENCHMARKS) <= set(said)


def test_an_unknown_name_runs_nothing_and_says_which_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["rdma", "nosuch"])
    out, error = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert "unknown nosuch; there are table, probe" in error


def test_a_server_that_does_not_start_is_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "prometheus").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "prometheus").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(rule_cost, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(rule_cost, "FIRST_NODES", range(1))
    monkeypatch.setattr(command, "end_on_terminate", lambda: None)  # this process is no benchmark
    assert main(["rules"]) == 1
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("python -m benchmarks rules: ")
    assert error.endswith(" within 0.2 s\n")


def test_the_speed_of_the_detector_is_measured(monkeypatch):
    for name, small in {"RANKS": 64, "TRACE_RANKS": 64, "TRACE_STEPS": 40, "ROUNDS": 1}.items():
        monkeypatch.setattr(straggler_speed, name, small)
    said = straggler_speed.report(straggler_speed.measure())
    assert said.startswith("16 steps of 64 ranks with evaluations: ")
    assert "2560 records, a second from table to incidents: by step " in said
