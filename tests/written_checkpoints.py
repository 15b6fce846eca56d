"""What `checkpoint_writer` leaves, what is said of it, and how tests damage it."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope_analyzers.checkpoints import directory_report
from rankscope_analyzers.checkpoints.directory_report import DirectoryReport

OLD_SECONDS = 3600.0

KINDS = {
    "accelerate": ("checkpoint-500", "checkpoint-1000", "checkpoint-1500"),
    "dcp": ("step_10", "step_20", "step_30"),
    "deepspeed": ("global_step40",),
    "huggingface": ("checkpoint-2", "checkpoint-4"),
    "lightning": ("epoch=0-step=2.ckpt", "epoch=0-step=4.ckpt"),
    "megatron": ("iter_0000500",),
    "old": ("weights.pth",),
    "plain": ("ckpt_100.pt", "ckpt_200.pt"),
    "ranks": ("ckpt_step10_rank*.pt", "ckpt_step20_rank*.pt"),
    "safetensors": ("gpt2",),
    "whole": ("module.pt",),
}
"""What lies in each directory that `checkpoint_writer` fills."""

TENSORS = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".metadata")
WITH_CHECKSUMS = ("dcp", "deepspeed", "lightning", "megatron", "plain", "ranks", "whole")

LAST_FILES = [
    ("huggingface", "checkpoint-4", "trainer_state.json"),
    *(("accelerate", name, "random_states_0.pkl") for name in KINDS["accelerate"]),
]


def aged(folder: Path, age: float) -> None:
    for path in folder.rglob("*"):
        if not path.is_symlink():
            before = path.stat().st_mtime
            os.utime(path, (before - age, before - age))


def report(folder: Path, **options) -> DirectoryReport:
    return directory_report.examine(folder, wait=lambda _: None, **options)


def states(folder: Path, **options) -> dict[str, str]:
    return {one.name: one.state for one in report(folder, **options).checkpoints}


def tensor_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name.endswith(TENSORS)
    )


def problems(folder: Path, **options) -> list[tuple[str, str]]:
    return problems_in(report(folder, **options))


def problems_in(said: DirectoryReport) -> list[tuple[str, str]]:
    return [
        (problem.kind, problem.file)
        for one in said.checkpoints
        for problem in one.problems
        if problem.kind not in {"credentials", "leftover"}
    ]


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_a_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 7)


def zeroed(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xa5" * 64)


def zero_tail(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(max(size - 4096, size // 2))
        file.write(b"\0" * (size - file.tell()))


DAMAGES = (cut_in_half, cut_by_a_byte, emptied, grown, zeroed, overwritten, zero_tail)


def bad(said):
    return {
        one["name"]: {p["kind"] for p in one["problems"]} - {"credentials"}
        for one in said["checkpoints"]
    }
