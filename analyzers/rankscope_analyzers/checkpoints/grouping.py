"""Which files form one checkpoint: directories of known layouts, and single files.

A directory is one checkpoint if it holds a library's files, or if its name gives a step and it does
not hold several steps itself. Other files with tensors belong together if they share step and name
except for the rank, or if the name of each marks it as a part (model, optimizer) of the directory's
checkpoint.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rankscope_analyzers.checkpoints import names
from rankscope_analyzers.checkpoints.inventory import Folder, StoredFile

Layout = Literal["dcp", "huggingface", "deepspeed", "megatron", "files"]

TENSOR_FILES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp", ".th", ".tar", ".pkl")
UNFINISHED = re.compile(
    r"\.(?:tmp|temp|part|partial|incomplete)(?:[.\-_]?\w{0,16})?$|^\.?tmp[-_.]|^\.nfs",
    re.IGNORECASE,
)
"""Names that savers write before they rename (DCP, HF's staging, browsers of stores)."""

_MEGATRON = re.compile(r"(?:iter_\d{7}|release)$")
_DEEPSPEED = re.compile(r"^\w*mp_rank_\d+(?:_\d+)?_(?:model|optim)_states\.pt$")
_MEGATRON_RANK = re.compile(r"^mp_rank_\d\d(?:_\d\d\d)?(?:_\d\d\d)?$")
_SHARD = re.compile(r"^(?:__\d+_\d+|.*)\.distcp$")
_METADATA = re.compile(r"^(?:__\d+)?\.metadata$")


@dataclass(frozen=True, slots=True)
class Group:
    """The files of one checkpoint.

    Args:
        name: its directory or file, relative to the directory that is examined; empty for that
            itself.
        layout: which library writes such files.
        files: by their path relative to `base`.
        base: the directory of the files.
    """

    name: str
    layout: Layout
    files: Mapping[str, StoredFile]
    base: str

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files.values())

    @property
    def modified(self) -> float:
        """Return when a file last changed, in Unix seconds."""
        return max((file.modified for file in self.files.values()), default=0.0)


def groups(folder: Folder) -> Iterator[Group]:
    """Yield the checkpoints in a directory and below."""
    layout = layout_of(folder)
    if layout is not None:
        yield Group(folder.path, layout, folder.all_files(), folder.path)
        return
    yield from _loose(folder)
    for inner in folder.folders.values():
        yield from groups(inner)


def layout_of(folder: Folder) -> Layout | None:
    """Return the layout of a directory that is one checkpoint."""
    if _holds_several(folder):
        return None
    own = _own_layout(folder)
    if own is not None:
        return own
    if names.step_of(folder.name) is None and not _MEGATRON.match(folder.name):
        return None
    for inner in folder.folders.values():
        for one in inner.below():
            if _own_layout(one) == "dcp":
                return "megatron" if _MEGATRON.match(folder.name) else "dcp"
    if any(_MEGATRON_RANK.match(name) for name in folder.folders):
        return "megatron"
    if any(is_tensor_file(name) for name in folder.all_files()):
        return "files"
    return None


def _own_layout(folder: Folder) -> Layout | None:
    files = folder.files
    if any(_METADATA.match(name) or _SHARD.match(name) for name in files):
        return "megatron" if _MEGATRON.match(folder.name) else "dcp"
    if any(_DEEPSPEED.match(name) for name in files):
        return "deepspeed"
    if "trainer_state.json" in files or any(
        name.endswith((".safetensors.index.json", ".bin.index.json")) for name in files
    ):
        return "huggingface"
    if re.fullmatch(r"(?:tmp-)?checkpoint-\d+", folder.name) and any(map(is_tensor_file, files)):
        return "huggingface"
    return None


def _holds_several(folder: Folder) -> bool:
    """Return True if directories or files in it have other steps than its own name."""
    own = names.step_of(folder.name)
    steps = _steps_below(folder) - {own}
    if own is None:
        return bool(steps) and _own_layout(folder) not in {"dcp", "deepspeed"}
    return len(steps) > 1 or (bool(steps) and not any(map(is_tensor_file, folder.files)))


def _steps_below(folder: Folder) -> set[names.Step]:
    steps: set[names.Step | None] = set()
    for inner in folder.below():
        steps.update(names.step_of(name) for name in inner.files if is_tensor_file(name))
        if inner.files and inner is not folder:
            steps.add(names.step_of(inner.name))
    return {step for step in steps if step is not None}


def is_tensor_file(name: str) -> bool:
    """Return True for a name that files with tensors have."""
    return name.lower().endswith(TENSOR_FILES) and not UNFINISHED.search(name)


def _loose(folder: Folder) -> Iterator[Group]:
    """Yield checkpoints of files that are next to others."""
    families: dict[tuple[names.Step | None, str], dict[str, StoredFile]] = defaultdict(dict)
    for name, file in folder.files.items():
        if is_tensor_file(name) and not _is_pointer(file, folder):
            families[names.step_of(name), names.family_of(name)][name] = file
    for files in families.values():
        first = min(files)
        path = files[first].path if len(files) == 1 else _common(folder, files)
        yield Group(path, "files", files, folder.path)


def _is_pointer(file: StoredFile, folder: Folder) -> bool:
    return file.link is not None and file.link in folder.files


def _common(folder: Folder, files: Mapping[str, StoredFile]) -> str:
    """Return how a family of files is shown: its first file and how many follow."""
    parts = {names.without_rank(name) for name in files}
    label = parts.pop() if len(parts) == 1 else f"{min(files)} +{len(files) - 1}"
    return f"{folder.path}/{label}" if folder.path else label
