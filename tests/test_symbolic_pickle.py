"""Pickles of checkpoints read as symbols: nothing is imported or called, and all is bounded."""

from __future__ import annotations

import collections
import os
import pickle
import random
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from rankscope_agent.contract.pickle_limits import Limits, UnsafePickle
from rankscope_analyzers.checkpoints import (
    credentials,
    directory_report,
    open_files,
    parts,
    storage_kind,
    symbolic_pickle,
)
from rankscope_analyzers.checkpoints.names import Step, step_of
from rankscope_analyzers.checkpoints.symbolic_pickle import Call, Storage, Tensor, walk


class Attack:
    def __reduce__(self):
        return os.system, ("touch /tmp/rankscope-was-here",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_call_is_a_value_and_is_not_made(protocol, tmp_path):
    class Touch:
        def __reduce__(self):
            return Path.touch, (tmp_path / "made",)

    call = symbolic_pickle.loads(pickle.dumps({"model": Touch()}, protocol))["model"]
    assert isinstance(call, Call)
    assert not (tmp_path / "made").exists()
    loaded = symbolic_pickle.loads(pickle.dumps(Attack(), protocol))
    assert (loaded.function, loaded.arguments) == (
        f"{os.system.__module__}.system",
        ("touch /tmp/rankscope-was-here",),
    )


def test_a_module_that_is_named_is_not_imported():
    body = b"\x80\x02cantigravity_of_nobody\nfly\n)R."
    assert symbolic_pickle.loads(body).function == "antigravity_of_nobody.fly"
    assert "antigravity_of_nobody" not in sys.modules


@pytest.mark.parametrize(("characters", "read"), [(299, True), (300, False)])
def test_a_line_with_a_name_ends_within_three_hundred_characters(characters, read):
    body = b"\x80\x02c" + b"m" * characters + b"\nfly\n)R."
    if read:
        assert symbolic_pickle.loads(body).function == f"{'m' * characters}.fly"
        return
    with pytest.raises(UnsafePickle, match="a name has no end"):
        symbolic_pickle.loads(body)


def test_ordered_dictionaries_and_their_state_are_dictionaries():
    value = collections.OrderedDict([("a", 1), ("b", collections.defaultdict(list, {"c": [2]}))])
    for protocol in (2, 4):
        assert symbolic_pickle.loads(pickle.dumps(value, protocol)) == {"a": 1, "b": {"c": [2]}}


def test_states_of_random_generators_are_read():
    state = {"python": random.Random(3).getstate(), "wide": 1 << 127}
    assert symbolic_pickle.loads(pickle.dumps(state)) == state


def test_what_holds_itself_is_read_and_walked_once():
    held: list[object] = [1]
    held.append(held)
    assert len(list(walk(symbolic_pickle.loads(pickle.dumps(held))))) == 3


def test_sixty_lists_of_the_list_before_are_walked_in_time():
    value: object = ("x",)
    for _ in range(60):
        value = (value, value)
    loaded = symbolic_pickle.loads(pickle.dumps(value))
    assert sum(1 for _ in walk(loaded)) < 300


def test_keys_that_take_for_ever_to_compare_are_not_compared():
    deep: object = ("x",)
    for _ in range(60):
        deep = (deep, deep)
    body = pickle.dumps(deep)[:-1]
    loaded = symbolic_pickle.loads(b"}" + body + b"K\x01s.")
    assert len(loaded) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02}q",
        b"R.",
        b"\x80\x02c" + b"a" * 5000,
        b"\x80\x02(o.",
        b"\x80\x02K\x01K\x02\x93.",
        b"\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
        b"\x80\x02\x82\x01.",
        b"I1\n.",
        b"\x80\x02}K\x01a.",
    ],
)
def test_what_is_no_pickle_of_a_checkpoint_is_refused(body):
    with pytest.raises(UnsafePickle):
        symbolic_pickle.loads(body)


def test_values_are_bounded():
    body = b"\x80\x02" + b"]" * 2000 + b"."
    with pytest.raises(UnsafePickle, match="more than 1000"):
        symbolic_pickle.loads(body, Limits(values=1000))
    with pytest.raises(UnsafePickle, match="at once"):
        symbolic_pickle.loads(b"\x80\x02" + b"K\x01" * 2000 + b".", Limits(stack=1000))
    with pytest.raises(UnsafePickle, match="in the memo"):
        symbolic_pickle.loads(b"K\x01" + b"\x94" * 100 + b".", Limits(memo=50))


def test_random_bytes_are_refused_or_read_and_nothing_else():
    chance = random.Random(5)
    whole = pickle.dumps({"a": [1, (2, 3)], "b": collections.OrderedDict(c=Attack())}, 2)
    for _ in range(3000):
        body = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            symbolic_pickle.loads(bytes(body))
        except UnsafePickle:
            continue


def write_archive(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)


def examined(folder: Path):
    return {
        one.name: one for one in directory_report.examine(folder, wait=lambda _: None).checkpoints
    }


def test_archives_with_other_sizes_than_their_pickle_says_are_damaged(tmp_path):
    key = "('storage', torch.FloatStorage, '0', 'cpu', 4)"
    body = (
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
        b"X\x03\x00\x00\x00cpuK\x04tQ."
    )
    assert symbolic_pickle.loads(body) == Storage("torch.FloatStorage", "0", 4), key
    for name, data in (("good", 16), ("short", 12)):
        write_archive(tmp_path / f"{name}.pt", {"a/data.pkl": body, "a/data/0": b"\0" * data})
    write_archive(tmp_path / "none.pt", {"a/data.pkl": body})
    found = examined(tmp_path)
    assert found["good.pt"].state == "complete"
    assert [p.kind for p in found["short.pt"].problems] == ["wrong_size"]
    assert [p.kind for p in found["none.pt"].problems] == ["missing"]


