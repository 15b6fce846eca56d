"""State that an agent leaves to the next one, behind a digest: a damaged one is recognised.

A changed letter would otherwise be a wrong total, or a name that no reader knows.
"""

from __future__ import annotations

from hashlib import blake2s

DIGEST_SIZE = 16

MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What values of a wrong type raise; a digest does not show what an agent wrote wrongly."""


def sealed(text: bytes) -> bytes:
    """Return the content of a file with this text."""
    return _digest(text) + b"\n" + text


def unsealed(content: bytes) -> bytes:
    """Return the text in the content of a file.

    Raises:
        ValueError: it is not what was written.
    """
    digest, _, text = content.partition(b"\n")
    if digest != _digest(text):
        raise ValueError("it is damaged")
    return text


def unsealed_or_older(content: bytes) -> bytes:
    """Return the text in the content of a file, or all of it if an older agent wrote no digest.

    Raises:
        ValueError: it has a digest, and is not what was written.
    """
    return content if content.startswith(b"{") else unsealed(content)


def _digest(text: bytes) -> bytes:
    return blake2s(text, digest_size=DIGEST_SIZE).hexdigest().encode()
