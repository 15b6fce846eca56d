"""PromQL building blocks that several rules need, each with the reason for its form."""

from __future__ import annotations

from rankscope_agent.contract.model import Metric

GPU = ("node", "gpu", "uuid", "pci")
PORT = ("node", "device", "port")
LOG_POD = ("node", "pod_namespace", "pod_name")

JOB_INFO_RECORD = "job:rankscope_job:info"
POD_JOB_RECORD = "node_pod:rankscope_pod_job:info"


def by(*labels: str) -> str:
    """Return a by clause; `cluster` is in each, so that one server may hold several clusters."""
    return f"by ({', '.join(('cluster', *labels))})"


def worst(expression: str, *labels: str) -> str:
    """Return the largest value per group: if two agents report the same thing, one remains."""
    return f"max {by(*labels)} ({expression})"


BRIDGED = "5m"
"""How long scrapes may fail, or an agent be replaced, without its series appearing new: comparisons
with an earlier moment use the largest value of these minutes before it."""


def before(selector: str, offset: str) -> str:
    """Return the largest value that a series had some time ago, bridging gaps of minutes."""
    return f"max_over_time({selector}[{BRIDGED}] offset {offset})"


_EARLIER_MINUTES = (0, 15, 120)
"""How much before a window a series that is not new may have been scraped last: scrapes that all
failed for ten minutes, or for an hour and a half, were between two of these moments."""


_MINUTES = {"m": 1, "h": 60}


def happened(counter: Metric, window: str, matchers: str = "", now: str = "") -> str:
    """Return what grew within a window, including series that appeared within it.

    increase() of a counter whose first value is 1 is 0, so that the first event of an agent's life
    would be missed. A series that returns after an outage of over an hour and a half is counted for
    one window, too.

    Args:
        counter: an agent's.
        window: such as "15m".
        matchers: of the counter's labels.
        now: record of where the counter is above 0, if there is one.
    """
    selector = f"{counter.name}{{{matchers}}}" if matchers else counter.name
    # Without the labels of the scrape: an agent that is replaced has another pod and address, and
    # tells again what its predecessor told.
    labels = ("node", *counter.labels)
    now = now or worst(f"{selector} > 0", *labels)
    known = "".join(
        f" unless {worst(before(selector, _earlier(window, minutes)), *labels)} >= {now}"
        for minutes in _EARLIER_MINUTES
    )
    return f"(increase({selector}[{window}]) > 0 or ({now}{known}))"


def _earlier(window: str, minutes: int) -> str:
    """Return an offset of some minutes more than a window."""
    return f"{int(window[:-1]) * _MINUTES[window[-1]] + minutes}m"


def recent(timestamps: str, seconds: int) -> str:
    """Return how many seconds ago something happened, if that is less than a limit."""
    return f"(time() - {timestamps}) < {seconds}"
