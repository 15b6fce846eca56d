"""One small job of the benchmark suite's simulator, with whatever a test wants to change."""

from dataclasses import replace

from benchmarks.straggler_suite import job
from benchmarks.straggler_suite.plan import Fault, Plan

from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.tables import FrameTable
from rankscope_analyzers.stragglers import feed

PLAN = Plan(
    name="job-a",
    seed=5,
    world=32,
    tensor=2,
    pipeline=2,
    microbatches=8,
    timing="kernel",
    steps=220,
    compute=2.0,
    data=0.02,
    transfer=0.4,
    silicon=0.008,
    kernel_noise=0.008,
    step_length_noise=0.01,
    replica_length_noise=0.01,
    transfer_noise=0.04,
    checkpoint_period=25,
    checkpoint_seconds=4.0,
    evaluation_period=0,
    evaluation_seconds=0.0,
    restart=0,
    shrinks=False,
    missing=0.005,
    dark=-1,
    silent_node=-1,
    faults=(),
)


def fault(kind, subtype, strength, first=80, last=200, duty=1.0, slot=13, stage=-1):
    return Fault(kind, subtype, first, last, strength, duty, slot, stage)


def made(*faults, **changes):
    """Return the simulated job of `PLAN` with faults and changes."""
    return job.simulate(replace(PLAN, faults=faults, **changes))


def judged(meta, records, **options):
    """Return what is found in records, and which of them were left out."""
    return feed.detect(FrameTable(records), layout(meta, 0), **options)


def incidents(meta, records, **options):
    """Return what is found in records."""
    return judged(meta, records, **options).incidents


def found(simulated, **options):
    """Return what is found in a simulated job."""
    return incidents(simulated.meta, simulated.records, **options)


def running(simulated, **changes):
    """Return a simulated job's records as a probe makes them that measures the rest apart."""
    rows = simulated.records
    spent = rows["data_seconds"] + rows["compute_seconds"] + rows["sync_seconds"]
    known = {
        "other_seconds": (rows["step_seconds"] - spent).clip(lower=0),
        "microbatches": simulated.meta["microbatches"],
        "timing_source": simulated.meta["compute_timing"],
        "cpu_wait_seconds": 0.0,
        "attempt": 0,
    }
    return rows.assign(**(known | changes))
