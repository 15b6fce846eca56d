import os

import pytest

from rankscope_analyzers import cli
from simulated_jobs import Fault, Job, records


@pytest.fixture
def trace(tmp_path):
    folder = tmp_path / "job7"
    folder.mkdir()
    rows = records(Job(steps=60, faults=(Fault("data", (4,), 0.4),)))
    rows.to_csv(folder / "records.csv", index=False)
    return folder


@pytest.fixture
def diagnose(trace, capsys):
    def run(*arguments):
        code = cli.main(["diagnose", "--trace", str(trace), "--no-color", *map(str, arguments)])
        return code, capsys.readouterr()

    return run


def test_html_and_markdown_are_written_beside_the_terminals_report(diagnose, tmp_path):
    html, markdown = tmp_path / "out.html", tmp_path / "out.md"
    code, said = diagnose("--html", html, "--markdown", markdown)
    assert code == 0
    assert "data_loader: rank 4" in said.out
    assert said.err == f"report written to {html}\nreport written to {markdown}\n"
    assert "rank 4 (node node-00000, GPU 4)" in html.read_text(encoding="utf-8")
    assert markdown.read_text(encoding="utf-8").startswith("# Incident report: job job7\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job7", "out.html", "out.md"]


def test_markdown_without_a_file_is_all_that_is_printed(diagnose):
    code, said = diagnose("--markdown")
    assert (code, said.err) == (0, "")
    assert said.out.startswith("# Incident report: job job7\n")
    assert "╭" not in said.out


def test_everybody_may_read_a_report_whatever_the_umask(diagnose, tmp_path):
    before = os.umask(0o077)
    try:
        diagnose("--html", tmp_path / "out.html")
    finally:
        os.umask(before)
    assert (tmp_path / "out.html").stat().st_mode & 0o777 == 0o644


def test_an_older_report_is_replaced_as_a_whole(diagnose, tmp_path):
    target = tmp_path / "out.html"
    target.write_text("old")
    other = tmp_path / "still-open"
    other.hardlink_to(target)
    assert diagnose("--html", target)[0] == 0
    assert other.read_text() == "old"
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_what_is_no_regular_file_stays_as_it_is(diagnose, tmp_path, kind):
    target, secret = tmp_path / "out.html", tmp_path / "secret"
    secret.write_text("kept")
    {"link": lambda: target.symlink_to(secret), "directory": target.mkdir}.get(
        kind, lambda: os.mkfifo(target)
    )()
    code, said = diagnose("--html", target)
    assert code == 1
    assert f"{target} is not a regular file and stays unchanged" in said.err
    assert secret.read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--json", "--markdown"], "both print: give --markdown a FILE"),
        (["--html", "-"], "--html takes a FILE"),
        (["--html", "a", "--markdown", "a"], "cannot both be a"),
        (
            ["--html", "missing-folder/a.html"],
            "there is no directory missing-folder",
        ),
        (["--verdicts", "v.json", "--markdown", "a"], "--verdicts writes no report"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_sentence(diagnose, arguments, complaint):
    code, said = diagnose(*arguments)
    assert code == 1
    assert complaint in said.err
    assert len(said.err.splitlines()) == 1


def test_json_and_files_go_together(diagnose, tmp_path):
    code, said = diagnose("--json", "--html", tmp_path / "out.html")
    assert code == 0
    assert said.out.startswith("{")
    assert (tmp_path / "out.html").exists()
