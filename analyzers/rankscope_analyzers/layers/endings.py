"""Ranks that have ended or are stopped, jobs that are over, and which rank was first.

The reason why a process ended is not in these series but in pods, the kernel's log and the job's
log. A job whose ranks all ended may have finished, so that is no incident by itself; the finding
names the rank that ended first, when, and how long before the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from rankscope_agent.contract.metrics import agent, pods, starvation, training
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.finding import Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series
from rankscope_analyzers.layers import node_clocks, replica_groups
from rankscope_analyzers.layers.earlier_ranks import earlier_ranks
from rankscope_analyzers.layers.job_ending import ENDING, most_are_done
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.rank_holders import TOGETHER_SECONDS as PAGES_SECONDS
from rankscope_analyzers.layers.rank_locations import by_rank, rank_number
from rankscope_analyzers.layers.rank_progress import FRESH_SECONDS, NOTICED_SECONDS, is_another
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.name_lists import named, ranks_named
from rankscope_analyzers.text.wording import clock, duration

OF_AGENTS: tuple[Metric, ...] = (
    training.RINGS,
    training.RINGS_REJECTED,
    agent.PAGE_SERIES_DROPPED,
)
"""Whether a page shows all ranks of its node."""

READS: tuple[Metric, ...] = (
    *OF_AGENTS,
    training.RANK_INFO,
    training.RANK_ALIVE,
    training.RANK_ENDED,
    training.LAST_STEP_TIMESTAMP,
    training.LAST_STEP_SECONDS,
    training.SPAN_BEGAN,
    pods.RANK_STARTED,
    starvation.RANK_STOPPED,
    starvation.RANK_LAST_STOPPED,
    *replica_groups.READS,
    *node_clocks.READS,
)

MISSING, ENDED, OVER = "missing_rank", "rank_ended", "job_over"
STOPPED, PAUSED = "rank_stopped", "rank_was_stopped"
ENDS = frozenset((ENDED, OVER))
"""Kinds of findings that mean that a whole job has ended."""

KINDS = frozenset((MISSING, ENDING, ENDED, OVER, STOPPED, PAUSED, replica_groups.LOST))

APART_SECONDS, APART_ON_NODES_SECONDS = 0.05, 1.0
"""How long before the others a rank must end to be called the first: longer than an agent takes to
notice an end, and across nodes longer than clocks differ unnoticed. Peers of a rank that is gone
notice it by their connections and take 0.1 s and more to give up."""

TOGETHER_SECONDS = 0.5
"""All ranks end within this time if one takes the others down; otherwise one of them was cleaning
up."""

QUIET_SECONDS, QUIET_STEPS = 5.0, 10.0
"""A rank counts as stopped only if it also ends no step for this long: profilers such as py-spy
stop a process for milliseconds."""


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield the ranks that are gone or stopped, and jobs that are over."""
    alive = by_rank(observed, training.RANK_ALIVE, job.job_id)
    gone = sorted(rank for rank, series in alive.items() if series.last == 0)
    if gone and len(gone) == len(alive):
        if not _restarted(observed, job, alive):
            yield from _over(observed, job, alive)
        return
    if _forgotten(observed, job):
        yield _unseen_end(job, "no process of it is left")
        return
    if gone:
        alive = _without_earlier(observed, job, alive)
        gone = [rank for rank in gone if rank in alive]
    lost = replica_groups.recovering(observed, job.job_id, alive, gone) if gone else {}
    if lost:
        yield _degraded(observed, job, alive, lost)
    elif gone and _all_seen(observed, job, alive) and most_are_done(observed, job, alive, gone):
        yield _ending(observed, job, alive, gone)
    elif gone:
        yield _missing(observed, job, alive, gone)
    yield from _stopped(observed, job)
    yield from _was_stopped(observed, job)


def _without_earlier(
    observed: Observed, job: JobView, alive: Mapping[int, Series]
) -> Mapping[int, Series]:
    """Return the states of the ranks that the job has now."""
    earlier = earlier_ranks(observed, job.job_id)
    return {rank: series for rank, series in alive.items() if rank not in earlier}


