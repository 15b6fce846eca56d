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


def printed_to(output, *arguments, **variables):
    """Run a command with its standard output redirected by the shell."""
    command = ["/bin/sh", "-c", f'exec "$@" {output}', "sh", *RANKSCOPE, *arguments]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, capture_output=True, env=env | variables)


@pytest.mark.parametrize(
    "arguments",
    [["explain", "job-log", "a.log"], ["demo", "--help"], ["config", "example"], []],
)
@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["", "unbuffered"])
@pytest.mark.parametrize(
    ("output", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_an_output_that_cannot_be_written_is_said_in_one_sentence(
    output, why, arguments, variables, tmp_path, monkeypatch
):
    (tmp_path / "a.log").write_text(cri("all is well"))
    monkeypatch.chdir(tmp_path)
    done = printed_to(output, *arguments, **variables)
    assert done.stderr.decode() == f"rankscope: cannot write standard output: {why}\n"
    assert done.returncode == 1


def test_a_command_that_prints_nothing_needs_no_output(tmp_path):
    done = printed_to(">&-", "explain", "job-log", str(tmp_path / "none"))
    assert (done.stderr.count(b"\n"), done.returncode) == (1, 1)
    assert b"cannot write" not in done.stderr


def test_an_error_of_another_file_is_reported():
    def command():
        raise OSError("of a disk")

    with pytest.raises(OSError, match="of a disk"):
        closed_output.run(command)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_of_another_encoding_shows_what_it_can(encoding, tmp_path):
    (tmp_path / "a.log").write_text(cri("RuntimeError: größer als ∞ …"))
    variables = {"PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}
    done = printed_to("", "logs", "--from", str(tmp_path / "a.log"), **variables)
    assert (done.stderr, done.returncode) == (b"", 0)
    shown = "größer als ? ?".encode(encoding, "replace")
    assert done.stdout.endswith(shown + b"\n")


def test_a_broken_connection_is_reported():
    def command():
        raise BrokenPipeError("of a server")

    with pytest.raises(BrokenPipeError, match="of a server"):
        closed_output.run(command)
