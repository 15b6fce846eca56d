"""Log lines in key=value format, one line each, without repetition every second."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TextIO

REPEAT_SECONDS = 60.0
"""A persistent failure is logged once a minute: collectors run every second, and a line each time
would fill a node's disk with 86,400 of them a day."""

MAX_REMEMBERED = 256
"""Failure texts remembered: some ten per collector. A failure whose text keeps changing is
suppressed once this many were logged within `REPEAT_SECONDS`."""

MAX_FIELD_CHARACTERS = 16_384
"""Length of a field: enough for a traceback of a hundred frames, not for a file that it quotes."""

_NUMBER = re.compile(r"[0-9]+")
_PLAIN = re.compile(r"[^\s\"=\\]+")


class RepeatFilter(logging.Filter):
    """Passes a collector's failure when it is new, and then once a minute.

    It only affects records that carry `collector` and `failure`. Texts that differ only in numbers
    are equal, so that an increasing duration does not add lines.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide about one record."""
        failure = record.__dict__.get("failure")
        if failure is None:
            return True
        now = self._clock()
        for key, logged in list(self._logged.items()):
            if now - logged >= REPEAT_SECONDS:
                del self._logged[key]
        key = (str(record.__dict__.get("collector")), _NUMBER.sub("#", str(failure)))
        if key in self._logged or len(self._logged) >= MAX_REMEMBERED:
            return False
        self._logged[key] = now
        return True


class LineFormatter(logging.Formatter):
    """Formats a record as `time=... level=... logger=... msg="..."` and a field for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return " ".join(
            f"{name}={_quoted(text[:MAX_FIELD_CHARACTERS])}" for name, text in fields.items()
        )


def _quoted(text: str) -> str:
    """Quote a value unless it is one plain word; line ends and controls become escapes."""
    return text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text)


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send the process's log to a stream, by default stderr, replacing earlier handlers."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter())
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
