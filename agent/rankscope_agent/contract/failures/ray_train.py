"""Reads what Ray Train's controller says of ranks: whose process is which, and what they raised.

Ray's prefix names the process that wrote a line; its rank stands in a list that the controller
prints when it has started the workers. What ended them is repeated by the controller, and in the
exception of the program that started it, under a heading with their ranks. Source: ray 2.60,
train/v2/_internal/execution/worker_group/worker_group.py (_start_impl) and poll.py
(get_error_string); _private/worker.py (print_worker_logs) and ray_logging (LogDeduplicator).
"""

from __future__ import annotations

import re

from rankscope_agent.contract.log_text.prefixes import MAX_RANK

_STARTED = re.compile(
    rb"Started (?:training worker group of size \d{1,7}|distributed worker processes): ?$"
)
"""Of the second version of Ray Train, and of the first."""

_BEFORE_HEADING = b"Error: Training failed due to worker errors:"
"""What the controller prints before a heading."""

_WORKER = re.compile(
    rb"- \((?:node_id=\w{1,64}, )?ip=([\w.:%-]{1,64}), pid=(\d{1,10})\) world_rank=(\d{1,7}),"
)
_SNIPPET = re.compile(rb"\[Rank (\d{1,7}(?:,\d{1,7}){0,65535}) Error Snippet\]:$")
_RAISED, _DIED = b"Traceback (most recent call last):", b"A worker health check "
"""What follows the heading; Ray leaves lines out that it has printed before, perhaps all."""

_PROCESS = re.compile(rb" pid=(\w{1,20})(?:, ip=([\w.:%-]{1,64}))?\)")
_CONTROLLER = b"(TrainController "
_EXITED = re.compile(rb"\bWorker exit type: SYSTEM_ERROR\b")
_REPEATED = re.compile(rb" \[repeated \d{1,9}x across cluster\]")


def is_repeated(words: bytes) -> bool:
    """Return True for a line that was printed before, by the same or by another process."""
    return _REPEATED.search(words) is not None


def is_death(words: bytes) -> bool:
    """Return True if a worker's process ended and Ray does not know why."""
    return _EXITED.search(words) is not None


def is_controller(writer: bytes) -> bool:
    """Return True for the controller, whose own exceptions are not why a rank failed.

    If they are why the run does, the exception of the program that started it says so.
    """
    return _CONTROLLER in writer


class RayTrain:
    """What a log tells about the ranks of its writers.

    `restarts` are the lines before which a controller had started its workers once already.

    Args:
        most: workers, restarts, and ranks in headings that are kept. A pod may print any number.
    """

    def __init__(self, most: int) -> None:
        self.restarts: list[int] = []
        self._most = most
        self._started: set[bytes] = set()
        self._workers = 0
        self._ranks: dict[bytes, dict[bytes, int]] = {}
        self._headings: dict[bytes, tuple[int, bool]] = {}
        self._others: dict[int, tuple[int, ...]] = {}

    def read(self, writer: bytes, words: bytes, line: int) -> bool:
        """Process a line; return True if it says nothing but which ranks there are."""
        worker = _WORKER.match(words)
        if worker is not None:
            self._add(worker[1], worker[2], int(worker[3]))
            return True
        heading = _SNIPPET.match(words)
        if heading is not None:
            self._head(writer, [int(one) for one in heading[1].split(b",")])
            return True
        if _STARTED.match(words) is not None:
            self._start(writer, line)
            return True
        self._follow(writer, words)
        return words == _BEFORE_HEADING

    def _start(self, writer: bytes, line: int) -> None:
        if writer in self._started and len(self.restarts) < self._most:
            self.restarts.append(line - 1)
        if len(self._started) < self._most:
            self._started.add(writer)
        self._workers = 0
        self._ranks.clear()
        self._headings.clear()
        self._others.clear()

    def _add(self, address: bytes, process: bytes, rank: int) -> None:
        if rank < MAX_RANK and self._workers < self._most:
            self._ranks.setdefault(process, {})[address] = rank
            self._workers += 1

    def _head(self, writer: bytes, ranks: list[int]) -> None:
        room = self._most - len(self._headings) - sum(map(len, self._others.values()))
        if room > 0:
            first, *others = (min(rank, MAX_RANK) for rank in ranks[:room])
            self._headings[writer] = first, True
            if known := tuple(rank for rank in others if rank < MAX_RANK):
                self._others[first] = known

    def _follow(self, writer: bytes, words: bytes) -> None:
        """End what is under a heading: nothing if all of it was left out, else one traceback."""
        rank, is_next = self._headings.get(writer, (0, False))
        if is_next and words.startswith((_RAISED, _DIED)):
            self._headings[writer] = rank, False
        elif is_next or words.startswith(_RAISED):
            self._headings.pop(writer, None)

    def rank_of(self, writer: bytes) -> int | None:
        """Return the rank that a writer is, or of which it tells; None if unknown.

        Processes on the node of the program that started them all are printed without an address.
        """
        if writer in self._headings:
            rank = self._headings[writer][0]
            return rank if rank < MAX_RANK else None
        process = _PROCESS.search(writer) if self._ranks else None
        if process is None or is_controller(writer):
            return None
        ranks = self._ranks.get(process[1], {})
        if process[2]:
            return ranks.get(process[2])
        return next(iter(ranks.values())) if len(ranks) == 1 else None

    def others(self, rank: int) -> tuple[int, ...]:
        """Return the other ranks of the heading above what was told of a rank, once."""
        return self._others.pop(rank, ())
