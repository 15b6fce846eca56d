"""Record how long each optimizer step of a PyTorch process took, and where the time went.

torch >= 2.5 calls `_autoload` at the end of `import torch` when this folder is on PYTHONPATH; with
older ones call `watch()` once, before training. One record per step goes to a ring file that the
node's agent reads, in RANKSCOPE_RING_DIR (default /run/rankscope; keep it on tmpfs or in a Memory
emptyDir: what waits for a disk waits in the training loop). RANKSCOPE_PROBE=0 switches the probe
off, RANKSCOPE_PROBE_COLLECTIVES=0 its timing of blocked calls on gloo. In jobs of several processes
a worker server of torch's listens on `<ring's name>.sock` beside the ring from the end of
`init_process_group` on, where the agent fetches the Flight Recorder, and the stack of a rank that
stands still; RANKSCOPE_PROBE_FLIGHT=0 keeps it from being started.
RANKSCOPE_PROBE_STREAM_WAITS=1 times, in sampled steps, what the training stream waits for on CUDA.
RANKSCOPE_PROBE_DURATIONS=1 asks NCCL to time collectives, see `time_collectives`.
RANKSCOPE_PROBE_DEBUG=1 prints every error of ours with its traceback, otherwise one gets a line.

A step ends when `step()` of the primary optimizer returns; there the next one begins. Primary is
the optimizer that steps first. Called again with other parameters (DeepSpeed's sub-groups) it is
still in that step, until those it began with come round. The first call (step 0) leaves no record,
as its beginning was not seen. A GradScaler update with no step before it ends a step too: SKIPPED.
A program that joins others, or computes gradients for ten seconds, and takes no step gets a small
ring without records, so that it is seen; its first step makes another one.

* data: blocked in torch's DataLoader with gradients enabled; -1 while none was used so far.
* sync: blocked in collectives on gloo: in `Work.wait()` and its like, and at the end of a backward,
  where DistributedDataParallel waits for its buckets. Not what runs beside the backward. With CUDA,
  in jobs that only DistributedDataParallel makes wait, the device's wait at that place, by CUDA
  events; by request what the training stream waits for its peers anywhere, in sampled steps, see
  `_StreamWaits`. 0 in a job of one process, -1 everywhere else.
* other: what comes after a step's last backward (gradient clipping, optimizers) and, with a
  DataLoader, what comes before its first batch (logging, evaluation, checkpoints). A batch that is
  fetched when the autograd graph has grown since the step began is not its first, and what comes
  before a collective there is computing: the other ranks wait for it. Where
  no backward is seen, as engines that are called directly hide it, gradients are ready when an
  optimizer begins to step. On the CPU only, elsewhere -1: a host that waits for a device there
  tells nothing. Without a loader nothing cheap tells where the forward begins, so that what comes
  before it stays in compute.
* compute: all the rest; -1 where sync is -1.
Where flags have 64, the others hold no time in which the training thread was ready to run and
waited for a CPU: on gloo, what they and sync leave of the step is that wait, by schedstat.

The ring, version 1: `<pid>-<process_start_ticks>.ring`, made under a name with a leading dot and
renamed. A program that took over from another by exec finds that taken and takes the next number.
Little-endian. A header of 4096 bytes, zero padded: "<8sHHIIIqIIQiiii" =
  magic "RKSCRING", version 1, header_size 4096, byte_order_mark 0x01020304, record_size 64,
  capacity 65536 (records; 64 before the first step), created_unix_ns, pid, attempt,
  process_start_ticks (field 22 of /proc/self/stat, 0 unknown), rank, local_rank, world_size,
  local_world_size (-1 unknown),
then NUL-padded UTF-8: job_id 320 bytes, node 256, launcher 32, pod_uid 64, probe_version 16,
torch_version 32, then "<IIII": dp_group, tp_group and pp_stage, each plus 1, or three zeros where
no process group tells them (readers then take all ranks as data-parallel), see `_layout`; and the
number of TorchFT's replica groups, over all of which ranks are numbered, see `_replica_group`.
Behind the header `capacity` records of 64 bytes, "<QqqqqqIIHHI" =
  seq (from 1; in slot (seq - 1) % capacity), start_unix_ns, step_ns, data_ns, compute_ns, sync_ns
  (-1 not measured), step, samples (0xFFFFFFFF unknown), flags, attempt, check (seq & 0xFFFFFFFF).
compute_ns holds other too, as it did before there were extensions. A slot of zeros is empty. With
CUDA events a record comes once the device has passed the step, at most 8 steps late. The writer
holds flock(LOCK_EX) while it lives. flags: bits 0-1 timing source (0 none, 2 wall), 4 optimizer
closure, 8 update skipped by the scaler, 16 batches fetched without gradients, 32 first of the
process, 64 waits for a CPU left out of data and compute, 128 of a process that times some of its
steps only; bits 8-11 why such a sample was given up: 1 no wait in it, 2 a wait or collective that
Python does not see, 3 no event left, 4 a graph under capture, 5 the device 8 steps behind, 6 waits
of unknown origin, 7 an error.

Its extension, version 1, is a file of its own, as agents before it refuse a ring that is longer:
the ring's name with `.ext` for `.ring`, there before the ring. Its first 64 bytes are, zero padded,
"<8sHHIIqI" = magic "RKSCEXTN", version 1, slot_size 64, byte_order_mark, capacity, and of its ring
created_unix_ns and pid; then `capacity` slots, "<QqqqqqqHHI" =
  seq, other_ns, cpu_wait_ns, checkpoint_ns, evaluation_ns, copies_ns, host_late_ns (-1 not
  measured), microbatches (backward passes of the step, 0xFFFF unknown), loader, check.
Of other_ns, checkpoint_ns was spent in checkpoints and evaluation_ns in evaluations that have
spans; compile time is in other_ns too. Of compute_ns, the training stream stood copies_ns at copies
of other streams, and had nothing queued for host_late_ns at most, input left out. loader is how
long the DataLoader's worker processes, side by side, need for the batches of a step: milliseconds
as a half-precision float (IEEE 754 binary16), 0 unknown, of the last second or so. Workers time
themselves, where they are forked.

Spans, version 1, are a third file, `.span` for `.ring`: what a process does beside steps. A header
as that of the extension, but for magic "RKSCSPAN" and capacity 1024, then slots "<QqqqqIIHBBIII" =
  seq (from 1, in slot (seq - 1) % capacity), start_unix_ns, duration_ns (-1 while it is open),
  blocked_ns (of the training thread's step, -1 unknown), bytes (-1 unknown), step (the last one
  that ended before), target (CRC-32 of the path, 0 unknown), flags, kind, outcome, 0, 0, check
  (4 * seq + outcome, & 0xFFFFFFFF).
kind: 1 checkpoint saved, 2 loaded, 3 staged (what `async_save` holds training up with), 4
evaluation, 5 compiling, 6 joining others (`init_process_group`). outcome: 0 open, 1 done, 2 failed.
flags: 1 in a thread beside training, 2 after SIGTERM came to a handler of the program, 4 into
memory, 8 one file that no other rank should write, 16 there was no file to load. A slot is written
when a span begins, again when it ends, and once more when a thread beside training knows its bytes:
an open one whose writer is gone was cut off. Spans from before the ring, which comes with the first
steps, are written when it is made, the newest 64. One in another is part of it. What is marked:
`torch.save` and `torch.load`, but not to read samples, `save`, `load` and `async_save` of
torch.distributed.checkpoint, the savers in `_SAVERS`, loops over a DataLoader without gradients,
what torch.compile compiles, and `init_process_group`. Not marked: checkpoints that another process
writes (`AsyncCheckpointerType.PROCESS`) and that go through none of these, as safetensors' do.

Signals, version 1, are a fourth file, `.sig` for `.ring`: what training says of itself, as it is
now. A header as that of the extension, but for magic "RKSCSIGN" and capacity 32, then slots
"<QqdqII24x" = seq (times that the table was written, 0 for what is not known), unix_ns (when the
value changed), value, step (the last one that had ended then), kind (the slot's number, from 1),
check (seq + kind, & 0xFFFFFFFF). kind: 1 newest loss, NaN as it is, 2 losses that were given, 3
of them not finite, 4 the loss with spikes cut off, an average of the last twenty or so, 5 learning
rate of the primary optimizer's first group, 6 updates that a GradScaler skipped, 7 tokens, 8
parameters that this rank's primary optimizer updates, 9 loader workers that died, 10 times that
CUDA's memory was exhausted, 11 free and 12 all bytes of the file system of the newest checkpoint,
13 checkpoints of its kind that lie beside it, 14 this rank's part of the model's parameters, such
that all ranks' parts add up to each parameter once, see `parameters_once`; by `model` 15 FLOPs for
a token, 16 for a sample, 17 the type of numbers that is computed with: 1 fp32, 2 tf32, 3 fp16, 4
bf16, 5 fp8, 6 fp4; 18 step of the first loss that was not finite since one was, 19 files that the
program said it came from, 20 to 23 CRC-32s of the names of up to four, see `shards`; 24 epochs
that training has made. Counts are of the process. The table is written once a second at the end of
a step, sooner after 3, 9 and 10. Losses, epochs and tokens are there where the program hands them
over, by `loss`, `epoch`, `step` or a callback.

After creation each record costs one pwrite. Slots come up to a second after their records, those of
several steps in one pwrite; in steps longer than that they come first. A process that is killed, or
whose next step never ends, leaves its last slots empty: what they would say is unknown, not zero.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import errno
import functools
import hashlib
import itertools
import os
import re
import signal
import stat
import struct
import sys
import threading
import time
import traceback
import weakref
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Callable

__version__ = "0.1.0"

_CAPACITY = 65536  # 1.8 hours at ten steps a second, the fastest loop worth a post-mortem; 4 MiB
_STEPLESS_CAPACITY = 64  # of a ring that gets no records
_HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32sIIII3296x")  # one page
_RECORD = struct.Struct("<QqqqqqIIHHI")
_EXTENSION_HEADER = struct.Struct("<8sHHIIqI32x")
_EXTENSION = struct.Struct("<Qqq32sII")  # what is not measured so far in one piece: it is quicker
_FOUR = struct.Struct("<4q")  # checkpoint, evaluation, copies, host lateness
_NO_MARKS = _FOUR.pack(0, 0, -1, -1)
_SPAN = struct.Struct("<QqqqqIIHBBIII")
_SIGNAL = struct.Struct("<QqdqII24x")
_SLOT = 64  # bytes of a record, and of what extends it

_TIMING_NONE, _TIMING_WALL = 0, 2
_CLOSURE, _SKIPPED, _EVALUATION, _FIRST, _CPU_WAIT = 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
_SAMPLED, _UNTIMED = 1 << 7, 8  # flag, and the first of the four bits that say why
_UNKNOWN_SAMPLES = 0xFFFFFFFF
_SIZE_UNKNOWN = -(1 << 40)  # keeps a step's sum negative whatever the other batches add
_MAX_ERRORS = 100  # a hook that failed this often will fail for ever: stop trying
_ADOPT_AFTER = 8  # more calls than a GAN's usual 5 critic steps: then the old primary is gone
_LOOKS = 8  # items looked at for a batch's first tensor; collated batches have it in the first two
_STALE_SECONDS = 24 * 3600  # long enough to read a ring after a night's crash
_LOADED = ".loaded"  # there since a rank of a job has loaded the probe, in the directory of rings
_STALE_LOOKS = 4096  # names: bounds what a crowded directory costs, some milliseconds
_KEPT_RINGS = 16  # two attempts of eight ranks, 128 MiB: a crash loop must not fill a tmpfs
_UNKNOWN_MICROBATCHES = 0xFFFF
_WORKER = struct.Struct("<QQ")  # batches that a loader's worker has made, nanoseconds that it took
_WORKER_SLOTS = 512  # in use at once; 8 KiB
_WORKERS_LOOK_NS = 1_000_000_000
_HALF, _WORD = struct.Struct("<e"), struct.Struct("<H")
_LARGEST_HALF = 65504.0
_LATE_NS = 1_000_000_000  # a slot of the extension may come so long after its record, with others
_PENDING_STEPS = 8  # that the host runs ahead of the device; more than frameworks queue
_MAX_WAITS = 64  # backwards of one step whose ends are timed: more micro-batches are rare
_BUDGET = 0.001  # of all seconds may be spent on timing what streams wait for
_FIRST_INTERVAL, _MAX_INTERVAL = 8, 1 << 16  # steps; powers of two, see `_StreamWaits`
_MAX_EVENTS = 4096  # of one process: 1,000 waits in each of two steps that are on their way
_UNKNOWN_SHARE = 0.01  # of a step may be waits for who knows what: half of what is promised
_MAX_FAILURES = 3  # of CUDA, then it is not asked again
_SOCKET_PATH = 107  # bytes that the kernel takes (sun_path in unix(7), less its NUL)
_HIGH_FD = 512  # out of the way of descriptors that a program closes and reuses by number
_SIGXFSZ, _IGNORED = int(getattr(signal, "SIGXFSZ", 0)), int(signal.SIG_IGN)
_STEPLESS_NS, _STEPLESS_BACKWARDS = 10_000_000_000, 16  # so many, so long: then no step will come
_SIGNALS, _SIGNAL_NS = 32, 1_000_000_000
_SPANS = 1024  # a day of checkpoints every two minutes, with some evaluations; 64 KiB
_EARLY_SPANS = 64  # kept until there is a ring
_MAX_SHARDS = 64  # files of one rank in one checkpoint whose sizes are asked for
_SAVE, _LOAD, _STAGE, _EVALUATE, _COMPILE, _JOIN = 1, 2, 3, 4, 5, 6
_OPEN, _DONE, _FAILED = 0, 1, 2
_BESIDE, _TERMINATING, _IN_MEMORY, _ONE_FILE, _NOT_THERE = 1, 2, 4, 8, 16
_LOSS, _LOSSES, _NOT_FINITE, _LEVEL, _RATE, _SKIPS, _TOKENS = range(1, 8)
_PARAMETERS, _DEAD_WORKERS, _CUDA_FULL, _FREE, _SPACE, _KEPT = range(8, 14)
_ONCE, _TOKEN_FLOPS, _SAMPLE_FLOPS, _NUMBERS = range(14, 18)
_BAD_SINCE, _BAD_SHARDS, _BAD_SHARD = range(18, 21)  # the last: of the first of _MAX_NAMED
_EPOCH = 24
_MAX_NAMED = 4  # shards of a loss; more of them say too little
_TYPES = {"fp32": 1, "float32": 1, "tf32": 2, "fp16": 3, "float16": 3, "half": 3, "bf16": 4}
_TYPES.update({"bfloat16": 4, "fp8": 5, "float8": 5, "fp4": 6})
_FLOPS_PER_PARAMETER = 6  # forward 2, backward 4 (arXiv:2001.08361, section 2.1)
_LOSSES_BEFORE = 4  # that set the level at which spikes are told
_LEVEL_LOSSES, _SPIKE = 20, 3.0  # that the level is an average of; times the usual distance
_PENDING_LOSSES = 8  # on their way from a device
_WORKERS = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
_LOOK_AGAIN_NS = 5_000_000_000  # a store is looked at after a checkpoint, so often at most
_REQUESTS = 16  # checkpoints that wait for a file system to answer
_EXIT_SECONDS = 0.1  # that the end of the process waits for it
_SIBLINGS = 4096  # names of a directory that are looked at
_NUMBER = re.compile(r"(?i)((?:rank|shard|part|of)[-_=]?)?\d+(?:\.\d+)?")
_OF_STEP = re.compile(r"(?i)(step|iter|iteration|checkpoint|ckpt|epoch)s?[-_=]?\d+")
_MAX_RINGS = 3  # of one process: a program that closes all descriptors over and over gets no more
_LOOK_NS = 3_000_000  # waits for another program last its turn (3 ms)
_IDLE_NS = 500_000  # less than that off the CPU holds no such wait; schedstat costs 5 to 40 us
_CALM_NS = 100_000_000  # between reads of schedstat while the thread is off the CPU in sync alone
_WARY_NS = 1_000_000_000  # after it was so elsewhere: then each wait counts as what it is
_NEVER_NS = 1 << 62  # the time of the last look where there is nothing to look at

# A gloo thread that lets go of a finished collective takes the interpreter's lock, to drop what
# torch keeps of the caller (in torch 2.13: `~AsyncAllreduceWork`, `~ThreadLocalState`). If it comes
# for that during the exit, it aborts the process: 5 of 24 short jobs on a loaded machine ended so
# without this probe, 10 of 32 with its hooks, none of 16 with a pause before the exit. If it comes
# while the process group is destroyed under that lock, which waits for gloo's threads, both wait
# for ever: 9 of 65 such jobs hung.
_SETTLE_SECONDS = 0.1

# What blocks by itself. Other collectives are waited for in Python, or at the end of a backward.
_BLOCKING = ("c10d::monitored_barrier_", "_c10d_functional::wait_tensor")

# What runs collectives, of torch's ProcessGroup: all that is called in Python ends here.
_COLLECTIVES = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter", "barrier"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    *("alltoall", "alltoall_base", "send", "recv", "recv_anysource", "_end_coalescing"),
    *("all_gather_single", "all_gather_single_coalesced", "all_to_all_single"),  # torch 2.13
    *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
)
# Libraries whose streams wait for peers by themselves: a module, and what of it is set then.
_UNSEEN = (
    ("deep_ep", ""),
    ("nvshmem", ""),
    ("transformer_engine.pytorch.module.base", "_ub_communicators"),
    ("torch.distributed._symmetric_memory", "_group_name_to_workspace_tensor"),
)
# What a wait is for, and why a sample is not to be had.
_SYNC, _COPIES, _UNKNOWN, _END = 0, 1, 2, 3
_NO_WAIT, _UNSEEN_PATH, _POOL_DRY, _CAPTURE, _TOO_LATE, _UNKNOWN_WAITS, _BROKEN = range(1, 8)

# Savers of frameworks, which do more than they leave to torch: module, class or none, function, its
# kind. They are there by the first step, or not at all. Where they save is where they call torch.
_SAVERS = (
    ("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint", _SAVE),
    ("pytorch_lightning.trainer.trainer", "Trainer", "save_checkpoint", _SAVE),
    ("transformers.trainer", "Trainer", "_save_checkpoint", _SAVE),
    ("accelerate.accelerator", "Accelerator", "save_state", _SAVE),
    ("accelerate.accelerator", "Accelerator", "load_state", _LOAD),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_checkpoint", _SAVE),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "load_checkpoint", _LOAD),
    ("megatron.training.checkpointing", "", "save_checkpoint", _SAVE),
    ("megatron.training.training", "", "save_checkpoint", _SAVE),  # a name of the same function
)
_PHASES = {"checkpoint": _SAVE, "load": _LOAD, "evaluation": _EVALUATE, "compile": _COMPILE}
_DCP_LOGGER = "c10d-NullHandler-dcp_logger"  # through which DCP says what begins and ends
_DCP_KINDS = {"save": _SAVE, "load": _LOAD, "async_save": _STAGE}

# The first variable that is set wins. SLURM_NTASKS is not asked: it is set in a batch script too,
# where a single process runs; likewise JOB_COMPLETION_INDEX numbers pods, see `_identity`.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_LAUNCHERS = (
    ("TORCHELASTIC_RUN_ID", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "mpi"),
    ("PMIX_RANK", "mpi"),
    ("PMI_RANK", "mpi"),
    ("SLURM_STEP_NUM_TASKS", "slurm"),
    ("JOB_COMPLETION_INDEX", "kubernetes"),
    ("RANK", "environment"),
)
# Process groups of the ranks that share a layer, and of those that share a pipeline: names of
# DeviceMesh dimensions (which become descriptions "mesh_<name>"), and Megatron-LM's descriptions.
_TENSOR_GROUPS = ("tp", "tensor", "tensor_parallel", "tensor_model_parallel_group")
_PIPELINE_GROUPS = ("pp", "pipeline", "pipeline_parallel", "pipeline_model_parallel_group")
_NO_LAYOUT = (0, 0, 0)
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._/:@-]")  # readers refuse a ring with other characters


def _first_number(names: tuple[str, ...]) -> int:
    """Return the first of these variables that holds a number of up to 9 digits; -1 if none."""
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal() and len(text) < 10), -1)


def _label(text: str, size: int) -> bytes:
    """Return `text` in the characters that readers accept, cut to a field of `size` bytes."""
    return _NOT_IN_LABELS.sub("_", text[: size - 1]).encode()


def _job_id(world_size: int) -> str:
    """Name the job as all its ranks do: as its launcher calls it, else by where they meet."""
    for name in ("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(name, "")
        if value and (name, value) != ("TORCHELASTIC_RUN_ID", "none"):
            return value
    meeting = "{}:{}".format(os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
    if meeting == ":":  # ranks that a script spawned by itself share their parent
        meeting = os.uname().nodename + str(os.getpid() if world_size == 1 else os.getppid())
    return "local/" + hashlib.sha256(meeting.encode()).hexdigest()[:8]


def _replica_group() -> tuple[int, int]:
    """Return which of TorchFT's replica groups this process is of, and of how many; 0 of 1 without.

    Each group has a launcher and a world of its own, and ranks from 0 on; the job is all of them.
    """
    group, groups = _first_number(("REPLICA_GROUP_ID",)), _first_number(("NUM_REPLICA_GROUPS",))
    return (group, groups) if 0 <= group < groups else (0, 1)


def _of_all_groups(rank: int, size: int) -> tuple[int, int]:
    """Return rank and world size over all replica groups, of those within one; -1 unknown."""
    group, groups = _replica_group()
    if min(rank, size) >= 0:
        rank += group * size
    return rank, size * groups if size > 0 else size


def _identity(distributed: Any) -> tuple[int, int, int, int]:
    """Return rank, local rank, world size, local world size; -1 unknown, None uninitialised."""
    local_rank, local_size = _first_number(_LOCAL_RANK), _first_number(_LOCAL_WORLD_SIZE)
    if distributed is not None:
        rank, world_size = _of_all_groups(distributed.get_rank(), distributed.get_world_size())
        return rank, local_rank, world_size, local_size
    rank, world_size = _of_all_groups(_first_number(_RANK), _first_number(_WORLD_SIZE))
    if rank < 0 and local_rank < 0 and local_size <= 1:
        rank = _first_number(("JOB_COMPLETION_INDEX",))  # of the pod: its rank if it runs one
    if (rank, local_rank, world_size) == (-1, -1, -1):
        return 0, 0, 1, 1
    return rank, local_rank, world_size, local_size


def _layout(rank: int, world_size: int, tensor: list[int], pipeline: list[int]) -> tuple[int, ...]:
    """Return dp_group, tp_group and pp_stage of a rank, each plus 1; zeros where ranks are no grid.

    Ranks that differ in neither tensor index t nor stage p reduce one gradient shard, whatever else
    the job splits: dp_group = p * TP + t. With d counting those ranks, tp_group = p * DP + d.
    """
    axes = []
    for ranks in (sorted(tensor) or [rank], sorted(pipeline) or [rank]):
        stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        index = rank // stride % len(ranks)
        if ranks != [rank + (i - index) * stride for i in range(len(ranks))]:
            return _NO_LAYOUT
        axes.append((index, len(ranks), stride))
    (t, tp, t_stride), (p, pp, p_stride) = axes
    first = rank - t * t_stride - p * p_stride
    firsts = [r for r in range(world_size) if r // t_stride % tp == r // p_stride % pp == 0]
    if len(firsts) * tp * pp != world_size or first not in firsts:
        return _NO_LAYOUT
    return p * tp + t + 1, p * len(firsts) + firsts.index(first) + 1, p + 1


def _process_start_ticks() -> int:
    """Return when this process started, in clock ticks since boot; 0 if the kernel does not say."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _header(
    torch_version: str,
    distributed: Any,
    attempt: int,
    start_ticks: int,
    layout: tuple[int, ...],
    created_unix_ns: int,
    capacity: int,
) -> bytes:
    """Return the ring's first page."""
    environ, identity = os.environ, _identity(distributed)
    node = environ.get("RANKSCOPE_NODE_NAME") or environ.get("NODE_NAME") or os.uname().nodename
    launcher = next((word for name, word in _LAUNCHERS if environ.get(name)), "none")
    geometry = (b"RKSCRING", 1, _HEADER.size, 0x01020304, _RECORD.size, capacity)
    process = (created_unix_ns, os.getpid(), attempt, start_ticks)
    job, pod = _label(_job_id(identity[2]), 320), _label(environ.get("POD_UID", ""), 64)
    labels = (job, _label(node, 256), _label(launcher, 32), pod, _label(__version__, 16))
    texts = (*labels, torch_version.encode()[:31])
    return _HEADER.pack(*geometry, *process, *identity, *texts, *layout, _replica_group()[1])


