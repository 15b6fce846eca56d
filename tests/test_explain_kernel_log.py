"""`rankscope explain kernel-log`: what an engineer with a node's log in hand gets."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import types
from pathlib import Path

from kernel_text import recovery, stamped, xid
from rankscope_analyzers import cli

LOST = "\n".join(
    (
        stamped(10.0, xid(79)),
        stamped(10.1, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."),
        stamped(10.2, xid(45, "Ch 00000001", pid=None)),
        stamped(10.3, xid(45, "Ch 00000002", pid=None)),
        stamped(10.4, recovery(2)),
        "",
    )
)


def explained(capsys, *arguments: str) -> dict:
    assert cli.main(["explain", "kernel-log", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


PAGE = Path(__file__).parents[1] / "docs" / "kernel_log.md"
SHOWN = """\
[81234.101] NVRM: GPU at PCI:0000:3b:00: GPU-3f2a7c11-58d2-4b7e-9a3c-0d1e2f3a4b5c
[81234.102] NVRM: Xid (PCI:0000:3b:00): 79, pid=41210, name=python, GPU has fallen off the bus.
[81234.103] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
[81234.950] NVRM: Xid (PCI:0000:3b:00): 45, pid=41210, name=python, Ch 00000012
[81234.951] NVRM: Xid (PCI:0000:3b:00): 45, pid=41210, name=python, Ch 00000012
[81234.990] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed\
 from 0x0 (None) to 0x2 (Node Reboot Required)
[81235.020] mlx5_core 0000:49:00.0 mlx5_4: Port: 1 Link ACTIVE
"""


def test_the_page_on_kernel_logs_shows_what_is_printed(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text(SHOWN)
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    assert f"```\n{capsys.readouterr().out}```\n" in PAGE.read_text()


def test_the_json_has_the_promised_members(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text(LOST)
    said = explained(capsys, str(log))
    assert set(said) >= {"events", "incidents", "verdict"}
    first = said["events"][0]
    assert first == {
        "kind": "xid",
        "xid": 79,
        "pci": "0000:3b:00",
        "pid": 71,
        "severity": "fatal",
        "action": "reboot_node",
        "count": 1,
        "text": xid(79),
    }
    assert [(e["xid"], e["pid"], e["count"]) for e in said["events"] if e["kind"] == "xid"] == [
        (79, 71, 1),
        (45, None, 2),
        (154, None, 1),
    ]
    (incident,) = said["incidents"]
    assert set(incident) == {
        *("cause", "action", "subject", "summary", "nvidia", "events"),
        *("first_time", "last_time", "before_last_boot"),
    }
    assert (incident["first_time"], incident["last_time"]) == (
        "10.000 s after boot",
        "10.400 s after boot",
    )
    assert len(incident["events"]) == 4
    assert (said["verdict"]["cause"], said["verdict"]["action"]) == ("pcie", "reboot_node")


def test_the_text_says_the_verdict_first(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text(LOST)
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("verdict: GPU 0000:3b:00: Xid 79, ")
    assert second == "cause: pcie; first action: reboot the node"


def test_what_was_before_the_last_boot_is_dated_and_comes_last(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text(
        f"2026-10-01T02:14:27+0000 n7 kernel: {xid(79)}\n"
        "2026-10-01T02:24:27+0000 n7 kernel: Linux version 5.15.0-100-generic\n"
        f"2026-11-29T02:14:27+0000 n7 kernel: {xid(94, pci='0000:5d:00')}\n"
        f"2026-11-29T02:14:29+0000 n7 kernel: {xid(94, pci='0000:5d:00')}\n"
    )
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0].startswith("verdict: GPU 0000:5d:00: Xid 94, ")
    assert text[0].endswith("(and 1 more incident: GPU 0000:3b:00 before the last boot)")
    assert text[2] == "when: 2026-11-29T02:14:27+0000 to 2026-11-29T02:14:29+0000"
    since, before = explained(capsys, str(log))["incidents"]
    assert before["summary"].startswith("before the last boot: GPU 0000:3b:00: Xid 79")
    assert before["first_time"] == before["last_time"] == "2026-10-01T02:14:27+0000"
    assert (since["before_last_boot"], before["before_last_boot"]) == (False, True)


def test_a_log_without_times_has_none(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text(f"{xid(79)}\n")
    said = explained(capsys, str(log))
    assert said["incidents"][0]["first_time"] is said["verdict"]["last_time"] is None
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    assert "when:" not in capsys.readouterr().out


def test_a_blanked_out_address_is_null(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text("NVRM: Xid (PCI:...): 145, x\n")
    (event,) = explained(capsys, str(log))["events"]
    assert (event["pci"], event["pid"], event["xid"]) == (None, None, 145)


def test_a_benign_log_has_no_incident_and_says_what_is_harmless(tmp_path, capsys):
    log = tmp_path / "kern.log"
    log.write_text("mlx5_core 0000:01:00.0 mlx5_0: Port: 1 Link ACTIVE\n")
    said = explained(capsys, str(log))
    assert said["incidents"] == []
    assert said["verdict"]["cause"] == "benign"
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    assert "harmless: 1x mlx5_core" in capsys.readouterr().out


def test_standard_input_and_gzip_are_read(tmp_path, monkeypatch, capsys):
    source = types.SimpleNamespace(buffer=io.BytesIO(LOST.encode()))
    monkeypatch.setattr(sys, "stdin", source)
    assert explained(capsys, "-")["verdict"]["cause"] == "pcie"
    packed = tmp_path / "kern.log.1.gz"
    packed.write_bytes(gzip.compress(LOST.encode()))
    assert explained(capsys, str(packed))["verdict"]["cause"] == "pcie"


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    assert cli.main(["explain", "kernel-log", str(tmp_path / "no.log")]) == 1
    assert "no.log: No such file" in capsys.readouterr().err


def test_text_of_a_log_stays_text(tmp_path, capsys):
    log = tmp_path / "kern.log"
    evil = 'name=\x1b[2J"},{"xid":1}<script>\u202e, \x1b]0;owned\x07 \x9b31m <b>x</b>'
    log.write_text(f"NVRM: Xid (PCI:0000:3b:00): 13, pid=1, {evil}\n")
    assert [e["xid"] for e in explained(capsys, str(log))["events"]] == [13]
    assert cli.main(["explain", "kernel-log", str(log)]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_explaining_a_kernel_log_imports_neither_pandas_nor_numpy(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text(LOST)
    code = (
        "import sys; from rankscope_analyzers import cli; status = cli.main(sys.argv[1:]);"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'rich', 'shtab'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, "explain", "kernel-log", str(log)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{root / 'agent'}:{root / 'analyzers'}"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
