"""GPUs whose clock, power or temperature is not like that of their peers, as signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope_analyzers.findings.signals import Signal
from rankscope_analyzers.gpus import frames as gpu_frames
from rankscope_analyzers.gpus import throttle
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.layers.advice import Advice
from rankscope_analyzers.layers.job_view import JobView

READS = gpu_frames.READS

ACTIONS: Mapping[throttle.Kind, str] = {
    "thermal_slowdown": "Drain the node, then look at fans, air flow, thermal paste and coolant.",
    "temperature_high": "Look at the node's fans and air flow before the clock is held down.",
    "power_brake": "Look at the node's power supplies; drain it until they are mended.",
    "power_cap": "Compare the power limits (nvidia-smi -q -d POWER) and the power drawn.",
    "power_limit_differs": "Set the power limit that the job's other nodes have (nvidia-smi -pl).",
    "clock_low": "Look for locked clocks (nvidia-smi -q -d CLOCK) and reset them (-rgc).",
    "power_low": "Compare what runs on the GPU with its peers.",
}


def signals(observed: Observed, job: JobView) -> Iterator[Signal]:
    """Yield what deviates among the GPUs of the job."""
    samples = gpu_frames.of_observed(observed)
    samples = samples[samples["node"].isin(job.nodes)]
    samples = samples[samples["job_id"].isin(["", job.job_id])]
    for found in throttle.analyze(samples):
        where = job.of_gpus(found.node, found.uuids, found.gpus)
        if where is not None:
            runbook = found.runbook.rpartition("/")[2].removesuffix(".md")
            advice = Advice(found.kind, "gpu", found.severity, ACTIONS[found.kind], runbook)
            evidence = tuple(replace(item, source=_series(item.source)) for item in found.evidence)
            yield advice.signal(job.job_id, where, found.summary, evidence)


def _series(column: str) -> str:
    """Return the name of the series that a column of the frame was made from."""
    known = gpu_frames.VALUES.get(column.replace("_share", "_seconds"))
    return known[0].name if known else column
