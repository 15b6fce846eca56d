"""Commands whose output nobody reads any more end without a message."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from failed_jobs import cri
from rankscope_analyzers.isolation import closed_output

RANKSCOPE = (sys.executable, "-m", "rankscope_analyzers")
CONSOLE = """
from rankscope_analyzers.isolation import closed_output
from rankscope_analyzers.text.console import open_console
raise SystemExit(closed_output.run(lambda: open_console(no_color=True).print("x") or 0))
"""


def closed_at_once(*command):
    """Run a command whose output has no reader, and is buffered as it is by default."""
    reader, writer = os.pipe()
    os.close(reader)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=env)
    finally:
        os.close(writer)


def test_logs_end_when_their_reader_has_read_enough(tmp_path):
    (tmp_path / "a.log").write_text(cri("a line of a log", 1) * 20_000)
    command = [*RANKSCOPE, "logs", "--from", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.readline().endswith(b": a line of a log\n")
    running.stdout.close()
    assert (running.stderr.read(), running.wait()) == (b"", 141)
    running.stderr.close()


@pytest.mark.parametrize("arguments", [["explain", "job-log", "a.log"], ["--help"], []])
def test_an_output_that_nobody_reads_is_no_error_to_report(tmp_path, monkeypatch, arguments):
    (tmp_path / "a.log").write_text(cri("all is well"))
    monkeypatch.chdir(tmp_path)
    done = closed_at_once(*RANKSCOPE, *arguments)
    assert (done.stderr, done.returncode) == ("", 141)


def test_the_console_of_tables_ends_likewise():
    done = closed_at_once(sys.executable, "-c", CONSOLE)
    assert (done.stderr, done.returncode) == ("", 141)


def test_a_broken_connection_is_reported():
    def command():
        raise BrokenPipeError("of a server")

    with pytest.raises(BrokenPipeError, match="of a server"):
        closed_output.run(command)
