"""Which parts of the training state a checkpoint holds, from the names of its keys and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rankscope_analyzers.checkpoints.symbolic_pickle import Call, Tensor

NEEDED = ("model", "optimizer", "step", "sampler", "rng")
"""What a run needs to continue as if it had not been interrupted."""

PARTS = (*NEEDED, "scheduler", "scaler")

_KEYS: Mapping[str, re.Pattern[str]] = {
    part: re.compile(pattern, re.IGNORECASE)
    for part, pattern in {
        "model": r"(?:.*_)?(?:model|module|state_dict|net|network|weights|params|ema)"
        r"(?:_?(?:state(?:_dict)?s?|\d+|ema|weights))?",
        "optimizer": r"(?:.*_)?(?:optim|optimizer|optimizers|opt)"
        r"(?:_?(?:states?|state_dict|\d+))*",
        "scheduler": r"(?:.*_)?(?:scheduler|schedulers|opt_param_scheduler|lr_sched)"
        r"(?:_?(?:states?|state_dict|\d+))*",
        "step": r"(?:global_?|train_?|current_?|total_?|num_)?(?:steps?|iter|iters|iterations?"
        r"|updates|epochs?|epochs_run|batch_idx)|train(?:er)?_state|it",
        "sampler": r".*(?:sampler|data_?loader|dataset_state|data_state).*"
        r"|consumed_(?:train_)?samples|samples_seen|dl_state(?:_dict)?",
        "rng": r".*(?:rng|random|seed_state|generator_state).*",
        "scaler": r".*(?:grad_?scaler|loss_?scaler|scaler|amp_scaling|mixedprecision).*",
    }.items()
}

_FILES: Mapping[str, re.Pattern[str]] = {
    part: re.compile(pattern, re.IGNORECASE)
    for part, pattern in {
        "model": r"(?:^|/)(?:pytorch_)?model(?!_optim_rng)|model_states\.pt$|adapter_model"
        r"|consolidated|ft-model|(?:^|/)weights(?:[/.]|$)",
        "optimizer": r"(?:^|/)optim(?:izer)?|optim_states\.pt$|distrib_optim\.pt$",
        "scheduler": r"(?:^|/)(?:lr_)?scheduler",
        "step": r"(?:^|/)trainer_state\.json$",
        "sampler": r"(?:^|/)(?:sampler|dataloader|dl_state_dict|data_loader)",
        "rng": r"(?:^|/)(?:rng_state|random_states|rng)",
        "scaler": r"(?:^|/)scaler\.",
    }.items()
}

MOST_KEYS = 20_000
_STEP_KEYS = (
    *("global_step", "global_steps", "step", "steps", "iteration", "iter", "num_updates"),
    *("current_step", "train_step", "total_steps"),
)
_EPOCH_KEYS = ("epoch", "epochs", "epochs_run")


def of_files(files: Iterable[str]) -> set[str]:
    """Return the parts that names of files indicate."""
    listed = list(files)
    return {part for part, name in _FILES.items() if any(name.search(file) for file in listed)}


def of_keys(keys: Iterable[str]) -> set[str]:
    """Return the parts that keys indicate; only the first two parts of a dotted key count."""
    words = {word for key in keys for word in key.split(".")[:2]}
    return {part for part, name in _KEYS.items() if any(map(name.fullmatch, words))}


def of_value(value: Any) -> set[str]:
    """Return the parts that a file's structure holds."""
    keys = list(_keys(value))
    found = of_keys(keys)
    entries = value if isinstance(value, dict) else {}
    if not found and entries and _mostly_tensors(entries):
        found.add("model")
    if isinstance(value, Call) and value.state is not None and not entries:
        found |= _of_object(value)
    return found


def _of_object(made: Call) -> set[str]:
    """Return what a saved object is: a module has parameters."""
    return {"model"} if "_parameters" in made.attributes() else set()


def _mostly_tensors(entries: Mapping[Any, Any]) -> bool:
    tensors = sum(isinstance(one, Tensor) for one in entries.values())
    return 2 * tensors > len(entries)


def _keys(value: Any) -> Iterator[str]:
    """Yield a structure's keys, and those of dictionaries directly below it, except tensors."""
    if not isinstance(value, dict) or _mostly_tensors(value):
        return
    for key, inner in list(value.items())[:MOST_KEYS]:
        if isinstance(key, str):
            yield key
            is_nested = _KEYS["model"].fullmatch(key) is None and isinstance(inner, dict)
            if is_nested and not _KEYS["optimizer"].fullmatch(key) and not _mostly_tensors(inner):
                yield from (one for one in list(inner)[:200] if isinstance(one, str))
        if isinstance(inner, Call) and key == "args":  # Megatron's
            yield from (one for one in inner.attributes() if isinstance(one, str))


def step_of(value: Any) -> tuple[int, str] | None:
    """Return the step, or else the epoch, in a structure's keys, with its unit."""
    entries = value if isinstance(value, dict) else {}
    for unit, keys in (("step", _STEP_KEYS), ("epoch", _EPOCH_KEYS)):
        for key in keys:
            number = entries.get(key)
            if type(number) is int and 0 <= number < 1 << 53:
                return number, unit
    return None
