"""Numbers of checkpoints' file formats: widths of elements, digests, ends of archives."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
import zipfile
from functools import partial

import pytest

from rankscope_agent.contract import untrusted_pickle
from rankscope_analyzers.checkpoints import (
    dcp_shards,
    digest_list,
    directory_report,
    examined_file,
    explanation,
    safetensors_file,
    symbolic_pickle,
    torch_file,
    zip_directory,
)
from rankscope_analyzers.checkpoints.dcp_metadata import Item
from rankscope_analyzers.checkpoints.problems import FileProblem
from rankscope_analyzers.checkpoints.stretch import Stretch, opened
from rankscope_analyzers.checkpoints.symbolic_pickle import Storage
from rankscope_analyzers.checkpoints.zip_directory import Member

MIB = 1 << 20


def problem_of(read, *arguments, **options):
    """Return the kind of what is wrong with a file, "" if nothing is."""
    try:
        read(*arguments, **options)
    except FileProblem as error:
        return error.kind
    return ""


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha384", "sha512"])
def test_digests_are_recognised_by_their_length(tmp_path, algorithm):
    (tmp_path / "model.pt").write_bytes(b"weights")
    digest = hashlib.new(algorithm, b"weights", usedforsecurity=False).hexdigest()
    listed = digest_list.read(f"{digest}  model.pt\n")
    assert list(digest_list.problems(tmp_path, listed)) == []
    (tmp_path / "model.pt").write_bytes(b"other")
    assert [one.kind for one in digest_list.problems(tmp_path, listed)] == ["checksum"]


WIDTHS = {
    8: ("F64", "I64", "U64", "C64"),
    4: ("F32", "I32", "U32"),
    2: ("F16", "BF16", "I16", "U16"),
    1: ("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"),
}


@pytest.mark.parametrize(
    ("kind", "width"), [(kind, width) for width, kinds in WIDTHS.items() for kind in kinds]
)
def test_elements_of_safetensors_have_the_widths_of_their_types(tmp_path, kind, width):
    def written(size):
        tensor = {"dtype": kind, "shape": [3], "data_offsets": [0, size]}
        head = json.dumps({"a": tensor}).encode()
        (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(size))
        with opened(tmp_path / "a.safetensors") as file:
            return problem_of(safetensors_file.read, file)

    assert [written(3 * width + more) for more in (-1, 0, 1)] == ["unparseable", "", "unparseable"]


STORAGES = {
    1: ("Byte", "Char", "Bool", "Untyped", "QInt8", "QUInt8"),
    2: ("Half", "BFloat16", "Short"),
    4: ("Float", "Int", "QInt32"),
    8: ("Double", "Long", "ComplexFloat"),
    16: ("ComplexDouble",),
}
STORAGE_WIDTHS = {f"torch.{kind}Storage": w for w, kinds in STORAGES.items() for kind in kinds}


@pytest.mark.parametrize(
    ("kind", "width"), [*STORAGE_WIDTHS.items(), ("torch.storage.UntypedStorage", 1)]
)
def test_elements_of_torchs_storages_have_the_widths_of_their_types(kind, width):
    def checked(size):
        members = {"a/data/0": Member("a/data/0", 0, size, stored=True, checksum=0)}
        return problem_of(torch_file._check_storages, Storage(kind, "0", 3), members, "a/")

    sizes = (3 * width - 1, 3 * width, 3 * width + 1)
    assert [checked(size) for size in sizes] == ["wrong_size", "", "wrong_size"]


def test_a_row_of_pickles_is_recognised_by_the_number_that_begins_it(tmp_path):
    # torch/serialization.py: magic number, protocol, system, structure, keys of storages.
    row = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"step": 7}, [])
    path = tmp_path / "old.pt"
    path.write_bytes(b"".join(pickle.dumps(part, 2) for part in row))
    with opened(path) as file:
        assert torch_file.read_pickles(file).value == {"step": 7}


@pytest.mark.parametrize(
    ("begin", "known"),
    [(b"\x80\1", False), *((b"\x80%c" % n, True) for n in range(2, 6)), (b"\x80\6", False)],
)
def test_pickles_of_protocols_2_to_5_are_recognised(tmp_path, begin, known):
    (tmp_path / "state.bin").write_bytes(begin + b"N.")
    found = examined_file.examine(tmp_path, "state.bin", deep=False, structure=lambda size: True)
    assert (found.format == "pickle") is known


@pytest.mark.parametrize("text", [b"U\3abc.", b"T\3\0\0\0abc."])
def test_texts_of_python_2_are_read_behind_a_length_of_one_byte_or_four(text):
    assert symbolic_pickle.loads(text) == "abc"


@pytest.fixture
def refused(monkeypatch):
    """Return why a pickle is refused, "" if it is not; `begun` is what was made of it before."""
    machine = symbolic_pickle._SymbolicMachine

    def reason(data, **begun):
        monkeypatch.setattr(symbolic_pickle, "_SymbolicMachine", partial(machine, **begun))
        try:
            symbolic_pickle.loads(data)
        except symbolic_pickle.UnsafePickle as error:
            return error.reason
        return ""

    return reason


@pytest.mark.parametrize(("longer", "reason"), [(0, "malformed"), (1, "too_large")])
def test_a_text_of_a_checkpoint_has_64_mebibytes_at_most(refused, longer, reason):
    assert refused(b"B" + struct.pack("<I", 64 * MIB + longer)) == reason


@pytest.mark.parametrize(("longer", "reason"), [(0, ""), (1, "too_large")])
def test_an_integer_of_a_checkpoint_has_64_bytes_at_most(refused, longer, reason):
    assert refused(b"\x8a" + bytes([64 + longer]) + b"\1" * (64 + longer) + b".") == reason


@pytest.mark.parametrize(("made", "reason"), [(7_999_999, ""), (8_000_000, "too_large")])
def test_eight_million_values_of_a_checkpoint_are_made(refused, made, reason):
    assert refused(b"].", made=made) == reason


@pytest.mark.parametrize(("open_now", "reason"), [(999_999, "malformed"), (1_000_000, "too_large")])
def test_a_million_values_of_a_checkpoint_are_open_at_once(refused, open_now, reason):
    assert refused(b"N.", stack=[None] * open_now) == reason


class Filled(dict):
    """A memo that says how much it holds."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def __len__(self):
        return self.size


