"""Where the GPU time of all jobs went, summed over the looks of a watch and kept across restarts.

Like ends of jobs, sums are exported only after they are saved: the next leader continues from the
saved state, and a counter that fell back would count all of itself again.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import pods
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.fusion.gather import Gathered
from rankscope_analyzers.fusion.job_report import JobReport
from rankscope_analyzers.fusion.spent_time import look_of
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.account import Account, Look, restored
from rankscope_analyzers.goodput.model_work import OfJob, by_job, throughput
from rankscope_analyzers.goodput.parts import Sums, sums_of
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.isolation.boundary import AnalysisError, attempt
from rankscope_analyzers.text.sanitize import name as inert
from rankscope_analyzers.watch.bill import Bill, Owner, gpu_models, models_of, most_common
from rankscope_analyzers.watch.computed import Computed
from rankscope_analyzers.watch.incident_history import Event
from rankscope_analyzers.watch.interruptions import Interruptions
from rankscope_analyzers.watch.process_starts import ProcessStart, process_starts
from rankscope_analyzers.watch.recoveries import Recoveries
from rankscope_analyzers.watch.scaling import Scaling
from rankscope_analyzers.watch.start_phases import StartPhases

KEPT_AS = "goodput"
"""Its part of a watch's state."""

ABSENT_SECONDS = 7200.0
"""How long the account of a job that is not seen is kept, as it may be restarted."""

EXPORTED_SECONDS = 900.0
"""How long series of a job that is not seen are exported: Prometheus has read them by then, and a
thousand short jobs would have 18,000."""

MOST_JOBS = 1000
"""Jobs with an account and series of their own; those seen longest ago are dropped first. Further
ones at the same look get none: an account that is begun anew would count all records again."""

MOST_OWNERS = 64
"""Pairs of project and class with separate sums; further ones are counted together."""

OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Job:
    """What is known of a job at a look, besides its time.

    Args:
        name: its id.
        owner: project and class.
        models: of its ranks' GPUs, empty if unknown.
        computing: series that show how much it computes.
        start: the newest start of its processes, None if unknown.
    """

    name: str
    owner: Owner
    models: Sequence[str]
    computing: OfJob
    start: ProcessStart | None = None


