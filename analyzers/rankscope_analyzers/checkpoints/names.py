"""What names of files and directories indicate: the step, the rank, and what a file holds."""

from __future__ import annotations

import re
from typing import NamedTuple

_STEP = re.compile(
    r"(?:(?P<step>global[-_]?step|step|iteration|iter|update|checkpoint|ckpt|batch|it)"
    r"|(?P<epoch>epoch|ep))[-_=. ]?(?P<number>\d{1,12})(?!\d)",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"(?P<name>mp_rank|zero_pp_rank|pp_rank|dp_rank|tp_rank|rank|rng_state|random_states"
    r"|worker|proc)[-_=]?\d{1,7}(?!\d)",
    re.IGNORECASE,
)
_OF = re.compile(r"(?P<number>\d{1,7})[-_]of[-_](?P<count>\d{1,7})(?!\d)", re.IGNORECASE)

_ROLE = re.compile(
    r"(?:(?<=[^a-z])|^)(?:model|pytorch_model|adapter_model|consolidated|weights?|net|ema"
    r"|optim(?:izer|s)?|lr_scheduler|scheduler|scaler|rng|args|training_args|recipe_state"
    r"|train(?:er)?_state|dataloader|sampler)(?=[^a-z]|$)",
    re.IGNORECASE,
)


class Step(NamedTuple):
    """The progress of training."""

    number: int
    unit: str


def step_of(name: str) -> Step | None:
    """Return the step, or else the epoch, in a name; the last of several."""
    steps = [hit for hit in _STEP.finditer(name) if _is_word(name, hit.start())]
    for unit in ("step", "epoch"):
        numbers = [int(hit["number"]) for hit in steps if hit[unit]]
        if numbers:
            return Step(numbers[-1], unit)
    return None


def _is_word(name: str, begin: int) -> bool:
    return begin == 0 or not name[begin - 1].isalpha()


def without_rank(name: str) -> str:
    """Return a name with its rank left open, the same for all ranks."""
    return _RANK.sub(lambda hit: f"{hit['name']}*", name)


def part_of(name: str) -> tuple[str, int, int] | None:
    """Return (family, number, count) of a name such as model-00001-of-00004.safetensors."""
    hit = _OF.search(name)
    if hit is None:
        return None
    return f"{name[: hit.start()]}*{name[hit.end() :]}", int(hit["number"]), int(hit["count"])


def family_of(name: str) -> str:
    """Return what the names of files of one checkpoint have in common."""
    part = part_of(name)
    stem = without_rank(part[0] if part else name).rpartition(".")[0]
    return _ROLE.sub("", stem).strip("-_. *") if step_of(name) else _ROLE.sub("", stem)
