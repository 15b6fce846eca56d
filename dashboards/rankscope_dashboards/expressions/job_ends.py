"""PromQL over how the cluster's jobs ended: counts that outlive the watch that exports them.

increase() over weeks would read weeks of samples, and miss the first end of each kind. The watch
keeps its sums, so that earlier sums can be subtracted from present ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_agent.contract.metrics import cluster_jobs
from rankscope_dashboards.expressions.promql import BRIDGED, by, worst

SUCCESS_WINDOWS = ("7d", "28d")

END = ("job_namespace", "job_class", "outcome", "cause")

GAP = "1h"
"""How long the watch may have been away at the earlier moment that its sums are compared with. Of
longer absences, see `_before`."""

EARLIER_HOURS = (6, 24, 72)
"""How long before a window sums are looked for of a watch that was away when it began."""

RESOLUTION = "6h"
"""What sums had counted within that time of their new beginning may be missing later."""


def since(selector: str, window: str, *labels: str) -> str:
    """Return by how much sums of the watch grew within a window, including new series.

    Two watches that overlap for a moment export the same sums, of which one is taken. Sums that
    began again within the window, with a watch that keeps no state, count from there on.
    """
    now = worst(f"last_over_time({selector}[{BRIDGED}])", *labels)
    then = " or ".join(
        worst(f"last_over_time({selector}[{GAP}] offset {one})", *labels) for one in _before(window)
    )
    lowest = f"min_over_time({now}[{window}:{RESOLUTION}])"
    base = f"0 * ({now} < ({then})) or {lowest} < ({then}) or {then} or 0 * {now}"
    return f"clamp_min({now} - ({base}), 0)"


def _before(window: str) -> tuple[str, ...]:
    """Return when to look for the sums at the beginning of a window.

    If the watch was away then, those of earlier count: nothing was added meanwhile. A panel's range
    has no such moments.
    """
    if not window.endswith("d"):
        return (window,)
    return (window, *(f"{24 * int(window[:-1]) + hours}h" for hours in EARLIER_HOURS))


def _ends(chosen: str, *matchers: str) -> str:
    inside = ",".join(one for one in (chosen, *matchers) if one)
    return f"{cluster_jobs.JOB_COMPLETIONS.name}{{{inside}}}"


def succeeded(window: str, chosen: str = "") -> str:
    """Return the share of jobs that succeeded, of those that succeeded or failed, by class.

    Args:
        window: within which they ended.
        chosen: matchers of the clusters that count.
    """
    good = since(_ends(chosen, 'outcome="succeeded"'), window, *END)
    return f"sum {by('job_class')} ({good}) / ({judged(window, chosen)} > 0)"


def judged(window: str, chosen: str = "") -> str:
    """Return how many jobs succeeded or failed, by class; other ends are nobody's fault."""
    both = since(_ends(chosen, 'outcome=~"succeeded|failed"'), window, *END)
    return f"sum {by('job_class')} ({both})"


def late(window: str) -> str:
    """Return the share of jobs that took too long, of those that succeeded, by class.

    The watch compares each job with its objective: a quantile of a histogram lies anywhere between
    two bounds.
    """
    slow, every = (
        since(counted, window, "job_class")
        for counted in (cluster_jobs.JOBS_LATE.name, f"{cluster_jobs.JOB_DURATION.name}_count")
    )
    return f"{slow} / ({every} > 0)"


def recovered(counter: str, window: str) -> str:
    """Return how many recoveries a counter has within a window, by class."""
    return f"sum {by('job_class')} ({since(counter, window, 'job_class', 'interruption')})"


def objective(
    objectives: Mapping[str, float], series: str = cluster_jobs.JOB_COMPLETIONS.name
) -> str:
    """Return the objective of each class that has jobs.

    Args:
        objectives: by class; "" for all other classes.
        series: of these jobs, with their class.
    """
    named = [one for one in objectives if one]
    matchers = {f'job_class="{one}"': objectives[one] for one in named}
    others = f'job_class!~"{"|".join(map(_quoted, named))}"' if named else ""
    matchers[others] = objectives[""]
    return " or ".join(
        f"{value:.10g} * group {by('job_class')} (last_over_time({series}{{{one}}}[{BRIDGED}]))"
        for one, value in matchers.items()
    )


def _quoted(name: str) -> str:
    """Return a class as a regular expression in a PromQL string; it may contain dots."""
    return name.replace(".", "[.]")
