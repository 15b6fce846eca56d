"""A demo that is stopped leaves none of its processes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rankscope_analyzers.demo.termination import interrupting

STARTED = """
import signal, sys, time
from pathlib import Path

for number in (signal.SIGTERM, signal.SIGHUP):  # what nohup starts ignores one
    signal.signal(number, signal.SIG_DFL)

from rankscope_analyzers import cli
from rankscope_analyzers.demo import run as demo

def run(fault, rank, console):
    with demo.process(
        [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]), {}
    ) as process:
        print(process.pid, flush=True)
        while True:  # as the demo does: Python may sleep through a signal that comes just before
            time.sleep(0.1)

demo.run = run
raise SystemExit(cli.main(["demo"]))
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 2])  # `timeout` signals the process, then its group
def test_a_stopped_demo_ends_what_it_started(number, times, tmp_path):
    command = [sys.executable, "-c", STARTED, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        pid = int(running.stdout.readline())
        for _ in range(times):
            running.send_signal(number)
        assert running.wait(60) == 130
        assert running.stderr.read() == b""
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
