"""Limits of how checkpoints are looked at: at each and just beyond it."""

from __future__ import annotations

import struct

import pytest

from rankscope_analyzers.checkpoints import (
    completion,
    contents,
    credentials,
    examined_file,
    inventory,
    judgement,
    pointers,
    safetensors_file,
    shard_names,
    zip_directory,
)
from rankscope_analyzers.checkpoints.contents import Contents
from rankscope_analyzers.checkpoints.effort import Effort
from rankscope_analyzers.checkpoints.grouping import Group
from rankscope_analyzers.checkpoints.inventory import StoredFile
from rankscope_analyzers.checkpoints.parts import of_value
from rankscope_analyzers.checkpoints.pointers import Pointer
from rankscope_analyzers.checkpoints.problems import FileProblem
from rankscope_analyzers.checkpoints.stretch import Stretch, opened
from rankscope_analyzers.checkpoints.symbolic_pickle import walk

MIB = 1 << 20
TOKEN = "hf_" + "a" * 32


def test_structures_of_8_mib_are_read_in_all():
    effort = Effort()
    assert effort.may_read(8 * MIB)
    assert not effort.may_read(1)
    assert effort.skipped_structures == 1
    assert not Effort().may_read(8 * MIB + 1)
    assert Effort(deep=True).may_read(9 * MIB)


def test_metadata_of_96_mib_is_read_in_all():
    effort = Effort()
    assert effort.may_read_metadata(96 * MIB)
    assert not effort.may_read_metadata(1)
    assert not Effort().may_read_metadata(96 * MIB + 1)


def test_the_structures_of_200_files_are_searched():
    names = [f"rank-{number:03}.pt" for number in range(201)]
    assert list(Effort().searched(reversed(names))) == names[:200]
    assert list(Effort(deep=True).searched(names)) == names


def test_an_effort_has_skipped_nothing_at_first():
    assert Effort().skipped_structures == 0


def test_directories_are_listed_sixteen_deep(tmp_path):
    deepest = tmp_path.joinpath(*"abcdefghijklmnop")
    deepest.mkdir(parents=True)
    (deepest / "model.pt").touch()
    listed = inventory.take(tmp_path)
    assert not listed.is_cut
    assert list(listed.folder.all_files()) == ["a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/model.pt"]
    assert listed.entries == 17
    (deepest / "q").mkdir()
    assert inventory.take(tmp_path).is_cut


class Entry:
    """A file of a directory that is not there."""

    name = path = "x"

    def is_symlink(self):
        return False

    def is_dir(self, *, follow_symlinks):
        return False

    is_file = is_dir


class Listing(list):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.mark.parametrize(("count", "is_cut"), [(500_000, False), (500_001, True)])
def test_half_a_million_entries_are_listed(tmp_path, monkeypatch, count, is_cut):
    monkeypatch.setattr(inventory.os, "scandir", lambda _: Listing([Entry()] * count))
    monkeypatch.setattr(inventory, "_add", lambda *_: None)
    assert inventory.take(tmp_path).is_cut == is_cut


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x" * 7, []),
        ("x" * 8, ["a secret as api_key"]),
        ("x" * 20_000, ["a secret as api_key"]),
        ("x" * 20_001, []),
    ],
)
def test_secrets_have_8_to_20_000_characters(text, found):
    assert credentials.in_value({"api_key": text}) == found


def test_twenty_credentials_are_named():
    found = credentials.in_value({f"{number}_token": TOKEN for number in range(21)})
    assert len(found) == 20


@pytest.mark.parametrize(("before", "found"), [(199_999, 1), (200_000, 0)])
def test_credentials_are_looked_for_in_200_000_lines(before, found):
    assert len(credentials.in_text("\n" * before + TOKEN)) == found


def sparse(path, size, content=b""):
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)
    return path


@pytest.mark.parametrize(("size", "kind"), [(64 * MIB, "truncated"), (64 * MIB + 1, "too_large")])
def test_json_of_64_mib_is_read(tmp_path, monkeypatch, size, kind):
    monkeypatch.setattr(Stretch, "read", lambda *_: b"")
    sparse(tmp_path / "model.index.json", size)
    (problem,) = [examined_file.examine_json(tmp_path, "model.index.json").problem]
    assert problem.kind == kind


