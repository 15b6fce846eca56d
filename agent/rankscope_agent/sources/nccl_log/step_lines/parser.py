"""Finds step lines of frameworks in a pod's logs, chunk by chunk: bytes in, values out.

Most logs contain no such line: a chunk without any of a few words is skipped at the speed of
memchr.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankscope_agent.contract.log_text.prefixes import unix_seconds
from rankscope_agent.sources.nccl_log.step_lines import (
    bars,
    collectives,
    deepspeed,
    megatron,
    printed,
    trainers,
)
from rankscope_agent.sources.nccl_log.step_lines.collectives import CollectivePeriod
from rankscope_agent.sources.nccl_log.step_lines.deepspeed import DeepSpeedLines
from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.step_lines.prefix import words_begin
from rankscope_agent.sources.nccl_log.step_lines.trainers import TrainerLines
from rankscope_agent.sources.nccl_log.step_lines.values import NCCL, Progress, StepFacts, StepLine

MAX_LINE = 8192
"""Longest line that is examined: the longest known ones are below 4 KiB."""

MARKS: Mapping[bytes, tuple[bytes, ...]] = {
    megatron.MARK: (b"|",),
    **dict.fromkeys(deepspeed.MARKS, (b"=", b"(")),
    **dict.fromkeys(bars.MARKS, (b"|", b"\xa2")),
    **dict.fromkeys(trainers.DICTIONARY_MARKS, (b"{",)),
    trainers.BANNER: (b":",),
    collectives.MARK: (b":",),
    megatron.SAVE_MARK: (b"-",),
    printed.LOSS_MARK: (b"s",),
    **dict.fromkeys(printed.TAB_MARKS, (b"\t",)),
}
"""Words of which each line about steps contains one, each with a set of bytes of which the line
contains one: a single byte is found twenty times as fast as a word, and most chunks lack half of
these."""


SUM_UP_SECONDS = 5.0
"""How often the period of collectives is computed: several times within any scrape interval."""

UNCOUNTED = {*bars.MARKS, trainers.BANNER, megatron.SAVE_MARK, *printed.MARKS}
"""Words of lines that are not counted when rejected: most progress bars are of downloads and data
sets, many lines mention losses, and neither are mistaken for training."""

SURE_MARKS = tuple(mark for mark in MARKS if mark not in {megatron.SAVE_MARK, *printed.MARKS})
"""Words that decide how a line is read, wherever it contains a loss."""


class StepLog:
    """The incremental parser of all logs of one pod.

    Args:
        own: the user's pattern.
    """

    def __init__(self, own: OwnLines | None = None) -> None:
        self.own = own or OwnLines(None)
        self.facts = StepFacts()
        self.trainers = TrainerLines()
        self.deepspeed = DeepSpeedLines()
        self._collectives = CollectivePeriod()
        self._collective_lines = 0
        self._summed_up = float("-inf")

    @property
    def has_content(self) -> bool:
        """Return True if there has been any line about steps."""
        return bool(self.facts.frameworks)

    def feed(self, text: bytes, now: float, written: float | None) -> None:
        """Process complete plain lines.

        Args:
            text: lines, as returned by `Unframer`.
            now: the Unix time.
            written: roughly when they were written; None if they may be old.
        """
        own = self.own.marks
        for mark, line, at in _candidates(text, own):
            if mark in own:
                read = self.own.read(line, at)
                if read is not None:
                    self.facts.take(read, now)
                continue
            if mark == collectives.MARK:
                self._collective_lines += self._collectives.feed(line, at, written)
                continue
            begin = words_begin(line)
            if mark in printed.MARKS:
                read = printed.read(line, line[begin:])
            else:
                read = self._read(mark, line[begin:], unix_seconds(line[:begin]) or written)
                if read is None and mark in bars.MARKS:  # a bar whose description contains the loss
                    read = printed.read(line, line[begin:])
            if read is not None:
                self.facts.take(read, now)
            elif mark not in UNCOUNTED:
                self.facts.refused += 1

    def sum_up(self, now: float) -> None:
        """Compute the period of the collectives read so far."""
        soon = 0 <= now - self._summed_up < SUM_UP_SECONDS
        if not self._collective_lines or soon:
            return
        self._summed_up = now
        known = self.facts.frameworks.setdefault(NCCL, Progress())
        known.lines += self._collective_lines
        known.step_seconds = self._collectives.step_seconds()
        known.last_line = now
        self._collective_lines = 0

    def _read(self, mark: bytes, words: bytes, written: float | None) -> StepLine | None:
        if mark == megatron.MARK:
            return megatron.read(words)
        if mark == megatron.SAVE_MARK:
            return megatron.read_save(words)
        if mark in deepspeed.MARKS:
            return self.deepspeed.read(words, written)
        if mark in trainers.DICTIONARY_MARKS:
            return self.trainers.read_dictionary(words)
        if mark == trainers.BANNER:
            self.trainers.read_banner(words)
            return None
        bar = bars.read(words)
        return None if bar is None else self.trainers.read_bar(bar)


def _candidates(text: bytes, own: Sequence[bytes] = ()) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield each line with a mark, in order, with the mark and its position in the line.

    Lines that contain a mark of the user's pattern are left to that pattern.
    """
    marks = [*own, *(mark for mark, gates in MARKS.items() if any(gate in text for gate in gates))]
    offsets = sorted((offset, mark) for mark in marks for offset in _offsets(text, mark))
    done = -1
    for offset, mark in offsets:
        if offset < done:  # another mark on a line already examined
            continue
        begin = _begin(text, offset)
        end = _end(text, offset + len(mark))
        stronger = own if mark not in printed.MARKS else (*own, *SURE_MARKS)
        if mark not in own and any(text.find(one, begin, end) >= 0 for one in stronger):
            continue
        done = end
        if end - begin <= MAX_LINE:
            yield mark, text[begin:end], offset - begin


def _offsets(text: bytes, mark: bytes) -> Iterator[int]:
    offset = text.find(mark)
    while offset >= 0:
        yield offset
        offset = text.find(mark, offset + len(mark))


def _begin(text: bytes, offset: int) -> int:
    """Return the start of the line; a carriage return starts a new one, as in progress bars."""
    low = max(0, offset - MAX_LINE)
    return max(text.rfind(b"\n", low, offset), text.rfind(b"\r", low, offset), low - 1) + 1


def _end(text: bytes, offset: int) -> int:
    high = min(len(text), offset + MAX_LINE)
    ends = [found for sign in (b"\n", b"\r") if (found := text.find(sign, offset, high)) >= 0]
    return min(ends, default=high)
