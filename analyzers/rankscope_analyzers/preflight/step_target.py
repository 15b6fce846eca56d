"""The target duration and exchanged bytes of a training step, from options and annotations."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from rankscope_analyzers.preflight.values import Object, text

ANNOTATIONS = "rankscope.io/"
"""Prefix of the names of annotations: rankscope.io/step-seconds, rankscope.io/parameters."""

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMbBgGtT]?)")
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}


class TargetError(ValueError):
    """A part of the target cannot be read; the message says what was seen."""


def count(value: str) -> float:
    """Return a number such as 0.5, 350M, 7B or 1.5T.

    Raises:
        TargetError: it is not a number, or not positive.
    """
    match = _NUMBER.fullmatch(value.strip())
    found = float(match[1]) * _FACTORS[match[2].lower()] if match else 0.0
    if found <= 0:
        raise TargetError(f"expected a number such as 0.5, 350M or 7B, not {value!r}")
    return found


def _share(value: str) -> float:
    """Return a share of a whole.

    Raises:
        TargetError: it is not a number from 0 to 1.
    """
    match = _NUMBER.fullmatch(value.strip())
    if match is None or match[2] or float(match[1]) > 1:
        raise TargetError(f"expected a share from 0 to 1, not {value!r}")
    return float(match[1])


@dataclass(frozen=True, slots=True)
class Target:
    """The target duration and exchanged bytes of a step; None is unknown.

    Args:
        parameters: of the model.
        step_seconds: of the target.
        layout: all-reduce, sharded, or another one.
        parameter_bytes: of one parameter, or of its gradient, on the wire.
        overlap: fraction of a step that can hide communication.
        node_gbits: Gbit/s that leave a node over all its rails.
    """

    parameters: float | None = None
    step_seconds: float | None = None
    layout: str | None = None
    parameter_bytes: float | None = None
    overlap: float | None = None
    node_gbits: float | None = None


DEFAULTS = Target(parameter_bytes=2.0, overlap=0.5)
"""bfloat16 on the wire, as in mixed precision; the backward pass is two thirds of the compute, and
its last part hides nothing."""


def of_annotations(annotations: Object) -> Target:
    """Return the values of annotations such as `rankscope.io/step-seconds`.

    Raises:
        TargetError: a value is invalid.
    """
    found: dict[str, float | str] = {}
    for one in fields(Target):
        name = ANNOTATIONS + one.name.replace("_", "-")
        value = text(annotations.get(name))
        if value and one.name == "layout":
            found["layout"] = value
        elif value and one.name == "overlap":
            found["overlap"] = _share(value)
        elif value:
            found[one.name] = count(value)
    return Target(**found)  # type: ignore[arg-type]


def filled(first: Target, *others: Target) -> Target:
    """Return a target with missing values taken from others, in their order."""
    for other in others:
        missing = {
            one.name: getattr(other, one.name)
            for one in fields(Target)
            if getattr(first, one.name) is None
        }
        first = replace(first, **missing)
    return first