@pytest.mark.parametrize(("known", "reason"), [(5_999_999, ""), (6_000_000, "too_large")])
def test_six_million_values_of_a_checkpoint_are_remembered(refused, known, reason):
    assert refused(b"N\x94.", memo=Filled(known)) == reason


def test_24_million_opcodes_of_a_checkpoint_are_obeyed(refused, monkeypatch):
    counts = []
    once = iter([0])
    monkeypatch.setattr(
        untrusted_pickle, "range", lambda count: counts.append(count) or once, raising=False
    )
    assert (refused(b"NN."), counts) == ("too_large", [24_000_000])


def test_the_structure_of_an_archive_is_read_up_to_256_mebibytes(monkeypatch):
    asked = []

    class Body:
        size = 300 * MIB

        def read(self, offset, count):
            asked.append(count)
            return b"N."

    pickled = Member("a/data.pkl", 0, Body.size, stored=True, checksum=0)
    monkeypatch.setattr(zip_directory, "members", lambda archive: {pickled.name: pickled})
    monkeypatch.setattr(zip_directory, "content", lambda archive, member: Body())
    torch_file.read_zip(Stretch(-1, 0, Body.size), deep=False)
    assert asked == [256 * MIB + 1]


def test_a_row_of_pickles_is_read_from_a_mebibyte_on_until_its_structure_is_whole(monkeypatch):
    asked = []
    monkeypatch.setattr(Stretch, "read", lambda file, offset, count: asked.append(count) or b"")
    assert problem_of(torch_file.read_pickles, Stretch(-1, 0, 1 << 40)) == "too_large"
    assert asked == [MIB, 8 * MIB, 64 * MIB, 512 * MIB]


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def members_of(path, content):
    path.write_bytes(content)
    with opened(path) as file:
        return zip_directory.members(file)


def test_sizes_of_more_than_32_bits_stand_in_a_field_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 4)
    found = members_of(tmp_path / "wide.pt", archive(a=b"first", b=b"second"))
    assert {name: member.size for name, member in found.items()} == {"a": 5, "b": 6}


@pytest.mark.parametrize(("behind", "kind"), [(0xFFFF, "wrong_size"), (0x10000, "truncated")])
def test_the_end_of_an_archive_is_looked_for_before_the_longest_comment(tmp_path, behind, kind):
    content = archive(a=b"first") + bytes(behind)
    assert problem_of(members_of, tmp_path / "behind.pt", content) == kind


def test_the_end_of_a_shards_last_item_is_its_archives_end_record(tmp_path):
    content = archive(a=b"first")
    item = Item("weight", 0, len(content), is_tensor=True, is_plain=True)
    (tmp_path / "whole.distcp").write_bytes(content)
    assert not dcp_shards.check(tmp_path / "whole.distcp", (item,), deep=False)
    (tmp_path / "torn.distcp").write_bytes(content[:-22] + bytes(22))
    found = problem_of(dcp_shards.check, tmp_path / "torn.distcp", (item,), deep=False)
    assert found == "unparseable"


def test_what_was_damaged_a_moment_ago_is_looked_at_again_after_a_second(tmp_path):
    (tmp_path / "step-7.pt").write_bytes(pickle.dumps({"step": 7}, 2))
    waits = []
    directory_report.examine(tmp_path, digests={"step-7.pt": "0" * 64}, wait=waits.append)
    assert waits == [1.0]


@pytest.mark.parametrize(("count", "rest"), [(20, []), (21, [" and 1 earlier ones"])])
def test_twenty_checkpoints_are_shown(tmp_path, count, rest):
    for number in range(count):
        (tmp_path / f"step-{number}.pt").write_bytes(pickle.dumps({"step": number}, 2))
    lines = list(explanation.explain(tmp_path, deep=False, digests=None, rates=None).lines())
    assert [line for line in lines if "earlier ones" in line] == rest