class Goodput:
    """The accounts of all jobs.

    Args:
        hang_after_seconds: least time without a step after which a job is called hung.
        waiting: returns which jobs hold GPUs while other pods of theirs have no node.
        configuration: with the projects, prices, budgets and recovery objectives that apply.
        say: writes a sentence to the watch's own log.
    """

    def __init__(
        self,
        hang_after_seconds: float,
        waiting: Callable[[], frozenset[str]] = frozenset,
        configuration: Configuration | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        known = configuration or Configuration()
        self._bill = Bill(known)
        self._interruptions = Interruptions()
        self._computed = Computed()
        self._recoveries = Recoveries(known.times_to_recover)
        self._scaling = Scaling()
        self._starts = StartPhases()
        self._hang_after = hang_after_seconds
        self._waiting = waiting
        self._accounts: dict[str, Account] = {}
        self._seen: dict[str, float] = {}
        self._first_seen: dict[str, tuple[float, Owner]] = {}
        self._owners: dict[Owner, Sums] = {}
        self._announced: tuple[Sample, ...] = ()
        self._say = say
        self._unaccounted: int | None = None

    def look(
        self, gathered: Gathered, reports: Sequence[JobReport], now: float
    ) -> list[AnalysisError]:
        """Continue the accounts of all jobs; return the errors of single ones.

        Args:
            gathered: what was read.
            reports: one for each job.
            now: Unix time.
        """
        records = {one.job_id: one for one in gathered.jobs}
        observed = gathered.evidence.observed
        owners, waiting = _owners(observed), self._waiting()
        models, computing = gpu_models(observed), by_job(observed)
        starts = process_starts(observed)
        self._computed.begin()
        errors = []
        left_out = self._without_account([report.job_id for report in reports])
        self._note_unaccounted(len(left_out))
        for report in reports:
            job = report.job_id
            if job in left_out:
                continue
            look = partial(
                look_of, report, records.get(job), observed, self._hang_after, job in waiting
            )
            owner = self._bill.owner(job, owners.get(job, ("", "")))
            of_ranks = models_of(report.locations.values(), models)
            seen = _Job(job, owner, of_ranks, computing.get(job, {}), starts.get(job))
            made = attempt("report", job, partial(self._look, seen, look))
            if isinstance(made, AnalysisError):
                errors.append(made)
            else:
                self._seen[job] = now
        self._forget(now)
        return errors

    def note_events(self, events: Iterable[Event], now: float) -> None:
        """Record how long after their beginnings incidents were found.

        An incident that had begun before its job was watched was not found late.

        Args:
            events: changes of incidents.
            now: Unix time at which they were found.
        """
        for event in events:
            since = event.incident.since_unix_seconds if event.incident else None
            watched, owner = self._first_seen.get(event.job_id, (math.inf, ("", "")))
            if event.change == "opened" and since is not None and watched <= since <= now:
                self._interruptions.detect(owner, now - since)

    def _without_account(self, jobs: Sequence[str]) -> frozenset[str]:
        """Return which jobs of a look are too many; those with an account keep it."""
        known = self._accounts.keys() & set(jobs)
        new = [job for job in jobs if job not in known]
        return frozenset(new[max(0, MOST_JOBS - len(known)) :])

    def _note_unaccounted(self, count: int) -> None:
        """Record of how many jobs no GPU time is counted; say so when that begins and ends."""
        if count and not self._unaccounted:
            self._say(
                f"GPU time of {count} jobs is not counted, as {MOST_JOBS} others have accounts:"
                " divide the jobs among watches (--total-shards)"
            )
        elif self._unaccounted and not count:
            self._say("GPU time of all jobs is counted again")
        self._unaccounted = count

    def _look(self, job: _Job, look: Callable[[], Look]) -> int:
        account = self._accounts.pop(job.name, None) or Account()
        self._accounts[job.name] = account
        seen, before = look(), (account.restarts, account.hangs)
        added = account.look(seen)
        owner = job.owner
        if owner not in self._owners and len(self._owners) >= MOST_OWNERS:
            owner = (OTHER, OTHER)
        self._first_seen[job.name] = self._first_seen.get(job.name, (seen.now, owner))[0], owner
        self._owners[owner] = parts.added((self._owners.get(owner, {}), added))
        self._bill.add(owner, added, most_common(job.models))
        grown = account.restarts - before[0], account.hangs - before[1]
        self._interruptions.add(owner, added, seen.gpus, *grown)
        self._recoveries.add(job.name, owner[1], account.recoveries)
        starting = added[parts.STARTUP] + added[parts.RESTART]
        self._starts.add(owner, job.name, starting, seen.gpus, job.start, seen.now)
        if seen.alive or seen.ended is None:
            self._computed.add(owner, job.name, job.computing, job.models, seen.gpus, seen.now)
            self._scaling.add(job.name, throughput(job.computing), seen.gpus, seen.now)
        return len(added)

    def _forget(self, now: float) -> None:
        gone = {job for job, at in self._seen.items() if not -60.0 <= now - at <= ABSENT_SECONDS}
        gone |= set([job for job in self._accounts if job not in gone][:-MOST_JOBS])
        for job in gone:
            self._accounts.pop(job, None)
            self._seen.pop(job, None)
            self._first_seen.pop(job, None)
        self._computed.forget(gone)
        self._recoveries.forget(gone)
        self._starts.forget(gone)

    def announce(self) -> None:
        """Export the sums, which are saved by now."""
        self._announced = tuple(self._samples())

    def samples(self) -> Iterator[Sample]:
        """Yield all series."""
        yield from self._announced
        if self._unaccounted is not None:
            yield metrics.UNACCOUNTED_JOBS.sample(self._unaccounted)
        yield from self._computed.samples()

    def stand_by(self) -> None:
        """Discard the sums, which another leader continues."""
        self.restore(None)
        self._unaccounted = None

    def _samples(self) -> Iterator[Sample]:
        oldest = max(self._seen.values(), default=0.0) - EXPORTED_SECONDS
        shown = {
            job: one for job, one in self._accounts.items() if self._seen.get(job, 0.0) >= oldest
        }
        for job, account in shown.items():
            for part, seconds in account.seconds.items():
                yield metrics.JOB_GPU_SECONDS.sample(seconds, job_id=inert(job), part=part)
            observed = sum(account.seconds.values()) - account.seconds[parts.UNOBSERVED]
            if observed > 0:
                ratio = account.seconds[parts.PRODUCTIVE] / observed
                yield metrics.JOB_ETTR.sample(ratio, job_id=inert(job))
        for (project, job_class), sums in self._owners.items():
            labels = {"project": inert(project), "job_class": inert(job_class)}
            for part, seconds in sums.items():
                yield metrics.PROJECT_GPU_SECONDS.sample(seconds, part=part, **labels)
        yield from self._bill.samples()
        yield from self._interruptions.samples()
        yield from self._computed.sums()
        yield from self._recoveries.samples()
        yield from self._scaling.samples(shown)
        yield from self._starts.samples()

    def kept(self) -> Any:
        """Return the state to save."""
        return {
            "jobs": {job: account.as_json() for job, account in self._accounts.items()},
            "seen": {job: self._seen.get(job, 0.0) for job in self._accounts},
            "owners": [[*owner, dict(sums)] for owner, sums in self._owners.items()],
            "bill": self._bill.kept(),
            "interruptions": self._interruptions.kept(),
            "computed": self._computed.kept(),
            "recoveries": self._recoveries.kept(),
            "scaling": self._scaling.kept(),
            "starts": self._starts.kept(),
        }

    def restore(self, kept: Any) -> None:
        """Continue from the state that another watch saved, from nothing if it is None.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: it is invalid; the sums restart.
        """
        self._accounts, self._seen, self._owners, self._first_seen = {}, {}, {}, {}
        self._bill.restore(None)
        self._interruptions.restore(())
        self._computed.restore(())
        self._recoveries.restore(())
        self._scaling.restore({})
        self._starts.restore(())
        if kept is not None:
            accounts = {str(job): restored(one) for job, one in kept["jobs"].items()}
            seen = {job: float(kept["seen"][job]) for job in accounts}
            owners = {
                (str(project), str(job_class)): parts.added([sums_of(sums)])
                for project, job_class, sums in kept["owners"]
            }
            self._bill.restore(kept.get("bill"))
            self._interruptions.restore(kept.get("interruptions", ()))
            self._computed.restore(kept.get("computed", ()))
            self._recoveries.restore(kept.get("recoveries", ()))
            self._scaling.restore(kept.get("scaling", {}))
            self._starts.restore(kept.get("starts", ()))
            self._accounts, self._seen, self._owners = accounts, seen, owners
        self.announce()


def _owners(observed: Observed) -> Mapping[str, Owner]:
    """Return project and class of jobs: those that the labels of pods on most nodes state.

    Pods without such labels, as launchers often are, count only where no pod has any.
    """
    stated: dict[str, Counter[Owner]] = defaultdict(Counter)
    for one in observed.of(pods.JOB_INFO):
        owner = (one.labels.get("project", ""), one.labels.get("class", ""))
        stated[one.labels.get("job_id", "")][owner] += 1
    return {job: _most_stated(owners) for job, owners in stated.items()}


def _most_stated(owners: Counter[Owner]) -> Owner:
    return max(owners, key=lambda owner: (any(owner), owners[owner], owner))
