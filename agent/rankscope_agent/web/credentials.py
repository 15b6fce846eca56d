"""Authentication: bearer tokens and passwords, compared in constant time."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rankscope_agent.web.watched_files import read_bounded

MIN_TOKEN_CHARACTERS = 16
"""Shortest token accepted: 16 random characters of base64 have 96 bits, which cannot be guessed
over a network; anything shorter is a word or a mistake."""

MAX_TOKENS = 64
"""Tokens in a file: one per reader, old and new ones during a rotation."""

MAX_REMEMBERED = 128
"""Cached results of bcrypt, right and wrong ones separately; each takes some 100 ms of CPU."""

MAX_WAITING = 4
"""Requests of one address that wait for the same comparison: scrapers start at the same time."""

REST = 9
"""Times as long as a wrong password's comparison took no other begins: guesses take a tenth of a
core, which is a training job's."""

MAX_REST_SECONDS = 3.0
"""A scraper that comes after a guess waits for the rest as well, and hashes of a high cost take
seconds; scrapes end after ten."""

# RFC 6750, section 2.1: b64token.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_BCRYPT = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}")

# Compared once at the start, to check that bcrypt is installed.
_NOBODY = "$2b$04$" + "a" * 22 + "b" * 31


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Return the digests of the tokens in a file, one per line.

    Raises:
        ValueError: it cannot be read, or a line is not a token; the token is not quoted.
    """
    lines = [line.strip() for line in read_bounded(path).splitlines()]
    tokens = [line for line in lines if line]
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise ValueError(f"{path} contains {len(tokens)} tokens, expected 1 to {MAX_TOKENS}")
    for number, token in enumerate(tokens, 1):
        if len(token) < MIN_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
            raise ValueError(
                f"token {number} in {path} is not {MIN_TOKEN_CHARACTERS} or more characters of"
                " A-Z a-z 0-9 . _ ~ + / - ="
            )
    return tuple(_digest(token) for token in tokens)


def is_known_token(authorization: str, tokens: tuple[bytes, ...]) -> bool:
    """Return True if an Authorization header carries one of the tokens.

    Digests are compared, each to its end, so that the time reveals neither how much of a token was
    right nor which.
    """
    scheme, _, given = authorization.partition(" ")
    digest = _digest(given.strip())
    matches = [hmac.compare_digest(digest, token) for token in tokens]
    return scheme.lower() == "bearer" and any(matches)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def check_users(users: Mapping[str, str]) -> None:
    """Check that every password is a bcrypt hash, and that bcrypt is installed.

    Raises:
        ValueError: a check fails.
    """
    for name, hashed in users.items():
        if not _BCRYPT.fullmatch(hashed):
            raise ValueError(
                f"the password of user {name!r} is not a bcrypt hash; htpasswd -nBC 10 '' makes one"
            )
    if users:
        _bcrypt_matches("", _NOBODY)


class TooManyGuessesError(Exception):
    """An address presents another password while one of its own is still being compared."""


class Passwords:
    """Compares names and passwords with bcrypt hashes, one comparison at a time.

    Results are cached, wrong ones too: a scraper costs one comparison. After a wrong password no
    comparison begins for a while, so that someone who guesses takes little from the node. For each
    address only one password is compared or waiting, so that a scraper waits for as many
    comparisons as there are addresses, not as there are guesses.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        # Separate, so that no number of wrong results displaces a right one.
        self._right: dict[bytes, bool] = {}
        self._wrong: dict[bytes, bool] = {}
        self._waiting: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()
        self._comparing = threading.Lock()

    def match(self, authorization: str, users: Mapping[str, str], peer: str) -> bool:
        """Return True if a header carries the name and password of one of the users.

        Raises:
            TooManyGuessesError: the peer's address must first wait for its previous result.
        """
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic" or not users:
            return False
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        # An unknown user's password is compared as well, so that the time reveals nothing about
        # names.
        hashed = users.get(name) or max(users.values(), key=_cost)
        text = "\0".join((name, hashed, password))
        key = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        known = self._known(key)
        if known is not None:
            return known
        with self._turn(peer, key):
            return self._compare(key, password, hashed, is_user=name in users)

    def _known(self, key: bytes) -> bool | None:
        return self._right.get(key, self._wrong.get(key))

    @contextlib.contextmanager
    def _turn(self, peer: str, key: bytes) -> Iterator[None]:
        """Wait for a turn, of which each address has at most one."""
        with self._lock:
            waiting = self._waiting.setdefault(peer, [])
            if waiting and (waiting[0] != key or len(waiting) >= MAX_WAITING):
                raise TooManyGuessesError
            waiting.append(key)
        try:
            yield
        finally:
            with self._lock:
                waiting.remove(key)
                if not waiting:
                    del self._waiting[peer]

    def _compare(self, key: bytes, password: str, hashed: str, *, is_user: bool) -> bool:
        with self._comparing:
            known = self._known(key)
            if known is None:
                began = time.thread_time()
                known = _bcrypt_matches(password, hashed) and is_user
                spent = time.thread_time() - began
                answers = self._right if known else self._wrong
                if len(answers) >= MAX_REMEMBERED:
                    answers.clear()
                answers[key] = known
                if not known:
                    time.sleep(min(REST * spent, MAX_REST_SECONDS))
        return known


def _cost(hashed: str) -> str:
    """Return the two digits that determine the duration of a comparison."""
    return hashed.split("$")[2]


def _bcrypt_matches(password: str, hashed: str) -> bool:
    try:
        import bcrypt
    except ImportError:
        raise ValueError("basic_auth_users needs bcrypt: pip install 'rankscope[agent]'") from None
    try:
        return bool(bcrypt.checkpw(password.encode(), hashed.encode()))
    except ValueError:  # longer than the 72 bytes that bcrypt uses, or an unknown kind of hash
        return False
