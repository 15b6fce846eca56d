"""`rankscope xids`: GPU errors of a cluster, one incident per GPU and root cause."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankscope_analyzers.command import (
    InputError,
    age_seconds,
    print_json,
)
from rankscope_analyzers.commands import connection
from rankscope_analyzers.gpus.error_sources import (
    LATE_SECONDS,
    ErrorLog,
    from_pages,
    from_prometheus,
    has_job,
)
from rankscope_analyzers.gpus.failure_kinds import OTHER_CLUSTERS, PUBLISHED
from rankscope_analyzers.gpus.failure_rates import Rate, rates
from rankscope_analyzers.gpus.xid_incidents import XidIncident, analyze
from rankscope_analyzers.intake.agent_client import AgentError
from rankscope_analyzers.intake.credentials import entry_of
from rankscope_analyzers.intake.prometheus_api import Prometheus, PrometheusError
from rankscope_analyzers.logs.kernel_report import ACTION_TEXTS
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.name_lists import named, shortened
from rankscope_analyzers.text.sanitize import visible
from rankscope_analyzers.text.wording import UNKNOWN, clock

FAILURES: tuple[type[Exception], ...] = (*connection.FAILURES, InputError, PrometheusError)


def run(options: argparse.Namespace) -> int:
    """Print the incidents and their rates; return 1 if there is no source that could have any.

    Raises:
        InputError: an option cannot be used.
        AgentError: no agent answers.
        PrometheusError: the server cannot be queried.
    """
    now = time.time()
    since = now - age_seconds(options.since, "--since")
    silent: list[str] = []
    server = Prometheus(options.prometheus, entry_of(options)) if options.prometheus else None
    if server:
        log = from_prometheus(server, since, now)
        silent = [*server.doubts]
    else:
        pages, silent = connection.chosen_targets(options).pages()
        if not pages:
            raise AgentError(shortened(silent))
        log = from_pages(pages, since)
    found = analyze(log.errors)
    compared = rates(found, log.nodes, log.gpu_hours)
    if options.job:
        found = tuple(one for one in found if options.job in one.job_ids)
        if not found and not _knows(log, server, options.job):
            unknown = "whether its GPUs reported errors is unknown"
            why = f"there is no job {options.job!a} in what was read: {unknown}"
            raise InputError(shortened([why, *silent]))
    if options.json:
        print_json(as_object(log, found, compared, silent))
    else:
        _show(open_console(no_color=options.no_color), log, found, compared, silent)
    return 0 if _is_known(log) else 1


def _knows(log: ErrorLog, server: Prometheus | None, job_id: str) -> bool:
    """Return True if anything is known of a job."""
    if server is None:
        return job_id in (log.jobs or ())
    return has_job(server, job_id, log.since_unix_seconds, log.until_unix_seconds)


def as_object(
    log: ErrorLog, findings: Sequence[XidIncident], compared: Sequence[Rate], silent: Sequence[str]
) -> dict[str, Any]:
    """Return incidents and rates as JSON-ready values, null for unknown."""
    return {
        "since_unix_seconds": log.since_unix_seconds,
        "until_unix_seconds": log.until_unix_seconds,
        "gpu_hours": log.gpu_hours,
        "incidents": [_object(one) for one in findings],
        "rates": [asdict(rate) for rate in compared],
        "rates_published_by": PUBLISHED,
        "interruptions_per_thousand_gpu_hours_elsewhere": dict(OTHER_CLUSTERS),
        "unobserved": [*_unobserved(log), *silent],
    }


def _object(one: XidIncident) -> dict[str, Any]:
    finding = one.finding
    return {
        "kind": one.cause,
        "severity": finding.severity,
        "action": one.action,
        "fatality": one.fatality,
        "where": asdict(one.where),
        "affected": [asdict(location) for location in one.affected],
        "job_ids": one.job_ids,
        "ranks": one.ranks,
        "codes": one.codes,
        "summary": finding.summary,
        "evidence": [asdict(item) for item in finding.evidence],
        "runbook": runbooks.path(finding.runbook),
        "since_unix_seconds": finding.since_unix_seconds,
        "until_unix_seconds": finding.until_unix_seconds,
    }


def _unobserved(log: ErrorLog) -> Iterator[str]:
    if log.gpu_hours is None:
        yield (
            "GPU-hours are unknown (Prometheus has them for nodes whose kernel log is read),"
            " so there are no rates"
        )
    if log.unread:
        yield (
            f"the kernel log of {named(log.unread, 'node')}, so that at most the Xids that the"
            " driver reported to an agent are known"
        )
    if log.gone:
        yield (
            f"what has happened lately on {named(map(visible, log.gone), 'node')}: Prometheus has"
            f" had nothing of {'its agent' if len(log.gone) == 1 else 'their agents'} for"
            f" {LATE_SECONDS / 60:.0f} minutes"
        )


def _show(
    console: Console,
    log: ErrorLog,
    findings: Sequence[XidIncident],
    compared: Sequence[Rate],
    silent: Sequence[str],
) -> None:
    for one in findings:
        style = "bold red" if one.finding.severity == "page" else "bold"
        console.print(f"[{style}]{one.cause}[/]: {_text(one.finding.summary)}.")
        console.print(f"  {_when(one)}. First action: {ACTION_TEXTS[one.action]}.")
        console.print(f"  See {runbooks.command(one.finding.runbook)}.")
    if not findings:
        console.print(_nothing(log))
    for sentence in (*_unobserved(log), *silent):
        console.print(f"Not seen: {_text(sentence)}.")
    if log.gpu_hours is not None:
        console.print(_rate_table(compared, log.gpu_hours))


def _nothing(log: ErrorLog) -> str:
    """Say what no incident means: it means nothing if no kernel log was read."""
    if _is_known(log):
        return "No GPU reported an error that requires an action."
    return "Whether GPUs reported errors is unknown: no kernel log was read."


def _is_known(log: ErrorLog) -> bool:
    return bool(log.errors) or log.any_read


def _text(text: str) -> str:
    return escape(visible(text))


def _when(one: XidIncident) -> str:
    since, until = clock(one.began), clock(one.ended)
    if since != until:
        return f"From {since} to {until}"
    return "At an unknown time" if since == UNKNOWN else f"At {since}"


def _rate_table(compared: Sequence[Rate], gpu_hours: float) -> Table:
    title = f"Failures per 1,000 GPU-hours, in {gpu_hours:,.1f} GPU-hours"
    others = [f"all of {name}: {rate:.4f}" for name, rate in OTHER_CLUSTERS.items()]
    caption = "\n".join((f"published: {PUBLISHED}", *others))
    table = Table(title=title, title_justify="left", box=None, caption=caption)
    for name in ("", "failures", "rate", "95 % interval", "published", "expected by it"):
        table.add_column(name, justify="right" if name else "left")
    for rate in compared:
        table.add_row(
            rate.name,
            str(rate.count),
            f"{rate.per_thousand_gpu_hours or 0:.4f}",
            f"{rate.low_per_thousand_gpu_hours or 0:.4f} to"
            f" {rate.high_per_thousand_gpu_hours or 0:.4f}",
            _or_dash(rate.published_per_thousand_gpu_hours, 4),
            _or_dash(rate.expected, 2),
        )
    return table


def _or_dash(number: float | None, digits: int) -> str:
    return "-" if number is None else f"{number:.{digits}f}"
