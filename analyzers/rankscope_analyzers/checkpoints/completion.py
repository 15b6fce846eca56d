"""Whether a checkpoint was ever complete: whether the file that its library writes last exists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankscope_analyzers.checkpoints import names, shard_names
from rankscope_analyzers.checkpoints.contents import Contents
from rankscope_analyzers.checkpoints.examined_file import mapping
from rankscope_analyzers.checkpoints.grouping import UNFINISHED, Group
from rankscope_analyzers.checkpoints.pointers import Pointer
from rankscope_analyzers.checkpoints.problems import PARTIAL, Problem
from rankscope_analyzers.checkpoints.symbolic_pickle import Call

_OPTIMIZER_STATES = re.compile(r"mp_rank_(?P<rank>\d\d)_optim_states\.pt$")
_MODEL_STATES = re.compile(r"mp_rank_(?P<rank>\d\d)_model_states\.pt$")

_OF_TRAINERS = re.compile(
    r"trainer_state\.json|(?:optimizer|scheduler)\.pt|rng_state(?:_\d+)?\.pth"
)
"""Files of transformers' Trainer (trainer.py), which saves its state last."""

_OF_ACCELERATE = re.compile(r"(?:optimizer|scheduler)(?:_\d+)?\.bin|random_states_\d+\.pkl")
"""Files of accelerate's `save_state` (checkpointing.py), in which each process saves its random
states last. Trainer leaves the optimizer to accelerate under FSDP, but not the scheduler."""

_WEIGHTS = (".safetensors", ".bin")
_TRAINER_STATE = re.compile(r"trainer_state\.json")
_RANDOM_STATES = re.compile(r"random_states_\d+\.pkl")

CLOCK_SLACK_SECONDS = 2.0
"""Between the times of files of one save, if the pointer is written last."""


def is_completed(group: Group, contents: Contents, pointers: Iterable[Pointer]) -> bool:
    """Return True if its completing file exists.

    A file that stands alone is completed by its end. DeepSpeed and Megatron finally write a pointer
    next to the checkpoint; if there is none, the files that exist decide.
    """
    if UNFINISHED.search(group.name.rpartition("/")[2]):
        return False
    files = {name.rpartition("/")[2] for name in group.files}
    if any(name.endswith(".distcp") for name in files) or group.layout == "dcp":
        return any(name.endswith(".metadata") for name in files)
    last = _last_file(group, files) if group.layout == "huggingface" else None
    if last is not None:
        written = (file for name, file in contents.files.items() if last.fullmatch(name))
        return any(file.problem is None for file in written)
    if group.layout in {"deepspeed", "megatron"}:
        later = _completed_by_pointer(group, pointers)
        if later is not None:
            return later
    return not any(problem.kind in PARTIAL for problem in contents.problems)


def _last_file(group: Group, files: set[str]) -> re.Pattern[str] | None:
    """Return the file that is written last; None if the files that exist decide.

    Trainer and accelerate use the same names of directories; in one of those, weights alone are a
    checkpoint of neither.
    """
    if any(map(_OF_TRAINERS.fullmatch, files)):
        return _TRAINER_STATE
    if any(map(_OF_ACCELERATE.fullmatch, files)):
        return _RANDOM_STATES
    is_named = "checkpoint-" in group.base.rpartition("/")[2]
    return _TRAINER_STATE if is_named and any(one.endswith(_WEIGHTS) for one in files) else None


def _completed_by_pointer(group: Group, pointers: Iterable[Pointer]) -> bool | None:
    step = names.step_of(group.name.rpartition("/")[2])
    for pointer in pointers:
        if pointer.folder != group.name.rpartition("/")[0] or not pointer.is_written_last:
            continue
        if pointer.target == group.name.rpartition("/")[2]:
            return True
        if group.layout == "megatron" and step is not None and pointer.step is not None:
            return pointer.step >= step.number
        return pointer.modified + CLOCK_SLACK_SECONDS >= group.modified
    return None


def missing_shards(
    group: Group, contents: Contents, usual: Mapping[str, tuple[int, ...]]
) -> Iterator[Problem]:
    """Yield missing shards that names, counts in files, or the run's other checkpoints imply.

    Args:
        group: the checkpoint's files.
        contents: what they hold.
        usual: how many ranks the run's other checkpoints have, by the pattern of the names.
    """
    for name in shard_names.missing_parts(group.files):
        yield Problem("missing", str(Path(group.base, name)), "is missing, and others count it")
    for name in _missing_model_states(group.files):
        yield Problem("missing", str(Path(group.base, name)), "is not there")
    for pattern, family in shard_names.families(group.files).items():
        known = _counted(pattern, contents) or usual.get(names_without_step(pattern))
        for name in shard_names.missing_ranks(family, known):
            yield Problem("missing", str(Path(group.base, name)), "is not there")


def _missing_model_states(files: Iterable[str]) -> Iterator[str]:
    """Yield the missing models that DeepSpeed stores next to each rank's optimizers."""
    listed = set(files)
    optimizers = {hit["rank"] for name in listed if (hit := _OPTIMIZER_STATES.search(name))}
    models = {hit["rank"] for name in listed if (hit := _MODEL_STATES.search(name))}
    for rank in sorted(optimizers - models):
        yield f"mp_rank_{rank}_model_states.pt"


def names_without_step(pattern: str) -> str:
    """Return a pattern that leaves the step's digits open."""
    step = names.step_of(pattern)
    return pattern if step is None else pattern.replace(str(step.number), "#", 1)


def _counted(pattern: str, contents: Contents) -> tuple[int, ...] | None:
    """Return how many ranks a file declares, along each number of a pattern."""
    for examined in contents.files.values():
        entries = mapping(examined.value)
        counts = _sizes(entries, ("dp_world_size", "mp_world_size"))
        if counts is not None and "mp_rank_{}" in pattern and "_states.pt" in pattern:
            return counts if "zero_pp_rank_{}" in pattern else counts[1:]
        arguments = entries.get("args")
        if isinstance(arguments, Call) and pattern.startswith("mp_rank_{}"):
            keys = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
            counts = _sizes(arguments.attributes(), keys)
            if counts is not None:
                return counts if "mp_rank_{}_{}" in pattern else counts[:1]
    return None


def _sizes(entries: Mapping[Any, Any], keys: tuple[str, ...]) -> tuple[int, ...] | None:
    sizes = tuple(entries.get(key) for key in keys)
    counts = tuple(size for size in sizes if type(size) is int and 0 < size <= 1_000_000)
    return counts if len(counts) == len(keys) else None
