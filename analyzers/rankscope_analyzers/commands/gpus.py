"""`rankscope gpus`: watch the GPUs of running agents and report which deviate, and why."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rankscope_analyzers.command import InputError, print_json
from rankscope_analyzers.commands import connection
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.gpus import frames, states, throttle
from rankscope_analyzers.gpus.peers import MINIMUM_PEERS
from rankscope_analyzers.gpus.states import AbsentGpu
from rankscope_analyzers.intake.agent_client import AgentError
from rankscope_analyzers.intake.page_history import Page
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.name_lists import named, shortened
from rankscope_analyzers.text.sanitize import visible

FAILURES: tuple[type[Exception], ...] = (*connection.FAILURES, InputError)

POLL_SECONDS = 2.0
"""Seconds between two looks: agents read their GPUs every second."""

MAX_SECONDS = 600.0
"""Longest time to watch: the command does not record, Prometheus does."""

DOCTOR = "rankscope doctor says why"

ONE_JOB = "of these agents"
"""Stands for the name of a job if there is none."""


def run(options: argparse.Namespace) -> int:
    """Print what the GPUs do, and what deviates.

    Raises:
        InputError: there is no GPU, or the time cannot be watched.
        AgentError: no agent answers.
    """
    if not POLL_SECONDS <= options.seconds <= MAX_SECONDS:
        raise InputError(f"--seconds takes {POLL_SECONDS:.0f} to {MAX_SECONDS:.0f}")
    targets = connection.chosen_targets(options)
    pages, silent = watch(targets, options.seconds)
    samples, absent = frames.of_pages(pages), states.of_pages(pages)
    if options.job:
        samples = samples[samples["job_id"] == options.job]
        absent = tuple(one for one in absent if one.job_id == options.job)
    if options.one_job:
        samples["job_id"] = ONE_JOB
    if samples.empty and not absent:
        whose = f" of job {options.job}" if options.job else ""
        raise InputError(shortened([f"there is no GPU{whose} in what was read", *silent]))
    findings, gpus = throttle.analyze(samples), throttle.summarize(samples)
    silent += [*_without_gpus(pages, samples, absent, options.job), *_not_compared(gpus)]
    if options.json:
        found = [_object(at) for at in findings]
        print_json({"absent": list(map(asdict, absent)), "findings": found, "unobserved": silent})
    else:
        _show(open_console(no_color=options.no_color), absent, gpus, findings, silent)
    return 0


def watch(targets: connection.Targets, seconds: float) -> tuple[list[Page], list[str]]:
    """Fetch the agents' pages repeatedly; return them, and the agents that were silent at the end.

    Raises:
        AgentError: none answers at all.
    """
    pages: list[Page] = []
    silent: list[str] = []
    for poll in range(1 + round(seconds / POLL_SECONDS)):  # at least two: counters have to change
        if poll:
            time.sleep(POLL_SECONDS)
        found, silent = targets.pages()
        pages += found
    if not pages:
        raise AgentError(shortened(silent))
    return pages, silent


def _without_gpus(
    pages: Sequence[Page], samples: pd.DataFrame, absent: Sequence[AbsentGpu], job_id: str | None
) -> Iterator[str]:
    """Say on which nodes no GPU, or none of the job, was read: these may deviate as well."""
    wanted = frames.nodes_of_job(pages, job_id) if job_id else {page.node for page in pages}
    read = {*samples["node"], *(one.node for one in absent)}
    blind = sorted(map(visible, wanted - read))
    if not blind:
        return
    agents = "its agent reads" if len(blind) == 1 else "their agents read"
    if job_id:
        yield (
            f"the GPUs of job {visible(job_id)} on {named(blind, 'node')}: {agents} none, or not"
            f" which of them it has ({DOCTOR})"
        )
    else:
        have = "it has" if len(blind) == 1 else "they have"
        yield f"the GPUs of {named(blind, 'node')}, if {have} any: {agents} none ({DOCTOR})"


def _not_compared(gpus: pd.DataFrame) -> Iterator[str]:
    """Say which GPUs had too few peers: that they do not deviate means nothing."""
    for node, names in throttle.without_peers(gpus).items():
        deviate = "deviate" if len(names) > 1 else "deviates"
        yield (
            f"whether {named(names, 'GPU')} of node {visible(node)} {deviate}: fewer than"
            f" {MINIMUM_PEERS} others of the same model and job are as busy"
        )


def _object(deviation: Finding) -> dict[str, Any]:
    return {
        "kind": deviation.kind,
        "severity": deviation.severity,
        "node": deviation.where.nodes[0],
        "gpus": deviation.where.gpus,
        "uuids": deviation.where.uuids,
        "job_id": deviation.job_id,
        "reason": throttle.reason_of(deviation),
        "summary": deviation.summary,
        "seconds_lost": throttle.seconds_lost(deviation),
        "evidence": [asdict(one) for one in deviation.evidence],
        "runbook": runbooks.path(deviation.runbook),
    }


def _show(
    console: Console,
    absent: Sequence[AbsentGpu],
    gpus: pd.DataFrame,
    findings: Sequence[Finding],
    silent: Sequence[str],
) -> None:
    for one in absent:
        console.print(f"[bold red]{one.state}[/]: {escape(visible(one.summary))}.")
        console.print(f"  See {runbooks.command(states.RUNBOOK)}.")
    for finding in findings:
        console.print(f"[bold]{finding.kind}[/bold]: {escape(finding.summary)}.")
        console.print(f"  See {runbooks.command(finding.runbook)}.")
    alone = sum(map(len, throttle.without_peers(gpus).values()))
    if not findings and (alone < len(gpus) or gpus.empty):
        among = "Of the others no GPU" if absent or alone else "No GPU"
        console.print(f"{among} deviates from its peers.")
    for sentence in silent:
        console.print(f"Not seen: {escape(sentence)}")
    if gpus.empty:
        console.print("No GPU had work.")
    if gpus.empty and not absent:
        return
    title = "Unavailable GPUs, and GPUs under load" if absent else "GPUs under load"
    table = Table(box=None, title=title, title_justify="left")
    for name in ("node", "GPU", "busy", "SM clock", "power", "limit", "core"):
        table.add_column(name, justify="left" if name == "node" else "right")
    table.add_column("clock held down by")
    for one in absent:
        table.add_row(*map(escape, _absent_cells(one)), style="bold red")
    for _, row in gpus.iterrows():
        table.add_row(*(escape(cell) for cell in _cells(row)))
    console.print(table)


def _absent_cells(one: AbsentGpu) -> Sequence[str]:
    return (visible(one.node), visible(one.gpu) or "?", one.state, *4 * ("-",), "")


def _cells(row: pd.Series[Any]) -> Iterator[str]:
    yield from (str(row[name]) for name in ("node", "gpu"))
    for name, scale, form in (
        ("utilization_ratio", 100, "{:.0f} %"),
        ("sm_clock_hertz", 1e-9, "{:.2f} GHz"),
        ("power_watts", 1, "{:.0f} W"),
        ("power_limit_watts", 1, "{:.0f} W"),
        ("temperature_celsius", 1, "{:.0f} C"),
    ):
        yield "-" if np.isnan(row[name]) else form.format(row[name] * scale)
    shares = {name: row[f"{name}_share"] for name in throttle.REASONS}
    held = [f"{throttle.REASONS[name]} {share:.0%}" for name, share in shares.items() if share > 0]
    yield ", ".join(held)
