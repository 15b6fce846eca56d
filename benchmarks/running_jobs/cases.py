"""The jobs that are run, the fault in each, and the expected report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOBODY: tuple[str | None, tuple[int, ...]] = (None, ())
ENDED, NO_STEPS = "an end", "no steps"
"""Answers that are not classes of a slow rank."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job.

    Args:
        name: here and in its rings.
        loop: the loop of `scripts/loops.py`.
        expected: what may be reported of it, each a class with its ranks; the first is the intended
            one.
        fault: inside the script (`scripts/injected_fault.py`).
        settings: how the loop differs from its default.
        outside: what is done to it from outside: a verb, and its arguments (`run.py`).
        ranks: how many.
        seconds: how long it runs before it is diagnosed.
        links: whether each rank has a separate network; rate in Mbit/s, 0 for none.
        beside: a second job at the same time, which nobody looks at.
    """

    name: str
    loop: str
    expected: Sequence[tuple[str | None, tuple[int, ...]]] = (NOBODY,)
    fault: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    outside: tuple[str | float, ...] = ()
    ranks: int = 4
    seconds: float = 45.0
    links: float = 0.0
    beside: Case | None = None


def _slow(ranks: Sequence[int], seconds: float, **more: Any) -> Mapping[str, Any]:
    return {"what": "compute", "ranks": list(ranks), "amount": seconds, **more}


def _gpu(*ranks: int) -> Sequence[tuple[str | None, tuple[int, ...]]]:
    return (("gpu_compute", ranks),)


def _host(*ranks: int) -> Sequence[tuple[str | None, tuple[int, ...]]]:
    return (("host_transient", ranks),)


def _link(rank: int, ranks: int = 4) -> Sequence[tuple[str | None, tuple[int, ...]]]:
    """Return answers for a slow link: either end of a hop counts, as in the trace contract."""
    ends = (rank, (rank + 1) % ranks, (rank - 1) % ranks)
    both = tuple((a, b) for a in ends for b in ends if a != b and rank in (a, b))
    return tuple(("network_link", named) for named in ((rank,), *both, (ends[1],), (ends[2],)))


INPUT_OF_ALL = (("storage_checkpoint", ()),)
WRITER = (("storage_checkpoint", (0,)), ("storage_checkpoint", ()))
CHECKPOINTS = {"checkpoint_every": 25, "checkpoint": 0.4}
SAVES = {"checkpoint_every": 50, "checkpoint": 2.0, "torch_save": True}
"""By torch.save, which the probe marks."""

ALONE = {"evaluate_every": 30, "evaluators": [0], "evaluate": 1.0}
BUSY = {"busy": True, "compute": 0.02}
LOGS = {"log_every": 10, "log": 0.045}
"""What rank 0 logs doubles some steps, and others not quite."""

LIMIT = 0.06
"""CPUs that a limited rank may use: so few that the limit slows it down however busy the machine
is, where a quarter is more than it gets."""

LINKED = {"width": 192, "compute": 0.03}

FAULTY: Sequence[Case] = (
    Case("two-slow", "ddp", _gpu(1, 3), _slow([1, 3], 0.03)),
    Case("two-slow-later", "sharded", _gpu(0, 2), _slow([0, 2], 0.04, begin=20), seconds=55),
    Case("two-slow-by-hand", "by_hand", _gpu(2, 3), _slow([2, 3], 0.02)),
    Case("one-slow", "plain", _gpu(3), _slow([3], 0.012)),
    Case("one-slow-later", "accumulation", _gpu(1), _slow([1], 0.04, begin=20), seconds=55),
    Case("bursts", "ddp", _gpu(2), _slow([2], 0.05, period=8, burst=4), seconds=60),
    Case("ramp", "normalized", _gpu(0), _slow([0], 0.04, begin=12, ramp=15), seconds=60),
    Case("tiny-steps", "plain", _gpu(2), _slow([2], 0.006), {"compute": 0.006}),
    Case("long-steps", "ddp", _gpu(1), _slow([1], 0.6), {"compute": 1.8}, seconds=75),
    Case("tensor-parallel", "tensor_parallel", _gpu(1), _slow([1], 0.03), ranks=2),
    Case("two-dimensions", "two_dimensions", _gpu(2), _slow([2], 0.04)),
    Case("adversarial", "adversarial", _gpu(1), _slow([1], 0.03), ranks=2),
    Case("local", "local", _gpu(3), _slow([3], 0.03)),
    Case(
        "two-jobs", "ddp", _gpu(1), _slow([1], 0.04), ranks=2,
        beside=Case("beside", "ddp", ranks=2),
    ),
    Case("slow-input", "ddp", (("data_loader", (2,)),),
         {"what": "input", "ranks": [2], "amount": 0.03}),
    Case("slow-input-workers", "ddp", (("data_loader", (0,)),),
         {"what": "input", "ranks": [0], "amount": 0.25}, {"workers": 2}),
    Case("input-of-all", "ddp", INPUT_OF_ALL,
         {"what": "input", "amount": 0.04, "begin": 20}, seconds=55),
    Case("input-of-all-workers", "ddp", INPUT_OF_ALL,
         {"what": "input", "amount": 0.2, "begin": 22}, {"workers": 2}, seconds=60),
    Case("input-of-all-uneven", "normalized", INPUT_OF_ALL,
         {"what": "input", "amount": 0.05, "begin": 20}, {"jitter": 0.8}, seconds=60),
    Case("collections", "ddp", _host(2),
         {"what": "collection", "ranks": [2], "amount": 4_000_000, "every": 20}),
    Case("stalls", "plain", _host(1), {"what": "stall", "ranks": [1], "amount": 0.5, "every": 37}),
    Case("rare-stalls", "ddp", _host(3),
         {"what": "stall", "ranks": [3], "amount": 1.0, "every": 90}, seconds=60),
    Case("frozen", "ddp", _host(1), outside=("freeze", 1, 22, 8), seconds=50),
    Case("frozen-of-two", "sharded", _host(0), outside=("freeze", 0, 20, 8), ranks=2, seconds=50),
    Case("quota", "ddp", _host(2), settings=BUSY, outside=("quota", 2, 0, LIMIT)),
    Case("quota-later", "plain", _host(1), settings=BUSY, outside=("quota", 1, 25, LIMIT),
         seconds=60),
    Case("link", "ddp", _link(2), settings=LINKED, outside=("link", 2, 25, 20, "both"),
         links=200, seconds=60),
    Case("link-out", "ddp", _link(1), settings=LINKED, outside=("link", 1, 25, 20, "out"),
         links=200, seconds=60),
    Case("link-in", "plain", _link(3), settings=LINKED, outside=("link", 3, 25, 20, "in"),
         links=200, seconds=60),
    Case("link-from-the-start", "plain", _link(0), settings=LINKED,
         outside=("link", 0, 0, 20, "both"), links=200, seconds=50),
    Case("all-links", "plain", (("global_slowdown", ()),), settings=LINKED,
         outside=("links", 25, 8), links=200, seconds=60),
    Case("all-slower", "ddp", (("global_slowdown", ()),),
         {"what": "slower", "amount": 0.6, "begin": 22}, seconds=60),
    Case("checkpoints", "ddp", WRITER, {"what": "storage", "amount": 4, "begin": 30},
         CHECKPOINTS, seconds=75),
    Case("checkpoints-with-barrier", "ddp", WRITER, {"what": "storage", "amount": 4, "begin": 30},
         {**CHECKPOINTS, "barrier": True}, seconds=75),
    Case("checkpoints-of-all", "plain", (("storage_checkpoint", ()),),
         {"what": "storage", "amount": 4, "begin": 30},
         {**CHECKPOINTS, "writers": [0, 1, 2, 3]}, seconds=75),
    Case("evaluates-alone", "ddp", (*_host(0), NOBODY, ("partition_imbalance", ())),
         settings=ALONE, seconds=60),
    Case("evaluates-alone-and-slow", "ddp", _gpu(2), _slow([2], 0.03), ALONE, seconds=60),
    Case("saves-and-slow", "ddp", _gpu(1), _slow([1], 0.04), {**SAVES, "compute": 0.02},
         seconds=60),
    Case("checkpoints-and-slow", "ddp", _gpu(1), _slow([1], 0.03), CHECKPOINTS, seconds=60),
    Case("more-samples", "uneven", (("partition_imbalance", ()), ("partition_imbalance", (3,))),
         settings={"sizes": [4, 4, 4, 6]}),
    Case("raised", "ddp", ((ENDED, (1,)),),
         {"what": "raise", "ranks": [1], "amount": 1, "begin": 22}, seconds=35),
    Case("killed", "plain", ((ENDED, (2,)),), outside=("kill", 2, 22), seconds=35),
    Case("stopped", "ddp", ((ENDED, (3,)),), outside=("stop", 3, 22), seconds=45),
    Case("stage-slower-later", "stages", _gpu(1), _slow([1], 0.04, begin=22), seconds=60),
    Case("local-sgd", "local_sgd", _gpu(2), _slow([2], 0.02)),
    Case("local-sgd-rarely", "local_sgd", _gpu(0), _slow([0], 0.02), {"exchange_every": 40},
         seconds=60),
    Case("stalls-and-logs", "ddp", _host(1),
         {"what": "stall", "ranks": [1], "amount": 0.6, "every": 37}, LOGS, seconds=60),
    Case("without-optimizer", "without_optimizer", ((NO_STEPS, ()),), seconds=25),
)  # fmt: skip
"""Jobs in which something is wrong."""

HEALTHY: Sequence[Case] = (
    Case("h-ddp", "ddp"),
    Case("h-ddp-2", "ddp", ranks=2),
    Case("h-ddp-3", "ddp", ranks=3),
    Case("h-ddp-workers", "ddp", settings={"workers": 2}),
    Case("h-ddp-stream", "ddp", settings={"stream": True}),
    Case("h-ddp-jitter", "ddp", settings={"jitter": 0.5}),
    Case("h-ddp-busy", "ddp", settings=BUSY),
    Case("h-ddp-busy-2", "ddp", settings={"busy": True, "compute": 0.04}, ranks=2),
    Case("h-ddp-slow-input", "ddp", settings={"load": 0.03}),
    Case("h-ddp-tiny", "ddp", settings={"compute": 0.002, "load": 0.0005}),
    Case("h-ddp-long", "ddp", settings={"compute": 1.5}, seconds=60),
    Case("h-ddp-3s", "ddp", settings={"compute": 3.0}, ranks=2, seconds=75),
    Case("h-ddp-wide", "ddp", settings={"width": 512}),
    Case("h-saves-half-the-time", "ddp",
         settings={**SAVES, "checkpoint_every": 15, "checkpoint": 0.5}),
    Case("h-ddp-checkpoints", "ddp", settings=CHECKPOINTS),
    Case("h-ddp-barrier", "ddp", settings={**CHECKPOINTS, "barrier": True}),
    Case("h-ddp-rare-checkpoints", "ddp", settings={"checkpoint_every": 100, "checkpoint": 3.0},
         seconds=60),
    Case("h-ddp-all-write", "ddp", settings={**CHECKPOINTS, "writers": [0, 1, 2, 3]}),
    Case("h-ddp-evaluates", "ddp", settings={"evaluate_every": 40, "evaluate": 1.5}),
    Case("h-ddp-both", "ddp", settings={**CHECKPOINTS, "evaluate_every": 60}, seconds=60),
    Case("h-plain", "plain"),
    Case("h-plain-2ms", "plain", settings={"compute": 0.001}),
    Case("h-plain-busy", "plain", settings=BUSY, ranks=2),
    Case("h-normalized", "normalized"),
    Case("h-accumulation", "accumulation"),
    Case("h-accumulation-8", "accumulation", settings={"micro_batches": 8}),
    Case("h-sharded", "sharded"),
    Case("h-sharded-2", "sharded", ranks=2),
    Case("h-tensor", "tensor_parallel", ranks=2),
    Case("h-two-dimensions", "two_dimensions"),
    Case("h-by-hand", "by_hand"),
    Case("h-pipeline", "pipeline", ranks=2),
    Case("h-pipeline-4", "pipeline"),
    Case("h-pipeline-unnamed", "pipeline", settings={"unnamed": True}),
    Case("h-stages", "stages"),
    Case("h-local-sgd", "local_sgd"),
    Case("h-logs", "ddp", settings=LOGS, seconds=60),
    Case("h-sequences", "sequences", settings={"spread": 0.05}),
    Case("h-adversarial", "adversarial", ranks=2),
    Case("h-local", "local", ranks=3),
    Case("h-growing", "growing"),
    Case("h-profiled", "profiled"),
    Case("h-late", "ddp", settings={"late": 8}),
    Case("h-links", "ddp", settings=LINKED, links=200),
    Case("h-two-jobs", "ddp", ranks=2, beside=Case("beside", "plain", ranks=2)),
    Case("h-short", "ddp", seconds=12),
    Case("h-restless", "ddp", settings={"compute": 0.08, "jitter": 1.0}),
)  # fmt: skip
"""Jobs in which nothing is wrong."""
