"""What of a step is no computing, in the ways in which training loops are written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rankscope_probe
from probe_jobs.running import read_extended
from timed_loop import MS, Batch, Loop, Optimizer


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(tmp_path, monkeypatch)


def test_compute_ends_with_the_backward(loop: Loop) -> None:
    loop.batch()
    loop.forward()
    loop.backward()
    loop.spend(3)  # clipping
    loop.step(4)
    assert loop.only() == (2, 30, 0, 7)


def test_what_comes_before_the_first_batch_is_no_compute(loop: Loop) -> None:
    loop.spend(50)  # a checkpoint
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step()
    assert loop.only() == (2, 30, 0, 54)


def test_evaluation_before_the_first_batch_is_no_compute_and_its_batches_no_data(
    loop: Loop,
) -> None:
    with loop.evaluating():
        for _ in range(3):
            loop.batch()
            loop.forward()
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step()
    assert loop.only() == (2, 30, 0, 3 * 12 + 4)


def test_evaluation_that_fetches_with_gradients_enabled_is_no_compute_either(loop: Loop) -> None:
    for _ in range(3):
        loop.batch()
        with loop.evaluating():
            loop.forward()
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step()
    assert loop.only() == (8, 30, 0, 34)


def test_loop_in_which_nothing_is_trained_is_an_evaluation(loop: Loop) -> None:
    for _ in loop.batches(3):  # with gradients enabled, as they are around the model alone
        with loop.evaluating():
            loop.forward()
    loop.spend(5)  # metrics
    for _ in loop.batches(1):
        loop.train()
    (record,) = loop.extended()
    assert loop.only() == (2, 30, 0, 3 * 12 + 2 + 5 + 4)
    assert record.evaluation_ns == (3 * 12 + 2) * MS


def test_collectives_of_an_evaluation_are_sync_and_what_precedes_them_no_compute(
    loop: Loop,
) -> None:
    for _ in loop.batches(3):
        with loop.evaluating():
            loop.forward()
        loop.spend(1)
        loop.probe.clock.sync_ns += MS  # the ranks' results
    for _ in loop.batches(1):
        loop.train()
    assert loop.only() == (2, 30, 3, 3 * 12 + 2 + 4)


def test_batches_that_are_fetched_ahead_are_those_of_training(loop: Loop) -> None:
    """Loops that fetch all batches of a step at first may be over before the forward."""
    for _ in range(2):
        for _ in loop.batches(2):
            pass
        loop.train()
    records = loop.records()
    assert records == [(6, 30, 0, 4)] * 2
    assert [record.evaluation_ns for record in loop.extended()] == [0, 0]


def test_loops_whose_gradients_one_step_uses_are_training(loop: Loop) -> None:
    for _ in range(2):
        for _ in loop.batches(1):
            loop.forward()
            loop.backward()
    loop.step()
    assert loop.only() == (8, 60, 0, 4)


def test_loader_within_a_data_set_is_part_of_the_loop_around_it(loop: Loop) -> None:
    def within(left: list[Batch]) -> Batch:
        list(loop.batches(2))
        list(loop.batches(2))
        if not left:
            raise StopIteration
        return left.pop()

    fetch = loop.probe.loader.fetching(within, counted=True)
    fetch(left := loop.over([Batch()]))
    with loop.evaluating():
        loop.forward()
    with suppress(StopIteration):
        fetch(left)
    fetch(loop.over([Batch()]))
    loop.train()
    assert loop.only() == (12, 30, 0, 24 + 10 + 4)


def test_batch_that_is_fetched_behind_the_forward_ends_no_rest(loop: Loop) -> None:
    """Loops that hold the next batch ready have fetched the one they use a step before."""
    loop.forward()
    loop.batch()
    loop.backward()
    loop.step()
    assert loop.only() == (2, 30, 0, 4)


def test_without_a_loader_what_comes_before_the_forward_stays_compute(loop: Loop) -> None:
    loop.spend(50)
    loop.forward()
    loop.backward()
    loop.step()
    (record,) = loop.extended()
    assert (record.data_ns, record.compute_ns, record.other_ns) == (-1, 80 * MS, 4 * MS)


def test_of_accumulated_micro_batches_the_last_backward_ends_the_compute(loop: Loop) -> None:
    for _ in range(4):
        loop.batch()
        loop.forward()
        loop.backward()
        loop.spend(1)  # a logged loss
    loop.step(4)
    assert loop.only() == (8, 4 * 30 + 3, 0, 5)
    assert read_extended(loop.directory)[0].microbatches == 4


def test_second_optimizer_of_a_step_computes_no_more_than_the_first(loop: Loop) -> None:
    """As a GAN: the one that stepped first ends a step, whatever lies between."""
    generator = Optimizer("generator")
    loop.forward()
    loop.backward()
    loop.step(6, generator)
    loop.spend(8)  # a checkpoint at the loop's end
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step(4)
    assert loop.only() == (2, 60, 0, 6 + 8 + 4)
    assert read_extended(loop.directory)[0].microbatches == 2


def test_optimizers_that_share_a_backward_are_no_compute_in_either_order(loop: Loop) -> None:
    other = Optimizer("other")
    for before in (True, False):
        loop.batch()
        loop.forward()
        loop.backward()
        if before:
            loop.step(3, other)
        loop.step(4)
        if not before:
            loop.step(3, other)
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step(4)
    assert loop.records() == [(2, 30, 0, 7), (2, 30, 0, 4), (2, 30, 0, 7)]


def test_closure_holds_the_backward_and_the_optimizer_the_rest(loop: Loop) -> None:
    loop.batch()
    for _ in range(3):
        loop.forward()
        loop.backward()
        loop.spend(1)  # its own vectors
    loop.step(5)
    assert loop.only() == (2, 3 * 30 + 2, 0, 6)


def test_optimizer_that_steps_within_the_backward_leaves_its_rest_to_the_next_step(
    loop: Loop,
) -> None:
    def within() -> None:
        loop.step(1)
        loop.spend(5)  # gradients of the layers before

    for _ in range(3):
        loop.inside = within
        loop.batch()
        loop.forward()
        loop.backward()
        loop.spend(7)  # logging
    first, *others = loop.records()
    assert first == (2, 31, 0, 0)
    assert others == [(2, 36, 0, 7)] * 2


def test_backward_within_a_backward_is_part_of_it(loop: Loop) -> None:
    """Checkpointing of activations computes them again, by a backward of its own."""

    def again() -> None:
        loop.inside = lambda: None
        loop.torch.autograd.backward(Batch())

    loop.inside = again
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step()
    assert loop.only() == (2, 50, 0, 4)
    assert read_extended(loop.directory)[0].microbatches == 1


def test_sync_and_data_behind_the_backward_are_not_counted_twice(loop: Loop) -> None:
    loop.batch()
    loop.forward()
    loop.backward()
    loop.probe.gloo.timed(lambda work: loop.spend(9))(None)  # a norm over all ranks
    loop.batch()
    loop.step(4)
    assert loop.only() == (4, 30, 9, 4)


def test_step_without_a_backward_tells_nothing_until_optimizers_say_when_they_begin(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines that are called directly hide their backwards."""
    hooks: list[Callable[..., None]] = []
    module = SimpleNamespace(register_optimizer_step_pre_hook=hooks.append)
    for name in ("torch", "torch.optim", "torch.optim.optimizer"):
        monkeypatch.setitem(sys.modules, name, module)
    for _ in range(3):
        loop.batch()
        loop.forward(30)
        for hook in hooks:
            hook(loop.first, (), {})
        loop.step(4)
    assert loop.records() == [(2, 34, 0, -1 / MS), (2, 30, 0, 4), (2, 30, 0, 4)]
    assert len(hooks) == 1
    assert read_extended(loop.directory)[0].microbatches == 0


