"""A part of the probe that always fails costs what it measures: steps and all else go on."""

from __future__ import annotations

from pathlib import Path

from installed import skip_without
from probe_jobs.nurseries import Nursery
from probe_jobs.running import Ring, read_rings
from rankscope_agent.sources.training.reported import Signal, Signals, parse_signals

skip_without("torch", "these tests train with PyTorch")

JOB = "broken_parts.py"
STEPS, BATCH = 130, 8
UNSEEN = {
    "_CpuWaits.count": "waits for a CPU",
    "_LoaderWorkers.compare": "workers of input loaders",
    "_Signals.put_rate": "losses, rates and counts",
    "_Spans.evaluates": "checkpoints, evaluations and compiling",
    "_Spans.hook_saver": "checkpoints, evaluations and compiling",
    "_Probe.hook_scaler": "updates that a GradScaler skips",
    "_Probe.find_layout": "groups of ranks",
}


def signals_of(ring: Ring) -> Signals:
    return parse_signals(ring.path.with_suffix(".sig").read_bytes()[64:])


def assert_data(ring: Ring) -> None:
    """Each step has a time for data: 0 where a wait for a CPU covers it, on a busy machine."""
    times = [record.data_ns for record in ring.records]
    assert min(times) >= 0
    assert max(times) > 0


def assert_complete(ring: Ring) -> None:
    assert [record.step for record in ring.records] == list(range(1, STEPS))
    assert {record.samples for record in ring.records} == {BATCH}
    assert_data(ring)
    assert min(record.sync_ns for record in ring.records[1:]) > 0
    assert signals_of(ring)[Signal.LOSSES].value == STEPS


def test_steps_are_complete_whatever_else_fails_at_each_of_them(
    bare_nursery: Nursery, tmp_path: Path
) -> None:
    for ended in bare_nursery.run(tmp_path, JOB, *UNSEEN, ranks=2):
        assert ended.code == 0, ended.errors
        assert sorted(ended.errors.splitlines()) == sorted(
            f"rankscope probe: RuntimeError: raised on purpose; {what} may go unseen"
            for what in set(UNSEEN.values())
        )
    rings = read_rings(tmp_path)
    assert len(rings) == 2
    for ring in rings:
        assert_complete(ring)
        assert Signal.LEARNING_RATE not in signals_of(ring)


def test_each_part_is_tried_a_hundred_times(bare_nursery: Nursery, tmp_path: Path) -> None:
    parts = ("_LoaderWorkers.compare", "_Signals.put_rate", "_batch_size")
    for ended in bare_nursery.run(tmp_path, JOB, *parts, ranks=2, RANKSCOPE_PROBE_DEBUG="1"):
        assert ended.code == 0, ended.errors
        assert ended.errors.count("RuntimeError: raised on purpose") == 100 * len(parts)
    for ring in read_rings(tmp_path):
        assert len(ring.records) == STEPS - 1
        assert {record.samples for record in ring.records} == {0xFFFFFFFF}
        assert_data(ring)


def test_amounts_that_are_none_cost_the_program_no_step(
    bare_nursery: Nursery, tmp_path: Path
) -> None:
    (ended,) = bare_nursery.run(tmp_path, JOB)
    assert ended.code == 0, ended.errors
    (line,) = ended.errors.splitlines()
    assert line.endswith("; samples and tokens may go unseen")
    (ring,) = read_rings(tmp_path)
    assert len(ring.records) == STEPS - 1
