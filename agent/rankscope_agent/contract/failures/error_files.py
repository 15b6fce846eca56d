"""Reads torchelastic's error files and the copy that torchrun writes to /dev/termination-log: JSON.

torch/distributed/elastic/multiprocessing/errors/error_handler.py writes
`{"message": {"message": "ValueError: ..", "extraInfo": {"py_callstack": .., "timestamp": ..}}}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rankscope_agent.contract import untrusted_json
from rankscope_agent.contract.failures.messages import classify
from rankscope_agent.contract.failures.signs import MAX_TEXT
from rankscope_agent.contract.failures.tracebacks import ParsedError, read
from rankscope_agent.contract.log_text.prefixes import MAX_RANK

MAX_FILE_BYTES = 4 << 20
"""Largest error file that is read: a traceback has at most 1,000 frames of some hundred bytes."""


@dataclass(frozen=True, slots=True)
class ErrorFile:
    """The contents of an error file; time is Unix time, exit code as in torchrun."""

    found: ParsedError
    time: float | None
    rank: int | None


def parse(text: bytes) -> ErrorFile | None:
    """Read an error file; return None for anything else."""
    if text.lstrip()[:1] != b"{" or len(text) > MAX_FILE_BYTES:
        return None
    try:
        document = untrusted_json.read(text)
    except ValueError:
        return None
    message = document.get("message") if isinstance(document, dict) else None
    if isinstance(message, str):
        message = {"message": message}
    if not isinstance(message, dict) or not isinstance(message.get("message"), str):
        return None
    extra = message.get("extraInfo")
    return _read(message["message"], extra if isinstance(extra, dict) else {})


def _read(message: str, extra: dict[str, Any]) -> ErrorFile:
    stack = extra.get("py_callstack")
    found = read(stack.splitlines()) if isinstance(stack, str) else None
    if found is None:
        first = (message.strip().splitlines() or [""])[0]
        found = ParsedError(classify(message), first[:MAX_TEXT], "")
    return ErrorFile(found, _seconds(extra.get("timestamp")), _rank(extra.get("rank")))


def _rank(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < MAX_RANK else None


def _seconds(value: object) -> float | None:
    """Return the time of an error file, which is written as a string of whole seconds."""
    text = str(value)
    return float(text) if text.isdecimal() and len(text) < 16 else None