class _LostError(OSError):
    """A descriptor of ours leads to nothing, or to what is not ours."""


class _Held:
    """A descriptor of ours, under a high number, and how to tell that the number still is ours.

    Programs close all descriptors, as daemons do and children before an exec, and what they open
    next may get the number: that is neither read, written to nor closed.
    """

    def __init__(self, low: int) -> None:
        import fcntl

        try:
            self.number = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        except OSError:  # RLIMIT_NOFILE is lower
            self.number = os.dup(low)
        finally:
            os.close(low)
        self.identity = self.look()

    def look(self) -> tuple[int, int]:
        """Return device and inode of what the number leads to now, zeros for nothing."""
        try:
            status = os.fstat(self.number)
        except OSError:
            return 0, 0
        return status.st_dev, status.st_ino

    def close(self) -> None:
        """Close what is ours."""
        if self.look() == self.identity:
            os.close(self.number)


class _Slots:
    """A file of slots, all its space taken at once, written by its own descriptor alone.

    The descriptor's offset, which `pwrite` neither needs nor moves, is set to a random number far
    behind the end: who finds it there has the file of that device and inode before him, for a third
    of what `fstat` takes. A mapping would need no descriptor, but a process that truncates the file
    would end the training by SIGBUS.
    """

    def __init__(self, path: str, header: bytes, capacity: int = _CAPACITY) -> None:
        self.path, self.first, self.capacity = path, len(header), capacity
        self.seek, self.put = os.lseek, os.pwrite
        # Without the conversion to an enumeration, which costs ten times as much.
        self.handler_of = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.held = _Held(os.open(path, flags))
        self.descriptor = self.held.number
        self.mark = 1 << 40 | int.from_bytes(os.urandom(5), "little")
        try:
            os.fchmod(self.descriptor, 0o644)  # whatever the umask: the agent may be another user
            size = self.first + capacity * _SLOT
            _check_limit(size)
            os.posix_fallocate(self.descriptor, 0, size)
            os.pwrite(self.descriptor, header, 0)
            os.lseek(self.descriptor, self.mark, os.SEEK_SET)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Delete the file, which has not been read so far."""
        self.held.close()
        os.unlink(self.path)

    def write(self, number: int, packed: bytes) -> None:
        """Put a record into its slot, or several into theirs; `number` counts from 0.

        Raises:
            _LostError: the program has closed the descriptor, or uses its number again.
            OSError: the file system or RLIMIT_FSIZE refuses.
        """
        place = self.first + number % self.capacity * _SLOT
        if self.handler_of(_SIGXFSZ) != _IGNORED:
            _check_limit(place + len(packed))
        descriptor = self.descriptor
        try:
            if self.seek(descriptor, 0, 1) != self.mark:  # 1: from where it stands
                raise OSError
        except OSError as error:  # closed, or a pipe or socket by now
            lost = "the program closed descriptor {}, {}".format(descriptor, self.path)
            raise _LostError(lost) from error
        self.put(descriptor, packed, place)


class _Ring:
    """This process's ring, locked for as long as its descriptor is open, and its extension."""

    def __init__(
        self,
        directory: str,
        torch_version: str,
        distributed: Any,
        attempt: int,
        layout: tuple[int, ...] = _NO_LAYOUT,
        capacity: int = _CAPACITY,
    ) -> None:
        import fcntl

        os.makedirs(directory, exist_ok=True)
        _remove_stale(directory)
        start_ticks = _process_start_ticks()
        number = start_ticks  # one more for a process that became another program, by exec
        while os.path.lexists(os.path.join(directory, "{}-{}.ring".format(os.getpid(), number))):
            number += 1
        name = "{}-{}.ring".format(os.getpid(), number)
        self.path = os.path.join(directory, name)
        self.attempt, self.written, created = attempt, 0, time.time_ns()
        self.pack, self.pack_slot = _RECORD.pack, _EXTENSION.pack
        self.waiting: list[bytes] = []  # slots of the extension
        self.waited_ns = 0  # how long their steps were
        page = _header(torch_version, distributed, attempt, start_ticks, layout, created, capacity)
        self.slots = _Slots(os.path.join(directory, "." + name), page, capacity)
        self.extension: _Slots | None = None
        self.spans: _Slots | None = None
        self.signals: _Slots | None = None
        self.refused: OSError | None = None  # why there is not all that lies beside
        try:
            fcntl.flock(self.slots.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.extend(created)
            os.rename(self.slots.path, self.path)
        except BaseException:
            self.remove()
            raise
        self.slots.path = self.path

    def extend(self, created_unix_ns: int) -> None:
        """Make what lies beside; where there is room for the ring alone, it goes on alone."""
        self.extension = self.beside("ext", b"RKSCEXTN", self.slots.capacity, created_unix_ns)
        if self.extension is not None:
            self.spans = self.beside("span", b"RKSCSPAN", _SPANS, created_unix_ns)
        if self.spans is not None:
            self.signals = self.beside("sig", b"RKSCSIGN", _SIGNALS, created_unix_ns)

    def beside(self, suffix: str, magic: bytes, capacity: int, created: int) -> _Slots | None:
        """Make a file of slots beside the ring; None where there is no room."""
        words = (magic, 1, _SLOT, 0x01020304, capacity, created, os.getpid())
        path = _beside(self.path, suffix)
        with contextlib.suppress(OSError):
            os.unlink(path)  # left by an earlier process of this number
        try:
            return _Slots(path, _EXTENSION_HEADER.pack(*words), capacity)
        except OSError as error:
            self.refused = error
            return None

    def files(self) -> Iterator[_Slots]:
        """Yield what was made of the files."""
        return filter(None, (self.slots, self.extension, self.spans, self.signals))

    def remove(self) -> None:
        """Delete the files, which hold no record so far."""
        for slots in self.files():
            slots.remove()

    def close(self) -> None:
        """Close what is ours of the descriptors, and leave the files."""
        for slots in self.files():
            slots.held.close()

    def write(
        self,
        begin_ns: int,
        step_ns: int,
        data_ns: int,
        compute_ns: int,
        sync_ns: int,
        step: int,
        samples: int,
        flags: int,
        other_ns: int,
        cpu_wait_ns: int,
        backwards: int,
        marks: bytes = _NO_MARKS,
    ) -> None:
        """Put the next record into its slot, and what extends it into its own, or aside for later.

        Raises:
            _LostError: the program has closed a descriptor, or uses its number again.
            OSError: the file system or RLIMIT_FSIZE refuses.
        """
        number = self.written
        self.written = seq = number + 1
        check = seq & 0xFFFFFFFF
        if self.extension is not None:
            slot = self.pack_slot(seq, other_ns, cpu_wait_ns, marks, backwards, check)
            self.waiting.append(slot)
            self.waited_ns = waited_ns = self.waited_ns + step_ns
            if waited_ns > _LATE_NS:
                self.flush()
        attempt = self.attempt
        packed = self.pack(
            seq,
            begin_ns,
            step_ns,
            data_ns,
            compute_ns,
            sync_ns,
            step,
            samples,
            flags,
            attempt,
            check,
        )
        self.slots.write(number, packed)

    def flush(self) -> None:
        """Write the slots of the extension that wait for it, in one piece."""
        waiting, self.waiting, self.waited_ns = self.waiting, [], 0
        first = self.written - len(waiting)
        if self.extension is None or not waiting:
            return
        capacity = self.extension.capacity
        before_end = capacity - first % capacity
        self.extension.write(first, b"".join(waiting[:before_end]))
        if before_end < len(waiting):
            self.extension.write(first + before_end, b"".join(waiting[before_end:]))


def _check_limit(end: int) -> None:
    """Refuse a write that ends where SIGXFSZ would come, which at its default ends the program.

    Python ignores that signal, but programs set it back; and limits change while they run.
    """
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if 0 <= limit < end:
        raise OSError(errno.EFBIG, "RLIMIT_FSIZE of {} bytes is too small".format(limit))


def _beside(ring: str, suffix: str) -> str:
    """Return the path of what lies beside a ring under its name: its extension, its socket."""
    return ring[: -len("ring")] + suffix


def _remove_stale(directory: str) -> None:
    """Delete rings of processes that have ended: those of yesterday, and all but the newest few."""
    import fcntl

    found: list[tuple[float, str]] = []
    extensions: list[tuple[float, str]] = []
    with os.scandir(directory) as entries:
        for entry in itertools.islice(entries, _STALE_LOOKS):
            if re.fullmatch(r"\.?\d+-\d+\.(ring|ext|span|sig)", entry.name):
                kind = found if entry.name.endswith("ring") else extensions
                with contextlib.suppress(OSError):  # gone by now
                    kind.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    before = time.time() - _STALE_SECONDS
    for place, (written, path) in enumerate(sorted(found, reverse=True)):
        if place >= _KEPT_RINGS or written < before:
            # Held by a living process, another user's, or gone by now: not ours to delete.
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                ring = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                stack.callback(os.close, ring)
                fcntl.flock(ring, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
                for suffix in ("ext", "span", "sig", "sock"):  # most rings have no socket
                    with contextlib.suppress(OSError):
                        os.unlink(_beside(path, suffix))
    for written, path in extensions:  # of rings that an older probe deleted
        if written < before and not os.path.lexists(path[: path.rindex(".") + 1] + "ring"):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _batch_size(batch: Any, tensor_type: Any) -> int:
    """Return the first dimension of the first tensor in a batch, or `_SIZE_UNKNOWN`."""
    if (type(batch) is list or type(batch) is tuple) and batch and type(batch[0]) is tensor_type:
        shape = batch[0].shape  # what collating mostly gives, four times as quickly as below
        if shape:
            return int(shape[0])
    items = [batch]
    for item in items:  # grows while it is walked
        if isinstance(item, tensor_type) and item.dim():
            return int(item.shape[0])
        if len(items) < _LOOKS:
            if isinstance(item, Mapping):
                items.extend(itertools.islice(item.values(), _LOOKS))
            elif isinstance(item, (tuple, list)):
                items.extend(item[:_LOOKS])
    return _SIZE_UNKNOWN


class _Guard:
    """What keeps our errors away from training, and our hooks away from compilers."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.errors = torch, 0

    def guarded(self, observe: Callable[..., Any]) -> Callable[..., Any]:
        """Return `observe` as a hook that never raises: the one place where our errors end.

        Where it would have, it returns None. What a signal handler of the program raises meanwhile
        is none of ours, and goes where it would have gone without us: torch's own raises what a
        loader worker died of.
        """

        def hook(*arguments: Any) -> Any:
            if self.errors >= _MAX_ERRORS:
                return None
            try:
                return observe(*arguments)
            except Exception as error:
                if _of_signal_handler(error):
                    raise
                self.errors += 1
                self.report(error)
                return None

        return hook

    def untraced(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return `hook` so that compilers neither inline it nor trace what it calls, nor lose it.

        Its code is marked, which costs nothing in a call. `_disable_dynamo`, all that older torch
        has, costs 1.2 us where caches are warm, and several times that where they are not.
        """
        frames: Any = getattr(getattr(self.torch._C, "_dynamo", None), "eval_frame", None)
        mark = getattr(frames, "set_code_exec_strategy", None)
        if mark is None:
            wrapped: Callable[..., Any] = self.torch._disable_dynamo(hook)
            return wrapped
        skip = frames._FrameAction.SKIP
        mark(hook.__code__, frames._FrameExecStrategy(skip, skip))  # and what is called from it
        for name in ("_torchdynamo_disable", "_torchdynamo_disable_recursive"):
            setattr(hook, name, True)
        return hook

    def report(self, error: Exception) -> None:
        """Say the first error in one line on standard error; for debugging all with traceback."""
        with contextlib.suppress(Exception):  # standard error may be closed
            if os.environ.get("RANKSCOPE_PROBE_DEBUG") == "1":
                sys.stderr.write(traceback.format_exc())
            elif self.errors == 1:
                seen = " ".join("{}: {}".format(type(error).__name__, error).split())
                sys.stderr.write("rankscope probe: {}; steps may go unseen\n".format(seen))


def _of_signal_handler(error: Exception) -> bool:
    """Return True if a handler of the program raised it, which runs wherever its thread is."""
    ask = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
    handlers = {number: ask(number) for number in range(1, signal.NSIG)}
    codes = {_code_of(handler) for handler in handlers.values() if callable(handler)}
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in codes for frame, _ in frames)


def _code_of(handler: Any) -> Any:
    """Return the code of a function, a method, a partial or what else can be called, or None."""
    handler = getattr(handler, "func", handler)
    if not hasattr(handler, "__code__"):
        handler = vars(type(handler)).get("__call__")
    return getattr(handler, "__code__", None)


class _CpuWaits:
    """How long the training thread was ready to run and waited for a CPU, by its schedstat.

    `total_ns` and `in_data_ns` are of the step under way: outside of sync, and while on data.
    `looked_ns` is the time of the last look, `_NEVER_NS` where there is nothing to look at.

    schedstat is read when the thread was off the CPU outside of sync, which its CPU time tells, as
    that takes neither a descriptor nor procfs: no wait is longer. What was waited in sync since the
    last read must not count then, so that schedstat is read after sync too, while there are such
    stretches; else seldom.
    """

    def __init__(self) -> None:
        self.schedule: _Held | None = None
        self.restart()

    def restart(self) -> None:
        """Forget a thread, as a forked child must, which has another."""
        if self.schedule is not None:
            self.schedule.close()
        self.schedule, self.looked_ns = None, _NEVER_NS
        self.total_ns = self.in_data_ns = self.seen_ns = 0
        self.read_ns = self.wary_ns = 0  # when schedstat was read; until when it is after sync
        # Since when the thread is not known to have been off the CPU, what it had run by then, and
        # what it had spent in sync; and that of all steps that ended.
        self.since_ns = self.ran_ns = self.synced_ns = self.sync_ns = 0

    def begin_step(self, sync_ns: int) -> None:
        """Count from here on for another step, after one that spent `sync_ns` in sync."""
        self.total_ns = self.in_data_ns = 0
        self.sync_ns += sync_ns

    def watch(self) -> None:
        """Follow how long this thread waits for a CPU, where the kernel counts that."""
        if self.schedule:
            self.schedule.close()
        self.schedule, self.looked_ns = None, _NEVER_NS
        with contextlib.suppress(OSError):  # no Linux, no procfs, or no CONFIG_SCHED_INFO
            flags = os.O_RDONLY | os.O_CLOEXEC
            self.schedule = _Held(os.open("/proc/thread-self/schedstat", flags))
            _, self.seen_ns, turns = self.read()
            if turns:  # else nothing is counted; the time run is zero until a thread's first tick
                self.looked_ns = self.since_ns = self.read_ns = time.perf_counter_ns()
                self.ran_ns, self.synced_ns = time.thread_time_ns(), self.sync_ns

    def read(self) -> tuple[int, ...]:
        """Return how long this thread ran and waited, in nanoseconds, and how often it ran.

        Raises:
            OSError: it cannot be read, or the descriptor is not ours any more.
            ValueError: it is written in another way.
        """
        held = self.schedule
        if held is None or held.look() != held.identity:
            raise _LostError("no schedstat")
        run, waited, turns = map(int, os.pread(held.number, 64, 0).split())
        return run, waited, turns

    def look(self, now: int, sync_ns: int, outside: bool = True) -> None:
        """Take the waits for a CPU since the last look, as part of what is `outside` of sync.

        Stretches that are short, or in which the thread was hardly ever off the CPU, are left to
        the next look: no wait that matters fits in. Waits that begin between the end of a stretch,
        `now`, and our look at them are of the next one. `sync_ns` is that of the step so far.
        """
        if now - self.looked_ns <= _LOOK_NS:
            return
        self.looked_ns = now
        ran_ns, synced_ns = time.thread_time_ns(), self.sync_ns + sync_ns
        idle_ns = now - self.since_ns - (ran_ns - self.ran_ns) - (synced_ns - self.synced_ns)
        if outside and 0 < idle_ns <= _IDLE_NS:
            return
        self.since_ns, self.ran_ns, self.synced_ns = now, ran_ns, synced_ns
        if outside and idle_ns > 0:
            self.wary_ns = now + _WARY_NS
            self.take(now, idle_ns)
        elif not outside and (now < self.wary_ns or now - self.read_ns > _CALM_NS):
            self.take(now, 0)

    def take(self, now: int, most_ns: int) -> None:
        """Read schedstat, and count of the waits since the last time as many as may be."""
        try:
            total = self.read()[1]
        except (OSError, ValueError):  # the program closed it, or took its number
            self.schedule, self.looked_ns = None, _NEVER_NS
            return
        waited = max(min(total - self.seen_ns, now - self.read_ns), 0)
        self.total_ns += min(waited, most_ns)
        self.seen_ns += waited
        self.read_ns = now


class _StepClock:
    """How the step under way spends its time; durations in nanoseconds.

    Only the thread that ended the last step is measured: others do not hold the training loop.
    `thread` is 0 while no step has ended.
    """

    def __init__(self, torch: Any) -> None:
        # How many nodes this thread ever put into autograd graphs; unknown before torch 2.1.
        count = getattr(torch.autograd, "_get_sequence_nr", None)
        self.graph_size: Callable[[], int] = (
            count if count is not None else itertools.count().__next__
        )
        self.cpu = _CpuWaits()
        self.restart()

    def begin(self, now: int, unix_ns: int) -> None:
        """Begin a step here, by both clocks."""
        self.begin_ns, self.begin_unix_ns = now, unix_ns
        self.data_ns = self.sync_ns = self.samples = self.flags = 0
        self.other_ns = self.backwards = self.marked_ns = 0
        self.marks = _NO_MARKS
        # On the step's own clock, see `own`: since when what passes may be no computing, and when
        # the last backward was done.
        self.resting: int | None = None if self.in_backward else 0
        self.ready: int | None = None
        self.rest_sync = 0  # what of sync came before the rest
        self.nodes = 0 if self.in_backward else self.graph_size()
        self.straddles = self.in_backward  # the backward under way began in the step before

    def restart(self) -> None:
        """Forget all, as a forked child must, which has another thread."""
        self.cpu.restart()
        self.thread = 0
        self.in_backward = False
        self.begin(0, 0)
        self.resting = None

    def own(self, now: int) -> int:
        """Return how much of the step was spent neither on data, nor in sync, nor without a CPU.

        Time in spans does not count either. It may fall: waits for a CPU are seen some milliseconds
        after they began.
        """
        waited = self.cpu.total_ns - self.cpu.in_data_ns
        return now - self.begin_ns - self.data_ns - self.sync_ns - waited - self.marked_ns

    def mark(self, kind: int, spent_ns: int, sync_ns: int) -> None:
        """Take time of the step, in which it spent `sync_ns` in sync besides, as that of a span."""
        checkpoint, evaluation, copies, late = _FOUR.unpack(self.marks)
        if kind == _EVALUATE:
            evaluation += spent_ns
        elif kind not in (_COMPILE, _JOIN):
            checkpoint += spent_ns
        self.marks = _FOUR.pack(checkpoint, evaluation, copies, late)
        self.marked_ns += spent_ns
        self.rest_sync += sync_ns

    def rest_until(self, own: int) -> None:
        """Count what passed since an optimizer's step or the last batch, if no forward began.

        What comes before a collective holds the other ranks up, so that it is no rest.
        """
        if self.resting is not None:
            if self.graph_size() == self.nodes:
                if self.sync_ns == self.rest_sync:
                    self.other_ns += max(own - self.resting, 0)
                self.resting, self.rest_sync = own, self.sync_ns
            else:
                self.resting = None

    def rest_from(self, own: int) -> None:
        """Count what passes from here on as no computing, if no forward begins."""
        self.resting, self.nodes = own, self.graph_size()
        self.rest_sync = self.sync_ns

    def backward_ended(self, now: int) -> None:
        """Take the moment at which a backward returns, as its gradients are ready."""
        own = self.own(now)
        if self.straddles:
            self.straddles = False
            self.rest_from(own)
        else:
            self.ready, self.resting = own, None

    def optimizer_ended(self, now: int) -> None:
        """Take the end of a further optimizer's `step()`, which is no computing either."""
        self.cpu.look(now, self.sync_ns)
        own = self.own(now)
        if self.ready is not None:
            self.other_ns += max(own - self.ready, 0)
            self.ready = None
        else:
            self.rest_until(own)
        self.rest_from(own)

    def optimizer_begins(self, now: int) -> None:
        """Take the begin of an optimizer's `step()` for the end of a backward that was not seen."""
        if self.backwards == 0 and self.ready is None:
            self.cpu.look(now, self.sync_ns)
            self.ready = self.own(now)

    def end(self, now: int) -> int | None:
        """Return how much of the step that ends was no computing; None if no backward was seen."""
        if now - self.cpu.looked_ns > _LOOK_NS:
            self.cpu.look(now, self.sync_ns)
        own = self.own(now)
        if self.ready is not None:
            return self.other_ns + (own - self.ready if own > self.ready else 0)
        if self.in_backward or self.straddles:  # an optimizer that steps within
            return self.other_ns
        if self.backwards:  # a further optimizer stepped after them
            self.rest_until(own)
            return self.other_ns
        return None


class _GlooWaits:
    """What blocks in collectives on gloo, apart from the ends of backwards."""

    def __init__(self, torch: Any, distributed: Any, guard: _Guard, clock: _StepClock) -> None:
        self.torch, self.distributed = torch, distributed
        self.guard, self.clock = guard, clock
        self.libraries: list[Any] = []  # torch takes the kernels back when these are collected

    def hook(self) -> None:
        """Time from now on what blocks in collectives."""
        if self.libraries:  # by this process, or by the one that it was forked from
            return
        atexit.register(time.sleep, _SETTLE_SECONDS)
        c10d, torch = self.distributed, self.torch
        for owner in (torch._C._distributed_c10d.Work, torch._C.Future):
            owner.wait = self.guard.untraced(self.timed(owner.wait))
        buffers = self.timed(c10d._broadcast_coalesced)  # that DDP sends in forward
        c10d._broadcast_coalesced = self.guard.untraced(buffers)
        c10d.destroy_process_group = self.settled(c10d.destroy_process_group)
        for operator in _BLOCKING:
            namespace, _, name = operator.partition("::")
            packet = getattr(getattr(torch.ops, namespace), name, None)
            if packet is not None:  # not every torch has them all
                kernel = _kernel(self.torch, self.timed(packet.default.redispatch))
                library = torch.library.Library(namespace, "IMPL")
                library.impl(name, kernel, "BackendSelect", with_keyset=True)
                self.libraries.append(library)

    def settled(self, end: Callable[..., Any]) -> Callable[..., Any]:
        """Return `end` with a pause before it, in which gloo's threads let go of what they hold."""

        @functools.wraps(end)
        def destroy(*arguments: Any, **options: Any) -> Any:
            time.sleep(_SETTLE_SECONDS)
            return end(*arguments, **options)

        return destroy

    def timed(self, blocking: Callable[..., Any]) -> Callable[..., Any]:
        """Return `blocking` with its time counted as sync; calls inside it count once."""
        now, thread_id = time.perf_counter_ns, threading.get_ident
        clock, cpu = self.clock, self.clock.cpu
        look = self.guard.guarded(cpu.look)

        @functools.wraps(blocking)
        def wait(*arguments: Any, **options: Any) -> Any:
            if thread_id() != clock.thread:
                return blocking(*arguments, **options)
            before, begin = clock.sync_ns, now()
            if begin - cpu.looked_ns > _LOOK_NS:
                look(begin, before)
            try:
                return blocking(*arguments, **options)
            finally:
                end = now()
                clock.sync_ns = before + end - begin
                if end - cpu.looked_ns > _LOOK_NS:
                    look(end, clock.sync_ns, False)

        return wait


def _kernel(torch: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel for BackendSelect that goes on to the operator's own one."""
    select = torch._C.DispatchKey.BackendSelect

    def launch(keys: Any, *arguments: Any, **options: Any) -> Any:
        return call(keys.remove(select), *arguments, **options)

    return launch


class _DeviceWaits:
    """How long the device waited at the ends of backwards, by CUDA events that are used again.

    Nothing here waits for the device: `query()` only asks whether it has passed an event.
    """

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda
        self.pool: list[Any] = []
        self.pending: list[tuple[Any, ...]] = []  # steps that the device may not have passed
        self.restart()

    def restart(self) -> None:
        """Forget the step's waits."""
        self.pairs: list[tuple[Any, Any]] = []
        self.begun: Any = None
        self.spoiled: int = 0  # something cannot be timed, so that the whole step is not

    def prepare(self, step: int, step_ns: int) -> None:
        """Begin step number `step`, after one that took so long."""

    def close(self) -> None:
        """Leave what is to be left alone."""

    def event(self) -> Any:
        """Put an event into the current stream."""
        event = self.pool.pop() if self.pool else self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Take the place behind all kernels of a backward; a capture would keep our event."""
        if self.cuda.is_current_stream_capturing() or len(self.pairs) >= _MAX_WAITS:
            self.spoiled = 1
        else:
            self.begun = self.event()

    def end(self) -> None:
        """Take the place at which the stream has all gradients."""
        if self.begun is not None:
            self.pairs.append((self.begun, self.event()))
            self.begun = None

    def take(self) -> tuple[list[tuple[Any, Any]], bool]:
        """Return the waits of the step that ends, and whether they are all there are."""
        taken = self.pairs, bool(self.pairs) and not self.spoiled
        self.restart()
        return taken

    def passed(self, pairs: list[tuple[Any, Any]]) -> bool:
        """Say whether the device has passed all of these waits."""
        return all(end.query() for _, end in reversed(pairs))

    def read(self, pairs: list[tuple[Any, Any]]) -> int:
        """Return the nanoseconds of waits that the device has passed."""
        return int(sum(begin.elapsed_time(end) for begin, end in pairs) * 1e6)

    def give_back(self, pairs: list[tuple[Any, Any]]) -> None:
        """Use the events of these waits again."""
        self.pool.extend(event for pair in pairs for event in pair)

    def add(self, *step: Any) -> None:
        """Put a step that the host has ended, with the waits since the last one, behind others."""
        self.pending.append((step, *self.take()))

    def ended(self, kept: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the steps that the device has passed, and unmeasured what else is too many.

        Args:
            kept: how many steps that it has not passed may wait.

        Yields:
            Nanoseconds of its waits, -1 where they are not known, and what `add` was given.
        """
        while self.pending:
            step, pairs, complete = self.pending[0]
            passed = self.passed(pairs)
            if not passed and len(self.pending) <= kept:
                return
            del self.pending[0]
            waited_ns = self.read(pairs) if passed and complete else -1
            self.give_back(pairs)
            yield waited_ns, step

    def spoiling(self, blocking: Callable[..., Any]) -> Callable[..., Any]:
        """Return `blocking` as a wait of unknown length, which leaves its step unmeasured."""

        @functools.wraps(blocking)
        def wait(*arguments: Any, **options: Any) -> Any:
            self.spoiled = 1
            return blocking(*arguments, **options)

        return wait


class _StreamWaits(_DeviceWaits):
    """What the training stream stands at: waits for peers and for copies, in sampled steps.

    A step is sampled as a whole, or not at all: those whose number is a multiple of `every`, a
    power of two, so that ranks which sample more rarely than others share their steps. It follows
    from what sampling costs in this process. Only in such a step, and in the one before it, which
    notes what streams carry, are hooks in place. Waits are bracketed on the training stream, which
    is known by its device and number, whatever thread has it wait. It waits for peers where the
    other stream has carried a collective since the last wait for it, else for copies.
    """

    def __init__(self, torch: Any, distributed: Any, guard: _Guard, replicated: bool) -> None:
        self.torch, self.distributed, self.guard = torch, distributed, guard
        self.replicated = replicated  # by DistributedDataParallel, whose waits end backwards
        # Owner, name, what its dictionary has without us, ours, and what makes ours of that.
        self.hooks: list[tuple[Any, str, Any, Any, Callable[..., Any]]] = []
        self.libraries: list[Any] = []
        self.stream: Any = None
        self.key = (-1, -1)
        self.sampling = self.noting = False
        self.period = self.made = self.captures = self.failures = self.seen = 0
        self.every = _FIRST_INTERVAL
        self.carried: dict[Any, int] = {}  # by stream: collectives
        self.waited: dict[Any, int] = {}  # by who waits and for what: of those, waited for
        self.inside: set[int] = set()  # threads in a call of ours
        self.launched_before: int | None = None
        # Own time in steps with hooks and in others, samples, steps and their time, since `every`
        # was chosen; and own time and all time since ever.
        self.sample_ns = self.other_ns = self.samples = self.steps = self.lived_ns = 0
        self.own_ns = self.all_ns = self.added_ns = 0
        self.record_own = torch.cuda.Event.record
        super().__init__(torch.cuda)
        self.find_hooks()
        self.hook_graphs()

    def restart(self) -> None:
        """Forget the step's waits."""
        self.pairs: list[tuple[Any, ...]] = []
        self.begun: Any = None
        self.base: Any = None
        self.spoiled = 0  # why the sample is none
        self.bracketed = False  # the end of a backward, where DistributedDataParallel waits

    def close(self) -> None:
        """Leave torch as it is without us, but for what notices graphs."""
        self.sampling = self.noting = False
        self.take_out()

    def find_hooks(self) -> None:
        """Prepare what brackets waits, and notes which streams carry collectives."""
        cuda, bindings = self.cuda, self.torch._C._distributed_c10d
        group = getattr(bindings, "ProcessGroup", None)
        places = [
            (bindings.Work, "wait", self.enter_work),
            (getattr(self.torch._C, "Future", None), "wait", self.enter_work),
            (cuda.Event, "wait", self.enter_event),
            (getattr(cuda, "Stream", None), "wait_event", self.enter_stream),
            (cuda.Event, "synchronize", self.enter_event_on_host),
            (getattr(cuda, "Stream", None), "synchronize", self.enter_stream_on_host),
            (cuda, "synchronize", self.enter_device_on_host),
            *((group, name, self.enter_collective) for name in _COLLECTIVES),
        ]
        for owner, name, enter in places:
            if getattr(owner, name, None) is not None:
                wrap = functools.partial(self.bracketing, enter)
                self.hooks.append((owner, name, None, None, wrap))
        self.hooks.append((cuda.Event, "record", None, None, self.noting_record))
        functional = getattr(getattr(self.torch, "ops", None), "_c10d_functional", None)
        self.functional = getattr(functional, "wait_tensor", None)
        if self.functional is not None:
            waits = self.bracketing(self.enter_functional, self.functional.default.redispatch)
            self.functional_kernel = _kernel(self.torch, waits)

    def put_in(self) -> None:
        """Put the hooks in, around what others may have put there since the last time.

        Other threads may be in what they replace: attributes change at once, and the operator's
        table under its own lock, at a step's end, when no backward is under way.
        """
        for number, (owner, name, own, ours, wrap) in enumerate(self.hooks):
            # Not what getattr gives: of a binding's method that is a function without `self`.
            present = vars(owner).get(name)
            if ours is None or (present is not own and present is not ours):
                self.hooks[number] = owner, name, present, wrap(getattr(owner, name)), wrap
        for owner, name, _, ours, _ in self.hooks:
            setattr(owner, name, ours)
        if self.functional is not None and not self.libraries:
            library = self.torch.library.Library("_c10d_functional", "IMPL")
            library.impl("wait_tensor", self.functional_kernel, "BackendSelect", with_keyset=True)
            self.libraries.append(library)

    def take_out(self) -> None:
        """Take out what is ours still, and leave what others have put over it."""
        for owner, name, own, ours, _ in self.hooks:
            if ours is not None and vars(owner).get(name) is ours:
                if own is None:  # it is inherited
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)
        for library in self.libraries:
            library._destroy()
        self.libraries.clear()

    def hook_graphs(self) -> None:
        """Notice captures of graphs, in which nothing may be asked, and graphs with collectives."""
        graph = getattr(self.cuda, "CUDAGraph", None)
        if graph is None:
            return
        begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

        @functools.wraps(begin)
        def beginning(captured: Any, *arguments: Any, **options: Any) -> Any:
            self.captures += 1
            self.spoiled = self.spoiled or _CAPTURE
            captured._rankscope_launched = self.launched()
            try:
                return begin(captured, *arguments, **options)
            except BaseException:
                self.captures -= 1
                raise

        @functools.wraps(end)
        def ending(captured: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return end(captured, *arguments, **options)
            finally:
                self.captures = max(self.captures - 1, 0)
                before, now = captured._rankscope_launched, self.launched()
                captured._rankscope_waits = None in (before, now) or now > before

        @functools.wraps(replay)
        def replaying(captured: Any, *arguments: Any, **options: Any) -> Any:
            if self.sampling and getattr(captured, "_rankscope_waits", True):
                self.spoiled = self.spoiled or _UNSEEN_PATH
            return replay(captured, *arguments, **options)

        graph.capture_begin, graph.capture_end, graph.replay = beginning, ending, replaying

    def launched(self) -> int | None:
        """Return how many collectives this process has launched; None where a group is silent."""
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        try:
            groups = list(getattr(world, "pg_map", {}))
            return sum(int(group._get_sequence_number_for_group()) for group in groups)
        except Exception:  # noqa: BLE001 - backends that do not count raise what they like
            return None

    def unseen(self) -> bool:
        """Return True if a library is in use that waits where Python sees nothing."""
        for name, attribute in _UNSEEN:
            module = sys.modules.get(name)
            if module is not None and (not attribute or getattr(module, attribute, None)):
                return True
        return False

    def key_of(self, stream: Any) -> tuple[int, int]:
        """Return device and number of a stream, None for the current one."""
        if stream is None:
            stream = self.cuda.current_stream()
        return stream.device_index, stream.stream_id

    def event(self) -> Any:
        """Put an event into the training stream; None where there is none left, or no place."""
        if not self.pool and self.made >= _MAX_EVENTS:
            self.spoiled = self.spoiled or _POOL_DRY
            return None
        if self.pool:
            event = self.pool.pop()
        else:
            self.made += 1
            event = self.cuda.Event(enable_timing=True)
        self.record_own(event, self.stream)
        return event

    def open(self, kind: int) -> tuple[Any, ...]:
        """Take the place before a wait of the training stream, and whether that had run dry."""
        if not self.sampling:
            return (kind, None, False)
        if self.captures or self.cuda.is_current_stream_capturing():
            self.spoiled = self.spoiled or _CAPTURE
        if self.spoiled:
            return (kind, None, False)
        dry = self.stream.query()
        return (kind, self.event(), dry)

    def shut(self, opened: tuple[Any, ...]) -> None:
        """Take the place behind a wait."""
        kind, begin, dry = opened
        if begin is not None and not self.captures:
            end = self.event()
            if end is not None:
                self.pairs.append((kind, begin, end, dry))

    def begin(self) -> None:
        """Take the place behind all kernels of a backward of DistributedDataParallel's."""
        if self.sampling:
            began, self.bracketed = time.perf_counter_ns(), True
            self.begun = self.open(_SYNC)
            self.sample_ns += time.perf_counter_ns() - began

    def end(self) -> None:
        """Take the place at which the stream has all gradients."""
        if self.begun is not None:
            began = time.perf_counter_ns()
            self.shut(self.begun)
            self.begun = None
            self.sample_ns += time.perf_counter_ns() - began

    def bracketing(self, enter: Callable[..., Any], blocking: Callable[..., Any]) -> Any:
        """Return `blocking` with what it makes the training stream wait timed; nested calls once.

        Args:
            enter: returns what `leave` is to do, given the arguments.
            blocking: torch's own function.
        """
        now, thread_id, inside = time.perf_counter_ns, threading.get_ident, self.inside
        entered, left = self.guard.guarded(enter), self.guard.guarded(self.leave)

        @functools.wraps(blocking)
        def wait(*arguments: Any, **options: Any) -> Any:
            began, thread = now(), thread_id()
            if thread in inside or not self.noting:
                return blocking(*arguments, **options)
            inside.add(thread)
            opened, result = entered(arguments, options), self
            self.sample_ns += now() - began
            try:
                result = blocking(*arguments, **options)
                return result
            finally:
                began = now()
                if left(opened, result) is None:
                    self.spoiled = self.spoiled or _BROKEN
                inside.discard(thread)
                self.sample_ns += now() - began

        return self.guard.untraced(wait)

    def enter_functional(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin a wait for a collective that was launched in C++, which only its wait shows."""
        self.seen += 1
        return self.enter_work(arguments, options)

    def enter_work(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin a wait of the current stream for a collective; by another it is carried on."""
        key = self.key_of(None)
        return (None, self.open(_SYNC)) if key == self.key else (key, None)

    def enter_collective(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin a collective; one that gives no Work back runs on the stream that launched it."""
        self.seen += 1
        key = self.key_of(None)
        return ("training", self.open(_SYNC)) if key == self.key else ("side", key)

    def enter_stream(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `stream.wait_event(event)`, which `wait_stream` calls as well."""
        event = arguments[1] if len(arguments) > 1 else options.get("event")
        return self.enter_wait(event, arguments[0])

    def enter_event(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `event.wait(stream)`."""
        stream = arguments[1] if len(arguments) > 1 else options.get("stream")
        return self.enter_wait(arguments[0], stream)

    def enter_event_on_host(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `event.synchronize()`: the training stream runs dry until the host goes on."""
        return self.enter_wait(arguments[0], self.stream) if self.sampling else (None, None)

    def enter_stream_on_host(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `stream.synchronize()`, the same for all that a stream has been given."""
        source = self.key_of(arguments[0])
        if not self.sampling:
            return None, None
        return self.enter_source(self.key, source, self.carried.get(source, 0))

    def enter_device_on_host(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `torch.cuda.synchronize()`, which waits for streams that are unknown here."""
        return None, self.open(_UNKNOWN)

    def enter_wait(self, event: Any, stream: Any) -> tuple[Any, ...]:
        """Begin a stream's wait for an event, which tells the stream that it was put into."""
        waiting = self.key_of(stream)
        period, source, carried = getattr(event, "_rankscope", None) or (-1, None, 0)
        if period != self.period:  # from before, or put in where Python sees nothing
            return (None, self.open(_UNKNOWN)) if waiting == self.key else (None, None)
        return self.enter_source(waiting, source, carried)

    def enter_source(self, waiting: Any, source: Any, carried: int) -> tuple[Any, ...]:
        """Begin a stream's wait for another, which by then had carried so many collectives."""
        pair = waiting, source
        newer = carried > self.waited.get(pair, 0)
        if newer:
            self.waited[pair] = carried
        if waiting == self.key:
            if source == waiting:
                return None, None
            return None, self.open(_SYNC if newer else _COPIES)
        return (waiting, None) if newer and source != self.key else (None, None)

    def leave(self, opened: Any, result: Any) -> bool | None:
        """End what was entered; None if something went wrong, as the sample is then no whole."""
        if opened is None or result is self:
            return None
        where, what = opened
        if where == "side":
            if result is None:
                self.carried[what] = self.carried.get(what, 0) + 1
        elif where == "training":
            if result is None:
                self.shut(what)
            elif what[1] is not None:
                self.pool.append(what[1])
        elif where is not None:
            self.carried[where] = self.carried.get(where, 0) + 1
        elif what is not None:
            self.shut(what)
        return True

    def noting_record(self, record: Callable[..., Any]) -> Callable[..., Any]:
        """Return `Event.record` with a note of the stream, and of what that has carried so far."""
        now, note = time.perf_counter_ns, self.guard.guarded(self.note)

        @functools.wraps(record)
        def recorded(event: Any, *arguments: Any, **options: Any) -> Any:
            result = record(event, *arguments, **options)
            began = now()
            note(event, arguments[0] if arguments else options.get("stream"))
            self.sample_ns += now() - began
            return result

        return self.guard.untraced(recorded)

    def note(self, event: Any, stream: Any) -> None:
        """Note on an event where it is, and how many collectives came before it there."""
        key = self.key_of(stream)
        event._rankscope = (self.period, key, self.carried.get(key, 0))

    def add(self, *step: Any) -> None:
        """Put a step that the host has ended behind others, with its waits if it was sampled."""
        self.added_ns = time.perf_counter_ns()
        sample: Any = None
        if self.sampling:
            sample = self.guard.guarded(self.taken)()
            if sample is None:
                self.spoiled = self.spoiled or _BROKEN
        self.pending.append((step, sample, self.spoiled))
        self.sampling = False
        self.restart()

    def taken(self) -> tuple[Any, ...]:
        """Return the sample of the step that ends: its first and last event, and its waits."""
        if self.unseen() or self.launched_unseen():
            self.spoiled = self.spoiled or _UNSEEN_PATH
        if self.key_of(None) != self.key:  # what waited was another stream than the one that ends
            self.spoiled = self.spoiled or _UNSEEN_PATH
        if not self.pairs or self.replicated > self.bracketed:
            self.spoiled = self.spoiled or _NO_WAIT
        if self.captures or self.cuda.is_current_stream_capturing():
            self.spoiled = self.spoiled or _CAPTURE
        dry = not self.spoiled and self.stream.query()
        final = None if self.spoiled else self.event()
        return self.base, self.pairs, final, dry

    def launched_unseen(self) -> bool:
        """Return True if more collectives were launched than went through our hooks.

        DistributedDataParallel's reducer launches its own, which the end of backwards waits for.
        """
        now = self.launched()
        if now is None or self.launched_before is None or self.replicated:
            return False
        return now - self.launched_before > self.seen

    def passed(self, sample: Any) -> bool:
        """Return True if the device has passed a step; never wait for it."""
        return bool(sample[2].query())

    def ended(self, kept: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the steps that the device has passed, and unmeasured what else is too many."""
        while self.pending:
            step, sample, why = self.pending[0]
            usable = sample is not None and sample[2] is not None and not why
            if usable and self.captures:
                passed: Any = False
            else:
                passed = not usable or self.guard.guarded(self.passed)(sample)
            if passed is False and len(self.pending) <= kept:
                return
            del self.pending[0]
            times: Any = None
            if usable:
                times = self.guard.guarded(self.times)(sample) if passed else None
                if times is None:
                    why = _BROKEN if passed is None or passed else _TOO_LATE
                elif times[_UNKNOWN] > _UNKNOWN_SHARE * times[_END]:
                    times, why = None, _UNKNOWN_WAITS
            if why == _BROKEN:
                self.failures += 1
                self.pool.clear()
            elif sample is not None:
                self.give_back(sample)
            yield self.measured(step, times, why)

    def give_back(self, sample: Any) -> None:
        """Use the events of a sample again."""
        base, pairs, final, _ = sample
        ours = [base, final, *(event for pair in pairs for event in pair[1:3])]
        self.pool.extend(event for event in ours if event is not None)

    def measured(self, step: tuple[Any, ...], times: Any, why: int) -> tuple[int, tuple[Any, ...]]:
        """Return the time in sync and what `add` was given, with what else was measured."""
        begin, step_ns, data_ns, *middle, marks = step
        number, count, flags, other_ns, backwards = middle
        flags |= _SAMPLED | why << _UNTIMED
        sync_ns = -1
        if times is not None:
            sync, copies, _, _, late = (int(one * 1e6) for one in times)
            busy = step_ns - data_ns
            sync_ns = min(sync, busy)
            checkpoint, evaluation, _, _ = _FOUR.unpack(marks)
            copies, late = min(copies, busy - sync_ns), min(max(late - data_ns, 0), busy - sync_ns)
            marks = _FOUR.pack(checkpoint, evaluation, copies, late)
        return sync_ns, (begin, step_ns, data_ns, number, count, flags, other_ns, backwards, marks)

    def times(self, sample: Any) -> tuple[float, ...]:
        """Return milliseconds of sync, copies, unknown waits, the whole, and of a late host.

        Waits that overlap, as of two threads, count once. The host is late where the training
        stream had nothing left to do when its next wait came: since the last wait, at most.
        """
        base, pairs, final, dry = sample
        since = base.elapsed_time
        spans = [(since(begin), since(end), kind, idle) for kind, begin, end, idle in pairs]
        whole = since(final)
        spans.append((whole, whole, _END, dry))
        totals, reached, late = [0.0, 0.0, 0.0, whole], 0.0, 0.0
        for begin, end, kind, idle in sorted(spans):
            if idle and begin > reached:
                late += begin - reached
            if end > reached and kind != _END:
                totals[kind] += end - max(begin, reached)
            reached = max(reached, end)
        return (*totals, late)

    def prepare(self, step: int, step_ns: int) -> None:
        """Begin step number `step`, after one that took so long: sample it, or do not."""
        noted = self.noting
        self.steps, self.lived_ns = self.steps + 1, self.lived_ns + step_ns
        if self.guard.guarded(self.arranged)(step) is None:
            self.failures += 1
            self.close()
        spent = time.perf_counter_ns() - self.added_ns
        if noted or self.noting:
            self.sample_ns += spent
        else:
            self.other_ns += spent

    def arranged(self, step: int) -> bool:
        """Put hooks in for a step that is sampled, and for the one before it."""
        if self.samples and (step + 2) % self.every == 0:
            self.choose_interval()
        noted = step % self.every == 0 or (step + 1) % self.every == 0
        if self.failures >= _MAX_FAILURES or self.captures:
            noted = False
        sampled = noted and self.noting and step % self.every == 0
        if noted and not self.noting:
            self.period += 1
            self.carried.clear()
            self.waited.clear()
            self.put_in()
        elif self.noting and not noted:
            self.take_out()
        self.noting = noted
        if sampled and not self.cuda.is_current_stream_capturing():
            self.stream = self.cuda.current_stream()
            self.key = self.key_of(self.stream)
            self.seen, self.launched_before = 0, self.launched()
            self.base = self.event()
            self.sampling = self.base is not None
            self.samples += 1
        return True

    def choose_interval(self) -> None:
        """Sample so rarely that what it costs stays in the budget, all told."""
        self.own_ns += self.sample_ns + self.other_ns
        self.all_ns += self.lived_ns
        left = (_BUDGET * self.lived_ns - self.other_ns) / self.steps
        steps = -int(-self.sample_ns / self.samples // max(left, 1.0))
        wanted = 1 << max(steps - 1, 0).bit_length()
        if self.own_ns > _BUDGET * self.all_ns:
            wanted = max(wanted, 2 * self.every)
        self.every = min(wanted, _MAX_INTERVAL)
        self.sample_ns = self.other_ns = self.samples = self.steps = self.lived_ns = 0


class _Backwards:
    """Where backwards begin, have computed all, and end: what comes between the last two is sync.

    `timed` says whether that is measured, which costs a hook in each backward. `device_waits` are
    those of CUDA, where the device waits at that place and not the host.
    """

    def __init__(
        self, torch: Any, guard: _Guard, clock: _StepClock, stepless: Callable[[], None]
    ) -> None:
        self.torch, self.guard, self.clock = torch, guard, clock
        self.stepless = guard.guarded(stepless)  # called for backwards before any step
        self.queue_callback = torch.autograd.Variable._execution_engine.queue_callback
        self.hooked = False
        self.device_waits: _DeviceWaits | None = None
        self.restart()

    def restart(self) -> None:
        """Forget what was measured, as a forked child must."""
        if self.device_waits is not None:
            self.device_waits.close()
        self.device_waits = None
        self.timed = self.armed = False  # armed: the backward that begins next is to be watched
        self.wait_begin = self.wait_before = 0

    def hook(self) -> None:
        """Watch the ends of all backwards from now on, `Tensor.backward()` included."""
        if self.hooked:  # by this process, or by the one that it was forked from
            return
        self.hooked = True
        autograd, thread_id, guarded = self.torch.autograd, threading.get_ident, self.guard.guarded
        now, backward, clock = time.perf_counter_ns, autograd.backward, self.clock
        stepless = self.stepless
        arm, ended = guarded(self.arm), guarded(self.ended)
        self.on_begin, self.on_computed = guarded(self.begun), guarded(self.computed)

        @functools.wraps(backward)
        def running(tensors: Any, *arguments: Any, **options: Any) -> Any:
            # One that begins within another recomputes what a checkpoint of activations left out.
            if clock.in_backward or thread_id() != clock.thread:
                if not clock.thread:
                    stepless()
                return backward(tensors, *arguments, **options)
            clock.in_backward = True
            clock.backwards += 1
            if self.timed:
                arm(tensors)
            try:
                return backward(tensors, *arguments, **options)
            finally:
                clock.in_backward = False
                if self.timed:
                    ended()
                clock.backward_ended(now())

        autograd.backward = self.guard.untraced(running)

    def arm(self, tensors: Any) -> None:
        """Prepare to watch the end of the backward that begins with the first of these tensors.

        The engine runs final callbacks in the order in which they were queued. Ours is queued at
        the very begin, so that it runs before that of the reducer, which waits for all buckets.
        """
        self.wait_begin = 0
        first = tensors if isinstance(tensors, self.torch.Tensor) else next(iter(tensors), None)
        if isinstance(first, self.torch.Tensor) and first.requires_grad:
            self.armed = True
            first.register_hook(self.on_begin)

    def begun(self, gradient: Any) -> None:
        """Queue our callback; a second backward through one tensor calls this twice."""
        if self.armed:
            self.armed = False
            self.queue_callback(self.on_computed)

    def computed(self) -> None:
        """Take the moment at which a backward has computed all; what follows is waiting."""
        if self.device_waits is not None:
            self.device_waits.begin()
        clock = self.clock
        self.wait_begin, self.wait_before = time.perf_counter_ns(), clock.sync_ns
        clock.cpu.look(self.wait_begin, clock.sync_ns)

    def ended(self) -> None:
        """Take the moment at which a backward returns, with all buckets in the reducer."""
        if self.wait_begin:
            now, clock = time.perf_counter_ns(), self.clock
            clock.sync_ns = self.wait_before + now - self.wait_begin
            clock.cpu.look(now, clock.sync_ns, outside=False)
            if self.device_waits is not None:
                self.device_waits.end()


class _Span:
    """What is under way beside steps, in one thread; times in nanoseconds."""

    def __init__(self, number: int, kind: int, begin_ns: int, step: int) -> None:
        self.number, self.kind, self.step = number, kind, step
        self.begin_ns = begin_ns
        self.unix_ns = time.time_ns() - (time.perf_counter_ns() - begin_ns)
        self.flags = self.target = 0
        self.own_ns = self.sync_ns = 0  # the step's, when it began
        self.of_step = -1  # when the step began that it holds up; -1 for none
        self.path: Any = None
        self.outcome, self.duration_ns, self.blocked_ns, self.size = _OPEN, -1, -1, -1

    def packed(self, outcome: int, duration_ns: int, blocked_ns: int, size: int) -> bytes:
        """Return its slot."""
        seq = self.number + 1
        check = 4 * seq + outcome & 0xFFFFFFFF
        times = (self.unix_ns, duration_ns, blocked_ns, size)
        words = (self.step, self.target, self.flags, self.kind, outcome, 0, 0, check)
        return _SPAN.pack(seq, *times, *words)


class _Spans:
    """Marks what is no step: checkpoints, evaluations and compiling, as they begin and end."""

    def __init__(
        self, torch: Any, guard: _Guard, clock: _StepClock, store: "_CheckpointStore"
    ) -> None:
        self.torch, self.guard, self.clock = torch, guard, clock
        self.begin, self.end = guard.guarded(self.begun), guard.guarded(self.ended)
        self.frameworks: set[tuple[str, str, str]] = set()
        self.compiling_watched = False
        self.store = store
        self.restart()

    def restart(self) -> None:
        """Forget all, as a forked child must."""
        self.slots: _Slots | None = None
        self.passing = False  # the file gives way to another one, which is to have these, too
        self.early: list[tuple[int, bytes]] = []
        self.numbers = itertools.count()
        self.here = threading.local()  # of each thread: `inside` something that is marked, `dcp`
        self.evaluation: _Span | None = None
        self.evaluated = (0, 0)  # until when, by the clock and by the step's own
        self.compiling: list[_Span] = []
        self.fetching = False  # samples, in the training thread
        self.written_by_dcp = 0  # checkpoints that DCP writes now, in whatever thread
        self.terminating = False
        self.step = 0

    def attach(self, slots: _Slots | None, passing: bool = False) -> None:
        """Write from now on, and first what was marked before there was a file.

        Args:
            slots: of the file; None where there is none.
            passing: another file will take its place.
        """
        early, self.slots, self.passing = self.early, slots, passing
        if not passing:
            self.early = []
        if slots is not None:
            for number, packed in early:
                slots.write(number, packed)
            if self.evaluation is not None:
                self.put(self.evaluation, _OPEN)

    def put(
        self,
        span: _Span,
        outcome: int,
        duration_ns: int = -1,
        blocked_ns: int = -1,
        size: int = -1,
    ) -> None:
        """Write a span's slot; what ended before there is a file waits for it."""
        packed = span.packed(outcome, duration_ns, blocked_ns, size)
        if self.slots is not None:
            self.slots.write(span.number, packed)
        if (self.slots is None or self.passing) and outcome != _OPEN:
            del self.early[: -_EARLY_SPANS + 1]
            self.early.append((span.number, packed))

    def made(self, kind: int, begin_ns: int = 0, flags: int = 0, target: int = 0) -> _Span:
        """Return a span that began now, or a moment ago, and show it to readers."""
        clock, thread, now = self.clock, threading.get_ident(), time.perf_counter_ns()
        span = _Span(next(self.numbers), kind, begin_ns or now, self.step & 0xFFFFFFFF)
        beside = _BESIDE if clock.thread not in (0, thread) else 0
        span.flags = flags | beside | (_TERMINATING if self.terminating else 0)
        span.target = target
        if thread == clock.thread:
            clock.cpu.look(now, clock.sync_ns)
            span.own_ns, span.sync_ns = clock.own(span.begin_ns), clock.sync_ns
            span.of_step = clock.begin_ns
        self.put(span, _OPEN)
        return span

    def close(self, span: _Span, outcome: int, size: int, now: int, own_ns: int) -> None:
        """End a span at a moment by the clock and by the step's own."""
        span.size, span.outcome, span.duration_ns = size, outcome, now - span.begin_ns
        clock, blocked_ns = self.clock, -1
        if span.of_step == clock.begin_ns:
            blocked_ns = max(own_ns - span.own_ns, 0)
            clock.mark(span.kind, blocked_ns, clock.sync_ns - span.sync_ns)
        span.blocked_ns = blocked_ns
        self.put(span, outcome, span.duration_ns, blocked_ns, size)

    def measured(self, span: _Span, size: int) -> None:
        """Take the bytes of a checkpoint, which are known once it has ended."""
        packed = span.packed(span.outcome, span.duration_ns, span.blocked_ns, size)
        for place, (number, _) in enumerate(self.early):
            if number == span.number:
                self.early[place] = number, packed
        if self.slots is not None:
            self.slots.write(span.number, packed)

    def close_now(self, span: _Span, outcome: int, now: int, size: int = -1) -> None:
        """End a span at this moment."""
        if span.of_step == self.clock.begin_ns:
            self.clock.cpu.look(now, self.clock.sync_ns)
        self.close(span, outcome, size, now, self.clock.own(now))

    def begun(self, kind: int, target: Any, flags: int = 0) -> _Span | None:
        """Begin a span, unless it is part of another, or reads samples."""
        thread = threading.get_ident()
        path = target if isinstance(target, (str, bytes, os.PathLike)) else None
        if getattr(self.here, "inside", False):
            around = getattr(self.here, "span", None)
            if around is not None and kind == _SAVE and not around.path:
                around.path = path  # of a saver that does not say where it saves
            return None
        if self.fetching and self.clock.thread in (0, thread):
            return None
        if self.written_by_dcp and self.clock.thread != thread:
            return None  # a thread of DCP's writes tensors through torch.save
        path = None if path is None else os.path.abspath(path)
        checksum = 0 if path is None else zlib.crc32(os.fsencode(path))
        if path is None:
            flags = _IN_MEMORY if hasattr(target, "getbuffer") else 0
        span = self.made(kind, 0, flags, checksum)
        span.path, self.here.inside, self.here.span = path, True, span
        return span

    def ended(self, span: _Span | None, outcome: int, target: Any) -> None:
        """End a span that `begun` returned; the file system is asked elsewhere, as it may hang."""
        if span is not None:
            now, self.here.inside, self.here.span = time.perf_counter_ns(), False, None
            if span.kind == _LOAD and isinstance(sys.exc_info()[1], FileNotFoundError):
                span.flags |= _NOT_THERE
            size = _position(target) if outcome == _DONE and span.kind == _SAVE else -1
            self.close_now(span, outcome, now, size)
            if outcome == _DONE and span.path is not None:
                self.store.ask(span, span.path)

    def marked(
        self,
        kind: int,
        call: Callable[..., Any],
        place: int = -1,
        name: str = "",
        flags: int = 0,
    ) -> Callable[..., Any]:
        """Return a function as one that is marked; its target is an argument by place or name."""
        begin, end = self.begin, self.end

        @functools.wraps(call)
        def marked(*arguments: Any, **options: Any) -> Any:
            target = arguments[place] if 0 <= place < len(arguments) else options.get(name)
            span, outcome = begin(kind, target, flags), _FAILED
            try:
                result = call(*arguments, **options)
                outcome = _DONE
                return result
            finally:
                end(span, outcome, target)

        return self.guard.untraced(marked)

    def hook(self) -> None:
        """Mark what torch itself saves and loads, and what it compiles."""
        import logging

        torch, note = self.torch, self.guard.guarded(self.dcp_said)
        serialization = torch.serialization
        torch.save = serialization.save = self.marked(_SAVE, serialization.save, 1, "f", _ONE_FILE)
        torch.load = serialization.load = self.marked(_LOAD, serialization.load, 0, "f")

        def passing(record: logging.LogRecord) -> bool:
            note(record.msg)
            return True

        # Whatever names a program has for DCP's functions, and before it imports them.
        logging.getLogger(_DCP_LOGGER).addFilter(passing)
        compiled = getattr(torch, "compile", None)
        if compiled is None:
            return
        watch = self.guard.guarded(self.watch_compiling)

        @functools.wraps(compiled)
        def compiling(*arguments: Any, **options: Any) -> Any:
            made = compiled(*arguments, **options)
            if not self.compiling_watched:
                watch()
            return made

        torch.compile = compiling

    def hook_frameworks(self) -> None:
        """Mark what the frameworks that are loaded save."""
        for place in _SAVERS:
            module, owner_name, name, kind = place
            owner = sys.modules.get(module)
            if owner is not None and owner_name:
                owner = getattr(owner, owner_name, None)
            call = getattr(owner, name, None)
            if callable(call) and place[:3] not in self.frameworks:
                self.frameworks.add(place[:3])
                setattr(owner, name, self.marked(kind, call))

    def hook_termination(self) -> None:
        """Notice when SIGTERM comes to a handler of the program; it sees its own handler alone."""
        handlers: Any = signal
        register, ask = handlers.signal, handlers.getsignal
        current = ask(signal.SIGTERM)
        if callable(current) and threading.current_thread() is threading.main_thread():
            register(signal.SIGTERM, self.noting(current))

        def own(handler: Any) -> Any:
            return getattr(handler, "rankscope_noted", handler)

        @functools.wraps(register)
        def registering(number: Any, handler: Any) -> Any:
            if number == signal.SIGTERM and callable(handler):
                handler = self.noting(handler)
            return own(register(number, handler))

        @functools.wraps(ask)
        def asking(number: Any) -> Any:
            return own(ask(number))

        handlers.signal, handlers.getsignal = registering, asking

    def noting(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Return a handler that takes note of its signal first."""

        def terminating(number: int, frame: Any) -> Any:
            self.terminating = True
            return handler(number, frame)

        terminating.rankscope_noted = handler  # type: ignore[attr-defined]
        return terminating

    def dcp_said(self, message: Any) -> None:
        """Take the begin or end of one of DCP's calls, in the thread that makes it."""
        kind = _DCP_KINDS.get(str(message.get("func_name"))) if isinstance(message, dict) else None
        if kind is None:
            return
        here, target = self.here, message.get("checkpoint_id")
        if message["event"] == "start":
            span = self.begun(kind, target)
            if span is not None:
                here.dcp, here.dcp_kind = span, kind
                self.written_by_dcp += kind == _SAVE
            return
        span = getattr(here, "dcp", None)
        if span is not None and here.dcp_kind == kind:
            here.dcp, here.inside, here.span = None, False, None
            self.written_by_dcp -= kind == _SAVE
            now, done = time.perf_counter_ns(), message["event"] == "end"
            self.close_now(span, _DONE if done else _FAILED, now)
            if done and kind == _SAVE and span.path is not None:
                distributed = self.torch.distributed
                rank = distributed.get_rank() if distributed.is_initialized() else 0
                self.store.ask(span, span.path, rank)

    def evaluating(self, begin: int, over: bool) -> None:
        """Take a batch that was fetched without gradients, or the end of such batches."""
        if self.evaluation is None and not over and not getattr(self.here, "inside", False):
            self.evaluation = self.made(_EVALUATE, begin)
        now = time.perf_counter_ns()
        self.evaluated = now, self.clock.own(now)
        if over and self.evaluation is not None:
            self.end_evaluation()

    def end_evaluation(self) -> None:
        """End an evaluation where its last batch came."""
        span, self.evaluation = self.evaluation, None
        if span is not None:
            self.close(span, _DONE, -1, *self.evaluated)

    def watch_compiling(self) -> None:
        """Have compilers say when they begin and end."""
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is not None:
            self.compiling_watched = True
            handler.register_start_callback(self.guard.guarded(self.compile_begins))
            handler.register_end_callback(self.guard.guarded(self.compile_ends))

    def compile_begins(self, *about: Any) -> None:
        """Take the begin of compiling, the outermost one, of which torch 2.6 tells nothing."""
        self.compiling.append(self.made(_COMPILE))

    def compile_ends(self, *about: Any) -> None:
        """Take its end."""
        if self.compiling:
            self.close_now(self.compiling.pop(), _DONE, time.perf_counter_ns())


def _position(target: Any) -> int:
    """Return how far an open file was written, -1 if that is not known."""
    if not isinstance(target, (str, bytes, os.PathLike)):
        with contextlib.suppress(AttributeError, OSError, TypeError, ValueError):
            return int(target.tell())
    return -1


def _shards(directory: str, rank: int) -> int:
    """Return how many bytes a rank has put into one of DCP's checkpoints; -1 if unknown."""
    size = 0
    for number in range(_MAX_SHARDS):
        path = os.path.join(directory, "__{}_{}.distcp".format(rank, number))
        try:
            size += os.stat(path).st_size
        except OSError:
            return size if number else -1
    return -1


def _versions(path: str) -> int:
    """Return how many checkpoints lie where this one does, itself included.

    Their names differ in numbers alone: that of the file, or of the directory of a step around it.
    """
    parent, name = os.path.split(path.rstrip("/"))
    if not _OF_STEP.search(name) and _OF_STEP.search(os.path.basename(parent)):
        parent, name = os.path.split(parent)
    shape = _shape(name)
    if shape == name:
        return 1
    with os.scandir(parent) as entries:
        names = (entry.name for entry in itertools.islice(entries, _SIBLINGS))
        return sum(1 for other in names if _shape(other) == shape)


def _shape(name: str) -> str:
    """Return a file's name without its numbers, but for those of ranks and shards."""
    return _NUMBER.sub(lambda match: match[0] if match[1] else "#", name)


class _CheckpointStore:
    """Asks the file system of checkpoints how large they are and how much room is left.

    A thread does, as a mount that hangs holds up its caller: while it stands there is no other
    one, and a few requests wait for it. It ends when there is nothing more to ask.
    """

    def __init__(self, guard: _Guard) -> None:
        self.guard = guard
        self.tell: Callable[[_Span, int], None] = lambda span, size: None
        self.note: Callable[[Mapping[int, float]], None] = lambda values: None
        self.restart()

    def restart(self) -> None:
        """Forget a thread, as a forked child must, which has none."""
        self.requests: collections.deque[tuple[_Span, str, int]] = collections.deque(
            maxlen=_REQUESTS
        )
        self.thread: threading.Thread | None = None
        self.lock = threading.Lock()
        self.looked_ns = -_LOOK_AGAIN_NS

    def ask(self, span: _Span, path: str, rank: int = -1) -> None:
        """Have a checkpoint looked at that has ended; `rank` is whose part of a directory."""
        self.requests.append((span, path, rank))
        with self.lock:
            if self.thread is None:
                look = self.guard.guarded(self.look)
                thread = threading.Thread(target=look, name="rankscope", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter ends, or a limit
                    thread.start()
                    self.thread = thread

    def look(self) -> None:
        """Look at what was asked for until there is nothing left."""
        try:
            while True:
                with self.lock:
                    if not self.requests:
                        self.thread = None
                        return
                    request = self.requests.popleft()
                with contextlib.suppress(OSError):  # it is gone, or may not be read
                    self.answer(*request)
        except BaseException:
            self.thread = None
            raise

    def answer(self, span: _Span, path: str, rank: int) -> None:
        """Say how large a checkpoint is, and how its file system is filled."""
        if rank >= 0:
            size = _shards(path, rank)
        else:
            status = os.stat(path)
            size = status.st_size if stat.S_ISREG(status.st_mode) else -1
        if size >= 0 and span.size < 0:
            self.tell(span, size)
        now = time.perf_counter_ns()
        if span.kind != _SAVE or now - self.looked_ns < _LOOK_AGAIN_NS:
            return
        self.looked_ns = now
        values: dict[int, float] = {}
        system = os.statvfs(path)
        if system.f_blocks > 0:  # some file systems do not say
            values[_FREE] = float(system.f_bavail * system.f_frsize)
            values[_SPACE] = float(system.f_blocks * system.f_frsize)
        with contextlib.suppress(OSError):
            values[_KEPT] = float(_versions(path))
        self.note(values)

    def wait(self) -> None:
        """Give what was asked last a moment, at the end of the process."""
        thread = self.thread
        if thread is not None:
            thread.join(_EXIT_SECONDS)


class _Signals:
    """What training says of itself: losses, rates, counts; written as one table."""

    def __init__(self, torch: Any, guard: _Guard) -> None:
        self.torch, self.guard = torch, guard
        # Of the tensor itself: nothing that a program has put in its place is called.
        base = getattr(torch._C, "TensorBase", None) or getattr(torch._C, "_TensorBase", None)
        self.tensor, self.item = getattr(torch, "Tensor", None), getattr(base, "item", None)
        self.restart()

    def restart(self) -> None:
        """Forget all, as a forked child must."""
        self.slots: _Slots | None = None
        self.lock = threading.Lock()
        self.values: dict[int, tuple[float, int, int]] = {}  # value, Unix time, step
        self.seq = self.due_ns = self.step = 0
        self.losses = self.not_finite = self.newest_step = self.bad_step = 0
        self.newest = self.level = 0.0
        self.distance = 0.0  # of a loss from its level, as a rule
        self.optimizer: Any = None  # a weak reference
        self.rate_given = False
        self.read_failures = 0
        # Losses that a device has not copied yet: buffer, event, step, shards.
        self.pending: list[tuple[Any, Any, int, tuple[str, ...]]] = []
        self.shards: tuple[str, ...] = ()  # that the program said it reads
        self.bad_since = 0  # step of the first loss that was not finite since one was
        self.bad_shards: tuple[str, ...] = ()
        self.buffers: list[tuple[Any, Any]] = []  # to copy into, each with an event
        self.dead: set[str] = set()  # workers' pids

    def put(self, kind: int, value: float, step: int | None = None) -> None:
        """Take note of a value."""
        self.values[kind] = value, time.time_ns(), self.step if step is None else step

    def add(self, kind: int, more: float = 1.0, soon: bool = False) -> None:
        """Count on."""
        self.put(kind, self.values.get(kind, (0.0,))[0] + more)
        if soon:
            self.due_ns = 0

    def note_store(self, values: Mapping[int, float]) -> None:
        """Take what is known of a checkpoint's file system, in a thread beside training."""
        for kind, value in values.items():
            self.put(kind, value)
        self.write()

    def flush(self, now: int) -> None:
        """Write the table at the end of a step, once a second."""
        self.due_ns = now + _SIGNAL_NS
        self.guard.guarded(self.read_losses)()
        self.put_losses()
        optimizer = self.optimizer() if self.optimizer is not None else None
        if optimizer is not None and not self.rate_given:
            rate = optimizer.param_groups[0].get("lr")
            if type(rate) in (int, float):  # one on a device is not asked
                self.put(_RATE, float(rate))
        self.write()

    def write(self) -> None:
        """Write the table; if another thread is at it, leave it to the next time."""
        slots = self.slots
        if slots is None or not self.values or not self.lock.acquire(blocking=False):
            return
        try:
            self.seq += 1
            table = bytearray(_SIGNALS * _SLOT)
            for kind, (value, unix_ns, step) in list(self.values.items()):
                check = self.seq + kind & 0xFFFFFFFF
                words = (self.seq, unix_ns, value, step, kind, check)
                _SIGNAL.pack_into(table, (kind - 1) * _SLOT, *words)
            slots.write(0, bytes(table))
        except _LostError:
            self.slots = None
        finally:
            self.lock.release()

    def loss(self, value: Any) -> None:
        """Take a loss: a number at once, a tensor's when it has been copied, without waiting.

        In memory that is the CPU's there is nothing to wait for.
        """
        if type(value) is self.tensor and self.item and value.is_cpu:
            if value.numel() == 1:
                self.note_loss(float(self.item(value)), self.step, self.shards)
        elif isinstance(value, (int, float)):
            self.note_loss(float(value), self.step, self.shards)
        elif value is None:
            return
        elif self.read_failures < _MAX_FAILURES:
            try:
                self.read_losses()
                self.copy(value)
            except Exception:
                self.read_failures += 1
                raise

    def copy(self, value: Any) -> None:
        """Begin to copy a loss from its device; what is captured into a graph has no value yet."""
        torch = self.torch
        if hasattr(value, "to_local"):  # of all ranks alike, if it is a loss
            value = value.to_local()
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            return
        kind = value.device.type
        if kind not in ("cpu", "cuda") or len(self.pending) >= _PENDING_LOSSES:
            return
        if kind == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        if not self.buffers or (self.buffers[0][1] is None) != (kind == "cpu"):
            self.buffers = self.made_buffers(kind, value.dtype)
        buffer, event = self.buffers.pop()
        functions = torch._C  # before 2.0 only the second was there
        plain = getattr(functions, "DisableTorchFunctionSubclass", None)
        with (plain or functions.DisableTorchFunction)():  # whatever a subclass would make of it
            value = value.detach()
            buffer.copy_(value.reshape(()) if value.dim() else value, non_blocking=True)
        if event is not None:
            event.record(torch.cuda.current_stream(value.device))
        self.pending.append((buffer, event, self.step, self.shards))

    def made_buffers(self, kind: str, data_type: Any) -> list[tuple[Any, Any]]:
        """Return memory for losses; that of a device is pinned, all at once and for good."""
        torch = self.torch
        if kind == "cpu":
            return [(torch.empty((), dtype=torch.float64), None)]
        whole = torch.empty(_PENDING_LOSSES, dtype=data_type, pin_memory=True)
        return [(part, torch.cuda.Event()) for part in whole.unbind()]

    def read_losses(self) -> None:
        """Read the losses that have been copied by now, from memory of our own."""
        while self.pending:
            buffer, event, step, shards = self.pending[0]
            if event is not None and not event.query():
                return
            del self.pending[0]
            self.buffers.append((buffer, event))
            self.note_loss(float(buffer.item()), step, shards)

    def note_loss(self, value: float, step: int, shards: "tuple[str, ...]") -> None:
        """Count a loss, and move the level by what is no spike."""
        self.losses += 1
        before, self.newest, self.newest_step = self.newest, value, step
        if value - value != 0:  # infinite or NaN, for a third of what a call takes
            if before - before == 0:  # later ones are not finite whatever they read: weights are
                self.bad_since, self.bad_shards = step, shards
            self.not_finite += 1
            self.due_ns, self.bad_step = 0, step
            return
        finite, away = self.losses - self.not_finite, value - self.level
        if finite == 1:
            self.level = value
            return
        most = _SPIKE * self.distance
        if finite > _LOSSES_BEFORE and most and not -most <= away <= most:
            away = most if away > 0 else -most
        share = 1 / finite if finite < _LEVEL_LOSSES else 1 / _LEVEL_LOSSES
        self.distance += share * ((away if away >= 0 else -away) - self.distance)
        self.level += share * away

    def put_losses(self) -> None:
        """Take what is known of losses into the table, if there were any since the last time."""
        if self.losses != self.values.get(_LOSSES, (0.0,))[0]:
            self.put(_LOSS, self.newest, self.newest_step)
            self.put(_LOSSES, float(self.losses))
            if self.not_finite != self.values.get(_NOT_FINITE, (0.0,))[0]:
                self.put(_NOT_FINITE, float(self.not_finite), self.bad_step)
                self.put_shards()
            if self.losses > self.not_finite:
                self.put(_LEVEL, self.level)

    def put_shards(self) -> None:
        """Take into the table where losses that are not finite began, and what was read there."""
        step, shards = self.bad_since, self.bad_shards
        self.put(_BAD_SINCE, float(step), step)
        self.put(_BAD_SHARDS, float(len(shards)), step)
        for place in range(_MAX_NAMED):
            self.values.pop(_BAD_SHARD + place, None)
        for place, name in enumerate(shards if len(shards) <= _MAX_NAMED else ()):
            checksum = zlib.crc32(name.encode(errors="surrogateescape"))
            self.put(_BAD_SHARD + place, float(checksum), step)

    def shards_are(self, *paths: Any) -> None:
        """Take the names of the files that the batch comes from, each once."""
        names = (os.fsdecode(path).rstrip("/").rpartition("/")[2] for path in paths)
        self.shards = tuple(dict.fromkeys(names))

    def worker_died(self, error: Exception) -> None:
        """Count loader workers that an error of the loader's names, each once."""
        named = _WORKERS.match(str(error))
        if named:
            self.count_dead(set(named[1].split(", ")))

    def count_dead(self, pids: "set[str]") -> None:
        """Count workers by their numbers, each once."""
        pids = pids - self.dead
        if pids and len(self.dead) < _SIBLINGS:
            self.dead |= pids
            self.add(_DEAD_WORKERS, float(len(pids)), soon=True)

    def hook(self) -> None:
        """Count dead loader workers, and how often CUDA's memory is exhausted once it is in use."""
        data = self.torch.utils.data
        for owner, name in (
            (data._utils.signal_handling, "_error_if_any_worker_fails"),
            (data.dataloader._MultiProcessingDataLoaderIter, "_try_get_data"),
        ):
            setattr(owner, name, self.guard.untraced(self.noting_deaths(getattr(owner, name))))
        loader = data.dataloader._MultiProcessingDataLoaderIter
        shutdown = getattr(loader, "_shutdown_workers", None)
        if shutdown is not None:
            loader._shutdown_workers = self.guard.untraced(self.noting_ends(shutdown))
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        later = getattr(self.torch.cuda, "_lazy_call", None)
        if attach is not None and later is not None:
            note = self.guard.guarded(lambda *_: self.add(_CUDA_FULL, soon=True))
            later(self.guard.guarded(functools.partial(attach, note)))

    def noting_deaths(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return what raises when loader workers have died, with them counted."""
        died = self.guard.guarded(self.worker_died)

        @functools.wraps(call)
        def noting(*arguments: Any, **options: Any) -> Any:
            try:
                return call(*arguments, **options)
            except RuntimeError as error:
                died(error)
                raise

        return noting

    def noting_ends(self, shutdown: Callable[..., Any]) -> Callable[..., Any]:
        """Return what ends a loader's workers, with those counted that did not end by themselves.

        A pipe that breaks may be what the program hears of a worker's death, and all that it hears.
        """
        ended = self.guard.guarded(self.workers_ended)

        @functools.wraps(shutdown)
        def noting(loader: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return shutdown(loader, *arguments, **options)
            finally:
                ended(loader)

        return noting

    def workers_ended(self, loader: Any) -> None:
        """Count workers of a loader that was shut down which were killed or raised."""
        for worker in getattr(loader, "_workers", ()):
            if worker.exitcode not in (None, 0, -signal.SIGTERM):  # SIGTERM is the loader's own
                self.count_dead({str(worker.pid)})

    def rate(self, value: float) -> None:
        """Take the learning rate that the program says."""
        self.rate_given = True
        self.put(_RATE, float(value))

    def epoch(self, value: Any) -> None:
        """Take how many epochs the program has made."""
        self.put(_EPOCH, float(value))

    def begins(self, optimizer: Any, once: "float | None") -> None:
        """Take the primary optimizer, whose parameters and rate these are.

        Args:
            optimizer: the one that steps.
            once: this rank's part of the model's parameters, None if it is not known.
        """
        self.optimizer = weakref.ref(optimizer)
        held = (one for group in optimizer.param_groups for one in group["params"])
        # A DTensor's own count is that of all ranks.
        count = sum(getattr(one, "_local_tensor", one).numel() for one in held)
        self.put(_PARAMETERS, float(count))
        if once is not None:
            self.put(_ONCE, once)
        else:
            self.values.pop(_ONCE, None)

    def model(self, active: Any, token: Any, sample: Any, numbers: Any) -> None:
        """Take what the program says of its model."""
        if token is None and active is not None:
            token = _FLOPS_PER_PARAMETER * float(active)
        for kind, flops in ((_TOKEN_FLOPS, token), (_SAMPLE_FLOPS, sample)):
            if flops is not None:
                self.put(kind, float(flops))
        if numbers is not None:
            self.put(_NUMBERS, float(_TYPES[str(numbers).rsplit(".", 1)[-1].lower()]))


class _LoaderWorkers:
    """How fast the worker processes of loaders make batches, which they note in shared memory.

    A worker has a slot of its own, whose number it knows as it is forked. The training process
    reads those of the loader that it takes batches from.
    """

    def __init__(self, torch: Any, guard: _Guard, clock: _StepClock) -> None:
        self.torch, self.guard, self.clock = torch, guard, clock
        self.table: Any = None  # anonymous memory, made for the first loader with workers
        self.owner = -1  # the process that made it
        self.next = 0  # slot of the first worker of the loader that starts next
        self.restart()

    def restart(self) -> None:
        """Forget what was read, as a forked child must; a worker goes on to use the table."""
        self.looked_ns = self.step_began_ns = 0
        self.first = -1  # slot of the first worker of the loader that was looked at
        self.taken = self.steps = 0  # batches that training took of it since, in so many steps
        self.made = self.spent_ns = 0
        self.code = 0  # what the extension's slots say, in their upper half

    def hook(self) -> None:
        """Number the workers of each loader, and have them count."""
        data = self.torch.utils.data
        iterator, fetch = data.dataloader._MultiProcessingDataLoaderIter, data._utils.fetch
        iterator.__init__ = self.numbering(iterator.__init__)
        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            kind.fetch = self.counting(kind.fetch)

    def numbering(self, start: Callable[..., None]) -> Callable[..., None]:
        """Return what starts a loader's workers, with slots for them."""
        reserve, leave = self.guard.guarded(self.reserve), self.guard.guarded(self.leave)

        @functools.wraps(start)
        def started(iterator: Any, loader: Any, *arguments: Any, **options: Any) -> None:
            reserve(iterator, loader.num_workers)
            start(iterator, loader, *arguments, **options)
            leave(iterator)

        return started

    def reserve(self, iterator: Any, count: int) -> None:
        """Empty the slots of workers that are about to be forked."""
        if self.owner != os.getpid():  # a forked child's slots are its parent's
            import mmap

            self.table, self.next = mmap.mmap(-1, _WORKER_SLOTS * _WORKER.size), 0
            self.owner = os.getpid()
        for place in self.places(self.next, count):
            _WORKER.pack_into(self.table, place, 0, 0)
        iterator._rankscope_slot = self.next

    def leave(self, iterator: Any) -> None:
        """Go on behind the slots of workers that have been forked, and know theirs."""
        self.next = (self.next + iterator._num_workers) % _WORKER_SLOTS

    def places(self, first: int, count: int) -> Iterator[int]:
        """Yield where in the table slots are."""
        return (_WORKER.size * ((first + each) % _WORKER_SLOTS) for each in range(count))

    def counting(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """Return a worker's way to make a batch, with its time noted."""
        worker, now = self.torch.utils.data.get_worker_info, time.perf_counter_ns
        note = self.guard.guarded(self.note)

        @functools.wraps(fetch)
        def fetched(*arguments: Any, **options: Any) -> Any:
            info = worker()
            if info is None or self.table is None:
                return fetch(*arguments, **options)
            begin = now()
            batch = fetch(*arguments, **options)
            note(info.id, now() - begin)
            return batch

        return fetched

    def note(self, worker: int, spent_ns: int) -> None:
        """Count a batch of this worker's."""
        (place,) = self.places(self.next + worker, 1)
        made, spent = _WORKER.unpack_from(self.table, place)
        _WORKER.pack_into(self.table, place, made + 1, spent + spent_ns)

    def took(self, iterator: Any, end_ns: int) -> None:
        """Take note of a batch that training has got, and look at the workers when it is time."""
        if getattr(iterator, "_rankscope_slot", -1) == self.first:
            self.taken += 1
        if self.clock.begin_ns != self.step_began_ns:
            self.step_began_ns = self.clock.begin_ns
            self.steps += 1
        if end_ns - self.looked_ns > _WORKERS_LOOK_NS:
            self.look(iterator)
            self.looked_ns = end_ns

    def look(self, iterator: Any) -> None:
        """Derive how long a step's batches take from what the workers made since the last look."""
        first = getattr(iterator, "_rankscope_slot", -1)
        if first != self.first:  # of another loader; none has a slot where there are no workers
            self.first, self.made, self.spent_ns, self.code = first, 0, 0, 0
            self.taken = self.steps = 0
        if first < 0:
            return
        count = iterator._num_workers
        slots = [_WORKER.unpack_from(self.table, place) for place in self.places(first, count)]
        made, spent_ns = sum(slot[0] for slot in slots), sum(slot[1] for slot in slots)
        fresh = made - self.made
        if not (fresh >= count and self.taken):
            return  # the next look has more to go by
        seconds = (spent_ns - self.spent_ns) / 1e9 / fresh / count * self.taken / self.steps
        self.code = _WORD.unpack(_HALF.pack(min(1e3 * seconds, _LARGEST_HALF)))[0] << 16
        self.made, self.spent_ns = made, spent_ns
        self.taken = self.steps = 0


class _Loader:
    """How long batches are waited for, and how many samples they have."""

    def __init__(self, torch: Any, guard: _Guard, clock: _StepClock, spans: _Spans) -> None:
        self.torch, self.guard, self.clock, self.spans = torch, guard, clock, spans
        self.workers = _LoaderWorkers(torch, guard, clock)
        self.used = False  # so far, by this process

    def fetching(self, fetch: Callable[[Any], Any], counted: bool) -> Callable[[Any], Any]:
        """Return a loader's method with its time counted as data, and its batches if `counted`."""
        now, thread_id = time.perf_counter_ns, threading.get_ident
        clock, cpu = self.clock, self.clock.cpu
        trains, tensor_type = self.torch.is_grad_enabled, self.torch.Tensor
        spans, took = self.spans, self.workers.took

        def fetched(
            loader: Any,
            batch: Any,
            begin: int,
            data: int,
            sync: int,
            samples: int,
            waited: int,
            in_data: int,
        ) -> None:
            if not trains():
                clock.flags |= _EVALUATION
                spans.evaluating(begin, batch is None)
                return
            if spans.evaluation is not None:
                spans.end_evaluation()
            self.used = True
            if clock.resting is not None:
                outside = begin - clock.begin_ns - clock.marked_ns
                clock.rest_until(outside - data - sync - waited + in_data)
            end = now()
            clock.data_ns = data + end - begin - (clock.sync_ns - sync)
            if end - cpu.looked_ns > _LOOK_NS:
                cpu.look(end, clock.sync_ns)
            cpu.in_data_ns = in_data + cpu.total_ns - waited
            if counted and batch is not None:
                clock.samples = samples + _batch_size(batch, tensor_type)
                took(loader, end)

        note, look = self.guard.guarded(fetched), self.guard.guarded(cpu.look)

        @functools.wraps(fetch)
        def method(loader: Any) -> Any:
            if clock.thread and thread_id() != clock.thread:
                return fetch(loader)
            begin = now()
            if begin - cpu.looked_ns > _LOOK_NS:
                look(begin, clock.sync_ns)
            data, sync, samples = clock.data_ns, clock.sync_ns, clock.samples
            waited, in_data = cpu.total_ns, cpu.in_data_ns
            batch = None
            try:
                spans.fetching = True
                batch = fetch(loader)
                return batch
            finally:
                spans.fetching = False
                note(loader, batch, begin, data, sync, samples, waited, in_data)

        return method


class _FlightRecorder:
    """Torch's own server, through which the agent fetches which collectives ran."""

    def __init__(self, torch: Any, distributed: Any, guarded: Callable[..., Any]) -> None:
        self.torch, self.distributed, self.socket = torch, distributed, ""
        self.guarded = guarded

    def serve(self, ring: str) -> None:
        """Let the agent fetch the Flight Recorder, without this interpreter, over a socket.

        The server is never shut down: that hangs right after its start, and its destructor does so
        too. One reference too many keeps it until the process ends.
        """
        environ = os.environ
        size = environ.get("TORCH_FR_BUFFER_SIZE") or environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE")
        server_type = getattr(self.torch._C._distributed_c10d, "_WorkerServer", None)
        path = _beside(ring, "sock")
        if self.socket:
            if self.socket != path:
                os.rename(self.socket, path)
                self.socket = path
            return
        if server_type is None or size == "0" or environ.get("RANKSCOPE_PROBE_FLIGHT") == "0":
            return
        if len(os.fsencode(path)) > _SOCKET_PATH:
            raise ValueError("no Flight Recorder: {} is too long for a socket".format(path))
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server_type(path)))
        self.socket = path
        atexit.register(self.close)

    def close(self) -> None:
        """Call nothing in a process that ends."""
        if self.socket:
            with contextlib.suppress(OSError):
                os.unlink(self.socket)

    def time_collectives(self) -> None:
        """Have NCCL's collectives timed on the device, by request only: it is not free.

        With CUDA_DEVICE_MAX_CONNECTIONS=1, as Megatron-LM sets it, the events end all overlap of
        exchange and compute (pytorch issue 143890), so that it is refused there.
        """
        if os.environ.get("RANKSCOPE_PROBE_DURATIONS") != "1":
            return
        if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
            sys.stderr.write(
                "rankscope probe: RANKSCOPE_PROBE_DURATIONS=1 is refused, as with"
                " CUDA_DEVICE_MAX_CONNECTIONS=1 timed collectives overlap with nothing\n"
            )
            return
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        for group in list(getattr(world, "pg_map", {})):
            group._enable_collectives_timing()


class _Probe:
    """Where this process's steps begin and end; what hooks and which ring it gets for them."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.distributed: Any = torch.distributed if torch.distributed.is_available() else None
        # What `is_initialized()` asks through three functions, which are cold at each step's end.
        world = getattr(getattr(self.distributed, "distributed_c10d", None), "_world", None)
        self.world: Any = world if hasattr(world, "_default_pg") else None
        self.guard = _Guard(torch)
        self.clock = clock = _StepClock(torch)
        self.store = _CheckpointStore(self.guard)
        self.signals = _Signals(torch, self.guard)
        self.spans = _Spans(torch, self.guard, clock, self.store)
        self.store.tell, self.store.note = self.spans.measured, self.signals.note_store
        self.loader = _Loader(torch, self.guard, clock, self.spans)
        self.backwards = _Backwards(torch, self.guard, clock, self.backward_without_step)
        self.gloo = _GlooWaits(torch, self.distributed, self.guard, clock)
        self.flight = _FlightRecorder(torch, self.distributed, self.guard.guarded)
        self.flush_signals = self.guard.guarded(self.signals.flush)
        # What a program calls: compilers pass it by, and its mistakes cost the hooks nothing.
        calls = _Guard(torch)
        self.take_step = calls.untraced(calls.guarded(self.ended_by_program))
        self.take_loss = calls.untraced(calls.guarded(self.signals.loss))
        self.take_rate = calls.untraced(calls.guarded(self.signals.rate))
        self.take_shards = calls.untraced(calls.guarded(self.signals.shards_are))
        self.take_model = calls.untraced(calls.guarded(self.signals.model))
        self.take_epoch = calls.untraced(calls.guarded(self.signals.epoch))
        self.take_tokens = calls.guarded(functools.partial(self.signals.put, _TOKENS))
        self.ring: _Ring | None = None
        self.shown: _Ring | None = None  # before the first step, without records
        self.replicas: list[Any] = []  # weak references to DistributedDataParallel modules
        self.restart()

    def restart(self) -> None:
        """Forget all that was measured, as a forked child must: the ring is its parent's."""
        for ring in filter(None, (self.ring, self.shown)):
            ring.close()  # its lock stays with the parent's descriptor
        self.ring = self.shown = None
        self.clock.restart()
        self.spans.restart()
        self.store.restart()
        self.signals.restart()
        self.backwards.restart()
        self.loader.used = False
        self.loader.workers.restart()
        self.flight.socket = ""
        self.step = self.rings = self.stepless = self.stepless_ns = 0
        self.stepped = self.watches_step_begins = False  # stepped: since the scaler
        self.by_program = self.counted = False  # the program says where steps end; their samples
        self.primary: tuple[int, int] | None = None
        self.others: dict[tuple[int, int], int] = {}
        self.connected: bool | None = None
        self.device, self.timing = "", _TIMING_NONE
        self.mesh: Any = None  # that the primary optimizer's parameters are distributed over
        self.layout: tuple[int, ...] = _NO_LAYOUT

    def step_finished(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Take the end of an optimizer's `step()`, of any optimizer in this process."""
        self.stepped = True
        groups = optimizer.param_groups
        first = groups[0]["params"] or next(g["params"] for g in groups if g["params"])
        parameter = first[0]
        key = (id(optimizer), id(parameter))
        if key != self.primary:
            if not self.adopts(key):
                self.other_stepped()
                return
            self.primary, self.device = key, parameter.device.type
            once = self.guard.guarded(self.parameters_once)(optimizer)
            self.guard.guarded(self.signals.begins)(optimizer, once)
        self.others.clear()
        if self.by_program:
            self.other_stepped()
            return
        if not self.clock.thread:
            self.mesh = getattr(parameter, "device_mesh", None)
            self.spans.hook_frameworks()
        flags = 0
        if options or len(arguments) > 1:
            closure = options.get(
                "closure", next(iter(arguments[1:]), None)
            )  # behind the optimizer
            flags = _CLOSURE if closure is not None else 0
        self.end_step(flags)

    def parameters_once(self, optimizer: Any) -> "float | None":
        """Return this rank's part of the model, such that the parts of all ranks add up to it.

        Ranks that hold the same share it equally; of a shard each has its own. None where that is
        not known: of plain tensors that neither DistributedDataParallel nor FSDP holds, ranks may
        have copies as well as shards. What a tensor group repeats of plain tensors, such as norms,
        counts in each of its ranks.
        """
        ranks = self.distributed.get_world_size() if self.initialized() else 1
        replicas = [module for module in (replica() for replica in self.replicas) if module]
        copies = {
            id(one): module.process_group.size()
            for module in replicas
            for one in module.parameters()
        }
        total = 0.0
        for one in (one for group in optimizer.param_groups for one in group["params"]):
            among, mesh = copies.get(id(one), 0), getattr(one, "device_mesh", None)
            if mesh is not None:
                total += one.numel() / mesh.size() / max(among, 1)
            elif among or ranks == 1:
                total += one.numel() / max(among, 1)
            elif getattr(one, "_fsdp_flattened", False) and not self.has_subgroups(ranks):
                total += one.numel()
            else:
                return None
        return total / _replica_group()[1]

    def has_subgroups(self, ranks: int) -> bool:
        """Say whether some ranks have a group of their own: then shards may have copies."""
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        groups = getattr(world, "pg_group_ranks", {}).values()
        return any(1 < len(group) < ranks for group in groups)

    def end_shown(self) -> None:
        """Remove the ring of a program without steps so far: the next one says more."""
        shown, self.shown = self.shown, None
        self.spans.slots, self.spans.passing = None, False
        self.signals.slots = None
        if shown is not None:
            shown.remove()

    def adopts(self, key: tuple[int, int]) -> bool:
        """Decide whether an optimizer becomes the primary one: there is none, or it is gone."""
        if self.primary is None:
            return True
        self.others[key] = self.others.get(key, 0) + 1
        return self.others[key] >= _ADOPT_AFTER

    def other_stepped(self) -> None:
        """Take the end of a further optimizer's `step()`."""
        if threading.get_ident() == self.clock.thread and not self.clock.in_backward:
            self.clock.optimizer_ended(time.perf_counter_ns())

    def step_begins(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Take the begin of an optimizer's `step()`."""
        if threading.get_ident() == self.clock.thread:
            self.clock.optimizer_begins(time.perf_counter_ns())

    def scaler_updated(self, scaler: Any) -> None:
        """Take a `GradScaler.update()`: with no step before it, gradients had overflowed."""
        if scaler.is_enabled() and not self.stepped and self.primary is not None:
            self.signals.add(_SKIPS)
            if not self.by_program:
                self.end_step(_SKIPPED)
        self.stepped = False

    def ended_by_program(self, samples: Any, tokens: Any) -> None:
        """Take the end of a step from the program; from the first one on none but these count."""
        now = time.perf_counter_ns()
        if tokens is not None:
            self.signals.add(_TOKENS, float(tokens))
        if samples is not None:
            self.clock.samples, self.counted = int(samples), True
        if not self.by_program:
            self.by_program = True
            if not self.device:
                initialized = self.torch.cuda.is_available() and self.torch.cuda.is_initialized()
                self.device = "cuda" if initialized else "cpu"
            if self.clock.thread and not self.step:  # begun by the optimizer, a moment ago
                self.clock.begin(now, time.time_ns())
                return
        self.end_step(0)

    def end_step(self, flags: int) -> None:
        """End the step here, record it and begin the next; the first call only begins one."""
        now, clock = time.perf_counter_ns(), self.clock
        thread, cpu = threading.get_ident(), clock.cpu
        try:
            if clock.thread:
                self.step = self.spans.step = self.signals.step = self.step + 1
                if self.spans.evaluation is not None:
                    self.spans.end_evaluation()
                other = clock.end(now) if thread == clock.thread else -1
                if self.device != "cpu":
                    other = -1
                elif other is None:
                    other = -1
                    if not self.watches_step_begins:
                        self.guard.guarded(self.watch_step_begins)()
                if clock.marked_ns:
                    other = clock.marked_ns + max(other, 0)
                self.record(now - clock.begin_ns, flags | clock.flags, other)
        finally:
            cpu.begin_step(clock.sync_ns)
            if thread != clock.thread and cpu.schedule:
                self.guard.guarded(cpu.watch)()
            clock.thread = thread
            clock.begin(now, time.time_ns())
            if now > self.signals.due_ns and self.ring is not None:
                self.flush_signals(now)
        connected = self.world._default_pg is not None if self.world else self.initialized()
        if connected is not self.connected:
            self.connected = connected
            self.timing = self.choose_timing()

    def initialized(self) -> bool:
        """Say whether this process has joined others."""
        return self.distributed is not None and bool(self.distributed.is_initialized())

    def watch_step_begins(self) -> None:
        """Have optimizers say when they begin to step, where nothing else tells."""
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self.watches_step_begins = True
        register_optimizer_step_pre_hook(self.guard.untraced(self.guard.guarded(self.step_begins)))

    def record(self, step_ns: int, flags: int, other_ns: int = -1) -> None:
        """Write one record, into a ring made at the first; what fails is not recorded."""
        if self.ring is None:
            if self.rings >= _MAX_RINGS:
                return
            self.guard.guarded(self.end_shown)()
            self.open_ring()
            flags |= _FIRST
        clock, waits = self.clock, self.backwards.device_waits
        # Conditions rather than min() and max(), which take three times as long.
        samples, data_ns, sync_ns = clock.samples, clock.data_ns, -1
        known = samples >= 0 and (self.loader.used or self.counted)
        count = samples if known else _UNKNOWN_SAMPLES
        if data_ns > step_ns:
            data_ns = step_ns
        backwards = clock.backwards
        if backwards > _UNKNOWN_MICROBATCHES:
            backwards = _UNKNOWN_MICROBATCHES
        backwards |= self.loader.workers.code
        begin, step = clock.begin_unix_ns, self.step
        if waits is not None:
            waits.add(begin, step_ns, data_ns, step, count, flags, other_ns, backwards, clock.marks)
            self.write_passed(_PENDING_STEPS)
            waits.prepare(step + 1, step_ns)
            return
        if self.timing:
            sync_ns, left = clock.sync_ns, step_ns - data_ns
            if sync_ns > left:
                sync_ns = left
        marks = clock.marks
        self.write(sync_ns, begin, step_ns, data_ns, step, count, flags, other_ns, backwards, marks)

    def backward_without_step(self) -> None:
        """Make a program seen that computes gradients and takes no step that we would see."""
        if self.ring is not None or self.shown is not None or self.rings:
            return
        now = time.perf_counter_ns()
        self.stepless += 1
        self.stepless_ns = self.stepless_ns or now
        if self.stepless >= _STEPLESS_BACKWARDS and now - self.stepless_ns > _STEPLESS_NS:
            self.show()

    def joined(self) -> None:
        """Show a rank that has met the others, and have it answer where it stands from now on."""
        unseen = self.ring is None and self.shown is None and not self.rings
        if unseen and self.distributed.get_world_size() > 1:
            self.show()

    def show(self) -> None:
        """Make a ring without records, which gives way to that of the first step."""
        self.rings = _MAX_RINGS  # what refuses it is not asked again
        self.shown = self.made_ring(_STEPLESS_CAPACITY)
        self.rings = 0
        self.guard.guarded(self.spans.attach)(self.shown.spans, True)
        self.signals.slots = self.shown.signals
        self.serve_flight(self.shown)

    def open_ring(self) -> None:
        """Make a ring; a full disk, or what else refuses the first, is not asked again."""
        again, self.rings = self.rings, _MAX_RINGS
        if not again and self.initialized():
            self.guard.guarded(self.find_layout)()
        self.ring = self.made_ring(_CAPACITY)
        self.rings = again + 1
        self.guard.guarded(self.spans.attach)(self.ring.spans)
        self.signals.slots = self.ring.signals
        if not again:
            atexit.register(self.guard.guarded(self.write_rest))
            self.serve_flight(self.ring)
            if self.flight.socket:
                self.guard.guarded(self.flight.time_collectives)()
        if self.ring.refused is not None:
            self.guard.errors += 1
            self.guard.report(self.ring.refused)

    def made_ring(self, capacity: int) -> _Ring:
        """Return a new ring that says what is known of this process by now."""
        joined = self.distributed if self.initialized() else None
        attempt = min(max(_first_number(("TORCHELASTIC_RESTART_COUNT",)), 0), 0xFFFF)
        version = self.torch.__version__
        return _Ring(_ring_directory(), version, joined, attempt, self.layout, capacity)

    def serve_flight(self, ring: _Ring) -> None:
        """Have the agent asked in beside a ring, where other ranks may wait for this one."""
        if self.initialized() and self.distributed.get_world_size() > 1:
            self.guard.guarded(self.flight.serve)(ring.path)

    def write_rest(self) -> None:
        """Write at the process's end what has waited for the device or for company."""
        self.write_passed(0)
        if self.ring is not None:
            self.ring.flush()
        self.guard.guarded(self.store.wait)()
        self.guard.guarded(self.signals.flush)(0)

    def write_passed(self, kept: int) -> None:
        """Write the steps that the device has passed, but for `kept` others at most."""
        waits = self.backwards.device_waits
        if waits is not None:
            for sync_ns, step in waits.ended(kept):
                self.write(min(sync_ns, step[1] - step[2]), *step)

    def write(
        self,
        sync_ns: int,
        begin_unix_ns: int,
        step_ns: int,
        data_ns: int,
        step: int,
        samples: int,
        flags: int,
        other_ns: int,
        backwards: int,
        marks: bytes = _NO_MARKS,
    ) -> None:
        """Put one record into the ring; `sync_ns` is -1 if it could not be told from compute."""
        compute_ns, cpu_wait_ns, cpu = -1, -1, self.clock.cpu
        if sync_ns >= 0:
            compute_ns = step_ns - data_ns - sync_ns
            flags |= _TIMING_WALL
            if cpu.looked_ns != _NEVER_NS:
                in_data = cpu.in_data_ns
                compute_ns -= cpu.total_ns - in_data
                if compute_ns < 0:
                    compute_ns = 0
                data_ns -= min(data_ns, in_data)
                flags |= _CPU_WAIT
                cpu_wait_ns = step_ns - data_ns - compute_ns - sync_ns
        if not self.loader.used:
            data_ns = -1
        if other_ns > compute_ns:
            other_ns = compute_ns
        if self.ring is not None:
            try:
                self.ring.write(
                    begin_unix_ns,
                    step_ns,
                    data_ns,
                    compute_ns,
                    sync_ns,
                    step,
                    samples,
                    flags,
                    other_ns,
                    cpu_wait_ns,
                    backwards,
                    marks,
                )
            except _LostError:
                self.spans.slots = self.signals.slots = None
                self.ring.close()
                self.ring = None  # the next step makes another one, with a lock that holds
                raise

    def find_layout(self) -> None:
        """Learn from the process groups which ranks share a layer or a pipeline with this one."""
        c10d, mesh = self.distributed, self.mesh
        named: dict[str, list[int]] = {}
        known = getattr(getattr(c10d.distributed_c10d, "_world", None), "pg_group_ranks", {})
        for group, ranks in list(known.items()):
            description = str(getattr(group, "group_desc", "")).lower()
            named.setdefault(re.sub("^mesh_", "", description), list(ranks))
        # A dimension over all ranks has the default group, whose description is another.
        for name in getattr(mesh, "mesh_dim_names", None) or ():
            named[name.lower()] = c10d.get_process_group_ranks(mesh.get_group(name))
        tensor = next((named[name] for name in _TENSOR_GROUPS if name in named), None)
        pipeline = next((named[name] for name in _PIPELINE_GROUPS if name in named), None)
        if tensor or pipeline:
            size = c10d.get_world_size()
            self.layout = _layout(c10d.get_rank(), size, tensor or [], pipeline or [])
            self.spread_layout(size // (len(tensor or [0]) * len(pipeline or [0])))
        self.mesh = None

    def spread_layout(self, replicas: int) -> None:
        """Number the layout's groups over all of TorchFT's replica groups.

        Args:
            replicas: ranks of one replica group that have one shard.
        """
        (group, groups), (shard, layer, stage) = _replica_group(), self.layout
        if layer and groups > 1:
            among = (layer - 1) % replicas + group * replicas
            self.layout = shard, (stage - 1) * groups * replicas + among + 1, stage

    def choose_timing(self) -> int:
        """Decide whether blocked time can be told from compute, and hook what is needed for it."""
        if not self.connected:  # by the environment alone: other ranks may talk past torch
            return _TIMING_WALL if _identity(None)[2] == 1 else _TIMING_NONE
        if _replica_group()[1] > 1:  # torchft has groups wait for each other past torch
            return _TIMING_NONE
        if self.distributed.get_world_size() == 1:
            return _TIMING_WALL
        if self.device == "cuda":
            self.backwards.timed = self.time_device_waits()
            return _TIMING_NONE if self.backwards.device_waits is None else _TIMING_WALL
        gloo = "cpu:gloo" in str(self.distributed.get_backend_config())
        if not gloo or self.device != "cpu" or os.environ.get("RANKSCOPE_PROBE_COLLECTIVES") == "0":
            return _TIMING_NONE
        self.gloo.hook()
        self.backwards.timed = True
        self.guard.guarded(self.clock.cpu.watch)()
        return _TIMING_WALL

    def time_device_waits(self) -> bool:
        """Time the device's waits, if the ends of backwards are where all of them are.

        They are with DistributedDataParallel alone. Sharded parameters are waited for layer by
        layer, and ranks of further groups wait for each other in many places: by request, the
        training stream's waits are bracketed wherever they are. Return True if the ends of
        backwards are to be watched.
        """
        modules = [module for module in (replica() for replica in self.replicas) if module]
        if os.environ.get("RANKSCOPE_PROBE_STREAM_WAITS") == "1":
            if self.backwards.device_waits is not None:
                self.backwards.device_waits.close()
            self.backwards.device_waits = _StreamWaits(
                self.torch, self.distributed, self.guard, bool(modules)
            )
            return bool(modules)
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        groups = [
            ranks for ranks in getattr(world, "pg_group_ranks", {}).values() if len(ranks) > 1
        ]
        if not modules or self.mesh is not None or len(groups) != 1:
            return False
        waits = self.backwards.device_waits = _DeviceWaits(self.torch.cuda)
        work = self.torch._C._distributed_c10d.Work
        work.wait = self.guard.untraced(waits.spoiling(work.wait))
        return True

    def replicated(self, module: Any) -> None:
        """Take note of a model that DistributedDataParallel was put around."""
        self.replicas.append(weakref.ref(module))

    def install(self) -> None:
        """Put the hooks in that every process gets; those for collectives wait for a first step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        guarded, untraced = self.guard.guarded, self.guard.untraced
        # First, as a child's hooks must not write to its parent's ring if a later line raises.
        os.register_at_fork(after_in_child=guarded(self.restart))
        self.backwards.hook()
        guarded(self.spans.hook)()
        guarded(self.spans.hook_termination)()
        guarded(self.signals.hook)()
        guarded(self.loader.workers.hook)()
        # Untraced: compiled code must neither inline a hook, which it cannot, nor lose it.
        loading = self.torch.utils.data.dataloader
        register_optimizer_step_post_hook(untraced(guarded(self.step_finished)))
        iterator, loader = loading._BaseDataLoaderIter, loading.DataLoader
        iterator.__next__ = untraced(self.loader.fetching(iterator.__next__, counted=True))
        loader.__iter__ = untraced(self.loader.fetching(loader.__iter__, counted=False))
        # Before torch 2.3 that of CUDA is the only one; since then it inherits from the other.
        scaler_type = getattr(self.torch.amp, "GradScaler", self.torch.cuda.amp.GradScaler)
        update, note = scaler_type.update, untraced(guarded(self.scaler_updated))

        @functools.wraps(update)
        def updating(scaler: Any, *arguments: Any, **options: Any) -> None:
            update(scaler, *arguments, **options)
            note(scaler)

        scaler_type.update = updating
        if self.distributed is not None:
            self.hook_joining()
        parallel = self.torch.nn.parallel.DistributedDataParallel
        make, note_made = parallel.__init__, guarded(self.replicated)

        @functools.wraps(make)
        def making(*arguments: Any, **options: Any) -> None:
            make(*arguments, **options)  # its own parameter is called `module` as well
            note_made(arguments[0])

        parallel.__init__ = making

    def hook_joining(self) -> None:
        """Mark `init_process_group` and have it say that it is done, under both of its names."""
        c10d, note = self.distributed.distributed_c10d, self.guard.guarded(self.joined)
        join = self.spans.marked(_JOIN, c10d.init_process_group)

        @functools.wraps(join)
        def joining(*arguments: Any, **options: Any) -> None:
            join(*arguments, **options)
            note()

        self.distributed.init_process_group = c10d.init_process_group = joining


_probe: _Probe | None = None


def watch() -> None:
    """Measure this process's optimizer steps from now on; further calls do nothing.

    Never raises but for the user's Ctrl-C: what keeps the probe from starting gets one line.
    """
    try:
        _start()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - training goes on without us
        sys.stderr.write("rankscope probe: not started: {!r}\n".format(error))


class phase:  # noqa: N801 - it is called in a `with` statement, as a function is
    """Mark a `with` block as what is no step: time in it is no computing.

    What torch.save and the like write inside is part of it; an exception makes it a failed one, and
    is passed on. Nothing is marked where the probe is switched off or did not start.

    Args:
        name: "checkpoint", "load", "evaluation" or "compile"; nothing is marked for another one.
        path: the file or directory that is written or read.
    """

    def __init__(self, name: str, path: Any = None) -> None:
        self.kind = _PHASES.get(name)
        self.path = path
        self.probe: _Probe | None = None
        self.span: _Span | None = None

    def __enter__(self) -> "phase":
        self.probe = _probe
        if self.probe is not None and self.kind is not None:
            self.span = self.probe.spans.begin(self.kind, self.path)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.probe is not None and self.span is not None:
            self.probe.spans.end(self.span, _DONE if kind is None else _FAILED, self.path)
            self.span = None


class checkpoint(phase):  # noqa: N801
    """Mark what a `with` block saves as a checkpoint, where no library saves it that is known.

    Args:
        path: the file or directory that is written; ranks that write to one place are found by it,
            and the bytes of a file are noted.
    """

    def __init__(self, path: Any = None) -> None:
        super().__init__("checkpoint", path)


def step(samples: int | None = None, tokens: int | None = None) -> None:
    """End a training step here; from the first call on no optimizer ends one.

    For loops whose optimizers are none of torch's, and for what only the program knows.

    Args:
        samples: that this rank processed in it.
        tokens: likewise.
    """
    if _probe is not None:
        _probe.take_step(samples, tokens)


def loss(value: Any) -> None:
    """Take note of the step's training loss, once a step.

    A tensor is copied without waiting for its device, and read a step later or more.

    Args:
        value: a number, or a tensor of one element on the CPU or on CUDA.
    """
    if _probe is not None:
        _probe.take_loss(value)


def shards(*paths: Any) -> None:
    """Say which files of the dataset the losses that follow come from, until it is said again.

    Where a loss is infinite or NaN, it is known what was read for the first that was. Names without
    folders count, of four files at most: one that came from more is linked to none of them. Call it
    in the process that trains, as often as the files change or with each batch.

    Args:
        paths: of shards, or their addresses.
    """
    if _probe is not None:
        _probe.take_shards(*paths)


def learning_rate(value: float) -> None:
    """Take note of the learning rate, where it is not that of the optimizer's first group."""
    if _probe is not None:
        _probe.take_rate(value)


def epoch(value: float) -> None:
    """Take note of how many passes over the dataset training has made, parts of one included.

    At the end of each, or as often as one likes: 2.5 is the middle of the third. Ranks that share
    the dataset say the same. It is what the cost of an epoch is reckoned by.
    """
    if _probe is not None:
        _probe.take_epoch(value)


def model(
    active_parameters: "float | None" = None,
    flops_per_token: "float | None" = None,
    flops_per_sample: "float | None" = None,
    dtype: Any = None,
) -> None:
    """Say what a step of this model takes, once and the same in all ranks; None is not known.

    Without it a token takes 6 FLOPs for each parameter that the optimizer updates: too many for a
    mixture of experts, of which a token meets some, too few where parameters are frozen.

    Args:
        active_parameters: of the whole model, that one token meets.
        flops_per_token: forward and backward, instead of 6 for each of them.
        flops_per_sample: the same of a sample, where a model has no tokens.
        dtype: that is computed with, "bf16", "fp16", "fp8", "fp4", "tf32" or "fp32": which peak of
            the GPU counts; that of 16 bits without it.
    """
    if _probe is not None:
        _probe.take_model(active_parameters, flops_per_token, flops_per_sample, dtype)


def transformers_callback() -> Any:
    """Return a callback for transformers' Trainer: loss, epoch, and tokens where it counts them.

    The loss is the one that the Trainer logs: an average of `logging_steps` steps.
    """
    import transformers

    def begins(callback: Any, args: Any, state: Any, control: Any, **known: Any) -> None:
        callback.before = getattr(state, "num_input_tokens_seen", 0)  # of a run that is resumed

    def logs(callback: Any, args: Any, state: Any, control: Any, **known: Any) -> None:
        loss((known.get("logs") or {}).get("loss"))
        if state.epoch is not None:
            epoch(state.epoch)
        tokens = getattr(state, "num_input_tokens_seen", 0) - callback.before
        if _probe is not None and tokens > 0:  # of all ranks, in equal shares
            _probe.take_tokens(tokens / args.world_size)

    hooks = {"before": 0, "on_train_begin": begins, "on_log": logs}
    return type("RankscopeCallback", (transformers.TrainerCallback,), hooks)()


def lightning_callback() -> Any:
    """Return a callback for Lightning's Trainer: the loss of every batch, the number of epochs."""
    import importlib

    try:
        lightning = importlib.import_module("lightning.pytorch")
    except ImportError:
        lightning = importlib.import_module("pytorch_lightning")

    def ended(callback: Any, trainer: Any, module: Any, outputs: Any, *of: Any) -> None:
        loss(outputs.get("loss") if isinstance(outputs, Mapping) else outputs)

    def passed(callback: Any, trainer: Any, module: Any) -> None:
        epoch(trainer.current_epoch + 1)

    hooks = {"on_train_batch_end": ended, "on_train_epoch_end": passed}
    return type("RankscopeCallback", (lightning.Callback,), hooks)()


def _autoload() -> None:
    """Run `_start` at the end of `import torch`, which any error from here would make fail."""
    try:
        _start()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - see above; says it where one can see it
        if os.environ.get("RANKSCOPE_PROBE_DEBUG") == "1":
            sys.stderr.write("rankscope probe: not started: {!r}\n".format(error))


def _say_loaded() -> None:
    """Leave word where rings will lie that a rank of a job has loaded the probe.

    A job that never comes out of `init_process_group` has no ring: only this tells it from a
    program that was given the probe's environment and does not load it.
    """
    if _identity(None)[2] > 1:
        with contextlib.suppress(OSError):  # the first ring makes the directory, or says why not
            word = os.path.join(_ring_directory(), _LOADED)
            os.close(os.open(word, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))


def _ring_directory() -> str:
    return os.environ.get("RANKSCOPE_RING_DIR") or "/run/rankscope"


def _start() -> None:
    global _probe
    if _probe is None and os.environ.get("RANKSCOPE_PROBE") != "0":
        import torch.utils.data

        _probe = _Probe(torch)
        _probe.guard.guarded(_probe.install)()
        _say_loaded()
