"""Thresholds of alerts that a cluster may set: their meaning, and the limits of their values.

This is the only place with defaults: rules without a configuration are generated from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that alerts compare with.

    Args:
        default: if nothing is configured.
        least: minimum value.
        most: maximum value.
        meaning: what is compared with it, and its unit.
    """

    default: float
    least: float
    most: float
    meaning: str


THRESHOLDS: Mapping[str, Threshold] = {
    # A twentieth of the job's time: a smaller loss costs less in a day than a person's attention.
    "lost_share": Threshold(
        0.05, 0.005, 0.95, "Share of step time that a slow rank, input, link or storage costs."
    ),
    # 1.2 times the stage's median, which leaves 1 - 1/1.2 of the worst rank's time that its peers
    # do not need. Single steps vary by less.
    "unwatched_lost_share": Threshold(
        0.17, 0.02, 0.95, "The same of a rank's own work in jobs that no watch judges."
    ),
    # Mixed batches move a job's throughput by a few per cent.
    "throughput_loss": Threshold(
        0.1, 0.01, 0.95, "Share by which a job's samples per second fell from one day to the next."
    ),
    # Checkpoints and evaluation are fewer than a step in 20.
    "step_tail": Threshold(
        2, 1.1, 100, "95th percentile of a job's step times, in multiples of their median."
    ),
    # Half of the time in collectives: more than any sensible layout leaves exposed.
    "sync_share": Threshold(0.5, 0.05, 0.99, "Share of step time that ranks are in collectives."),
    # Jobs that compute show above 0.8; below 0.3 something else sets the pace.
    "low_utilisation": Threshold(
        0.3, 0.1, 0.95, "Share of an hour in which a job's GPUs ran kernels; below it is low."
    ),
    # Noise of a GPU on which nothing runs.
    "idle_utilisation": Threshold(
        0.02, 0.001, 0.09, "Share of an hour in which a job's GPUs ran kernels; below it is idle."
    ),
    # Losses fall, or move by a few tens of per cent.
    "loss_growth": Threshold(2, 1.05, 1000, "A job's loss, in multiples of its lowest."),
    "cascade_jobs": Threshold(
        3, 2, 1000, "Jobs that fail within 15 minutes for one cause, presumably."
    ),
    # Three of three hundred fail in any quarter of an hour.
    "cascade_share": Threshold(
        0.1, 0.001, 1, "Share of running jobs that must have failed for that as well."
    ),
    # Objective 95 %. The fast burn is 14.4 times as much, and should remain below all of it.
    "lost_gpu_time": Threshold(
        0.05, 0.005, 0.06, "Share of the cluster's GPU time that faults may take in a month."
    ),
    # A node's worth: what a single hung notebook or small job loses is for its own alert.
    "lost_gpus": Threshold(
        8, 0, 1000, "GPUs whose time must be lost on average before a page is sent."
    ),
    # A second job of a project's usual size; weekends halve what most projects spend.
    "spending_growth": Threshold(
        2, 1.1, 100, "What a project spends in a day, in multiples of a day of the week before."
    ),
    # Ten evaluations of the default interval.
    "watch_silence": Threshold(300, 60, 86_400, "Seconds since the watch's last evaluation."),
}

DEFAULTS: Mapping[str, float] = {name: one.default for name, one in THRESHOLDS.items()}
