"""What logs say about steps survives the agent's restart as JSON."""

from __future__ import annotations

import json

from rankscope_agent.sources.nccl_log.step_lines.parser import StepLog
from rankscope_agent.sources.nccl_log.step_state import from_json, to_json

NOW = 1_795_000_000.0


def deepspeed(step: int, skipped: int, second: int) -> bytes:
    return (
        f"[2026-11-21 02:14:{second:02d},000] [INFO] [logging.py:96:log_dist] [Rank 0] step={step},"
        f" skipped={skipped}, lr=[1e-05], mom=[(0.9, 0.999)]\n"
    ).encode()


def test_skipped_steps_of_deepspeed_count_once_over_a_restart() -> None:
    log = StepLog()
    log.feed(deepspeed(10, 7, second=0), NOW, NOW)
    log = from_json(json.loads(json.dumps(to_json(log))))
    log.feed(deepspeed(20, 9, second=5), NOW + 5, NOW + 5)
    known = log.facts.frameworks["deepspeed"]
    assert (known.step, known.skipped, known.step_seconds) == (20, 9, 0.5)


def test_a_state_of_an_earlier_version_without_deepspeeds_counters_is_read() -> None:
    log = StepLog()
    log.feed(deepspeed(10, 7, second=0), NOW, NOW)
    state = to_json(log)
    del state["deepspeed"]
    assert from_json(state).facts == log.facts