@pytest.mark.parametrize(("size", "known"), [(4096, 1), (4097, 0)])
def test_pointers_have_4096_bytes(tmp_path, size, known):
    (tmp_path / "latest").write_bytes(b"step-7".ljust(size))
    folder = inventory.take(tmp_path).folder
    assert len(list(pointers.read(tmp_path, folder))) == known


@pytest.mark.parametrize(("length", "kind"), [(10**8, "truncated"), (10**8 + 1, "unparseable")])
def test_headers_of_safetensors_have_a_hundred_million_bytes(tmp_path, length, kind):
    head = length.to_bytes(8, "little") + b"{"
    assert safetensors_file.looks_like(head) == (kind == "truncated")
    (tmp_path / "a.safetensors").write_bytes(head)
    with opened(tmp_path / "a.safetensors") as file, pytest.raises(FileProblem) as raised:
        safetensors_file.read(file)
    assert raised.value.kind == kind


def test_200_000_shards_are_counted_up():
    family = shard_names.Family("rank_{}.pt", (0,), frozenset((n,) for n in range(199_999)))
    assert list(family.missing((200_001,))) == ["rank_199999.pt"]


def test_a_million_values_of_a_structure_are_walked():
    assert sum(1 for _ in walk([0] * 1_000_000)) == 1_000_000


@pytest.mark.parametrize(
    ("size", "kind"), [(128 * MIB, "unparseable"), (128 * MIB + 1, "too_large")]
)
def test_directories_of_archives_have_128_mib(tmp_path, size, kind):
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, size, 0, 0)
    (tmp_path / "a.pt").write_bytes(end)
    with opened(tmp_path / "a.pt") as file, pytest.raises(FileProblem) as raised:
        zip_directory.members(file)
    assert raised.value.kind == kind


def test_keys_of_20_000_entries_are_looked_at():
    entries = {f"x{number}": 1 for number in range(19_999)}
    assert "optimizer" in of_value(entries | {"optimizer_states": 1})
    assert "optimizer" not in of_value(entries | {"one_more": 1, "optimizer_states": 1})


def group(*files):
    return Group("step-7", "deepspeed", {file.name: file for file in files}, "step-7")


@pytest.mark.parametrize(("late", "completed"), [(2.0, True), (2.5, False), (-5.0, True)])
def test_a_pointer_may_be_two_seconds_older_than_what_it_completes(late, completed):
    pointer = Pointer("latest", "step-8", 1000.0, None, leads=True)
    one = group(StoredFile("step-7/model.pt", 10, 1000.0 + late))
    assert completion.is_completed(one, Contents(), [pointer]) == completed


@pytest.mark.parametrize(("age", "state"), [(599.0, "being_written"), (601.0, "interrupted")])
def test_a_save_without_an_end_may_go_on_for_ten_minutes(age, state):
    pointer = Pointer("latest", "step-6", 0.0, None, leads=True)
    one = group(StoredFile("step-7/model.pt", 10, 1000.0))
    assert judgement._state(one, Contents(), [pointer], 1000.0 + age, {}) == state


def files_with_tokens(folder, sizes):
    for name, size in sizes.items():
        (folder / name).write_text(f"{TOKEN}\n".ljust(size, "\n"))
    return Group("", "files", inventory.take(folder).folder.files, "")


def leaks(folder, one):
    found = contents.read(folder, one, Effort()).problems
    return [problem.file for problem in found if problem.kind == "credentials"]


def test_texts_of_a_mebibyte_are_searched_for_credentials(tmp_path):
    one = files_with_tokens(tmp_path, {"a.txt": MIB, "b.txt": MIB + 1})
    assert leaks(tmp_path, one) == ["a.txt"]


def test_500_texts_are_searched_for_credentials(tmp_path):
    one = files_with_tokens(tmp_path, {f"{number:03}.txt": 40 for number in range(501)})
    assert leaks(tmp_path, one)[-1] == "499.txt"
    assert len(leaks(tmp_path, one)) == 500
