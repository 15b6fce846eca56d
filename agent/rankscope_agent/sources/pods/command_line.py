"""The command line of a training process, for comparing runs.

Commands can hold secrets, so that values which look like one, by the option before them or by their
form, are left out.
"""

from __future__ import annotations

from rankscope_agent.contract.redaction import HIDDEN, SECRET_NAME, SECRET_VALUE

MAX_COMMAND_BYTES = 1 << 14
"""Bytes read of a command line; trainers with hundreds of options stay below 8 KiB."""

MAX_ARGUMENTS = 256
MAX_ARGUMENT_TEXT = 256


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
        elif equals and SECRET_NAME.search(name):
            text = f"{name}={HIDDEN}"
        else:
            text = SECRET_VALUE.sub(HIDDEN, text)
        hide = part.startswith(b"-") and not equals and bool(SECRET_NAME.search(name))
        found.append(text[:MAX_ARGUMENT_TEXT])
    return tuple(found)
