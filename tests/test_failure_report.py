"""`rankscope explain job-log`: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failed_jobs import lost, table, traceback
from rankscope_agent.contract.failures import causes
from rankscope_analyzers import cli
from rankscope_analyzers.logs.failure_report import runbook

FAILED = traceback(1, "ValueError: loss is nan") + lost(0) + lost(2)
FAILED += table(1, {0: -15, 1: 1, 2: -15})


def explained(capsys, *files: Path) -> dict[str, object]:
    assert cli.main(["explain", "job-log", "--json", *map(str, files)]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_object_names_rank_cause_and_victims(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text(FAILED)
    said = explained(capsys, log)
    assert (said["failed"], said["cause"], said["rank"]) == (True, causes.USER_EXCEPTION, 1)
    assert (said["certain"], said["exception"]) == (True, "ValueError: loss is nan")
    (attempt,) = said["attempts"]
    assert [victim["rank"] for victim in attempt["victims"]] == [0, 2]
    first = attempt["first"]
    assert (first["frame"], first["exit_code"], first["signal"]) == (
        "/app/train.py:14, in load",
        1,
        None,
    )
    assert (first["file"], first["line"], first["torchrun_root_cause"]) == (str(log), 1, True)
    assert said["action"] == causes.ACTIONS[causes.USER_EXCEPTION]


@pytest.mark.parametrize("stamp", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_a_time_that_has_no_date_in_utc_is_unknown_and_the_rest_is_explained(
    stamp, tmp_path, capsys
):
    log = tmp_path / "job.log"
    lines = traceback(1, "ValueError: loss is nan").splitlines()
    log.write_text("".join(f"{stamp} {line}\n" for line in lines))
    said = explained(capsys, log)
    assert (said["cause"], said["rank"]) == (causes.USER_EXCEPTION, 1)
    assert said["attempts"][0]["first"]["time"] is None


def test_the_logs_below_a_directory_are_read(tmp_path, capsys):
    for rank, text in ((0, lost(None)), (1, traceback(None, "ValueError: loss is nan"))):
        folder = tmp_path / "logs" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text)
    said = explained(capsys, tmp_path / "logs")
    assert (said["cause"], said["rank"]) == (causes.USER_EXCEPTION, 1)
    (tmp_path / "none").mkdir()
    assert cli.main(["explain", "job-log", str(tmp_path / "none")]) == 1
    assert "no log in " in capsys.readouterr().err


def test_the_text_is_one_verdict_one_action_and_what_speaks_for_them(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text(FAILED)
    assert cli.main(["explain", "job-log", str(log)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("verdict: rank 1 failed first: ")
    assert "ValueError: loss is nan (/app/train.py:14, in load)" in lines[0]
    assert lines[1].startswith("action: ")
    assert lines[2] == f"cause: user_exception, seen in {log}:1"
    # Peers' addresses differ and are the same trouble.
    assert len([line for line in lines if line.startswith("victims: ranks 0, 2: ")]) == 1


def test_victims_alone_are_told_as_such(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text(lost(0) + lost(3))
    said = explained(capsys, log)
    assert (said["failed"], said["cause"], said["rank"]) == (True, causes.UNKNOWN, None)
    assert said["verdict"].endswith("ranks 1, 2 silent")


def test_a_log_without_a_failure_says_so(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text("step 1\n")
    said = explained(capsys, log)
    assert (said["failed"], said["cause"], said["attempts"]) == (False, causes.NONE, [])


def test_a_missing_log_is_named(tmp_path, capsys):
    assert cli.main(["explain", "job-log", str(tmp_path / "none.log")]) == 1
    assert "none.log" in capsys.readouterr().err


def test_escapes_of_a_log_do_not_reach_the_terminal(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_text(traceback(1, "ValueError: \x1b]0;owned\x07 \x9b31m"))
    assert cli.main(["explain", "job-log", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "ValueError" in shown
    assert "\x1b" not in shown
    assert "\x9b" not in shown


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig", "latin-1"])
def test_logs_in_other_encodings_are_read(encoding, tmp_path, capsys):
    log = tmp_path / "job.log"
    text = f"Größe 3\n{FAILED}".replace("\n", "\r\n")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    log.write_bytes((mark + text).encode(encoding))
    said = explained(capsys, log)
    assert (said["cause"], said["rank"]) == (causes.USER_EXCEPTION, 1)


def test_a_log_of_several_encodings_loses_none_of_its_lines(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_bytes("Größe\n".encode("latin-1") + b"\xff\xfe\x00\n" + FAILED.encode())
    assert explained(capsys, log)["rank"] == 1


@pytest.mark.parametrize("cause", causes.CAUSES)
def test_every_cause_has_a_runbook_that_exists(cause):
    location = runbook(cause)
    assert bool(location) == (cause != causes.NONE)
    assert not location or (Path(__file__).parent.parent / location).is_file()