def _missing(
    observed: Observed, job: JobView, alive: Mapping[int, Series], gone: list[int]
) -> Finding:
    """Return the ranks that ended while others are alive."""
    since, nodes = _ended_since(observed, job, gone), _nodes(alive, gone)
    verb = "has" if len(gone) == 1 else "have"
    sentence = f"{ranks_named(gone)} ({named(nodes, 'node')}) {verb} ended while others go on"
    evidence = Evidence(training.RANK_ALIVE.name, 0.0, 1.0, "state", sentence)
    where = Where(nodes=nodes, ranks=tuple(gone))
    return series_finding(MISSING, "training", job.job_id, where, sentence, (evidence,), since)


def _ending(
    observed: Observed, job: JobView, alive: Mapping[int, Series], gone: list[int]
) -> Finding:
    """Return that most ranks are done."""
    since, nodes = _ended_since(observed, job, gone), _nodes(alive, gone)
    rest = sorted(alive.keys() - set(gone))
    go = "goes" if len(rest) == 1 else "go"
    sentence = (
        f"the job is ending, as far as its ranks show: {ranks_named(gone)} ({named(nodes, 'node')})"
        f" ended together at {clock(since)}, {ranks_named(rest)} {go} on and may save or evaluate"
    )
    evidence = Evidence(training.RANK_ALIVE.name, float(len(rest)), 0.0, "ranks", sentence)
    where = Where(nodes=nodes, ranks=tuple(gone))
    return series_finding(ENDING, "training", job.job_id, where, sentence, (evidence,), since)


def _degraded(
    observed: Observed, job: JobView, alive: Mapping[int, Series], lost: Mapping[int, list[int]]
) -> Finding:
    """Return the replica groups that are gone or restarting while others train."""
    ranks = [rank for members in lost.values() for rank in members]
    gone = [rank for rank in ranks if alive[rank].last == 0]
    nodes = _nodes(alive, ranks)
    verb = "is" if len(lost) == 1 else "are"
    groups = named([str(group) for group in lost], "replica group")
    sentence = (
        f"{groups} ({ranks_named(ranks)}, {named(nodes, 'node')}) {verb} gone while the other"
        " replica groups train on: the job is degraded"
    )
    evidence = Evidence(training.RANK_ALIVE.name, 0.0, 1.0, "state", sentence)
    where, since = Where(nodes=nodes, ranks=tuple(ranks)), _ended_since(observed, job, gone)
    kind = replica_groups.LOST
    return series_finding(kind, "training", job.job_id, where, sentence, (evidence,), since)


def _ended_since(observed: Observed, job: JobView, gone: list[int]) -> float | None:
    known = {
        **by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id),
        **by_rank(observed, training.RANK_ENDED, job.job_id),
    }
    return min((known[rank].last for rank in gone if rank in known), default=None)


def _over(observed: Observed, job: JobView, alive: Mapping[int, Series]) -> Iterator[Finding]:
    """Report how a job ended: with one rank before the others, or all at once."""
    ended = by_rank(observed, training.RANK_ENDED, job.job_id)
    times = {rank: ended[rank].last for rank in alive if rank in ended}
    if not _all_seen(observed, job, alive) or _steps_after(job, alive, times):
        return
    if len(times) < len(alive):
        yield _unseen_end(job, "all its processes have ended")
        return
    nodes = {series.node for series in alive.values()}
    clocks = node_clocks.node_clocks(observed, job.job_id, nodes)
    times = {rank: clocks.corrected(alive[rank].node, at) for rank, at in times.items()}
    first = _first(times, nodes, clocks.unsure_seconds)
    begin, end = min(times.values()), max(times.values())
    if not first:
        within = f" within {duration(end - begin)}" if len(times) > 1 else ""
        order = _order(times, alive)
        sentence = (
            f"the job is over: its ranks ended{within}{order}, at {clock(begin)}"
            f"{_without_steps(job, begin)}"
        )
        evidence = Evidence(training.RANK_ENDED.name, end, begin, "unix seconds", sentence)
        yield series_finding(OVER, "training", job.job_id, Where(), sentence, (evidence,), begin)
        return
    where = Where(nodes=_nodes(alive, first), ranks=tuple(first))
    later = min(at for rank, at in times.items() if rank not in first)
    sentence = (
        f"the job is over: {ranks_named(first)} ({named(where.nodes, 'node')}) ended first, at"
        f" {clock(begin)}, {duration(later - max(times[rank] for rank in first))} before the others"
        f"{_without_steps(job, begin)}"
    )
    evidence = Evidence(training.RANK_ENDED.name, begin, later, "unix seconds", sentence)
    yield series_finding(ENDED, "training", job.job_id, where, sentence, (evidence,), begin)


