"""PromQL over how the cluster's jobs ended: counts that outlive the watch that exports them.

increase() over weeks would read weeks of samples, and miss the first end of each kind. The watch
keeps its sums, so that what they were then is taken from what they are now.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope_agent.contract.metrics import cluster_jobs
from rankscope_dashboards.expressions.promql import BRIDGED, by, worst

SUCCESS_WINDOWS = ("7d", "28d")

END = ("job_namespace", "job_class", "outcome", "cause")

GAP = "1h"
"""How long the watch may have been away at the moment with which its sums are compared."""


def since(selector: str, window: str, *labels: str) -> str:
    """Return by how much sums of the watch grew within a window, series born in it included.

    Two watches that overlap for a moment export the same sums, of which one is taken. Sums that
    were begun anew within the window give nothing until they exceed what they were before.
    """
    now = worst(f"last_over_time({selector}[{BRIDGED}])", *labels)
    then = worst(f"last_over_time({selector}[{GAP}] offset {window})", *labels)
    return f"clamp_min({now} - ({then} or 0 * {now}), 0)"


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
    """Return how many jobs succeeded or failed, by class; nobody is to blame for other ends."""
    both = since(_ends(chosen, 'outcome=~"succeeded|failed"'), window, *END)
    return f"sum {by('job_class')} ({both})"


def took(part: float, window: str) -> str:
    """Return how long a part of the jobs took that succeeded within a window, by class."""
    buckets = f"{cluster_jobs.JOB_DURATION.name}_bucket"
    return f"histogram_quantile({part}, {since(buckets, window, 'job_class', 'le')})"


def objective(
    objectives: Mapping[str, float], series: str = cluster_jobs.JOB_COMPLETIONS.name
) -> str:
    """Return the objective of each class of which there are jobs.

    Args:
        objectives: by class; "" for all other classes.
        series: that there are of these jobs, with their class.
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
    """Return a class as a regular expression in a string of PromQL; it may have dots."""
    return name.replace(".", "[.]")
