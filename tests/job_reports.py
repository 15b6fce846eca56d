"""Reports on simulated jobs, put together by hand as a fusion of all layers would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from rankscope_analyzers.findings.finding import Evidence, Finding, RankLocation, Where
from rankscope_analyzers.fusion.job_report import Incident, JobReport
from rankscope_analyzers.steps.frames import StepFrame
from rankscope_analyzers.stragglers.verdict import Verdict
from simulated_jobs import Fault, Job, diagnosed, records

THERMAL = "RankscopeGpuThermalSlowdown"


def frame(job: Job, job_id: str = "team/pretrain", seed: int = 0) -> StepFrame:
    """Return the steps of a simulated job."""
    return diagnosed(records(job, seed), job_id=job_id).frame


def verdict_on(of: StepFrame) -> Verdict:
    """Judge the steps of a frame."""
    times = {"t_start_unix_seconds": of.starts, "step_seconds": of.step, "data_seconds": of.data}
    times |= {"compute_seconds": of.compute, "sync_seconds": of.sync}
    count = of.starts.shape[0]
    rows = pd.DataFrame({name: values.ravel() for name, values in times.items()})
    rows["step"], rows["rank"] = np.repeat(of.steps, len(of.ranks)), np.tile(of.ranks, count)
    for name, values in (("node", of.nodes), ("gpu", of.gpus), ("pp_stage", of.stages)):
        rows[name] = np.tile(np.array(values), count)
    rows["dp_group"], rows["tp_group"] = np.tile(of.groups, count), rows["rank"]
    return diagnosed(rows.dropna(subset=["step_seconds"]), of.world_size, of.job_id).verdict


def locations(of: StepFrame) -> dict[int, RankLocation]:
    """Return an inventory: a GPU and its own NIC for each rank."""
    return {
        rank: RankLocation(
            rank=rank,
            node=node,
            local_rank=gpu,
            gpu=str(gpu),
            uuid=f"GPU-{rank:08x}-3f2a",
            nics=(f"mlx5_{gpu}",),
            pod=f"team/pretrain-{rank // 8}",
        )
        for rank, node, gpu in zip(of.ranks.tolist(), of.nodes, of.gpus.tolist(), strict=True)
    }


def report(of: StepFrame, **changes) -> JobReport:
    """Return the report on a job; its first incident is a hot GPU where the timing finds one."""
    said = verdict_on(of)
    known = locations(of)
    values = {
        "job_id": of.job_id,
        "verdict": said,
        "frame": of,
        "incidents": (incident(said.cause, known),) if said.cause else (),
        "observations": (link_errors(),),
        "locations": known,
        "unobserved": (*said.unobserved, "no DCGM profiling counters on any node"),
        "sources": ("http://prometheus:9090", "rankscope_training_step_seconds"),
        "made_unix_seconds": 1_760_000_500.0,
    }
    return JobReport(**{**values, **changes})


def incident(cause: Finding, known: dict[int, RankLocation], **changes) -> Incident:
    """Return a slow rank explained by its GPU's heat."""
    ranks = cause.where.ranks
    where = Where(
        nodes=cause.where.nodes,
        ranks=ranks,
        uuids=tuple(known[rank].uuid for rank in ranks if rank in known),
        gpus=tuple(known[rank].gpu for rank in ranks if rank in known),
    )
    values = {
        "cause": heat(replace(cause, where=where)),
        "findings": (cause,),
        "where": where,
        "severity": cause.severity,
        "summary": f"{cause.summary}: HW thermal slowdown holds its SM clock at 1.2 GHz of 1.98",
        "action": "Drain the node and hand it to hardware.",
        "runbook": THERMAL,
        "confidence": 0.93,
        "cost": cause.cost,
        "since_unix_seconds": cause.since_unix_seconds,
        "until_unix_seconds": cause.until_unix_seconds,
    }
    return Incident(**{**values, **changes})


def heat(timing: Finding) -> Finding:
    """Return what the GPU's counters say of it."""
    return Finding(
        kind="hw_thermal_slowdown",
        layer="gpu",
        severity="page",
        job_id="",
        where=timing.where,
        summary="the GPU slows itself down: HW thermal slowdown",
        action="Look at its cooling.",
        runbook=THERMAL,
        evidence=(
            Evidence("rankscope_gpu_clock_hertz", 1.2e9, 1.98e9, "Hz", "SM clock"),
            Evidence("rankscope_gpu_temperature_celsius", 93, 64, "Celsius", "of the core"),
        ),
        since_unix_seconds=timing.since_unix_seconds and timing.since_unix_seconds - 3,
        source='rate(rankscope_gpu_clock_event_seconds_total{reason="hw_thermal_slowdown"}[1m])',
    )


def link_errors() -> Finding:
    """Return something that nothing suffers from."""
    return Finding(
        kind="symbol_errors",
        layer="link",
        severity="ticket",
        job_id="",
        where=Where(nodes=("node-00000",), devices=("mlx5_2",)),
        summary="mlx5_2 on node-00000 counts 3 symbol errors an hour",
        action="Watch it.",
        runbook="",
        source="rankscope_rdma_symbol_error_total",
    )


SLOW_EIGHT = Job(ranks=8, steps=400, faults=(Fault("compute", (5,), 0.6, first_step=150),))
SLOW_BIG = Job(ranks=4096, steps=300, faults=(Fault("compute", (2717,), 0.6, first_step=120),))