def _without_steps(job: JobView, end: float) -> str:
    """Return for how long a job ended no step before its end, if others are called hung then."""
    stepped = job.ended_step_unix_seconds
    if stepped is None or end - stepped < job.hang_after_seconds:
        return ""
    return f", {end - stepped:.0f} s after its last step"


def _all_seen(observed: Observed, job: JobView, alive: Mapping[int, Series]) -> bool:
    """Return False if ranks of the job may live on nodes whose agents do not answer."""
    infos = by_rank(observed, training.RANK_INFO, job.job_id)
    last = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    ended = by_rank(observed, training.RANK_ENDED, job.job_id)
    sizes = [
        (max(_newest(last, rank) or 0.0, _newest(ended, rank) or 0.0), size)
        for rank, one in infos.items()
        if (size := rank_number(one.labels.get("world_size", "")))
    ]
    size = max(sizes)[1] if sizes else None  # an earlier attempt may have been larger
    if size is not None and sum(rank < size for rank in alive) < size:
        return False
    return all(rank in alive for rank in job.locations if size is None or rank < size)


def _steps_after(job: JobView, alive: Mapping[int, Series], times: Mapping[int, float]) -> bool:
    """Return True if steps were read that ended after the processes: the job was started again."""
    stepped = job.ended_step_unix_seconds
    known = times if len(times) == len(alive) else {r: one.times[-1] for r, one in alive.items()}
    return stepped is not None and stepped > float(max(known.values())) + NOTICED_SECONDS


def _forgotten(observed: Observed, job: JobView) -> bool:
    """Return True if all agents of a job answer, and have no rank of it any longer.

    Agents drop jobs ten minutes after their end, and those of deleted pods at once. The end of the
    last step has to be some time ago and two pages have to agree: an agent that was just started
    may have read no ring.
    """
    stepped, rings = job.ended_step_unix_seconds, {s.node: s for s in observed.of(training.RINGS)}
    if stepped is None or not job.nodes or not job.nodes <= rings.keys():
        return False
    newest = float(max(one.times[-1] for one in rings.values()))
    if job.now_unix_seconds is not None and job.now_unix_seconds - newest > FRESH_SECONDS:
        return False
    shown = (training.RANK_INFO, training.RANK_ALIVE, pods.RANK_STARTED)
    seen = [one for metric in shown for one in observed.of(metric, job_id=job.job_id)]
    incomplete = (training.RINGS_REJECTED, agent.PAGE_SERIES_DROPPED)
    seen += [one for metric in incomplete for one in observed.of(metric) if one.last]
    latest = dict.fromkeys(job.nodes, -1.0)
    for one in seen:
        latest[one.node] = max(latest.get(one.node, -1.0), float(one.times[-1]))
    return all(
        len(rings[node].values) > 1
        and newest - rings[node].times[-1] <= PAGES_SECONDS
        and rings[node].times[-1] - max(stepped, latest[node]) > FRESH_SECONDS
        for node in job.nodes
    )


def _unseen_end(job: JobView, why: str) -> Finding:
    """Return that a job is over of which nobody saw the end."""
    stepped = job.ended_step_unix_seconds
    last = "" if stepped is None else f", its last step ended at {clock(stepped)}"
    sentence = f"the job is over: {why}{last}; when it ended was not observed"
    evidence = Evidence(training.RANK_ALIVE.name, 0.0, 1.0, "state", sentence)
    return series_finding(OVER, "training", job.job_id, Where(), sentence, (evidence,), None)


