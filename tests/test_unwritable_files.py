"""Files that cannot be written are refused before anything is read, and cost no answer."""

import pytest

from rankscope_analyzers import cli
from test_honest_answers import Agent

SILENT = ("--agent", "127.0.0.1:1")

COMMANDS = [
    ("diagnose", *SILENT, "--html"),
    ("diagnose", *SILENT, "--markdown"),
    ("diagnose", "--trace", "none", "--verdicts"),
    ("verify", "t/j", *SILENT, "--junit"),
    ("preflight", *SILENT, "--junit"),
    ("record", *SILENT),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_in_a_missing_directory_is_refused_before_anything_is_read(
    command, tmp_path, capsys
):
    file = tmp_path / "none" / "file"
    assert cli.main([*command, str(file)]) == 1
    why = f"{file} cannot be written: there is no directory {file.parent}"
    assert capsys.readouterr().err == f"rankscope {command[0]}: {why}\n"


@pytest.mark.parametrize("command", COMMANDS[3:])
def test_a_directory_or_a_protected_file_is_no_file_to_write(
    command, tmp_path, capsys, monkeypatch
):
    (tmp_path / "protected").touch()
    monkeypatch.setattr("os.access", lambda path, mode: path == tmp_path)  # root may write it
    for path, why in ((tmp_path, "it is a directory"), (tmp_path / "protected", "not writable")):
        assert cli.main([*command, str(path)]) == 1
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("command", [("preflight",), ("verify", "t/j")])
def test_a_full_disk_costs_no_answer_and_a_closed_pipe_no_file(
    command, tmp_path, capsys, monkeypatch
):
    def full(*_, **_more):
        raise OSError(28, "No space left on device")

    with Agent() as agent:
        asked = [*command, "--agent", agent.url, "--junit", str(tmp_path / "file")]
        monkeypatch.setattr("pathlib.Path.write_text", full)
        assert cli.main(asked) == 1
        said = capsys.readouterr()
        assert "No space left on device" in said.err
        assert "ranks" in said.out or "1 node" in said.out
        monkeypatch.undo()
        monkeypatch.setattr("rich.console.Console.print", full)  # what a closed pipe is like
        with pytest.raises(OSError, match="No space left"):
            cli.main(asked)
    assert (tmp_path / "file").exists()


def test_a_directory_with_files_is_refused_before_anything_is_read(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["diagnose", *SILENT, "--save", str(tmp_path)]) == 1
    assert f"{tmp_path} is not empty" in capsys.readouterr().err
