"""Hides credentials that commands and scripts hand to programs: of processes and of pods. Pure.

A name that suggests a secret does not stand before each: `wandb login KEY`, `mysql -pPASSWORD`,
`echo KEY | docker login --password-stdin`. Those are found by the program or the option. References
to variables (`$WANDB_API_KEY`) stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from rankscope_agent.contract.redaction import HIDDEN, redacted, redacted_arguments

BETWEEN = "\x1f"
"""Joins arguments, so that an option and its value are found together; it counts as a space."""

LONGEST = 1 << 15
"""Characters of a command's arguments that are looked through; those beyond, which no diagnosis
needs, are hidden."""

_REST = r"[^|;&\n]{0,256}"
"""What follows in the same command."""

_WORD = r"(?:\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}'|[^\s|;&\"']{1,4096})"

_FED = r"(?:\"[^\"]{0,4096}\"|'[^']{0,4096}'|[^|;&\n>\"']){1,256}"

_RULES = (
    # All that programs which log in are given, and what is written or piped into programs.
    rf"(?<![\w./-])login(?![\w.=:/-])(?P<words>{_REST})",
    # What was read is not tried again in parts, none of which is followed by these either.
    rf"\b(?:echo|printf)\b(?=(?P<words>{_FED}))(?P=words)(?=[|>])",
    rf"<<<\s*(?P<value>{_WORD})",
    # Options without a name: of MySQL, sshpass and Redis; user:password; headers of requests, but
    # not the hosts of `mpirun -H a:8,b:8`.
    rf"\b(?:mysql|mariadb)[\w-]{{0,32}}\b{_REST}?\s-p(?P<value>{_WORD})",
    rf"\bsshpass\s+-p\s*(?P<value>{_WORD})",
    rf"\bredis-cli\b{_REST}?\s-a\s+(?P<value>{_WORD})",
    rf"(?<!\S)(?:-u|-U|--(?:proxy-)?user)[\s=]*[\"']?[^\s:\"'/]{{1,64}}:(?P<value>{_WORD})",
    r"(?<!\S)(?:-H|--header)[\s=]*[\"']?[\w-]{1,64}:"
    r"(?!\d{1,4}(?:[,\s\"']|$))(?P<value>[^\"'\n\x1f]{1,4096})",
    # The two keys of `mc alias set NAME URL`.
    rf"\bmc\s+(?:alias\s+set|config\s+host\s+add)\s+\S+\s+\S+(?P<words>{_REST})",
    # Names that stand before a space, as in `aws configure set`, .netrc files and code.
    r"(?i:\bset\s+[\w./-]{0,64}(?:token|secret|key|passw|credential)[\w.-]{0,64}\s+)"
    rf"(?P<value>{_WORD})",
    rf"(?i:\bpass(?:word|wd|phrase)\s+)(?P<value>{_WORD})",
    rf"(?i:(?<![\w-])(?:pass|pwd|passphrase)[=:]\s*)(?P<value>{_WORD})",
    rf"\b[A-Z0-9_]{{0,64}}(?:KEY|AUTH|PASS|PWD|CREDS?|DSN|SAS)=(?P<value>{_WORD})",
    r"(?i:key)\s*=\s*[\"'](?P<value>[^\"'\n]{8,4096})",
)
_COMPILED = tuple(re.compile(rule) for rule in _RULES)

_VARIABLE = re.compile(r"[\"']?\$(?:\w+|\{\w+\}|\(\w+\))[\"']?")


def without_credentials(text: str) -> str:
    """Return a command or script without what may be credentials."""
    return redacted(_ruled(text))


def arguments_without_credentials(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command without what may be credentials, as many as before."""
    given = redacted_arguments(arguments)
    ends = accumulate(len(one) + len(BETWEEN) for one in given)
    read = [
        one.replace(BETWEEN, " ") for one, end in zip(given, ends, strict=True) if end <= LONGEST
    ]
    text = _ruled(BETWEEN.join(read))
    shown = [redacted(one) for one in text.split(BETWEEN)] if read else []
    return shown + [HIDDEN] * (len(given) - len(read))


def _ruled(text: str) -> str:
    """Apply all rules to a text."""
    for rule in _COMPILED:
        text = rule.sub(_hidden, text)
    return text


def _hidden(found: re.Match[str]) -> str:
    name = next(iter(found.groupdict()))
    begin, end = (place - found.start() for place in found.span(name))
    given = found[name]
    kept = re.sub(r"\S+", _word, given) if name == "words" else _value(given)
    return f"{found[0][:begin]}{kept}{found[0][end:]}"


def _value(text: str) -> str:
    return text if _VARIABLE.fullmatch(text) else HIDDEN


def _word(found: re.Match[str]) -> str:
    """Return an option, without a value that follows its letter; other words are hidden."""
    word = found[0]
    if word.startswith("--"):
        return word
    if word.startswith("-"):
        return word if len(word) == 2 else f"{word[:2]}{HIDDEN}"
    return _value(word)
