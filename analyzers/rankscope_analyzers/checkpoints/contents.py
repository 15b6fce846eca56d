"""What the files of one checkpoint hold and what is wrong with them, file by file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope_analyzers.checkpoints import (
    credentials,
    dcp_metadata,
    dcp_shards,
    examined_file,
    parts,
    symbolic_pickle,
)
from rankscope_analyzers.checkpoints.effort import Effort
from rankscope_analyzers.checkpoints.examined_file import ExaminedFile, mapping
from rankscope_analyzers.checkpoints.grouping import UNFINISHED, Group, is_tensor_file
from rankscope_analyzers.checkpoints.problems import FileProblem, Kind, Problem
from rankscope_analyzers.checkpoints.stretch import opened
from rankscope_analyzers.checkpoints.symbolic_pickle import Call, walk

THREADS = 8
"""Files are opened concurrently: a network file system takes a millisecond or more for each."""

TEXT_FILE = re.compile(r"\.(?:json|ya?ml|toml|cfg|ini|env|txt)$|^\.env$|^\.netrc$", re.IGNORECASE)
MOST_TEXT_BYTES = 1 << 20
MOST_TEXT_FILES = 500
KNOWN_MODULES = ("torch.", "collections.", "builtins.", "__builtin__.", "numpy.", "_codecs.")


@dataclass(slots=True)
class Contents:
    """What was learned from a checkpoint's files, by their paths in it."""

    files: dict[str, ExaminedFile] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    shards_have_checksums: bool | None = None
    searched: Sequence[str] = ()

    @property
    def has_checksums(self) -> bool:
        """Return True if changed bytes can be detected in every file with tensors."""
        tensors = [one for one in self.files.values() if one.format not in {"json", "unknown"}]
        if self.shards_have_checksums is None and not tensors:
            return False
        return self.shards_have_checksums is not False and all(one.has_checksums for one in tensors)

    def step(self) -> tuple[int, str] | None:
        """Return the step in the first structure that has one."""
        found = [parts.step_of(one.value) for one in self.files.values()]
        steps = [one for one in found if one is not None]
        return max(steps, key=lambda one: (one[1] == "step", one[0]), default=None)

    def parts(self) -> set[str]:
        """Return the parts of the training state that structures hold."""
        held = parts.of_keys(self.keys)
        for one in self.files.values():
            if one.format in {"torch", "pickle"}:
                held |= parts.of_value(one.value)
            elif one.format == "safetensors" and one.value:
                held.add("model")
        return held

    def foreign(self) -> tuple[str, ...]:
        """Return classes that are not of torch, Python or numpy, as far as was searched."""
        made = {
            one.function
            for name in self.searched
            if (file := self.files[name]).format in {"torch", "pickle"}
            for one in walk(file.value, 50_000)
            if isinstance(one, Call)
        }
        return tuple(sorted(name for name in made if not name.startswith(KNOWN_MODULES)))[:20]


def read(root: Path, group: Group, effort: Effort) -> Contents:
    """Examine a checkpoint's files."""
    contents = Contents()
    shards: set[str] = set()
    for name in group.files:
        if name.rpartition("/")[2].endswith(".metadata"):
            shards |= _read_metadata(root, group, name, effort, contents)
    tensors = [name for name in group.files if is_tensor_file(name) and name not in shards]
    tensors = [name for name in tensors if not name.endswith(".distcp")]

    def examine(name: str) -> ExaminedFile:
        path = group.files[name].path
        return examined_file.examine(root, path, deep=effort.deep, structure=effort.may_read)

    for name, examined in zip(sorted(tensors), _each(examine, sorted(tensors)), strict=True):
        contents.files[name] = examined
    for name in group.files:
        if name.endswith((".index.json", "trainer_state.json")):
            contents.files[name] = examined_file.examine_json(root, group.files[name].path)
    contents.searched = effort.searched(contents.files)
    contents.problems += [one.problem for one in contents.files.values() if one.problem]
    _check_indexes(group, contents)
    contents.problems += _leftovers(group)
    contents.problems += _credentials(root, group, contents)
    return contents


def _each(work: Callable[[str], Any], names: list[str]) -> Iterable[Any]:
    if len(names) < 2 * THREADS:
        return map(work, names)
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, names, chunksize=32))


