"""`rankscope preflight`: do a job's manifests or pods, and its nodes, give it the fast path?"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from rankscope_analyzers.arguments.step_target import target as step_target
from rankscope_analyzers.command import (
    InputError,
    age_seconds,
    check_text,
    print_json,
    write_text,
)
from rankscope_analyzers.commands import connection
from rankscope_analyzers.commands.config_option import configured
from rankscope_analyzers.intake import local_pages
from rankscope_analyzers.intake.agent_client import AgentError
from rankscope_analyzers.intake.kubernetes_api import KubernetesApi
from rankscope_analyzers.intake.page_history import Page, from_pages
from rankscope_analyzers.preflight import documents, jobs, pool, report, running
from rankscope_analyzers.preflight.checks import (
    CHECKS,
    POOL_CHECKS,
    pod_results,
    results,
)
from rankscope_analyzers.preflight.job import Job, Settings
from rankscope_analyzers.preflight.surroundings import look
from rankscope_analyzers.text import runbooks
from rankscope_analyzers.text.console import open_console
from rankscope_analyzers.text.name_lists import SHOWN, listed, named, shortened

FAILURES: tuple[type[Exception], ...] = (
    *connection.FAILURES,
    InputError,
    documents.ManifestError,
)


def run(options: argparse.Namespace) -> int:
    """Print the results of each job and of the nodes; 0 passed, 2 failed, 3 undecided.

    Raises:
        ManifestError: a manifest cannot be read.
        InputError: there is nothing to check, or the JUnit file cannot be written.
        rankscope_analyzers.intake.agent_client.AgentError: no agent answers.
        rankscope_analyzers.intake.cluster.ClusterError: the cluster cannot be queried for its
            agents.
    """
    if not (_of_nodes(options) or options.manifests or options.job or options.this_pod):
        raise InputError(
            "give manifests to check, a job in the cluster by --job, agents of the nodes by"
            " --agent or --cluster, or --this-node or --this-pod"
        )
    if options.node and not _of_nodes(options):
        raise InputError("--node needs agents: give --agent or --cluster")
    if options.junit:
        check_text(options.junit)
    answer = _answer(options)
    try:  # neither a full disk nor a closed pipe costs both
        if options.junit:
            write_text(options.junit, report.junit(answer.checked, strict=options.strict))
    finally:
        if options.json:
            print_json(answer.as_object())
        else:
            _show(answer, no_color=options.no_color)
    return report.exit_code(answer.checked, strict=options.strict)


def _answer(options: argparse.Namespace) -> report.Answer:
    """Make all checks that the options request; raises the errors of `run`."""
    found, live = _jobs(options), _running(options)
    nodes = None
    if _of_nodes(options):
        nodes = _pool(options, {node for one in live for node in one.nodes})
    pod = look(os.environ) if options.this_pod else None
    every = [_on(job, nodes) for job in (*found.jobs, *(one.job for one in live))]
    left_out, of_pool = options.skip, None
    if nodes is not None:
        of_pool = report.CheckedPool(nodes.nodes, list(results(nodes, POOL_CHECKS, left_out)))
    return report.Answer(
        [report.CheckedJob(one, list(results(one, CHECKS, left_out))) for one in every],
        of_pool,
        report.CheckedPod(list(pod_results(pod, left_out))) if pod else None,
        found.passed_over,
        [sentence for one in live for sentence in one.not_read],
    )


def _of_nodes(options: argparse.Namespace) -> bool:
    return bool(options.agent or options.cluster or options.this_node or options.page)


def _settings(options: argparse.Namespace) -> Settings:
    target = step_target(options)
    known = configured(options) if options.config else None
    return Settings(options.checkpoint_path, options.checkpoint_seconds, target, known)


def _jobs(options: argparse.Namespace) -> jobs.Manifests:
    """Return the jobs of the manifests.

    Raises:
        ManifestError: a manifest cannot be read.
        InputError: manifests were given, but they contain no job.
    """
    settings = _settings(options)
    read = documents.read(options.manifests) if options.manifests else []
    found = jobs.of_documents(read, options.manifests_namespace, settings)
    if options.manifests and not found.jobs:
        why = _passed_over(found.passed_over)
        raise InputError(f"no job in {listed(options.manifests)}; {why}")
    return found


def _running(options: argparse.Namespace) -> list[running.Running]:
    """Return the jobs of the cluster that were named.

    Raises:
        ClusterError: one does not exist, or the API server refuses.
    """
    if not options.job:
        return []
    access = connection.cluster_access(options)
    api = KubernetesApi(access)
    settings = _settings(options)
    return [running.read(one, api, access, settings) for one in options.job]


def _on(job: Job, nodes: pool.Pool | None) -> Job:
    """Return a job with what is known of the nodes that it is to run on."""
    if nodes is None:
        return job
    rails, target = pool.least_rails(nodes), job.settings.target
    if rails is not None and target.node_gbits is None:
        target = replace(target, node_gbits=rails * 8 / 1e9)
    settings = replace(job.settings, target=target)
    return replace(job, settings=settings, interfaces=pool.interfaces(nodes))


def _pool(options: argparse.Namespace, of_jobs: Collection[str]) -> pool.Pool:
    """Return what is known of the nodes that were named, or whose agents were.

    Args:
        options: of the command.
        of_jobs: nodes of the requested jobs, which count if no node is named.

    Raises:
        AgentError: no agent answers.
        InputError: no agent is on a requested node.
    """
    pages, silent = _pages(options)
    if not pages:
        raise AgentError(shortened(silent))
    named_nodes = set(options.node) or set(of_jobs)
    wanted = [page for page in pages if not named_nodes or page.node in named_nodes]
    absent = sorted(named_nodes - {page.node for page in wanted})
    if not wanted:
        raise InputError(shortened([f"there is no agent for {named(absent, 'node')}", *silent]))
    missing = [f"no agent answers for {named(absent, 'node')}"] if absent else []
    now = time.time()
    return pool.Pool(
        from_pages(wanted, pool.READS),
        [*missing, *silent],
        now,
        now - age_seconds(options.since, "--since"),
    )


def _pages(options: argparse.Namespace) -> tuple[list[Page], list[str]]:
    """Return the pages of nodes, and a sentence for each agent without one.

    Raises:
        AgentError: a saved page cannot be read, or this node's agent does not run.
    """
    pages = local_pages.of_files(options.page)
    pages += [local_pages.of_this_node()] if options.this_node else []
    silent: list[str] = []
    if options.agent or options.cluster:
        asked, silent = connection.chosen_targets(options).pages()
        pages += asked
    twice = [node for node, count in Counter(page.node for page in pages).items() if count > 1]
    if twice:
        raise InputError(f"there is more than one page of {named(sorted(twice), 'node')}")
    return pages, silent


def _show(answer: report.Answer, *, no_color: bool) -> None:
    console = open_console(no_color=no_color)
    for one in answer.checked:
        console.print(report.table(one))
        console.print(report.summary(one), markup=False)
    if answer.passed_over:
        sentence = f"Not checked: {_passed_over(answer.passed_over)}."
        console.print(sentence, style="yellow", markup=False)
    for sentence in answer.not_read[:SHOWN]:
        console.print(f"Not read: {sentence}.", style="yellow", markup=False)
    if len(answer.not_read) > SHOWN:
        sentence = f"{len(answer.not_read) - SHOWN} more are in --json."
        console.print(sentence, style="yellow", markup=False)
    console.print(f"{runbooks.command('preflight')} describes each check.", markup=False)


def _passed_over(passed_over: Sequence[tuple[str, str]]) -> str:
    if not passed_over:
        return "it is empty"
    return "no check knows " + listed([f"{kind} ({at})" for at, kind in passed_over])
