"""What `python -m benchmarks` says of itself."""

from __future__ import annotations

import pytest
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