def test_backwards_that_megatron_runs_in_the_engine_count_and_end_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schedules find their function by its name, for each micro-batch (Megatron-core 0.16)."""

    def custom_backward(output: Any, gradient: Any) -> None:
        for _ in range(2):  # layers whose activations are computed again
            loop.backward(20)
        loop.spend(10)

    schedules = SimpleNamespace(custom_backward=custom_backward)
    monkeypatch.setitem(sys.modules, "megatron.core.pipeline_parallel.schedules", schedules)
    loop = Loop(tmp_path, monkeypatch)
    for _ in range(3):
        loop.batch()
        loop.forward()
        schedules.custom_backward(Batch(), None)
    loop.spend(3)  # clipping
    loop.step(4)
    assert loop.only() == (6, 3 * 60, 0, 7)
    assert loop.extended()[0].microbatches == 3


def test_skipped_step_has_its_rest_too(loop: Loop) -> None:
    scaler = SimpleNamespace(is_enabled=lambda: True)
    loop.probe.scaler_updated(scaler)
    loop.batch()
    loop.forward()
    loop.backward()
    loop.spend(2)
    loop.probe.scaler_updated(scaler)
    assert loop.only() == (2, 30, 0, 2)


def test_error_within_a_backward_leaves_the_next_step_whole(loop: Loop) -> None:
    def fail() -> None:
        raise MemoryError

    loop.inside = fail
    with pytest.raises(MemoryError):
        loop.backward()
    loop.inside = lambda: None
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step()
    assert loop.only()[3] == 4


def test_waits_for_a_cpu_are_taken_out_of_the_rest_as_well(loop: Loop, tmp_path: Path) -> None:
    schedule = tmp_path / "schedstat"
    schedule.write_text("1 0 1")
    with schedule.open() as file:
        cpu = loop.probe.clock.cpu
        cpu.schedule = rankscope_probe._Held(rankscope_probe.os.dup(file.fileno()))
    cpu.seen_ns, cpu.looked_ns, cpu.since_ns, cpu.read_ns = 0, *[loop.now] * 3
    loop.batch()
    loop.forward()
    loop.backward()
    cpu.look(loop.now, 0)
    schedule.write_text(f"1 {6 * MS} 2")
    loop.step(10)
    (record,) = loop.extended()
    assert (record.compute_ns, record.other_ns, record.cpu_wait_ns) == (30 * MS, 4 * MS, 6 * MS)
    parts = (record.data_ns, record.compute_ns, record.sync_ns, record.other_ns)
    assert sum(parts) + record.cpu_wait_ns == record.step_ns
    cpu.schedule.close()


def test_device_that_runs_behind_its_host_tells_nothing_of_the_rest(loop: Loop) -> None:
    loop.probe.device = "cuda"
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step()
    (record,) = loop.extended()
    assert (record.compute_ns, record.other_ns) == (34 * MS, -1)
    assert record.microbatches == 1


def test_ring_holds_the_rest_in_compute_as_older_agents_expect_it(loop: Loop) -> None:
    loop.batch()
    loop.forward()
    loop.backward()
    loop.step(6)
    (path,) = loop.directory.glob("*.ring")
    content = path.read_bytes()
    assert len(content) == 4096 + 65536 * 64
    record = rankscope_probe._RECORD.unpack(content[4096:4160])
    assert record[2:6] == (38 * MS, 2 * MS, 36 * MS, 0)
