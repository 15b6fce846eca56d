"""Takes what launchers and runtimes put before a line off it, and says who speaks by that.

Unlike for other parsers the white space behind it counts: it tells frames of a traceback from its
last line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

MAX_RANK = 1 << 20
"""Ranks at and above this are garbage: 64 times the largest jobs known."""

_HEADS = re.compile(
    # CRI; kubectl logs --timestamps
    rb"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) "
    rb"(?:std(?:out|err) [PF](?::\S{0,64})? )?"
    rb"|(?P<pod>\[pod/[^\]\n]{1,200}\]) "  # kubectl logs --prefix
    rb"|(?P<service>[a-z][\w.-]{1,100}) {1,20}\| "  # docker compose
    rb"|(?P<actor>\(\w{1,60} pid=\d{1,10}[^)\n]{0,80}\)) "  # Ray
    rb"|\[\d{1,10},(?P<mpi>\d{1,7})\]<std(?:out|err)>: ?"  # mpirun --tag-output
    rb"|\[rank(?P<rank>\d{1,7})\]: ?"  # PyTorch's exception hook, since 2.2
    rb"|\[(?P<role>[a-zA-Z_]{1,40})(?P<local>\d{1,7})\]: ?"  # torchrun --tee
    rb"|(?P<task>\d{1,7}): "  # srun --label
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,255} [\w.@-]{1,255}\[\d{1,10}\]: "  # journald
)
MAX_HEADS = 8


@dataclass(frozen=True, slots=True)
class Head:
    """Who speaks a line.

    Args:
        speaker: tells the writers of one log apart.
        rank: the rank that a tag names, None without one.
        local: the tag counts ranks of its node only.
        time: Unix time of the line, None where it has none.
    """

    speaker: bytes
    rank: int | None
    local: bool
    time: float | None


NOBODY = Head(b"", None, False, None)


def split(line: bytes) -> tuple[Head, bytes]:
    """Return who speaks a line, and its own words with their indentation."""
    place, end = 0, 0
    found: dict[str, bytes] = {}
    for _ in range(MAX_HEADS):
        match = _HEADS.match(line, place)
        if match is None:
            break
        found.update({name: text for name, text in match.groupdict().items() if text})
        place = end = match.end()
    if not end:
        return NOBODY, line
    time = _time(found.pop("stamp", None))
    rank, local = _rank(found)
    return Head(b"|".join(found.values()), rank, local, time), line[end:]


def _rank(found: dict[str, bytes]) -> tuple[int | None, bool]:
    """Return the rank by the surest tag, and whether that counts within its node only."""
    for name in ("rank", "mpi", "local", "task"):
        if name in found and int(found[name]) < MAX_RANK:
            return int(found[name]), name == "local"
    return None, False


def _time(stamp: bytes | None) -> float | None:
    if stamp is None:
        return None
    text = stamp.decode()
    whole, _, rest = text.partition(".")
    zone = re.search(r"(?:Z|[+-]\d\d:\d\d)$", text)
    fraction = re.match(r"\d+", rest)
    try:
        moment = datetime.fromisoformat(
            whole[:19] + (zone[0] if zone else "").replace("Z", "+00:00")
        )
    except ValueError:
        return None
    return moment.timestamp() + (float(f"0.{fraction[0]}") if fraction else 0.0)
