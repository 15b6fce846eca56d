"""Shell scripts in manifests: the lines that are run, and what their variables are changed by.

Only what can be told without a shell: whatever one would fill in stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# Quotes and escapes come first: a # in them begins no comment.
_COMMENT = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?:^|(?<=[\s;&|()]))(#.*)""", re.MULTILINE)
_WRITTEN = re.compile(r"""(?:^|\s)(?:cat|tee)\s[^;|&]*<<-?\s*["']?(\w+)""")
_SEPARATOR = re.compile(r"&&|\|\||[;|&(){}]|\b(?:then|do|else)\b")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*?);?", re.DOTALL)
_BEFORE_ASSIGNMENTS = frozenset({"export", "env", "&&", "||", ";", "then", "do", "else", "exec"})
_ACTIVATION = re.compile(r"(?:.*/)?(?:activate|conda\.sh)")
"""Scripts of Python environments, which set PATH and the like."""


def run_lines(script: str) -> str:
    """Return a script without comments and files that it writes, each command on one line."""
    lines, end = [], ""
    for line in script.splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        lines.append(line)
        written = _WRITTEN.search(line)
        end = written[1] if written else ""
    kept = _COMMENT.sub(lambda found: "" if found[1] else found[0], "\n".join(lines))
    return kept.replace("\\\n", " ")


def assigned(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that a line sets: before a command, or by export."""
    begins = True
    for word in words:
        match = _ASSIGNMENT.fullmatch(word) if begins else None
        if match:
            yield match[1], match[2].strip("'\"")
        begins = bool(match) or word in _BEFORE_ASSIGNMENTS or word.endswith(";")


def unset(line: str) -> Iterator[str]:
    """Yield the variables that a line removes."""
    for first, *rest in _commands(line):
        if first == "unset":
            yield from rest


def sourced(line: str) -> str:
    """Return a file that a line takes variables from, empty if there is none."""
    for first, *rest in _commands(line):
        if first in {"source", "."} and rest and not _ACTIVATION.fullmatch(rest[0]):
            return rest[0]
    return ""


def _commands(line: str) -> Iterator[list[str]]:
    return filter(None, (one.split() for one in _SEPARATOR.split(line)))
