"""Runs `rankscope diagnose --json` in this process, as the command does."""

from __future__ import annotations

import contextlib
import io
import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope_analyzers import cli


def diagnose(words: Sequence[str]) -> tuple[Mapping[str, Any] | None, str]:
    """Run `rankscope diagnose --json`; return what it prints, or None and what went wrong."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = cli.main(["diagnose", "--json", *words])
        except Exception:  # noqa: BLE001 - whatever escapes from the command is counted as a crash
            return None, traceback.format_exc()
    if code:
        return None, f"exit code {code}: {errors.getvalue()}"
    return json.loads(output.getvalue()), ""
