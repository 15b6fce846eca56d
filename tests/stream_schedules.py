"""What waits where in a step of each kind of job, on a fake device.

Sequences of calls were read in, by file: torch 2.13 fsdp/_fully_shard/_fsdp_param_group.py and
_fsdp_collectives.py, fsdp/_runtime_utils.py, _functional_collectives.py, pipelining/schedules.py;
Megatron-LM core 0.16.1 tensor_parallel/layers.py, pipeline_parallel/p2p_communication.py and
distributed/param_and_grad_buffer.py; DeepSpeed 0.19.8 runtime/zero/partitioned_param_coordinator.py
and stage3.py. Each copies its next batch on a stream of its own, and runs backwards in another
thread, as autograd does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fake_rank import FakeRank
from fake_streams import COPIES, Event, Stream

Times = random.Random


@dataclass(slots=True)
class Model:
    """A step's sizes: milliseconds are drawn anew for each call.

    Args:
        layers: of the model.
        compute: longest kernels of a layer.
        exchange: longest collective, waiting for peers included.
        copy: longest copy of a batch.
        data: longest wait for the loader.
        host: longest time of the host between two layers.
    """

    layers: int = 4
    compute: float = 5.0
    exchange: float = 8.0
    copy: float = 6.0
    data: float = 4.0
    host: float = 0.2


class Step:
    """One rank's steps of one kind."""

    def __init__(self, rank: FakeRank, model: Model, times: Times) -> None:
        self.rank, self.model, self.times = rank, model, times
        self.device, self.group = rank.device, rank.group
        self.streams: dict[str, Stream] = {}

    def side(self, name: str) -> Stream:
        if name not in self.streams:
            self.streams[name] = self.device.cuda.Stream(0)
        return self.streams[name]

    def compute(self, share: float = 1.0) -> None:
        self.device.host(self.times.uniform(0, self.model.host))
        self.device.kernel(share * self.times.uniform(0.1, 1.0) * self.model.compute)

    def exchange(self) -> float:
        return self.times.uniform(0.05, 1.0) * self.model.exchange

    def batch(self) -> None:
        """Fetch a batch and copy it beside training, which waits for the copy."""
        self.rank.fetch(self.times.uniform(0, self.model.data))
        copies = self.side("copies")
        with self.device.on(copies):
            self.device.kernel(self.times.uniform(0.1, 1.0) * self.model.copy, COPIES)
        self.device.stream().wait_stream(copies)

    def in_backward(self, work: Callable[[], None]) -> None:
        """Run work as a backward, in a thread of autograd's."""
        failures: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)

        def engine() -> None:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()

        self.rank.backward(engine)
        if failures:
            raise failures[0]


def fully_shard(step: Step) -> None:
    """FSDP2: unshard on two streams, wait for an event of the second; reduce on a third."""
    device, model = step.device, step.model
    copy_in, gather, reduce, cast = map(step.side, ("copy in", "gather", "reduce", "cast"))

    def unshard() -> Event:
        copy_in.wait_stream(device.training)
        with device.on(copy_in):
            device.kernel(0.01)
        gather.wait_stream(copy_in)
        with device.on(gather):
            step.group._allgather_base(step.exchange(), False)
        return gather.record_event()

    def backward() -> None:
        gathered = unshard()
        for layer in range(model.layers):
            device.stream().wait_event(gathered)
            if layer + 1 < model.layers:
                gathered = unshard()
            step.compute(2.0)
            reduce.wait_stream(device.stream())
            with device.on(reduce):
                step.group._reduce_scatter_base(step.exchange(), False)
        cast.wait_stream(reduce)
        with device.on(cast):
            device.kernel(0.01)
        device.stream().wait_event(cast.record_event())

    step.batch()
    for _ in range(model.layers):
        device.stream().wait_event(unshard())
        step.compute()
    step.in_backward(backward)


