"""Announces changes of incidents: in the watch's own log, in the incident log, and by webhook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.incident_log import IncidentLog, LogError
from rankscope_analyzers.watch.webhook import Webhook

MOST_UNWRITTEN = 10_000
"""Changes that wait for a log that cannot be written, as on a full disk; the oldest are dropped
first."""


@dataclass(slots=True)
class Announcer:
    """Announces the changes of incidents.

    Args:
        say: writes a sentence to the watch's own log.
        log: of incidents, None if none is kept.
        webhook: posts its lines, None without a receiver.
    """

    say: Callable[[str], None]
    log: IncidentLog | None = None
    webhook: Webhook | None = None
    _unwritten: list[Event] = field(default_factory=list)
    _problem: str = ""

    def tell(
        self,
        events: Sequence[Event],
        reports: Sequence[JobReport],
        now: float,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Announce what changed in an evaluation.

        Args:
            events: the changes.
            reports: of all jobs.
            now: Unix time.
            is_gone: returns True for a job that is gone, for those without a report.
        """
        for event in events:
            self.say(visible(f"job {event.job_id}: {event.sentence}"))
        if self.log is None:
            return
        waiting = [*self._unwritten, *events][-MOST_UNWRITTEN:]
        try:
            lines = [*self.log.write(waiting, now)]
            lines += self.log.write(self.log.missed(reports, is_gone), now)
        except LogError as error:
            self._unwritten = waiting
            if str(error) != self._problem:
                self.say(f"changes of incidents cannot be written yet: {error}")
            self._problem = str(error)
            return
        self._unwritten, self._problem = [], ""
        if self.webhook is not None:
            self.webhook.post(lines)

    def forget(self) -> None:
        """Read the log again before anything is announced: another watch leads in the meantime."""
        self._unwritten = []
        if self.log is not None:
            self.log.forget()
