"""Credentials that were saved along with a checkpoint: named by key and kind, never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rankscope_analyzers.checkpoints.symbolic_pickle import Call, walk

_KINDS: Mapping[str, re.Pattern[str]] = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "an AWS access key": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}\b"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{40,})\b"),
    "a Google API key": re.compile(r"\bAIza[\w-]{35}\b"),
    "a Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    "an API key": re.compile(r"\bsk-[A-Za-z0-9_-]{32,}"),
    "a password in a URL": re.compile(
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/:@]{3,100}@"
    ),
}
_NAME = re.compile(
    r"(?:^|[_\-.])(?:api_?key|secret|secret_?key|password|passwd|access_?key|access_?token"
    r"|auth_?token|hub_token|hf_token|wandb_?key|private_?key|bearer_token)$",
    re.IGNORECASE,
)
SHORTEST, LONGEST = 8, 20_000
"""Lengths of texts that are searched: shorter ones are no secrets, longer ones no credentials."""

MOST_TEXTS = 200_000
MOST_FOUND = 20


def in_value(value: Any) -> list[str]:
    """Yield "a Hugging Face token as hub_token" for each credential in a structure."""
    return _listed(_pairs(value))


def in_text(text: str) -> list[str]:
    """Return the credentials in a small file of text."""
    return _listed(("", line) for line in text.splitlines()[:MOST_TEXTS])


def _listed(pairs: Iterator[tuple[str, str]]) -> list[str]:
    hits: dict[str, None] = {}
    for key, text in pairs:
        kind = _kind(key, text)
        if kind is not None:
            hits[f"{kind} as {key}" if key else kind] = None
        if len(hits) >= MOST_FOUND:
            break
    return list(hits)


def _kind(key: str, text: str) -> str | None:
    if not SHORTEST <= len(text) <= LONGEST:
        return None
    for kind, pattern in _KINDS.items():
        if pattern.search(text):
            return kind
    is_named = _NAME.search(key) and not text.startswith(("<", "$", "/")) and " " not in text
    return "a secret" if is_named else None


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    """Yield texts with the keys that lead to them."""
    for one in walk(value, MOST_TEXTS):
        entries: Mapping[Any, Any] = {}
        if isinstance(one, dict):
            entries = one
        elif isinstance(one, Call):
            entries = one.attributes()
        for key, text in entries.items():
            if isinstance(text, str):
                yield (key if isinstance(key, str) else ""), text
        if isinstance(one, list | tuple):
            yield from (("", text) for text in one if isinstance(text, str))
