"""Announces changes of incidents: in the watch's own log, in the incident log, and by webhook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.incident_log import CHANGES, IncidentLog, LogError
from rankscope_analyzers.watch.webhook import Webhook

MOST_UNWRITTEN = 10_000
"""Changes that wait for a log that cannot be written, as on a full disk; the oldest are dropped
first."""

MOST_REMEMBERED = 4096
"""Incidents of which it is remembered what was said last."""

Announced = tuple[bool, str, tuple[int, ...]]
"""Whether it is over, its kind and its culprits."""


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
    _announced: dict[tuple[str, str], Announced] = field(default_factory=dict)

    def news(self, events: Sequence[Event]) -> list[Event]:
        """Return the changes without those that were said last of their incident.

        A watch whose state could not be saved, because its ConfigMap had changed in the meantime,
        reads the previous one and sees the same changes again.
        """
        return [event for event in events if self._is_new(event)]

    def _is_new(self, event: Event) -> bool:
        incident = event.job_id, event.key
        announced = (CHANGES[event.change] == "closed", event.kind, tuple(event.ranks))
        before = self._announced.pop(incident, None)
        self._announced[incident] = announced
        while len(self._announced) > MOST_REMEMBERED:
            del self._announced[next(iter(self._announced))]
        return announced != before

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
        lines: list[Mapping[str, Any]] = []
        self._unwritten = [*self._unwritten, *events][-MOST_UNWRITTEN:]
        try:
            lines += self.log.write(self._unwritten, now)
            self._unwritten = []
            lines += self.log.write(self.log.missed(reports, is_gone), now)
        except LogError as error:
            if str(error) != self._problem:
                self.say(f"changes of incidents cannot be written yet: {error}")
            self._problem = str(error)
        else:
            self._problem = ""
        # What was written before an error is posted now: the next look does not write it again.
        if self.webhook is not None:
            self.webhook.post(lines)

    def forget(self) -> None:
        """Read the log again before anything is announced: another watch leads in the meantime."""
        self._announced = {}
        self._unwritten = []
        if self.log is not None:
            self.log.forget()
