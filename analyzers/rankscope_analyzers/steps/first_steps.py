"""How long a job's first steps took: start-up time that each later attempt needs as well."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rankscope_agent.contract.model import FLAG_FIRST
from rankscope_analyzers.steps.job_records import JobRecords


def longest(job: JobRecords) -> float | None:
    """Return the longest first step of a rank's process in seconds, None if none is known.

    Args:
        job: its records, with the first ones of all if an agent still has them.
    """
    tables = [job.records] if job.start is None else [job.records, job.start]
    return max((one for one in map(_longest, tables) if one is not None), default=None)


def _longest(records: pd.DataFrame) -> float | None:
    if not {"flags", "step_seconds"} <= set(records.columns):
        return None
    flags = pd.to_numeric(records["flags"], errors="coerce").fillna(0).to_numpy(np.float64)
    # Numbers that no probe writes need not fit an integer.
    is_first = np.where((flags >= 0) & (flags < 2**16), flags, 0).astype(np.int64) & FLAG_FIRST != 0
    seconds = pd.to_numeric(records["step_seconds"], errors="coerce").to_numpy(np.float64)
    known = seconds[is_first & np.isfinite(seconds)]
    return float(known.max()) if known.size else None
