"""Show the conclusions from a kernel log: as text for people and as JSON for programs.

The JSON's members are part of the product's interface (docs/kernel_log.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from rankscope_agent.contract.kernel.incidents import Incident
from rankscope_agent.contract.kernel.log import KernelLog, Seen, counted
from rankscope_agent.contract.kernel.verdict import Verdict, judge
from rankscope_agent.contract.kernel.xid_actions import CATALOGUE, PUBLISHED
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_analyzers.intake.log_files import LogError, chunks
from rankscope_analyzers.logs.not_read import not_read_lines
from rankscope_analyzers.logs.recognised import is_of_kernel
from rankscope_analyzers.text.sanitize import visible


class KernelLogExplanation:
    """What the kernel logs of one node show; the oldest is given first.

    Raises:
        LogError: a file cannot be read.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._log = KernelLog()
        self._recognised = False
        self._not_read: list[str] = []
        for name in files:
            framing = Unframer()
            for chunk in chunks(name, tell=self._not_read.append):
                self._feed(framing.feed(chunk))
            self._feed(framing.finish())
        self._names = ", ".join(files)

    def _feed(self, lines: bytes) -> None:
        self._recognised = self._recognised or is_of_kernel(lines)
        self._log.feed(lines)

    @property
    def log(self) -> KernelLog:
        """Return what was read."""
        return self._log

    def as_object(self) -> dict[str, Any]:
        """Return JSON-ready values.

        Raises:
            LogError: no line is of a kernel log.
        """
        self._require_lines()
        return as_object(self._log) | {"not_read": self._not_read}

    def lines(self) -> Iterator[str]:
        """Yield lines for people.

        Raises:
            LogError: no line is of a kernel log.
        """
        self._require_lines()
        return chain(lines(self._log), not_read_lines(self._not_read))

    def _require_lines(self) -> None:
        if not self._recognised and not self._log.seen:
            raise LogError(
                f"no line is of a kernel log, so nothing is known: {visible(self._names)}"
            )


TEXT_INCIDENTS = 20
"""Incidents in the text; --json has them all."""

TEXT_EVENTS = 4
"""Events of each incident in the text, the first ones, as they are nearest to the cause."""


def as_object(log: KernelLog) -> dict[str, Any]:
    """Return events, incidents and verdict as JSON-ready values, null for what the log lacks."""
    verdict = judge(log.seen, log.boot)
    return {
        "events": [_event(one) for one in counted(log.seen)],
        "incidents": [_incident(one) for one in verdict.incidents],
        "verdict": {
            "cause": verdict.cause,
            "action": verdict.action,
            "summary": verdict.summary,
            **_times(verdict.incidents[0] if verdict.incidents else None),
        },
        "xid_catalogue": CATALOGUE,
        "beyond_limits": log.beyond_limits,
    }


def _event(one: Seen) -> dict[str, Any]:
    event = one.event
    return {
        "kind": event.kind,
        "xid": event.code if event.kind == "xid" else None,
        "pci": event.pci,
        "pid": event.pid,
        "severity": event.severity,
        "action": event.action,
        "count": one.count,
        "text": event.text,
    }


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "cause": incident.cause,
        "action": incident.action,
        "subject": incident.subject,
        "summary": incident.summary,
        **_times(incident),
        "before_last_boot": incident.before_boot,
        "nvidia": _published(incident),
        "events": [_event(one) for one in incident.events],
    }


def _times(incident: Incident | None) -> dict[str, str | None]:
    if incident is None:
        return {"first_time": None, "last_time": None}
    return {"first_time": incident.first_time or None, "last_time": incident.last_time or None}


def _published(incident: Incident) -> dict[str, str] | None:
    """Return the action that NVIDIA's catalogue gives for the root's Xid, None without an Xid."""
    event = incident.root.event
    pair = PUBLISHED.get(event.code or 0) if event.kind == "xid" else None
    if pair is None:
        return None
    return {"immediate": pair.immediate, "investigatory": pair.investigatory}


def lines(log: KernelLog) -> Iterator[str]:
    """Yield the report for people."""
    verdict = judge(log.seen, log.boot)
    yield f"verdict: {visible(verdict.summary)}"
    yield f"cause: {verdict.cause}; first action: {ACTION_TEXTS[verdict.action]}"
    if verdict.incidents and (when := _when(verdict.incidents[0])):
        yield f"when: {when}"
    for incident in verdict.incidents[:TEXT_INCIDENTS]:
        yield from _incident_lines(incident)
    if len(verdict.incidents) > TEXT_INCIDENTS:
        yield f"{len(verdict.incidents) - TEXT_INCIDENTS} more incidents in --json"
    yield from _unexplained(log, verdict)
    if log.beyond_limits:
        yield f"not kept: {log.beyond_limits} events beyond limits"


def _incident_lines(incident: Incident) -> Iterator[str]:
    yield f"incident: {visible(incident.summary)}"
    yield f"  cause {incident.cause}, severity {incident.severity}, action {incident.action}"
    if when := _when(incident):
        yield f"  when: {when}"
    published = _published(incident)
    if published is not None:
        then = f", then {published['investigatory']}" if published["investigatory"] else ""
        yield f"  {CATALOGUE}: {published['immediate']}{then}"
    yield from (_shown(one) for one in incident.events[:TEXT_EVENTS])
    if len(incident.events) > TEXT_EVENTS:
        yield f"  ... {len(incident.events) - TEXT_EVENTS} more kinds of events"


def _when(incident: Incident) -> str:
    """Return when an incident was, as the log has it; empty without times."""
    first, last = incident.first_time, incident.last_time
    return first if first == last or not last else f"{first} to {last}"


def _shown(one: Seen) -> str:
    return f"  {one.count}x {visible(one.event.text)}"


def _unexplained(log: KernelLog, verdict: Verdict) -> Iterator[str]:
    """List harmless events, which are in no incident, so that nobody searches for their cause."""
    explained = {id(one) for incident in verdict.incidents for one in incident.events}
    rest: Sequence[Seen] = [one for one in counted(log.seen) if one.event.cause == "benign"]
    for one in [one for one in rest if id(one) not in explained][:TEXT_EVENTS]:
        yield f"harmless: {one.count}x {visible(one.event.text)}"


ACTION_TEXTS = {
    "none": "none",
    "investigate": "investigate",
    "contact_vendor": "open a case with the vendor",
    "restart_app": "restart the program",
    "check_cable": "check cables and connectors",
    "reset_gpu": "reset the GPU",
    "reboot_node": "reboot the node",
    "drain": "drain the node",
}
