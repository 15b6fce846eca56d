"""What `rankscope explain dataset` says of shards and their manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.datasets.manifest import Shard, parse

CONTENTS = {"train-0.tar": b"whole" * 100, "sub/train-1.tar": b"other" * 100}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Make a dataset of two shards with its manifest."""
    shards = []
    for path, content in CONTENTS.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        shards.append({"path": path, "bytes": len(content), "sha256": digest})
    (tmp_path / "manifest.json").write_text(json.dumps({"shards": shards}))
    return tmp_path


def explained(capsys: Any, folder: Path, *words: str, code: int = 0) -> str:
    assert cli.main(["explain", "dataset", str(folder / "manifest.json"), *words]) == code
    written = capsys.readouterr()
    return str(written.out if code == 0 else written.err)


def crc(name: str) -> str:
    return f"{crc32(name.encode()):08x}"


def test_a_shard_that_was_read_and_is_whole_is_not_the_cause(dataset: Path, capsys: Any) -> None:
    said = explained(capsys, dataset, "--read", crc("train-1.tar"))
    assert said.splitlines() == [
        "sub/train-1.tar matches: sha256 is that of the manifest",
        "What was read is what the manifest has: the cause lies elsewhere.",
    ]


def test_a_shard_whose_bytes_changed_is_damaged(dataset: Path, capsys: Any) -> None:
    (dataset / "train-0.tar").write_bytes(b"wh0le" * 100)
    digests = [hashlib.sha256(word * 100).hexdigest()[:12] for word in (b"wh0le", b"whole")]
    read = f"{crc('train-0.tar')},{crc('train-1.tar')}"
    said = explained(capsys, dataset, "--read", read)
    assert said.splitlines()[0] == (
        f"train-0.tar damaged: sha256 is {digests[0]} instead of {digests[1]}"
    )
    assert "lies elsewhere" not in said
    assert "2 size matches" in explained(capsys, dataset)
    assert "1 matches, 1 damaged" in explained(capsys, dataset, "--deep") or (
        "1 damaged, 1 matches" in explained(capsys, dataset, "--deep")
    )


@pytest.mark.parametrize(
    ("content", "said"), [(b"short", "has 5 bytes instead of 500"), (None, "is not there")]
)
def test_a_shard_that_is_cut_off_or_gone_is_damaged_without_being_read(
    dataset: Path, capsys: Any, content: bytes | None, said: str
) -> None:
    path = dataset / "train-0.tar"
    path.unlink() if content is None else path.write_bytes(content)
    assert f"train-0.tar damaged: {said}" in explained(capsys, dataset)


def test_a_name_that_is_in_no_manifest_is_said_to_be_in_none(dataset: Path, capsys: Any) -> None:
    said = explained(capsys, dataset, "--read", "00000001")
    assert said == "00000001: no shard of the manifest has a name of this CRC-32\n"
    found = json.loads(explained(capsys, dataset, "--read", "00000001", "--json"))
    assert (found["not_in_manifest"], found["shards"]) == (["00000001"], [])


def test_the_manifest_may_lie_elsewhere(dataset: Path, tmp_path_factory: Any, capsys: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (dataset / "manifest.json").rename(elsewhere / "manifest.json")
    assert "2 matches" in explained(capsys, elsewhere, "--root", str(dataset), "--deep")
    assert "2 damaged" in explained(capsys, elsewhere)


MD5, SHA1, SHA256 = "a" * 32, "b" * 40, "c" * 64
STREAMING = {
    "version": 2,
    "shards": [
        {
            "raw_data": {"basename": "shard.0.mds", "bytes": 9, "hashes": {}},
            "zip_data": {"basename": "shard.0.mds.zstd", "bytes": 5, "hashes": {"sha1": SHA1}},
        },
        {"raw_data": {"basename": "shard.1.mds", "bytes": 7, "hashes": {}}, "zip_data": None},
    ],
}
WIDS = {"shardlist": [{"url": "a-0.tar", "filesize": 7, "md5sum": MD5, "nsamples": 3}]}


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        (
            json.dumps(STREAMING),
            [Shard("shard.0.mds.zstd", 5, "sha1", SHA1), Shard("shard.1.mds", 7, "", "")],
        ),
        (json.dumps(WIDS), [Shard("a-0.tar", 7, "md5", MD5)]),
        (f"{SHA256}  ./a.tar\n{MD5} *b.tar\n", [
            Shard("a.tar", None, "sha256", SHA256), Shard("b.tar", None, "md5", MD5)
        ]),
        (
            json.dumps({"shards": [{"path": "a", "md5": MD5, "sha256": SHA256.upper()}]}),
            [Shard("a", None, "sha256", SHA256)],
        ),
        ('{"shards": [{"path": "a", "bytes": true, "sha256": 5}]}', [Shard("a", None, "", "")]),
    ],
)  # fmt: skip
def test_manifests_of_several_forms_are_read(text: str, shards: list[Shard]) -> None:
    assert list(parse(text.encode())) == shards


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"shards": {}}',
        '{"shards": []}',
        '{"shards": [1]}',
        '{"shards": [{"raw_data": 1}]}',
        '{"shards": [{"path": 1}]}',
        '{"shards": [{"path": "/etc/shadow"}]}',
        '{"shards": [{"path": "../../secret"}]}',
        '{"shards": [{"path": "."}]}',
        '{"shards": [{"path": "a\\u0000b"}]}',
        '{"shards": ' + "[" * 100_000,
        "no digest at all",
        "",
    ],
)
def test_what_is_no_manifest_or_names_files_outside_is_refused(
    dataset: Path, capsys: Any, text: str
) -> None:
    (dataset / "manifest.json").write_text(text)
    said = explained(capsys, dataset, code=1)
    assert str(dataset / "manifest.json") in said
    assert len(said.splitlines()) == 1


def test_arguments_that_are_no_checksums_are_refused(dataset: Path) -> None:
    for words in (["--read", "xyz"], ["--read", "1234567"]):
        with pytest.raises(SystemExit):
            cli.main(["explain", "dataset", str(dataset / "manifest.json"), *words])
