"""How long a job may make no step before it is called hung."""

from __future__ import annotations

HANG_AFTER_SECONDS = 60.0
"""Least time without a step. NCCL's watchdog gives up after ten minutes, so this saves nine;
garbage collection, a logger or a slow batch take only seconds."""
