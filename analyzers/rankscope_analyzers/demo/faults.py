"""What the demo can inject into its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rankscope_analyzers.findings.finding import FaultClass

FAULTS: Mapping[str, FaultClass | Literal["hang"] | None] = {
    "none": None,
    "hang": "hang",
    "slow-compute": "gpu_compute",
    "slow-data": "data_loader",
}
"""The faults, and the class that the verdict should then have."""
