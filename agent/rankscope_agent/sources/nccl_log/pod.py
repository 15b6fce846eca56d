"""Facts about NCCL and steps from the logs of one pod, within limits."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from rankscope_agent.contract.nccl.facts import Facts, Limits
from rankscope_agent.contract.nccl.parser import NcclLog
from rankscope_agent.contract.nccl.verdict import JobVerdict, judge
from rankscope_agent.contract.nccl.watchdog import WatchdogFacts
from rankscope_agent.sources.nccl_log.failures import PodFailures, Progress, pieces
from rankscope_agent.sources.nccl_log.memory import counted_bytes, estimated_bytes
from rankscope_agent.sources.nccl_log.step_lines.own import OwnLines
from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_lines.values import NCCL
from rankscope_agent.sources.pods.log_directories import PodIdentity

POD_LIMITS = Limits(members=4096, threads=4096, edges=4000, settings=8192, watchdog_events=4096)
"""Limits per pod: 16 ranks with 256 communicators each."""

MAX_POD_BYTES = 4 << 20
"""Total memory of these: twice what 16 ranks with 40 communicators each need."""

VERDICT_SECONDS = 5.0
"""How often the verdict on a pod is renewed while its logs grow: several times within any usual
scrape interval, at a fifth of the cost of doing it every second."""


_Counted = tuple[str, ...]
"""What is counted: a kind of warnings, a device and its status, or an operation that timed out."""


class PodLogs:
    """The contents of one pod's logs; times are Unix seconds, None before the first.

    Args:
        owner: the pod.
        facts: found by an earlier run of the agent.
        own: the user's pattern for lines about steps.
    """

    def __init__(self, owner: PodIdentity, facts: Facts, own: OwnLines | None = None) -> None:
        self.owner = owner
        self._own = own
        self.steps = StepLog(own)
        self.failures = PodFailures()
        self.last_line: float | None = None
        self.last_warning: float | None = None
        self.weight = 0
        """Estimated size in bytes, without connections since the last verdict."""
        self.full = False
        """Whether nothing new is remembered any longer."""
        self.stopped = False
        """Whether only failures are read, because there are too many pods."""
        self._first_seen: dict[tuple[str, int], float] = {}
        """When processes outside of pods logged their first line."""
        self._oldest = float("inf")
        """When the oldest line of NCCL outside of pods that is not forgotten was written."""
        self._grown: dict[_Counted, tuple[int, float]] = {}
        """Counters outside of pods, and when each grew at the latest."""
        self._counted = 0
        self._parser = NcclLog(POD_LIMITS, facts)
        self._verdict: JobVerdict | None = None
        self._grew = True
        self._judged = float("-inf")

    @property
    def facts(self) -> Facts:
        """Everything logged so far."""
        return self._parser.facts

    @property
    def has_content(self) -> bool:
        """Return True if NCCL or its watchdog has logged anything, even if it is forgotten."""
        facts = self.facts
        known = facts.processes or facts.warnings or facts.version or facts.members
        return bool(known or facts.beyond_limits)

    @property
    def has_any_content(self) -> bool:
        """Return True if there is anything of NCCL or about steps."""
        return self.has_content or self.steps.has_content

    @property
    def progress(self) -> Progress:
        """Return the number of lines about steps, and the duration of a step."""
        known = [one for name, one in self.steps.facts.frameworks.items() if name != NCCL]
        slowest = max((one.step_seconds or 0.0 for one in known), default=0.0)
        return Progress(sum(one.lines for one in known), slowest)

    def feed(
        self,
        text: bytes,
        now: float,
        *,
        fresh: bool,
        log: str = "",
        written: float | None = None,
    ) -> bool:
        """Process complete lines; return whether any is NCCL's.

        Args:
            text: the lines.
            now: the Unix time.
            fresh: whether they were written since the previous reading.
            log: distinguishes the pod's logs.
            written: when they were written at the latest; only needed outside of pods.
        """
        for marked, piece in pieces(text):
            if marked:
                self.failures.mark(log, now, self.progress, written)
            if not self.stopped:
                self.steps.feed(piece, now, now if fresh else None)
            self.failures.feed(log, piece, now)
        if self.stopped:
            return False
        before = sum(warning.count for warning in self.facts.warnings.values())
        if not self._parser.feed(text):
            return False
        self.last_line = _newest(self.last_line, written, now)
        self._grew = True
        if written is not None:
            self.date(written)
        if sum(warning.count for warning in self.facts.warnings.values()) > before:
            self.last_warning = _newest(self.last_warning, written, now)
        self._weigh(counted_bytes(self.facts, self._parser.threads))
        return True

    def verdict(self, now: float) -> JobVerdict:
        """Return what the logs prove, as of now or shortly before."""
        late = not 0 <= now - self._judged < VERDICT_SECONDS
        if self._verdict is None or (self._grew and late):
            self.sum_up()
            self._verdict = judge(self.facts)
            self._grew, self._judged = False, now
        return self._verdict

    def sum_up(self) -> None:
        """Count the connections gathered so far, and estimate the memory used."""
        self._parser.sum_up()
        self.weight = estimated_bytes(self.facts, self._parser.threads)
        self._counted = counted_bytes(self.facts, self._parser.threads)
        self._weigh(self._counted)

    def _weigh(self, counted: int) -> None:
        """Add what has come since the last time, and remember nothing new beyond the limit."""
        self.weight += counted - self._counted
        self._counted = counted
        if self.weight > MAX_POD_BYTES:
            self.fill()

    def fill(self) -> None:
        """Remember nothing new from here on; what is left out is counted."""
        self.full = True
        self._parser.stop_growing()

    def date(self, written: float, warned: float | None = None) -> None:
        """Note when processes outside of pods that are new logged their first line (Unix time).

        And when what has been counted since the last time was: likewise, unless `warned` tells.
        """
        for key, count in _counts(self.facts).items():
            known, at = self._grown.get(key, (0, 0.0))
            if count != known:
                self._grown[key] = (count, max(written if warned is None else warned, at))
        self._oldest = min(self._oldest, written)
        for process in islice(self.facts.processes, len(self._first_seen), None):
            self._first_seen[process] = written

    def forget_before(self, began: float) -> None:
        """Forget what processes logged that had logged before `began` (Unix time).

        They are of an earlier job outside of pods. So is what was counted before and not since; it
        goes once there are newer warnings, whose time would be taken for its own.
        """
        if self._oldest < began:
            kept = {one: at for one, at in self._first_seen.items() if at >= began}
            self.begin_anew(kept)
            self._first_seen, self._oldest = kept, min(kept.values(), default=float("inf"))
        if (self.last_warning or 0.0) >= began:
            for key in [key for key, (_, at) in self._grown.items() if at < began]:
                del self._grown[key]
                self._uncount(key)

    def _uncount(self, counted: _Counted) -> None:
        kind, *key = counted
        if kind == _WARNING:
            self.facts.warnings.pop(key[0], None)
        elif kind == _IB_ERROR:
            self.facts.ib_errors.pop((key[0], key[1]), None)
        else:
            self.facts.watchdog.earlier.pop(key[0], None)
        self._grew = True

    def begin_anew(self, kept: Collection[tuple[str, int]] = ()) -> None:
        """Forget the job's state, but for these processes; keep the counters.

        Its container was restarted, or its processes ended.
        """
        old = self.facts
        facts = Facts(
            warnings=old.warnings,
            ib_errors=old.ib_errors,
            watchdog=WatchdogFacts(earlier=old.watchdog.counts()),
            unparsed=old.unparsed,
            beyond_limits=old.beyond_limits,
        )
        if kept:
            facts.take_processes(old, kept)
        self._start(facts)

    def forget(self) -> None:
        """Forget what NCCL logged and remember nothing new, because others need the room."""
        old = self.facts
        lost = max(1, len(old.processes) + len(old.members) + len(old.past_members))
        self._start(Facts(unparsed=old.unparsed, beyond_limits=old.beyond_limits + lost))
        self.fill()

    def stop(self) -> None:
        """Forget all but failures, and read nothing else, because there are too many pods."""
        self._start(Facts())
        self.steps = StepLog(self._own)
        self.last_line = self.last_warning = None
        self.stopped = True

    def _start(self, facts: Facts) -> None:
        self._parser = NcclLog(POD_LIMITS, facts)
        self._verdict, self._grew, self.full = None, True, False
        self._first_seen, self._oldest = {}, float("inf")
        left = _counts(facts)
        self._grown = {key: grown for key, grown in self._grown.items() if key in left}
        self._counted = self.weight = counted_bytes(facts, 0)


_WARNING, _IB_ERROR, _TIMEOUT = "warning", "ib_error", "timeout"


def _counts(facts: Facts) -> dict[_Counted, int]:
    counts: dict[_Counted, int] = {}
    counts |= {(_WARNING, code): one.count for code, one in facts.warnings.items()}
    counts |= {(_IB_ERROR, *key): count for key, count in facts.ib_errors.items()}
    counts |= {(_TIMEOUT, name): count for name, count in facts.watchdog.counts().items()}
    return counts


def _newest(known: float | None, written: float | None, now: float) -> float:
    """Return when the newest line was read, outside of pods when it was written at the latest.

    There the logs of earlier jobs stay, and an agent that starts later reads all of them.
    """
    return now if written is None else min(now, max(written, known or 0.0))
