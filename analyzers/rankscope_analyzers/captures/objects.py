"""A job's pods and job objects as a capture keeps them: without possible secrets. Pure.

Only environment variables that agents keep too retain their value; commands and all other texts are
searched for credentials. Fields that servers add for themselves are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_agent.contract.redaction import HIDDEN, is_kept, redacted, redacted_arguments

DROPPED = frozenset(
    ("managedFields", "kubectl.kubernetes.io/last-applied-configuration", "data", "stringData")
)
"""Members that repeat the object, or that other software put there for programs only."""

MAX_DEPTH = 64
MAX_TEXT = 8192


def without_secrets(value: Any, depth: int = 0) -> Any:
    """Return an object of the API server without possible secrets."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {
            str(name): _member(str(name), one, depth)
            for name, one in value.items()
            if name not in DROPPED
        }
    if isinstance(value, str):
        return redacted(value[:MAX_TEXT])
    if isinstance(value, Sequence):
        return [without_secrets(one, depth + 1) for one in value]
    return value


def _member(name: str, value: Any, depth: int) -> Any:
    if name in ("env", "envs") and isinstance(value, Sequence) and not isinstance(value, str):
        return [_variable(one, depth) for one in value]
    if name in ("command", "args") and isinstance(value, Sequence) and not isinstance(value, str):
        given = redacted_arguments([str(one)[:MAX_TEXT] for one in value])
        return [redacted(one) for one in given]
    if name.lower() in ("env_vars", "runtimeenvyaml") and isinstance(value, str):
        return HIDDEN
    return without_secrets(value, depth + 1)


def _variable(one: Any, depth: int) -> Any:
    if not isinstance(one, Mapping):
        return HIDDEN
    found = {str(name): without_secrets(member, depth + 1) for name, member in one.items()}
    if "value" in found and not is_kept(str(one.get("name", ""))):
        found["value"] = HIDDEN
    return found
