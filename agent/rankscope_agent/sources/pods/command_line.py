"""The command line of a training process, for comparing runs.

Commands can contain secrets, so values that look like one, judging by their program, by the
preceding option or by their form, are left out.
"""

from __future__ import annotations

from rankscope_agent.contract.command_secrets import arguments_without_credentials

MAX_COMMAND_BYTES = 1 << 14
"""Bytes read of a command line; trainers with hundreds of options stay below 8 KiB."""

MAX_ARGUMENTS = 256
MAX_ARGUMENT_TEXT = 256


def parse_command(data: bytes) -> tuple[str, ...]:
    """Read /proc/PID/cmdline; arguments that may be secrets are replaced by `***`."""
    given = data.rstrip(b"\0").split(b"\0")[:MAX_ARGUMENTS] if data else []
    texts = arguments_without_credentials([part.decode("utf-8", "replace") for part in given])
    return tuple(text[:MAX_ARGUMENT_TEXT] for text in texts)