def _read_metadata(
    root: Path, group: Group, name: str, effort: Effort, contents: Contents
) -> set[str]:
    """Read DCP's metadata and check the shards that it names; return them."""
    folder = name.rpartition("/")[0]
    path = group.files[name].path
    try:
        metadata = _metadata(root / path, effort)
    except FileProblem as error:
        contents.problems.append(Problem(error.kind, path, str(error)))
        return set()
    contents.keys |= set(metadata.names[: parts.MOST_KEYS])
    for gap in metadata.gaps[:20]:
        detail = f"does not hold all of {gap[:200]!r}"
        contents.problems.append(Problem("missing", path, detail))
    shards = {f"{folder}/{shard}" if folder else shard: shard for shard in metadata.shards}
    base = Path(group.base, folder)

    def check(shard: str) -> Problem | bool:
        place = str(base / shard)
        try:
            if not dcp_shards.is_below(shard):
                return Problem("unparseable", path, f"names the shard {shard[:200]!r} elsewhere")
            return dcp_shards.check(root / place, metadata.shards[shard], deep=effort.deep)
        except FileProblem as error:
            return Problem(error.kind, place, str(error))

    for outcome in _each(check, sorted(shards.values())):
        if isinstance(outcome, Problem):
            contents.problems.append(outcome)
    # torch.save, which writes them, stores checksums unless told not to.
    contents.shards_have_checksums = all(shard.endswith(".distcp") for shard in shards)
    return set(shards)


def _metadata(path: Path, effort: Effort) -> dcp_metadata.DcpMetadata:
    with opened(path) as file:
        if not any(file.read(0, 64)):
            raise FileProblem("truncated", "is empty or begins with zeros")
        if not effort.may_read_metadata(file.size):
            raise FileProblem("too_large", f"has {file.size} bytes and was not read")
        try:
            value = symbolic_pickle.loads(file.read(0, file.size))
        except symbolic_pickle.PickleCutOff as error:
            raise FileProblem("truncated", f"ends too early: {error}") from None
        except symbolic_pickle.UnsafePickle as error:
            kind: Kind = "too_large" if error.reason == "too_large" else "unparseable"
            raise FileProblem(kind, f"cannot be read: {error}") from None
    return dcp_metadata.read(value)


def _check_indexes(group: Group, contents: Contents) -> None:
    """Compare Hugging Face's indexes with the shards that they name."""
    for name in list(contents.files):
        if not name.endswith(".index.json"):
            continue
        folder = name.rpartition("/")[0]
        weights = mapping(mapping(contents.files[name].value).get("weight_map"))
        named: dict[str, set[str]] = {}
        for tensor, shard in weights.items():
            if isinstance(tensor, str) and isinstance(shard, str):
                named.setdefault(f"{folder}/{shard}" if folder else shard, set()).add(tensor)
        for shard, tensors in named.items():
            contents.problems += _index_problems(group, contents, name, shard, tensors)


def _index_problems(
    group: Group, contents: Contents, index: str, shard: str, tensors: set[str]
) -> Iterator[Problem]:
    path = str(Path(group.base, shard))
    if shard not in group.files:
        if not Path(path).suffix or not dcp_shards.is_below(shard):
            path = str(Path(group.base, index))
        yield Problem("missing", path, f"is missing, and {index} names it: {shard[:200]}")
        return
    examined = contents.files.get(shard)
    if examined is not None and examined.format == "safetensors":
        absent = sorted(tensors - mapping(examined.value).keys())
        if absent:
            yield Problem(
                "missing", path, f"lacks {len(absent)} tensors of {index}, as {absent[0][:200]!r}"
            )


def _leftovers(group: Group) -> Iterator[Problem]:
    for name, file in group.files.items():
        if any(UNFINISHED.search(part) for part in name.split("/")):
            yield Problem("leftover", file.path, "has a name of unfinished files")


def _credentials(root: Path, group: Group, contents: Contents) -> Iterator[Problem]:
    for name in contents.searched:
        examined = contents.files[name]
        value: Mapping[str, Any] | Any = examined.value
        if examined.format == "safetensors":
            value = mapping(mapping(value).get("__metadata__"))
        for hit in credentials.in_value(value):
            yield Problem("credentials", group.files[name].path, f"holds {hit[:200]}")
    texts = [name for name in group.files if TEXT_FILE.search(name.rpartition("/")[2])]
    for name in sorted(texts)[:MOST_TEXT_FILES]:
        if group.files[name].size <= MOST_TEXT_BYTES and name not in contents.files:
            yield from _credentials_in_text(root, group.files[name].path)


def _credentials_in_text(root: Path, path: str) -> Iterator[Problem]:
    try:
        with opened(root / path) as file:
            text = file.read(0, file.size).decode("utf-8", "replace")
    except FileProblem:
        return
    for hit in credentials.in_text(text):
        yield Problem("credentials", path, f"holds {hit}")
