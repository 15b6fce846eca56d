"""Series that bring about the alerts about checkpoints, storage and losses after a restart."""

from __future__ import annotations

from collections.abc import Sequence

from alert_series import ALIVE, JOB, NODE, OTHER, OWNER
from alert_timelines import Case, Series, State, counter, gauge, steady

RANK = f'{NODE},{JOB},rank="3"'
AGES = {"good": 0, "below": 59}
"""Seconds since the newest checkpoint; where it is bad, there was one at the beginning only."""


def _written(states: Sequence[State], step: int) -> list[str]:
    return [
        str(i * step * 60 - AGES[state] if state in AGES else 0) for i, state in enumerate(states)
    ]


def _client(node: str, *minutely: float) -> tuple[Series, Series]:
    """Return a node's reads, 60 a minute, and the seconds that they take in each state."""
    key = f'{{{node},type="lustre",filesystem="scratch",operation="read"}}'
    return (
        counter(f"rankscope_storage_client_operations_total{key}", 60, 60, 60),
        counter(f"rankscope_storage_client_operation_seconds_total{key}", *minutely),
    )


CHECKPOINT_CASES: dict[str, Case] = {
    "RankscopeCheckpointFailing": Case(
        (counter(f"rankscope_checkpoint_write_failures_total{{{RANK}}}", 1), OWNER), lag=30
    ),
    "RankscopeCheckpointCorrupt": Case(
        (counter(f"rankscope_checkpoint_load_failures_total{{{RANK}}}", 1), OWNER), lag=30
    ),
    "RankscopeCheckpointOverdue": Case(
        (
            Series(f"rankscope_checkpoint_last_success_timestamp_seconds{{{RANK}}}", _written),
            steady(f"rankscope_checkpoint_objective_seconds{{{NODE}}}", 60),
            ALIVE,
            OWNER,
        ),
    ),
    "RankscopeCheckpointStoreFilling": Case(
        (
            gauge(f"rankscope_checkpoint_store_free_bytes{{{RANK}}}", 4.9e9, 60e9, 31e9),
            steady(f"rankscope_checkpoint_store_size_bytes{{{RANK}}}", 1e11),
            OWNER,
        ),
    ),
    "RankscopeCheckpointOverwritten": Case(
        (counter(f"rankscope_checkpoint_shared_paths_total{{{NODE},{JOB}}}", 1), OWNER), lag=60
    ),
    "RankscopeStorageClientSlow": Case(
        (*_client(NODE, 6.0, 0.6, 2.9), *_client(OTHER, 1.2, 0.6, 0.6)), lag=11
    ),
    "RankscopeLossJump": Case(
        (
            gauge(f"rankscope_loss_level{{{RANK}}}", 3.1, 2.0, 2.9),
            steady(f"rankscope_loss_level_before_restart{{{RANK}}}", 2.0),
            OWNER,
        ),
    ),
}