def _restarted(observed: Observed, job: JobView, alive: Mapping[int, Series]) -> bool:
    """Return True if a rank has a newer process than the one that ended."""
    last = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    ended = by_rank(observed, training.RANK_ENDED, job.job_id)
    return any(
        rank in alive
        and one.times[-1] >= alive[rank].times[-1]
        and (rank in last or rank in ended)
        and is_another(one.last, _newest(last, rank), _newest(ended, rank))
        for rank, one in by_rank(observed, pods.RANK_STARTED, job.job_id).items()
    )


def _newest(series: Mapping[int, Series], rank: int) -> float | None:
    return series[rank].last if rank in series else None


def _first(times: Mapping[int, float], nodes: Collection[str], unsure: float) -> list[int]:
    """Return the ranks that ended clearly before the others, at most half of them, or none.

    Args:
        times: when each ended, in Unix seconds.
        nodes: that they ran on.
        unsure: seconds by which times of different nodes may be apart.
    """
    apart = APART_SECONDS if len(nodes) == 1 else APART_ON_NODES_SECONDS + unsure
    order = sorted(times, key=lambda rank: (times[rank], rank))
    for count in range(1, len(order) // 2 + 1):
        if times[order[count]] - times[order[count - 1]] >= apart:
            return sorted(order[:count])
    return []


def _order(times: Mapping[int, float], alive: Mapping[int, Series]) -> str:
    """Return who ended before the others, however little: it is reported without blame.

    The kernel keeps the order in which the processes of one node end, and peers of a rank that is
    killed may give up within a few milliseconds. Ranks that are done end in any order.
    """
    first, *others = sorted(times, key=lambda rank: times[rank])
    together = others and times[others[-1]] - times[first] < TOGETHER_SECONDS
    one_node = len({series.node for series in alive.values()}) == 1
    if not together or not one_node or times[others[0]] <= times[first]:
        return ""
    return f", rank {first} before the others"


def _stopped(observed: Observed, job: JobView) -> Iterator[Finding]:
    stopped = by_rank(observed, starvation.RANK_STOPPED, job.job_id)
    last = by_rank(observed, training.LAST_STEP_TIMESTAMP, job.job_id)
    usual = by_rank(observed, training.LAST_STEP_SECONDS, job.job_id)
    held = []
    for rank, series in stopped.items():
        step = usual[rank].last if rank in usual else 0.0
        quiet = float(series.times[-1]) - last[rank].last if rank in last else QUIET_SECONDS
        if series.last == 1 and quiet >= max(QUIET_SECONDS, QUIET_STEPS * step):
            held.append(rank)
    if not held:
        return
    held.sort()
    since = min((last[rank].last for rank in held if rank in last), default=None)
    nodes = _nodes(stopped, held)
    verb = "is" if len(held) == 1 else "are"
    sentence = (
        f"{ranks_named(held)} ({named(nodes, 'node')}) {verb} stopped by a signal or a debugger"
    )
    if since is not None:
        sentence += f" and ended the last step at {clock(since)}"
    evidence = Evidence(starvation.RANK_STOPPED.name, 1.0, 0.0, "state", sentence)
    where = Where(nodes=nodes, ranks=tuple(held))
    yield series_finding(STOPPED, "host", job.job_id, where, sentence, (evidence,), since)


def _was_stopped(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield ranks that were stopped and continued: steps do not show that all waited for them."""
    now = by_rank(observed, starvation.RANK_STOPPED, job.job_id)
    for rank, series in by_rank(observed, starvation.RANK_LAST_STOPPED, job.job_id).items():
        if rank in now and now[rank].last == 1:
            continue
        sentence = (
            f"rank {rank} (node {series.node}) was stopped by a signal at {clock(series.last)}"
        )
        evidence = Evidence(series.name, series.last, 0.0, "unix seconds", sentence)
        where = Where(nodes=(series.node,), ranks=(rank,))
        finding = series_finding(
            PAUSED, "host", job.job_id, where, sentence, (evidence,), series.last
        )
        yield replace(finding, until_unix_seconds=series.last)


def _nodes(series: Mapping[int, Series], ranks: list[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(series[rank].node for rank in ranks))
