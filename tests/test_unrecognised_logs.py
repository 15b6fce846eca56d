"""What was not understood is no all-clear: files that are no logs, and jobs that nobody knows."""

from __future__ import annotations

import pytest

from rankscope_agent.contract.metrics import kernel_log, training
from rankscope_analyzers import cli
from rankscope_analyzers.intake import agent_pages
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.logs.recognised import is_of_kernel

EMPTY, BINARY, CUT_OFF = b"", bytes(range(256)) * 8, b'{"a":'
LINES = (
    b"[    0.000000] Linux version 6.8.0\n",
    b"<6>[   12.345678] usb 1-1: new device\n",
    b"[Sun Nov 29 11:08:43 2026] usb 1-1: new device\n",
    b"[Nov29 11:08] usb 1-1: new device\n[  +0.000013] usb 1-1: more\n",
    b"6,1234,98765432,-;usb 1-1: new device\n",
    b"2026-11-29T11:08:43,123456+00:00 usb 1-1: new device\n",
    b"Nov 29 11:08:43 node-1 kernel: usb 1-1: new device\n",
    b'{"_TRANSPORT":"kernel","MESSAGE":"usb 1-1: new device"}\n',
)


@pytest.mark.parametrize("content", [EMPTY, BINARY, CUT_OFF, b"step 1 loss 2.0\n"])
def test_a_file_that_is_no_kernel_log_is_not_called_benign(tmp_path, capsys, content):
    (tmp_path / "f").write_bytes(content)
    assert cli.main(["explain", "kernel-log", str(tmp_path / "f")]) == 1
    shown = capsys.readouterr()
    assert "no line is of a kernel log, so nothing is known" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("content", LINES)
def test_kernel_logs_of_all_usual_forms_are_recognised(tmp_path, capsys, content):
    assert is_of_kernel(content)
    (tmp_path / "f").write_bytes(content)
    assert cli.main(["explain", "kernel-log", str(tmp_path / "f")]) == 0
    assert "no line of this log is known as a fault" in capsys.readouterr().out


def test_what_is_understood_without_a_time_is_understood(tmp_path):
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=41210, name=python, GPU has fallen off the bus.\n"
    (tmp_path / "f").write_text(line)
    assert cli.main(["explain", "kernel-log", str(tmp_path / "f")]) == 0


@pytest.mark.parametrize("content", [EMPTY, BINARY, b"\n \n", b"\0" * 4096])
@pytest.mark.parametrize(
    "command",
    [
        ("explain", "job-log"),
        ("explain", "nccl-log"),
        ("explain", "watchdog-log"),
        ("logs", "--errors", "--from"),
    ],
)
def test_a_file_without_text_does_not_show_that_a_job_did_not_fail(
    tmp_path, capsys, command, content
):
    (tmp_path / "f.log").write_bytes(content)
    assert cli.main([*command, str(tmp_path / "f.log")]) == 1
    shown = capsys.readouterr()
    assert "no line of text" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("content", [b"step 1 loss 2.0\n", b"step 1\n" + b"\0" * 512])
def test_a_job_log_of_ordinary_lines_shows_no_failure(tmp_path, capsys, content):
    (tmp_path / "f.log").write_bytes(content)
    assert cli.main(["explain", "job-log", str(tmp_path / "f.log")]) == 0
    assert "no sign of a failure that is known is in these logs" in capsys.readouterr().out


RANK = f'{training.RANK_INFO.name}{{job_id="ns/job",rank="0"}} 1\n'
READ_LOG = f'{kernel_log.KERNEL_EVENTS.name}{{kind="disk_error"}} 0\n'


@pytest.mark.parametrize(("job", "code"), [("ns/job", 0), ("ns/jop", 1)])
def test_a_job_that_nobody_knows_is_not_called_free_of_gpu_errors(monkeypatch, capsys, job, code):
    page = Page("node-1", 1_760_000_000.0, RANK + READ_LOG)
    monkeypatch.setattr(agent_pages, "pages", lambda agents: ([page], []))
    assert cli.main(["xids", "--agent", "http://localhost:1", "--job", job]) == code
    shown = capsys.readouterr()
    assert ("No GPU reported an error" in shown.out) == (code == 0)
    assert ("there is no job 'ns/jop' in what was read" in shown.err) == (code == 1)
