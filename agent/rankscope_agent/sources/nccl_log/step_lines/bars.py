"""Parses progress bars of tqdm and rich: description, progress and speed.

tqdm.std.tqdm.format_meter writes `desc: 12%|bar| n/total [elapsed<remaining, rate, postfix]`; rich
bars are those of lightning/pytorch/callbacks/progress/rich_progress.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope_agent.sources.nccl_log.step_lines.values import number, seconds

MARKS = (b"it/s", b"s/it")

# A bar has 600 bytes at most: a terminal of 200 columns with three bytes per block.
_TQDM = re.compile(
    rb"(?:(?P<desc>[^|\n]{1,120}?): {1,4})?\s{0,4}(?:(?P<percent>\d{1,3})%)?\|[^|\n]{0,600}\| "
    rb"(?P<n>\d{1,12})/(?P<total>\d{1,12}|\?) "
    rb"\[[\d:]{4,12}<(?:[\d:?]{1,12}|\d{1,6} days?, [\d:]{4,9}),"
    rb" {0,4}(?P<rate>\d{1,9}(?:\.\d{1,6})?|\?) ?(?P<unit>it/s|s/it)"
    rb"(?P<postfix>(?:, ?[^\]\n]{0,400})?)\]"
)
_RICH = re.compile(
    rb"(?P<desc>Epoch \d{1,9}(?:/\d{1,9})?) {1,20}[\xe2\x94\x81\xb8\xba\x95 \-]{1,600} "
    rb"(?P<n>\d{1,12})/(?P<total>\d{1,12}|--)"
    rb" \d{1,3}:\d\d:\d\d \xe2\x80\xa2 (?:\d{1,3}:\d\d:\d\d|-:--:--)"
    rb" {1,4}(?P<rate>\d{1,9}(?:\.\d{1,6})?)it/s(?P<postfix>[^\n]{0,400})"
)
_PAIR = re.compile(rb"([\w/.-]{1,60})(?:=|: )([^\s,]{1,30})")


@dataclass(frozen=True, slots=True)
class Bar:
    """One state of a progress bar.

    Args:
        description: the text before it, possibly empty.
        total: the number at which it ends; None if not printed.
        unit_seconds: time per counted unit; None before the first.
        postfix: names and values after it.
    """

    description: str
    done: int
    total: int | None
    unit_seconds: float | None
    postfix: dict[str, bytes]


def read(words: bytes) -> Bar | None:
    """Read a bar; return None if there is none or it contradicts itself."""
    match = _TQDM.match(words) or _RICH.match(words)
    if match is None:
        return None
    values = match.groupdict()
    done = int(values["n"])
    total = int(values["total"]) if values["total"].isdigit() else None
    if total is not None and done > total:
        return None
    percent = values.get("percent")
    # tqdm rounds; if a bar's percentage does not match its numbers, it is not tqdm's.
    if percent is not None and (not total or abs(int(percent) - 100 * done / total) > 1):
        return None
    return Bar(
        description=(values["desc"] or b"").decode(errors="replace").strip(),
        done=done,
        total=total,
        unit_seconds=_unit_seconds(values["rate"], values.get("unit") or b"it/s"),
        postfix={name.decode(): value for name, value in _PAIR.findall(values["postfix"] or b"")},
    )


def _unit_seconds(text: bytes, unit: bytes) -> float | None:
    value = number(text)
    if unit == b"s/it":
        return seconds(value)
    return seconds(1 / value) if value > 0 else None
