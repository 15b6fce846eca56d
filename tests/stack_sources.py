"""What a scraped stack's agent and Prometheus read: Kubernetes, training processes, logs."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from failed_jobs import agent_end, traceback
from nccl_job_text import start
from pod_json import uid
from rankscope_agent.contract.model import FLAG_CPU_WAIT
from rankscope_agent.sources.kernel_log.kmsg import READ_BYTES
from rankscope_agent.sources.training.spans import AFTER_SIGTERM
from ring_writer import ExtensionWriter, RingWriter, SignalWriter, SpanWriter

NODE = "test-node"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
JOB = "team/job"
CANARY = "team/rankscope-canary"
STEP_NS = 142_000_000
KUBERNETES = ("kube_pod_container_status_restarts_total", "kube_node_status_condition")
"""By the names that kube-state-metrics documents."""

FUSE = "juicefs_fuse_ops_durations_histogram_seconds"
VOLUMES = (
    "kube_pod_spec_volumes_persistentvolumeclaims_info",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
)
OTHERS = {*KUBERNETES, *VOLUMES, f"{FUSE}_sum", f"{FUSE}_count"}
"""The only series that are not ours."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast things happen: at once for tests, as in life for whoever looks on.

    Args:
        slow_from: step from which rank 2 computes longer, counting 120 steps before the start.
        uneven: whether steps differ in length, each fiftieth being a long one.
        growth_seconds: how often logs get new lines of what goes wrong.
        restart_seconds: how often a container restarts.
        scrape_seconds: how often Prometheus scrapes.
        failures: checkpoints that fail in a row, before twice as many succeed.
    """

    slow_from: int = 60
    uneven: bool = False
    growth_seconds: float = 0.5
    restart_seconds: float = 1.0
    scrape_seconds: int = 1
    failures: int = 1


class _Kubernetes(BaseHTTPRequestHandler):
    begin = 0.0
    restart_seconds = 1.0

    def do_GET(self) -> None:
        restarts, condition = KUBERNETES
        number = int((time.monotonic() - self.begin) / self.restart_seconds)
        lines = (
            f'{restarts}{{namespace="team",pod="train-0",container="main"}} {number}',
            f'{condition}{{node="{NODE}",condition="Ready",status="true"}} 1',
            f'{condition}{{node="gpu-09",condition="Ready",status="true"}} 0',
        )
        body = "".join(f"{line}\n" for line in (*lines, *_storage(number))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _storage(number: int) -> Iterator[str]:
    """Yield what a mount of JuiceFS and a volume of the first pod tell, the later the more."""
    mount = f'{{node="{NODE}",vol_name="shared",mp="/jfs"}}'
    yield f"{FUSE}_count{mount} {number * 40}"
    yield f"{FUSE}_sum{mount} {number * 0.2}"
    claims, available, capacity = VOLUMES
    claim = 'namespace="team",persistentvolumeclaim="checkpoints"'
    yield f'{claims}{{{claim},pod="train-0"}} 1'
    yield f'{available}{{{claim},node="{NODE}"}} {4e11 - number * 1e9}'
    yield f'{capacity}{{{claim},node="{NODE}"}} 1e12'


@contextlib.contextmanager
def kubernetes(restart_seconds: float) -> Iterator[str]:
    state = {"begin": time.monotonic(), "restart_seconds": restart_seconds}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kubernetes", (_Kubernetes,), state))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Training:
    """Four ranks that train, rank 2 of them slowly after a while; and a job that lost a rank.

    A canary in the fifth pod does as the four ranks do.

    Args:
        kubelet: its directory; the first job is of the first pod, the other of the second.
    """

    def __init__(self, kubelet: Path, pace: Pace) -> None:
        self.pace = pace
        self.next_ns = self.begin = time.time_ns() - 120 * STEP_NS
        self.number = 0
        folders = [_volume(kubelet, number) for number in (1, 2, 5)]
        self.extensions = [self._extension(folders[0], rank) for rank in range(4)]
        self.spans = SpanWriter(folders[0], "1-1.span", created_unix_ns=self.begin)
        self.reported = SignalWriter(folders[0], "1-1.sig", created_unix_ns=self.begin)
        self.checkpoints = 0
        self.ranks = [self._ring(folders[0], rank, JOB, 4) for rank in range(4)]
        self.canary = [self._ring(folders[2], rank, CANARY, 4) for rank in range(4)]
        self.other = [self._ring(folders[1], rank, "team/broken", 2) for rank in range(2)]
        self.catch_up()
        self.other.pop().end()

    def _ring(self, folder: Path, rank: int, job: str, size: int) -> RingWriter:
        name = f"{rank + {JOB: 1, CANARY: 200}.get(job, 100)}-1.ring"
        place = {"rank": rank, "local_rank": rank, "world_size": size, "local_world_size": size}
        made = {"capacity": 4096, "created_unix_ns": self.begin}
        return RingWriter(folder, name, job_id=job, node=NODE, **place, **made)

    def _extension(self, folder: Path, rank: int) -> ExtensionWriter:
        made = {"capacity": 4096, "created_unix_ns": self.begin}
        return ExtensionWriter(folder, f"{rank + 1}-1.ext", **made)

    def _length_ns(self) -> int:
        if not self.pace.uneven:
            return STEP_NS
        wave = 6 * math.sin(self.number / 9) + 4 * math.sin(self.number * 2.4)
        long = 150 if self.number % 50 == 0 else 0
        slow = 40 if self.number >= self.pace.slow_from else 0
        return int((102 + wave + long + slow) * 1e6)

    def _step(self, length_ns: int) -> None:
        at = {"start_unix_ns": self.next_ns, "step_ns": length_ns}
        data_ns, sync_ns = 10_000_000, 30_000_000
        for rank, writer in enumerate(self.ranks):
            waits = self.number >= self.pace.slow_from and rank != 2
            sync = sync_ns + (40_000_000 if waits else 0)
            compute_ns = length_ns - data_ns - sync
            flags = 2 | FLAG_CPU_WAIT
            self.extensions[rank].write(writer.seq + 1, other_ns=min(10_000_000, compute_ns))
            parts = {"data_ns": data_ns, "compute_ns": compute_ns, "sync_ns": sync}
            writer.step(**at, **parts, flags=flags)
            self.canary[rank].step(**at, **parts)
        for writer in self.other:
            writer.step(**at)
        if self.number % 25 == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Rank 0 writes one in 5 ms and loads it, and saves as after SIGTERM; a third fails.

        Then it reports its losses.
        """
        self.checkpoints += 1
        outcome = 1 if self.checkpoints // self.pace.failures % 3 else 2
        for place, (kind, flags) in enumerate(((1, 0), (2, 0), (1, AFTER_SIGTERM)), start=1):
            number = 3 * (self.checkpoints - 1) + place
            span = {"start_ns": self.next_ns, "duration_ns": 5_000_000, "outcome": outcome}
            self.spans.write(number, kind, flags=flags, step=self.number, **span)
        level, times = 2.0 + 1 / self.checkpoints, float(self.checkpoints)
        store = {11: 4e11 - 1e9 * times, 12: 1e12, 13: times}
        learning = {5: 3e-4 / times, 7: 25 * 4096 * times, 15: 6e9}
        learning |= {
            24: times / 8,
            18: 70.0,
            19: 1.0,
            20: float(0xDEADBEEF),
        }  # losses cease to be numbers
        reported = {1: level, 2: 25 * times, 3: times // 3, 4: level, 6: times // 3}
        self.reported.write({**reported, **store, **learning}, unix_ns=self.next_ns)

    def catch_up(self) -> None:
        """Write the steps that ended since."""
        while self.next_ns + (length_ns := self._length_ns()) < time.time_ns():
            self._step(length_ns)
            self.next_ns += length_ns
            self.number += 1

    def end(self) -> None:
        """Let go of the rings."""
        for writer in [*self.ranks, *self.canary, *self.other]:
            writer.end()


def _volume(kubelet: Path, number: int) -> Path:
    """Make the volume of a pod in which its probes write."""
    made = kubelet / "pods" / uid(number) / "volumes" / "kubernetes.io~empty-dir" / "rankscope"
    made.mkdir(parents=True)
    return made


class Logs:
    """Logs of pods, one of which has failed, Inspector's file, the kernel's log; they grow."""

    def __init__(self, folder: Path) -> None:
        self.nccl = folder / "logs" / "team_train-0_uid-1" / "main" / "0.log"
        self.inspector = folder / "inspector" / "nccl-inspector-7" / "test-node-pid4711.log"
        self.kernel = folder / "kmsg"
        self.debugfs = folder / "debugfs"
        self.client = self.debugfs / "lustre" / "llite" / "scratch-ffff8ba123456000" / "stats"
        crashed = folder / "logs" / f"team_crashed-3_{uid(4)}" / "main" / "0.log"
        for path in (self.nccl, self.inspector, crashed, self.client):
            path.parent.mkdir(parents=True)
        crashed.write_text(
            "".join(
                f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ} stderr F {line}\n"
                for line in (traceback(3, OUT_OF_MEMORY) + agent_end(3, 1)).splitlines()
            )
        )
        self.number = 0
        self._say(start(3, 16, "NET/Socket/0", network="Socket"))
        self.records = self.failures = self.reads = 0
        self.read()
        self._record("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05")

    def _say(self, text: str) -> None:
        with self.nccl.open("a") as log:
            for line in text.splitlines():
                log.write(f"2026-11-21T02:14:00.123456789Z stdout F {line}\n")

    def _record(self, text: str) -> None:
        # Each read of the device gives one record, whatever its length.
        self.records += 1
        with self.kernel.open("ab") as log:
            line = f"4,{self.records},{time.monotonic_ns() // 1000},-;{text}\n"
            log.write(line.encode().ljust(READ_BYTES, b"\n"))

    def _iteration(self) -> None:
        # As Megatron-LM prints it: a loss that falls and levels off.
        number, loss = self.number * 10, 2 + 8 / math.sqrt(self.number)
        self._say(
            f" iteration {number:8d}/  500000 | consumed samples: {number * 256:12d} |"
            " elapsed time per iteration (ms): 142.0 | throughput per GPU (TFLOP/s/GPU): 401.5 |"
            f" learning rate: 3.000000E-05 | global batch size: 256 | lm loss: {loss:.6E} |"
            " loss scale: 1.0 | grad norm: 0.812 | number of skipped iterations: 0 |"
            " number of nan iterations: 0 |"
        )
        self._say(
            f"[titan] 2026-11-23 04:00:00,123 - root - INFO - step: {number:2}  loss: {loss:8.5f}"
            "  grad_norm:  1.2000  memory: 20.11GiB(25.40%)  tps: 3,456  tflops: 112.50"
            "  mfu: 35.10%"
        )
        self._say(
            "{'train_runtime': 60.5, 'train_samples_per_second': 12.5, 'train_tokens_per_second':"
            " 25600.0, 'train_loss': 1.2, 'epoch': 1.0}"
        )

    def train(self) -> None:
        """Add a line about steps and a collective."""
        self.number += 1
        self._iteration()
        header = {"id": "0x9e", "comm_name": "x", "rank": 3, "n_ranks": 16, "nnodes": 2}
        metadata = {"inspector_output_format_version": "v4.2", "git_rev": "", "pid": 4711}
        metadata |= {"rec_mechanism": "nccl_profiler_interface", "hostname": NODE}
        metadata["dump_timestamp_us"] = time.time_ns() // 1000
        done = {"coll": "AllReduce", "coll_algo": "RING", "coll_proto": "SIMPLE"}
        done |= {"coll_sn": self.number, "coll_msg_size_bytes": 1 << 24, "coll_exec_time_us": 619}
        done |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 27.0}
        done |= {"coll_busbw_gbs": 51.0}
        with self.inspector.open("a") as log:
            line = {"header": header, "metadata": metadata, "coll_perf": done}
            log.write(json.dumps(line) + "\n")

    def read(self) -> None:
        """Have a client of Lustre read a megabyte for 4 ms."""
        self.reads += 1
        self.client.write_text(
            f"read_bytes {self.reads} samples [bytes] 4096 1048576 {self.reads << 20}\n"
            f"read {self.reads} samples [usecs] 20 9000 {self.reads * 4000} 99999\n"
        )

    def fail(self) -> None:
        """Add a warning and an error of the kernel; the first time an Xid, too."""
        self._say("gpu-00:4003:4073 [3] x.cc:1 NCCL WARN Cuda failure 2 'out of memory'")
        if self.failures == 0:
            self._record("NVRM: Xid (PCI:0000:3b:00): 48, pid=71, name=trainer, DBE")
            group = f"/kubepods/burstable/pod{uid(1)}"
            limit = f"oom_memcg={group},task_memcg={group}/main,task=pt_data_worker,pid=72,uid=0"
            self._record(f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),{limit}")
            self._record("Memory cgroup out of memory: Killed process 72 (pt_data_worker)")
            self._record("rdma_rxe: qp#17 moved to error state")
        self.failures += 1
        self._record("INFO: task python:4711 blocked for more than 120 seconds.")
