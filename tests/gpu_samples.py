"""Samples of healthy GPUs at full load, a row a second each, to put faults into."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rankscope_analyzers.gpus.frames import GPU_COLUMNS

BEGIN = 1_760_000_000.0
NS_OF_CLOCK = 15e6  # clocks come in steps of 15 MHz


def samples(count=8, seconds=60, nodes=1, job="team/job", seed=0):
    """Return healthy GPUs at full load, a row a second each, in which all things vary a little."""
    random = np.random.default_rng(seed)
    rows = []
    for node in range(nodes):
        for gpu in range(count):
            place = random.normal(0, 2)
            rows += [
                {
                    "time": BEGIN + second,
                    "node": f"node-{node}",
                    "gpu": str(gpu),
                    "uuid": f"GPU-{node}-{gpu}",
                    "pci": f"0000:{gpu:02x}:00",
                    "model": "NVIDIA H100 80GB HBM3",
                    "job_id": job,
                    "utilization_ratio": random.uniform(0.97, 1),
                    "sm_clock_hertz": 1980e6 - NS_OF_CLOCK * random.integers(0, 3),
                    "power_watts": random.normal(620, 15),
                    "power_limit_watts": 700.0,
                    "temperature_celsius": random.normal(60 + place, 0.5),
                    "sw_power_cap_seconds": 100 + 0.1 * second,
                    "sw_thermal_slowdown_seconds": 0.0,
                    "hw_thermal_slowdown_seconds": 12.0,
                    "hw_power_brake_seconds": 0.0,
                    "sw_power_cap_active": 0.0,
                    "sw_thermal_slowdown_active": 0.0,
                    "hw_thermal_slowdown_active": 0.0,
                    "hw_power_brake_active": 0.0,
                }
                for second in range(seconds)
            ]
    return pd.DataFrame(rows, columns=list(GPU_COLUMNS))


def gpu_rows(frame, gpu, node="node-0"):
    return (frame["gpu"] == str(gpu)) & (frame["node"] == node)


def grow(frame, rows, column, share):
    frame.loc[rows, column] += share * (frame.loc[rows, "time"] - BEGIN)
