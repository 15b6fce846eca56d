"""Paths that a watch cannot write to are refused before it reads anything, and nothing is moved."""

from __future__ import annotations

import os

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.watch.store import FileStore, StoreError

NOBODY = ("watch", "--once", "--agent", "localhost:1")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    return tmp_path


def refused(capsys, option, path):
    assert cli.main([*NOBODY, option, str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.parametrize("option", ["--state", "--incident-log"])
def test_a_directory_is_not_moved_away_for_a_file(option, folder, capsys):
    said = refused(capsys, option, folder / "files")
    assert said == f"rankscope watch: {option} takes a file: {folder / 'files'} is a directory\n"
    assert sorted(one.name for one in folder.iterdir()) == ["file", "files"]
    assert (folder / "files" / "mine").read_text() == "mine"


@pytest.mark.parametrize("option", ["--state", "--incident-log"])
def test_a_file_is_not_expected_where_no_directory_is(option, folder, capsys):
    said = refused(capsys, option, folder / "none" / "file")
    where = folder / "none"
    assert said == f"rankscope watch: {option} {where / 'file'}: there is no directory {where}\n"


def test_what_is_no_regular_file_is_not_replaced(folder, capsys):
    os.mkfifo(folder / "pipe")
    assert refused(capsys, "--state", folder / "pipe").endswith("pipe is no regular file\n")


@pytest.mark.parametrize("option", ["--captures", "--records"])
def test_a_file_is_no_directory(option, folder, capsys):
    said = refused(capsys, option, folder / "file")
    assert said == f"rankscope watch: {option} takes a directory: {folder / 'file'} is none\n"


def test_state_is_not_saved_over_a_directory_that_was_created_later(folder):
    with pytest.raises(StoreError, match="files is no regular file"):
        FileStore(folder / "files").write([], 1000.0)
    assert sorted(one.name for one in folder.iterdir()) == ["file", "files"]
