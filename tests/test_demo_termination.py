"""A demo that is stopped leaves none of its processes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from rankscope_analyzers.demo.termination import interrupting

STARTED = """
import os, signal, sys, time
from pathlib import Path

for number in (signal.SIGTERM, signal.SIGHUP):  # what nohup starts ignores one
    signal.signal(number, signal.SIG_DFL)

from rankscope_analyzers import cli
from rankscope_analyzers.demo import run as demo

def run(fault, rank, console):
    with demo.process(
        [sys.executable, "-c", "import time; time.sleep(600)"], folder / "log", {}
    ) as process:
        (folder / "pid.new").write_text(str(process.pid))
        (folder / "pid.new").rename(folder / "pid")
        while True:  # as the demo does: Python may sleep through a signal that comes just before
            time.sleep(0.1)

demo.run = run
for line in sys.stdin:
    folder = Path(line.strip())
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)  # a demo that heeds no signal
        for descriptor in (1, 2):
            os.dup2(os.open(folder / "printed", os.O_WRONLY | os.O_CREAT), descriptor)
        sys.exit(cli.main(["demo"]))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""A process that forks a demo for each folder that it is told, as importing the demo takes a core a
second; it answers with the demo's process id, and then with its exit code."""


@pytest.fixture(scope="module")
def demos():
    """Give the process that forks demos."""
    command, pipe = [sys.executable, "-c", STARTED], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as forking:
        yield forking


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 2])  # `timeout` signals the process, then its group
def test_a_stopped_demo_ends_what_it_started(number, times, demos, tmp_path):
    print(tmp_path, file=demos.stdin, flush=True)
    demo = int(demos.stdout.readline())
    while not (tmp_path / "pid").exists() and alive(demo):
        time.sleep(0.02)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(times):
        os.kill(demo, number)
    assert int(demos.stdout.readline()) == 130
    assert (tmp_path / "printed").read_bytes() == b""
    assert not alive(pid)


def test_signals_that_are_ignored_or_handled_remain_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupting():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
