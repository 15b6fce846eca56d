"""For each alert the series that bring it about, those that just do not, and those of a good day.

Rates are per minute. The values beside a limit stand on both of its sides, close to it.
"""

from __future__ import annotations

from alert_checkpoint_cases import CHECKPOINT_CASES
from alert_cluster_cases import CLUSTER_CASES
from alert_goodput_cases import GOODPUT_CASES
from alert_gpu_cases import GPU_CASES
from alert_host_cases import HOST_CASES
from alert_job_status_cases import JOB_STATUS_CASES
from alert_link_cases import LINK_CASES
from alert_nccl_cases import NCCL_CASES
from alert_timelines import Case
from alert_training_cases import TRAINING_CASES

CASES: dict[str, Case] = {
    **TRAINING_CASES,
    **CHECKPOINT_CASES,
    **JOB_STATUS_CASES,
    **NCCL_CASES,
    **GPU_CASES,
    **LINK_CASES,
    **HOST_CASES,
    **GOODPUT_CASES,
    **CLUSTER_CASES,
}