def fully_sharded(step: Step) -> None:
    """FSDP1: Works are waited for on the streams that unshard and reduce, training for those."""
    device, model = step.device, step.model
    shard, post = step.side("unshard"), step.side("post backward")

    def unshard() -> None:
        shard.wait_stream(device.training)
        with device.on(shard):
            step.group._allgather_base(step.exchange()).wait()  # up to torch 2.7
        device.stream().wait_stream(shard)

    def backward() -> None:
        for _ in range(model.layers):
            unshard()
            step.compute(2.0)
            post.wait_stream(device.stream())
            with device.on(post):
                step.group._reduce_scatter_base(step.exchange()).wait()
        device.stream().wait_stream(post)

    step.batch()
    for _ in range(model.layers):
        unshard()
        step.compute()
    step.in_backward(backward)


def tensor_parallel(step: Step) -> None:
    """DTensor: functional collectives, waited for by an operator in C++."""
    step.batch()

    def layers(share: float) -> None:
        for _ in range(step.model.layers):
            step.compute(share)
            work = step.rank.functional(step.exchange())
            step.device.kernel(0.02)
            step.rank.wait_tensor(work)

    layers(1.0)
    step.in_backward(lambda: layers(2.0))


def pipeline(step: Step) -> None:
    """torch's schedules: messages of a micro-batch at once, each Work waited for."""
    step.batch()
    for _ in range(step.model.layers):
        step.group.recv(0.0)
        step.group._end_coalescing(step.exchange()).wait()
        step.compute()

        def backward() -> None:
            step.compute(2.0)

        step.in_backward(backward)
        step.group._end_coalescing(step.exchange()).wait()


def megatron(step: Step) -> None:
    """Megatron-LM: collectives of layers on the training stream, parameters and gradients beside.

    Messages between stages are waited for, and then the device is (`batch_p2p_sync`).
    """
    device, model = step.device, step.model
    step.batch()
    gathered = [step.group._allgather_base(step.exchange()) for _ in range(2)]
    for work in gathered:
        work.wait()
        step.compute()
        step.group.allreduce(step.exchange(), False)
    step.group._end_coalescing(step.exchange()).wait()
    device.cuda.Stream.synchronize(device.training)
    reduced = []

    def backward() -> None:
        for _ in range(model.layers):
            step.compute(2.0)
            handle = step.group.allreduce(step.exchange())
            step.compute(0.5)
            handle.wait()
            reduced.append(step.group._reduce_scatter_base(step.exchange()))

    step.in_backward(backward)
    for work in reduced:
        work.wait()


def deepspeed(step: Step) -> None:
    """ZeRO-3: gathers and reductions on streams of their own, the last of which the host awaits."""
    device, model = step.device, step.model
    gather, reduce = step.side("allgather"), step.side("reduce and partition")

    def fetched() -> None:
        with device.on(gather):
            handle = step.group._allgather_base(step.exchange())
            handle.wait()
        device.stream().wait_stream(gather)

    def backward() -> None:
        for _ in range(model.layers):
            fetched()
            step.compute(2.0)
            reduce.wait_stream(device.stream())
            with device.on(reduce):
                step.group._reduce_scatter_base(step.exchange(), False)

    step.batch()
    for _ in range(model.layers):
        fetched()
        step.compute()
    step.in_backward(backward)
    reduce.synchronize()


def replicated(step: Step) -> None:
    """DistributedDataParallel: its reducer, in C++, launches buckets and waits for them at the end.

    A Work of the program's own is waited for beside.
    """
    device = step.device
    step.batch()
    for _ in range(step.model.layers):
        step.compute()

    def backward() -> None:
        buckets = []
        for _ in range(step.model.layers):
            step.compute(2.0)
            step.rank.launched += 1
            buckets.append(device.collective(step.rank.channel, step.exchange()))
        step.rank.callbacks.append(lambda: [device.stream().await_event(one) for one in buckets])

    step.in_backward(backward)
    step.group.allreduce(step.exchange()).wait()


SCHEDULES: Mapping[str, Callable[[Step], None]] = {
    "fsdp1": fully_sharded,
    "fsdp2": fully_shard,
    "tensor parallel": tensor_parallel,
    "pipeline": pipeline,
    "megatron": megatron,
    "deepspeed": deepspeed,
    "ddp": replicated,
}
"""What one step of each kind of job does."""
