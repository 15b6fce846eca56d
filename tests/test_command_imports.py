"""Commands that judge no step times start without pandas, whose import takes half a second."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from rankscope_analyzers import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
large = {"pandas", "pyarrow", "torch", "kubernetes"}
sys.stderr.write(" ".join(sorted(sys.modules.keys() & large)))
"""


def imported(*arguments: str) -> set[str]:
    """Return which of the large libraries a command imports."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout, "it printed what it was asked for"
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("probe-path",),
        *(
            (command, "--help")
            for command in ("config", "diff", "doctor", "explain", "fabric-check", "logs")
        ),
    ],
    ids=" ".join,
)
def test_what_needs_no_table_imports_no_pandas(arguments):
    assert imported(*arguments) == set()


def test_a_command_that_judges_step_times_does():
    assert "pandas" in imported("diagnose", "--help")
