"""Checkpoints as libraries write them, whole and damaged in every way: which are good, and why."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.checkpoints import digest_list, directory_report, open_files
from rankscope_analyzers.verification.checkpoint_criterion import _verified
from written_checkpoints import (
    DAMAGES,
    KINDS,
    LAST_FILES,
    OLD_SECONDS,
    WITH_CHECKSUMS,
    aged,
    bad,
    grown,
    problems,
    problems_in,
    report,
    states,
    tensor_files,
    zero_tail,
)

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def written(bare_nursery, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    (done,) = bare_nursery.run(folder, str(HERE / "checkpoint_writer.py"), str(folder))
    assert done.code == 0, done.errors
    return folder


@pytest.fixture
def copied(written, tmp_path):
    def copy(kind: str, age: float = OLD_SECONDS) -> Path:
        folder = tmp_path / kind
        shutil.copytree(written / kind, folder, symlinks=True)
        aged(folder, age)
        return folder

    return copy


@pytest.fixture
def _alone(monkeypatch, tmp_path):
    """Have no other process looked at: links of all its descriptors are read for each report."""
    own = tmp_path / "proc" / str(os.getpid())
    own.parent.mkdir()
    own.symlink_to(f"/proc/{os.getpid()}")
    among = functools.partial(open_files.writers, proc=own.parent)
    monkeypatch.setattr(open_files, "writers", among)


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("age", [0.0, OLD_SECONDS])
def test_what_a_library_wrote_is_complete(copied, kind, deep, age):
    folder = copied(kind, age)
    assert states(folder, deep=deep) == dict.fromkeys(KINDS[kind], "complete")
    assert problems(folder, deep=deep) == []
    assert not directory_report.pointer_problems(report(folder))


def test_all_together_are_as_good_as_each_alone(written):
    expected = {f"{kind}/{name}" for kind, found in KINDS.items() for name in found}
    assert states(written) == dict.fromkeys(expected, "complete")


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_named(copied, tmp_path, kind, damage):
    folder = copied(kind)
    for path in tensor_files(folder):
        if damage is zero_tail and (path.suffix == ".safetensors" or kind == "old"):
            continue  # the tensors themselves, of which the format has no checksum
        if damage is grown and path.name == ".metadata":
            continue  # a pickle ends by itself
        kept = tmp_path / "kept"
        shutil.copy2(path, kept)
        damage(path)
        os.utime(path, (kept.stat().st_mtime,) * 2)
        said = report(folder)
        named = {file for _, file in problems_in(said)}
        assert str(path.relative_to(folder)) in named, path
        damaged = [one for one in said.checkpoints if one.state != "complete"]
        assert len(damaged) == 1
        assert damaged[0].state in {"damaged", "interrupted"}
        shutil.copy2(kept, path)


@pytest.mark.parametrize("kind", ["dcp", "deepspeed", "megatron", "ranks", "safetensors"])
def test_a_missing_shard_is_named(copied, tmp_path, kind):
    folder = copied(kind)
    for path in tensor_files(folder):
        if path.name == ".metadata":
            continue
        path.rename(tmp_path / "aside")
        if kind != "ranks" or "rank3" not in path.name:  # nothing says that there were four
            assert ("missing", str(path.relative_to(folder))) in problems(folder), path
        (tmp_path / "aside").rename(path)


def test_the_newer_of_two_checkpoints_may_lack_ranks_that_the_earlier_one_has(copied):
    folder = copied("ranks")
    said = directory_report.examine(folder)
    assert len(said.checkpoints) == 2
    (folder / "ckpt_step20_rank3.pt").unlink()
    newer, earlier = directory_report.examine(folder).checkpoints
    assert (newer.state, earlier.state) == ("unverified", "complete")
    (problem,) = newer.problems
    assert problem.detail.startswith("has files of 3 ranks, and the checkpoint before it of 4: ")
    (folder / "ckpt_step10_rank3.pt").unlink()
    (folder / "ckpt_step10_rank2.pt").unlink()
    assert problems(folder) == [], "a job that became larger"


def test_the_last_rank_is_missed_if_other_checkpoints_have_it(copied):
    folder = copied("ranks")
    for rank in range(4):
        source = folder / f"ckpt_step10_rank{rank}.pt"
        shutil.copy2(source, folder / f"ckpt_step5_rank{rank}.pt")
    (folder / "ckpt_step20_rank3.pt").unlink()
    assert problems(folder) == [("missing", "ckpt_step20_rank3.pt")]
    (folder / "ckpt_step10_rank3.pt").unlink()
    assert problems(folder) == [], "two with fewer ranks come of a smaller job"


@pytest.mark.parametrize("kind", WITH_CHECKSUMS)
def test_a_changed_byte_is_recognised_by_checksum(copied, kind):
    folder = copied(kind)
    path = max(tensor_files(folder), key=lambda one: one.stat().st_size)
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 0x40
    path.write_bytes(changed)
    found = problems(folder, deep=True)
    assert [file for _, file in found] == [str(path.relative_to(folder))]
    assert found[0][0] in {"checksum", "unparseable"}


@pytest.mark.parametrize("kind", ["huggingface", "old", "safetensors"])
def test_what_has_no_checksum_is_said_to_have_none(copied, kind, capsys):
    folder = copied(kind)
    assert cli.main(["explain", "checkpoint", str(folder), "--deep"]) == 0
    assert "have checksums: changed bytes in those cannot be recognised" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_checksums_recognises_a_changed_byte(copied, kind, tmp_path, capsys):
    folder = copied(kind)
    names = sorted(str(path.relative_to(folder)) for path in tensor_files(folder))
    listed = subprocess.run(
        ["sha256sum", *names], cwd=folder, capture_output=True, text=True, check=True
    )
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(listed.stdout)
    arguments = ["explain", "checkpoint", str(folder), "--checksums", str(sums), "--json"]
    assert cli.main(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["state"] for one in said["checkpoints"]} == {"complete"}
    path = folder / names[-1]
    changed = bytearray(path.read_bytes())
    changed[-30] ^= 1
    path.write_bytes(changed)
    assert cli.main(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    kinds = {p["kind"] for one in said["checkpoints"] for p in one["problems"]}
    assert "checksum" in kinds


@pytest.fixture
def listed(copied, capsys):
    """Return a directory, and what is said of it with a list that names its files as given."""
    folder = copied("huggingface")
    digests = {path: digest_list.digest_of(path, "sha256") for path in tensor_files(folder)}

    def said(name):
        sums = folder.parent / "SHA256SUMS"
        sums.write_text("".join(f"{one}  {name(path)}\n" for path, one in digests.items()))
        arguments = ["explain", "checkpoint", str(folder), "--checksums", str(sums)]
        cli.main(arguments)
        screen = capsys.readouterr().out
        cli.main([*arguments, "--json"])
        return screen, json.loads(capsys.readouterr().out)

    return folder, said


def test_a_list_of_checksums_may_name_files_by_their_whole_paths(listed):
    folder, said = listed
    assert not any(bad(said(str)[1]).values())
    (first, *_) = sorted(folder.rglob("*.safetensors"))
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    assert "checksum" in bad(said(str)[1])[str(first.parent.relative_to(folder))]


def test_what_the_list_of_checksums_has_and_the_directory_has_not_is_missing(listed):
    folder, said = listed
    (folder / "checkpoint-4" / "optimizer.pt").unlink()
    screen, found = said(lambda path: path.relative_to(folder))
    assert bad(found)["checkpoint-4"] == {"missing"}
    assert "checkpoint-4/optimizer.pt is not there [missing]" in screen
    assert "files with the list of checksums" in screen
    shutil.rmtree(folder / "checkpoint-4")
    screen, found = said(lambda path: path.relative_to(folder))
    assert "checkpoint-4/optimizer.pt is not there [missing]" in screen
    assert {one["kind"] for one in found["problems_of_no_checkpoint"]} == {"missing"}


def test_dcp_without_metadata_is_being_written_then_interrupted(copied):
    folder = copied("dcp", 0.0)
    (folder / "step_30" / ".metadata").unlink()
    now = time.time()
    assert states(folder, clock=lambda: now)["step_30"] == "being_written"
    assert states(folder, clock=lambda: now + 700)["step_30"] == "interrupted"
    good = report(folder).last_good
    assert (good.name, good.step) == ("step_20", (20, "step"))


@pytest.mark.parametrize(("kind", "name", "last"), LAST_FILES)
def test_without_the_last_file_of_its_own_library_a_checkpoint_is_interrupted(
    copied, kind, name, last
):
    folder = copied(kind)
    (folder / name / last).unlink()
    assert states(folder) == dict.fromkeys(KINDS[kind], "complete") | {name: "interrupted"}


@pytest.mark.parametrize(
    ("kind", "name"), [("huggingface", "checkpoint-4"), ("accelerate", "checkpoint-500")]
)
def test_weights_alone_are_no_checkpoint_of_a_step(copied, kind, name):
    folder = copied(kind)
    for path in (folder / name).iterdir():
        if path.name != "model.safetensors":
            path.unlink()
    assert states(folder)[name] == "interrupted"


def test_a_directory_that_another_program_calls_like_trainer_is_as_whole_as_its_files(copied):
    folder = copied("plain")
    (folder / "checkpoint-7").mkdir()
    (folder / "ckpt_100.pt").rename(folder / "checkpoint-7" / "model.pt")
    assert states(folder) == {"checkpoint-7": "complete", "ckpt_200.pt": "complete"}


def test_a_file_that_a_process_writes_is_being_written_however_old(copied):
    folder = copied("dcp")
    metadata = folder / "step_30" / ".metadata"
    metadata.unlink()
    shard = folder / "step_30" / "__0_0.distcp"
    modified = shard.stat().st_mtime
    with shard.open("ab"):
        os.utime(shard, (modified, modified))
        assert states(folder)["step_30"] == "being_written"
    os.utime(shard, (modified, modified))
    assert states(folder)["step_30"] == "interrupted"


def test_several_processes_that_write_one_file_are_named(copied):
    folder = copied("plain")
    code = "import sys,time; f=open(sys.argv[1],'ab'); print('open',flush=True); time.sleep(600)"
    program = [sys.executable, "-c", code, str(folder / "ckpt_200.pt")]
    running = [subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for process in running:
            assert process.stdout.readline() == "open\n"
        assert problems(folder) == [("several_writers", "ckpt_200.pt")]
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_a_file_that_grows_while_it_is_looked_at_is_not_called_damaged(copied):
    folder = copied("dcp", 0.0)
    shard = folder / "step_30" / "__1_0.distcp"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])

    def written_on(_: float) -> None:
        shard.write_bytes(whole[:200])

    looked = directory_report.examine(folder, wait=written_on)
    assert {one.name: one.state for one in looked.checkpoints}["step_30"] == "being_written"


def test_a_shard_that_was_whole_again_before_the_second_look_is_not_called_damaged(copied):
    folder = copied("dcp", 0.0)
    shard = folder / "step_30" / "__1_0.distcp"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])
    looked = directory_report.examine(folder, wait=lambda _: shard.write_bytes(whole))
    assert {one.name: one.state for one in looked.checkpoints}["step_30"] == "being_written"


def test_a_checkpoint_that_is_deleted_meanwhile_is_not_called_damaged(copied):
    folder = copied("dcp", 0.0)
    (folder / "step_10" / "__1_0.distcp").unlink()
    looked = directory_report.examine(folder, wait=lambda _: shutil.rmtree(folder / "step_10"))
    assert {one.name for one in looked.checkpoints} == {"step_20", "step_30"}
    assert {one.state for one in looked.checkpoints} == {"complete"}


@pytest.fixture
def closed(monkeypatch):
    """Have no directory of a given name listed: root is refused nothing."""

    def refused(path, listing=os.scandir):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr("os.scandir", refused)
    return "closed"


def test_a_checkpoint_with_a_directory_that_cannot_be_listed_is_not_verified(copied, closed):
    folder = copied("dcp")
    assert set(states(folder).values()) == {"complete"}
    (folder / "step_30" / closed).mkdir()
    (folder / closed).mkdir()
    assert states(folder) == {"step_30": "unverified", "step_20": "complete", "step_10": "complete"}


def test_no_checkpoint_may_be_one_in_a_directory_that_cannot_be_listed(tmp_path, closed):
    assert _verified(directory_report.examine(tmp_path), None).status == "not yet"
    (tmp_path / closed).mkdir()
    judged = _verified(directory_report.examine(tmp_path), None)
    assert judged.status == "unknown"
    assert f"none has been written yet, as far as is known: directory {closed} of" in judged.seen


def test_of_no_checkpoint_nothing_is_said_but_that(tmp_path, capsys):
    (tmp_path / "train.log").write_text("loss 2.1")
    assert cli.main(["explain", "checkpoint", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "no checkpoint is recognised in 1 file\n"


def test_a_pointer_to_what_is_not_the_latest_is_stale(copied):
    folder = copied("deepspeed")
    shutil.copytree(folder / "global_step40", folder / "global_step30")
    aged(folder / "global_step30", 100.0)
    (folder / "latest").write_text("global_step30")
    (stale,) = directory_report.pointer_problems(report(folder))
    assert stale.file == "latest"
    assert "global_step40 is newer" in stale.detail
    (folder / "latest").write_text("global_step99")
    (stale,) = directory_report.pointer_problems(report(folder))
    assert stale.detail == "names global_step99, which does not exist"


def test_what_a_checkpoint_lacks_is_told_by_its_keys(written):
    lacking = {one.name: one.lacks for one in report(written).checkpoints}
    assert lacking["plain/ckpt_200.pt"] == ("sampler",)
    assert lacking["megatron/iter_0000500"] == ()
    assert lacking["dcp/step_20"] == ("rng",)
    assert lacking["huggingface/checkpoint-4"] == ("sampler",)
    assert lacking["safetensors/gpt2"] == ("optimizer", "step", "sampler", "rng")


def test_credentials_are_named_and_never_shown(copied, capsys):
    folder = copied("huggingface")
    config = folder / "checkpoint-4" / "config.json"
    config.write_text('{"storage": "s3://user:hunter22@bucket/x", "id": "AKIAABCDEFGHIJKLMNOP"}')
    assert cli.main(["explain", "checkpoint", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "training_args.bin holds a Hugging Face token as hub_token" in text
    assert "config.json holds" in text
    for secret in ("hf_a1B2", "hunter22", "AKIAABCD"):
        assert secret not in text


def test_the_interval_is_youngs_and_dalys(copied, capsys):
    arguments = ["explain", "checkpoint", str(copied("plain")), "--json"]
    given = ["--write-seconds", "60", "--failures-per-day", "2"]
    assert cli.main([*arguments, *given]) == 0
    found = json.loads(capsys.readouterr().out)["recommended_interval"]
    assert found["young_seconds"] == pytest.approx((2 * 60 * 43200) ** 0.5)
    assert found["daly_seconds"] == pytest.approx(2236.9, rel=1e-3)
    assert cli.main([*arguments, "--write-seconds", "60"]) == 1
