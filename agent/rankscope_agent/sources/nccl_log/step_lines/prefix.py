"""Finds where the program's own text begins on a log line.

A line about steps begins with one of its framework's words right after the prefixes of launchers
and of Python's logging; the same words within a sentence, a quotation or an argument do not make
such a line.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.log_text.prefixes import (
    CRI_STREAM,
    CTIME,
    ISO_TIME,
    RANK,
    RAY,
    SERVICE,
    SERVICE_END,
    STREAM,
    SYSLOG_TIME,
    TASK_PADDING,
    WRITER,
)

MAX_PREFIX = 512
"""Bytes of a line in which prefixes are searched: the longest seen have fewer than 200."""

_BRACKETS = rb"\[[^\]\n]{1,200}\](?:<" + STREAM + rb">)?:?"
"""Tags of torchrun, PyTorch, mpirun and kubectl, and bracketed texts of DeepSpeed and
Megatron-LM."""

_LEVEL = rb"(?:INFO|WARNING|DEBUG)(?::[\w.]{1,80}:| ?[:|-]? )|[-|] "
"""What Python's logging and loguru put before a message."""

_PREFIXES = re.compile(
    rb"(?:" + ISO_TIME + rb"\s{1,4}(?:" + CRI_STREAM + rb"|" + WRITER + rb")?"
    + rb"|" + CTIME + rb"(?=\[)"
    + rb"|" + _BRACKETS
    + rb"|" + RAY
    + rb"|" + TASK_PADDING + RANK + rb": ?(?=\D)"
    + rb"|" + SYSLOG_TIME + rb" " + WRITER
    + rb"|" + SERVICE + SERVICE_END
    + rb"|" + _LEVEL
    + rb"|\s){0,24}"
)  # fmt: skip


def words_begin(line: bytes) -> int:
    """Return where a line's own words begin."""
    match = _PREFIXES.match(line, 0, MAX_PREFIX)
    return match.end() if match else 0