def test_hostile_files_are_findings_and_not_errors(tmp_path):
    write_archive(tmp_path / "empty.pt", {})
    write_archive(tmp_path / "other.pt", {"a.txt": b"x"})
    write_archive(tmp_path / "text.pt", {"a/data.pkl": b"cos\nsystem\n(S'x'\ntR."})
    bomb = b"\x80\x02" + b"(" * 2_000_000 + b"."
    write_archive(tmp_path / "bomb.pt", {"a/data.pkl": bomb})
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 9, 9, 0xFFFFFFF0, 5, 0)
    (tmp_path / "wide.pt").write_bytes(b"PK\x03\x04" + b"\0" * 50 + end)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0, 0xFFFFFFFF, 0)
    (tmp_path / "zip64.pt").write_bytes(b"PK\x03\x04" + b"\0" * 50 + end)
    (tmp_path / "huge.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    (tmp_path / "deep.safetensors").write_bytes(struct.pack("<Q", 9000) + b"[" * 9000)
    os.mkfifo(tmp_path / "pipe.pt")
    (tmp_path / "device.pt").symlink_to("/dev/zero")
    (tmp_path / "nowhere.pt").symlink_to("/nowhere/at/all")
    found = examined(tmp_path)
    assert not [one for one in found.values() if one.state == "complete"]
    assert set(found) == {
        *("empty.pt", "other.pt", "text.pt", "bomb.pt", "wide.pt", "zip64.pt"),
        *("huge.safetensors", "deep.safetensors"),
    }


def test_metadata_that_names_files_elsewhere_is_damaged(tmp_path):
    step = tmp_path / "step_1"
    step.mkdir()
    module = "torch.distributed.checkpoint"

    def made(kind: str, state: dict) -> bytes:
        return f"c{module}.{kind}\n".encode() + b")\x81" + pickle.dumps(state, 2)[2:-1] + b"b"

    index = made("metadata\nMetadataIndex", {"fqn": "x"})
    info = made(
        "filesystem\n_StorageInfo", {"relative_path": "../../etc/passwd", "offset": 0, "length": 9}
    )
    body = (
        b"\x80\x02"
        + f"c{module}.metadata\nMetadata\n".encode()
        + b")\x81}"
        + pickle.dumps("state_dict_metadata", 2)[2:-3]
        + b"}s"
        + pickle.dumps("storage_data", 2)[2:-3]
        + b"}"
        + index
        + info
        + b"ssb."
    )
    (step / ".metadata").write_bytes(body)
    (found,) = examined(tmp_path).values()
    assert found.state == "damaged"
    assert "elsewhere" in found.problems[0].detail


def test_an_unreadable_file_is_not_called_damaged(tmp_path, monkeypatch):
    write_archive(tmp_path / "a.pt", {"a/data.pkl": pickle.dumps({"model": {}}, 2)})

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    (found,) = examined(tmp_path).values()
    assert found.state == "unverified"
    assert found.problems[0].detail == "cannot be read: Permission denied"


def test_what_is_listed_is_bounded(tmp_path):
    for number in range(300):
        (tmp_path / f"{number}.txt").touch()
    looked = directory_report.inventory.take(tmp_path, limit=200)
    assert (len(looked.folder.files), looked.is_cut) == (200, True)
    assert not examined(tmp_path)


def test_steps_are_read_from_names():
    named = {
        "checkpoint-500": Step(500, "step"),
        "epoch=3-step=1200.ckpt": Step(1200, "step"),
        "iter_0000500": Step(500, "step"),
        "global_step40": Step(40, "step"),
        "epoch_7": Step(7, "epoch"),
        "model_ep12.pt": Step(12, "epoch"),
        "resnet50.pt": None,
        "split3": None,
        "checkpoints0": None,
    }
    assert {name: step_of(name) for name in named} == named


def test_tokenizers_are_no_credentials():
    plain = {"pad_token": "<pad>", "eos_token": "</s>", "token": "a", "secret": "", "key": "x" * 40}
    assert credentials.in_value(plain) == []
    assert credentials.in_value({"aws_secret_key": "abcdefghijklmnop"}) == [
        "a secret as aws_secret_key"
    ]


def test_parts_are_told_by_keys_alone():
    tensor = Tensor(Storage("torch.FloatStorage", "0", 1), (1,))
    assert parts.of_value({"weight": tensor, "bias": tensor}) == {"model"}
    assert parts.of_value({"net": {}, "optim": {}, "it": 3}) == {"model", "optimizer", "step"}
    assert parts.of_value({"random_module": 1}) >= {"rng"}
    assert parts.step_of({"epoch": 2, "global_step": 40}) == (40, "step")
    assert parts.step_of({"step": True}) is None


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:30 / /shared rw - nfs4 server:/x rw
24 22 0:31 / /shared/fast rw - tmpfs tmpfs rw
25 22 0:32 / /odd\\040name rw - fuse.juicefs JuiceFS:x rw
"""


def test_storage_is_judged_by_its_mount(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    reaches = {
        "/home/x": "node",
        "/shared/run": "shared",
        "/shared/fast/run": "memory",
        "/odd name/run": "shared",
    }
    for path, reach in reaches.items():
        assert storage_kind.of(Path(path), table).reach == reach


def test_only_files_open_for_writing_have_writers(tmp_path):
    path = tmp_path / "a.pt"
    path.touch()
    with path.open("rb"):
        assert open_files.writers(tmp_path) == {}
    with path.open("ab"):
        assert open_files.writers(tmp_path) == {"a.pt": {os.getpid()}}
