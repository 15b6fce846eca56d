"""The command line of a training process, for comparing runs.

Commands can hold secrets, so that values which look like one, by the option before them or by their
form, are left out.
"""

from __future__ import annotations

import re

MAX_COMMAND_BYTES = 1 << 14
"""Bytes read of a command line; trainers with hundreds of options stay below 8 KiB."""

MAX_ARGUMENTS = 256
MAX_ARGUMENT_TEXT = 256

HIDDEN = "***"

_SECRET_OPTION = re.compile(
    r"token|secret|passw|api[-_]?key|credential|access[-_]?key", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"(?:hf_|sk-|ghp_|gho_|xox[bp]-|AKIA|eyJ)[A-Za-z0-9_\-]{8,}|://[^/\s:@]+:[^/\s@]+@"
)


def parse_command(data: bytes) -> tuple[str, ...]:
    """Read /proc/PID/cmdline; arguments that may be secrets are replaced by `***`."""
    given = data.rstrip(b"\0").split(b"\0")[:MAX_ARGUMENTS] if data else []
    found: list[str] = []
    hide = False
    for part in given:
        text = part.decode("utf-8", "replace")
        name, equals, _ = text.partition("=")
        if hide and not text.startswith("-"):
            text = HIDDEN
        elif equals and _SECRET_OPTION.search(name):
            text = f"{name}={HIDDEN}"
        else:
            text = _SECRET_VALUE.sub(HIDDEN, text)
        hide = part.startswith(b"-") and not equals and bool(_SECRET_OPTION.search(name))
        found.append(text[:MAX_ARGUMENT_TEXT])
    return tuple(found)
