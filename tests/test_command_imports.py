"""Help and usage errors import no large library; of the commands, only those that need one do."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence

from rankscope_analyzers import cli

LARGE = ("kubernetes", "numpy", "pandas", "pyarrow", "torch")

EACH = f"""
import contextlib, importlib, io, json, sys
imported = []
for line in sys.argv[1:]:
    program, *sys.argv[1:] = line.split()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = importlib.import_module(program).main()
        except SystemExit as left:
            code = left.code
    imported.append((line, code, [name for name in {LARGE!r} if name in sys.modules]))
print(json.dumps(imported))
"""

RANKSCOPE, AGENT = "rankscope_analyzers.cli", "rankscope_agent.cli"
DASHBOARDS = "rankscope_dashboards.generate"


def after_each(*lines: str) -> list[tuple[str, int, list[str]]]:
    """Run command lines in one process; return each with its code and the libraries so far."""
    done = subprocess.run([sys.executable, "-c", EACH, *lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [(line, code, libraries) for line, code, libraries in json.loads(done.stdout)]


def test_help_and_usage_errors_import_no_large_library():
    asked = [f"{RANKSCOPE} {name} --help" for name in cli.COMMANDS]
    asked += [f"{RANKSCOPE} {rest}".strip() for rest in ("", "--help", "--version")]
    asked += [f"{AGENT} --help", f"{DASHBOARDS} --help", f"{DASHBOARDS} generate --help"]
    wrong = [f"{RANKSCOPE} {name} --no-such-option" for name in cli.COMMANDS]
    wrong.append(f"{RANKSCOPE} no-such-command")
    expected = [*((line, 0, []) for line in asked), *((line, 1, []) for line in wrong)]
    assert after_each(*asked, *wrong) == expected


WITHOUT_TABLES: Sequence[str] = (
    "probe-path",
    "runbook no-such-runbook",
    "config check no-such-file",
    "diff no-such-record no-such-record",
    "doctor --agent 127.0.0.1:1",
    "explain job-log no-such-file",
    "logs --from no-such-file",
    "preflight no-such-file",
    "xids --agent 127.0.0.1:1",
)
JUDGES = "diagnose --agent 127.0.0.1:1"


def test_only_commands_that_judge_times_import_pandas():
    found = after_each(*(f"{RANKSCOPE} {line}" for line in (*WITHOUT_TABLES, JUDGES)))
    importing = {shlex.split(line)[1] for line, _, libraries in found if "pandas" in libraries}
    assert importing == {"diagnose"}
