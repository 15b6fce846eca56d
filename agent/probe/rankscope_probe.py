"""Record how long each optimizer step of a PyTorch process took, and where the time went.

torch >= 2.5 calls `_autoload` at the end of `import torch` if this directory is on PYTHONPATH; with
older versions, call `watch()` once, before training. Each step adds one record to a ring file that
the node's agent reads, in RANKSCOPE_RING_DIR (default /run/rankscope; keep it on tmpfs or in a
Memory emptyDir, because a write that waits for a disk delays the training loop). RANKSCOPE_PROBE=0
switches the probe off, RANKSCOPE_PROBE_COLLECTIVES=0 its timing of blocking calls on gloo. In jobs
of several processes, one of torch's worker servers listens on `<ring's name>.sock` next to the ring
once `init_process_group` has returned; from it the agent fetches the Flight Recorder, and the stack
of a stalled rank. RANKSCOPE_PROBE_FLIGHT=0 keeps it from being started.
RANKSCOPE_PROBE_STREAM_WAITS=0 keeps it from timing, in sampled steps, what the training stream
waits for on NCCL; 1 has it do so on other backends, and where DistributedDataParallel alone waits.
RANKSCOPE_PROBE_DURATIONS=1 asks NCCL to time collectives, see `time_collectives`.
RANKSCOPE_PROBE_DEBUG=1 prints each of the probe's errors with its traceback; otherwise an error
takes one line.

A step ends when `step()` of the primary optimizer returns, and the next one begins. The primary
optimizer is the one that steps first, and after it is gone, the one that steps next. If it is
called again with other parameters (DeepSpeed's sub-groups), the step continues until the first
parameters come round again. The first call (step 0) leaves no record, because its beginning was not
seen. If a GradScaler, or the program before the scaler's update, leaves out its step, that also
ends a step: SKIPPED. A program that joins others, or computes gradients for ten seconds, without
taking a step gets a small ring without records so that it is visible; its first step creates
another one.

* data: blocked in torch's DataLoader, a loader in `_LOADERS` or what the program has marked by
  `batches`, with gradients enabled; -1 while none has been used. In steps
  whose sync is measured by CUDA events, only while the training stream had nothing left to do: what
  loads while the device is still busy with earlier work delays nobody.
* sync: blocked in collectives on gloo: in `Work.wait()` and the like, and at the end of a backward
  pass, where DistributedDataParallel waits for its buckets. What overlaps with the backward pass
  does not count. With CUDA, in jobs in which only DistributedDataParallel waits, the device's wait
  at that point, by CUDA events; in other jobs on NCCL, the training stream's waits for its peers
  anywhere, in sampled steps, see `_StreamWaits`. 0 in a job of one process, -1 everywhere else.
* other: what follows a step's last backward pass (gradient clipping, optimizers) and, with a
  DataLoader, what precedes its first batch (logging, evaluation, checkpoints). A batch fetched
  after the autograd graph has grown since the step began is not the first one, and what precedes a
  collective there is compute, because the other ranks wait for it. If no backward pass is seen,
  because engines called directly hide it, gradients are considered ready when an optimizer begins
  to step. On the CPU only, elsewhere -1, because a host that waits for a device shows nothing.
  Without a loader there is no cheap way to detect the beginning of the forward pass, so what
  precedes it counts as compute.
* compute: all the rest; -1 if sync is -1.
If flags include 64, the other times exclude time in which the training thread was runnable and
waited for a CPU: on gloo, what they and sync leave of the step is that wait, from schedstat.

The ring, version 1: `<pid>-<process_start_ticks>.ring`, created under a name with a leading dot and
renamed. A program started by exec in the same process finds the name taken and uses the next one.
Little-endian. A header of 4096 bytes, zero padded: "<8sHHIIIqIIQiiii" =
  magic "RKSCRING", version 1, header_size 4096, byte_order_mark 0x01020304, record_size 64,
  capacity 65536 (records; 64 before the first step), created_unix_ns, pid, attempt,
  process_start_ticks (field 22 of /proc/self/stat, 0 unknown), rank, local_rank, world_size,
  local_world_size (-1 unknown),
then NUL-padded UTF-8: job_id 320 bytes, node 256, launcher 32, pod_uid 64, probe_version 16,
torch_version 32, then "<IIII": dp_group, tp_group and pp_stage, each plus 1, or three zeros if no
process group shows them (readers then treat all ranks as data-parallel), see `_layout`; the
number of TorchFT's replica groups, over all of which ranks are numbered, see `_replica_group`; and
the 16 bytes of the UUID of the GPU that holds the primary optimizer's parameters, zeros if unknown.
After the header, `capacity` records of 64 bytes, "<QqqqqqIIHHI" =
  seq (from 1; in slot (seq - 1) % capacity), start_unix_ns, step_ns, data_ns, compute_ns, sync_ns
  (-1 not measured), step, samples (0xFFFFFFFF unknown), flags, attempt, check (seq & 0xFFFFFFFF).
compute_ns includes other, as it did before there were extensions. A slot of zeros is empty. With
CUDA events a record is written once the device has passed the step, at most 8 steps late. The
writer holds flock(LOCK_EX) while it lives. flags: bits 0-1 timing source (0 none, 2 wall), 4
optimizer closure, 8 update skipped by the scaler, 16 batches fetched without gradients, 32 first of
the process, 64 waits for a CPU excluded from data and compute, 128 of a process that times only
some of its steps; bits 8-11 why such a sample was discarded: 1 no wait in it, 2 a wait or
collective that Python does not see, 3 no event left, 4 a graph under capture, 5 the device 8 steps
behind, 6 waits of unknown origin, 7 an error.

Its extension, version 1, is a separate file, because older agents reject a ring that is longer: the
ring's name with `.ext` instead of `.ring`, created before the ring. Its first 64 bytes are, zero
padded, "<8sHHIIqI" = magic "RKSCEXTN", version 1, slot_size 64, byte_order_mark, capacity, and
created_unix_ns and pid of its ring; then `capacity` slots, "<QqqqqqqHHI" =
  seq, other_ns, cpu_wait_ns, checkpoint_ns, evaluation_ns, copies_ns, host_late_ns (-1 not
  measured), microbatches (backward passes of the step, 0xFFFF unknown), loader, check.
checkpoint_ns and evaluation_ns are the parts of other_ns spent in checkpoints and evaluations that
have spans; compile time is in other_ns too. During copies_ns of compute_ns, the training stream
waited for copies on other streams; for at most host_late_ns it had nothing queued, not counting
input. loader is the time that the DataLoader's worker processes, running in parallel, need for the
batches of a step: milliseconds as a half-precision float (IEEE 754 binary16), 0 unknown, over the
last second or so. Workers time themselves if they are forked.

Spans, version 1, are in a third file, `.span` instead of `.ring`: what a process does besides
steps. The header is that of the extension, except for magic "RKSCSPAN" and capacity 1024, followed
by slots "<QqqqqIIHBBIII" =
  seq (from 1, in slot (seq - 1) % capacity), start_unix_ns, duration_ns (-1 while it is open),
  blocked_ns (of the training thread's step, -1 unknown), bytes (-1 unknown), step (the last one
  that ended before), target (CRC-32 of the path, 0 unknown), flags, kind, outcome, 0, 0, check
  (4 * seq + outcome, & 0xFFFFFFFF).
kind: 1 checkpoint saved, 2 loaded, 3 staged (the part of `async_save` that delays training), 4
evaluation, 5 compiling, 6 joining others (`init_process_group`). outcome: 0 open, 1 done, 2 failed.
flags: 1 in a thread other than the training thread, 2 after a handler that the program registered
after `import torch` received SIGTERM, 4 into memory, 8 one file that no other rank should write, 16
there was no file to load. A slot is written when a span begins, again when it ends, and once more
when a background thread knows its bytes: an open span whose writer is gone was cut off. Spans from
before the ring, which is created with the first steps, are written when it is created, the newest
64. A span within another is part of it. Marked are: `torch.save` and `torch.load`, except for
reading samples, `save`, `load` and `async_save` of torch.distributed.checkpoint, the savers in
`_SAVERS`, loops over a DataLoader without gradients or, after their end, without training, see
`_Loop`, what torch.compile compiles, and `init_process_group`. Not marked: checkpoints written by
another process (`AsyncCheckpointerType.PROCESS`), and those that use none of these functions, such
as safetensors'.

Signals, version 1, are in a fourth file, `.sig` instead of `.ring`: the current values that
training reports about itself. The header is that of the extension, except for magic "RKSCSIGN" and
capacity 32, followed by slots "<QqdqII24x" =
  seq (how often the table has been written, 0 for an unknown value), unix_ns (when the value
  changed), value, step (the last one that had ended by then), kind (the slot's number, from 1),
  check (seq + kind, & 0xFFFFFFFF).
kind: 1 newest loss, possibly NaN, 2 number of losses reported, 3 number of non-finite ones, 4 the
loss with spikes removed, an average of the last twenty or so, 5 learning rate of the primary
optimizer's first group, 6 updates skipped by a GradScaler, 7 tokens, 8 parameters that this rank's
primary optimizer updates, 9 loader workers that died, 10 how often CUDA ran out of memory, 11 free
and 12 total bytes of the file system of the newest checkpoint, 13 checkpoints of its kind in the
same directory, 14 this rank's share of the model's parameters, such that the shares of all ranks
count each parameter once, see `parameters_once`; set by `model`: 15 FLOPs per token, 16 per sample,
17 the data type of the computation: 1 fp32, 2 tf32, 3 fp16, 4 bf16, 5 fp8, 6 fp4; 18 step of the
first non-finite loss since the last finite one, 19 number of files that it came from according to
the program, 20 to 23 CRC-32s of the names of up to four of them, see `shards`; 24 completed epochs.
Counts are per process. The table is written once a second at the end of a step, sooner after
changes of 3, 9 and 10. Losses, epochs and tokens are available if the program reports them, by
`loss`, `epoch`, `step` or a callback.

After creation each record takes one pwrite. Slots are written up to a second after their records,
several steps in one pwrite; if steps take longer than that, slots are written first. A process
that is killed, or whose next step never ends, leaves its last slots empty: their values are then
unknown, not zero.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import errno
import functools
import gc
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
import types
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, TypeVar

__version__ = "0.1.0"

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_Item = TypeVar("_Item")

_CAPACITY = 65536  # 1.8 hours at ten steps a second, the fastest loop worth a post-mortem; 4 MiB
_STEPLESS_CAPACITY = 64  # of a ring that gets no records
_HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32sIIII16s3280x")  # one page
_RECORD = struct.Struct("<QqqqqqIIHHI")
_EXTENSION_HEADER = struct.Struct("<8sHHIIqI32x")
_EXTENSION = struct.Struct("<Qqq32sII")  # unmeasured fields in one piece: it is faster
_FOUR = struct.Struct("<4q")  # checkpoint, evaluation, copies, host lateness
_NO_MARKS = _FOUR.pack(0, 0, -1, -1)
_SPAN = struct.Struct("<QqqqqIIHBBIII")
_SIGNAL = struct.Struct("<QqdqII24x")
_SLOT = 64  # bytes of a record, and of a slot in the other files

_TIMING_NONE, _TIMING_WALL = 0, 2
_CLOSURE, _SKIPPED, _EVALUATION, _FIRST, _CPU_WAIT = 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
_SAMPLED, _UNTIMED = 1 << 7, 8  # the flag, and the first of the four bits for the reason
_UNKNOWN_SAMPLES = 0xFFFFFFFF
_SIZE_UNKNOWN = -(1 << 40)  # keeps a step's sum negative whatever the other batches add
_MAX_HANDLERS = 256  # of signals, whose code is remembered
_MAX_ERRORS = 100  # of one hook, which will then always fail: stop trying
_SUBJECTS = {  # what may go unseen if something fails, by its class or its own name
    "_Backwards": "ends of backward passes",
    "_CheckpointStore": "sizes of checkpoints",
    "_CpuWaits": "waits for a CPU",
    "_DeviceWaits": "waits of the device",
    "_FlightRecorder": "the Flight Recorder",
    "_Loader": "waits for input",
    "_LoaderWorkers": "workers of input loaders",
    "_Probe": "steps",
    "_Probe.find_layout": "groups of ranks",
    "_Probe.hook_input": "waits for input",
    "_Probe.hook_optimizers": "steps of which some are counted twice",
    "_Probe.hook_joining": "joining others",
    "_Probe.hook_replicas": "models of DistributedDataParallel",
    "_Probe.hook_scaler": "updates that a GradScaler skips",
    "_Probe.note_amounts": "samples and tokens",
    "_Probe.parameters_once": "numbers of parameters",
    "_Probe.replicated": "models of DistributedDataParallel",
    "_Probe.step_begins": "what follows backward passes",
    "_Probe.watch_step_begins": "what follows backward passes",
    "_Ring": "all but steps",
    "_Signals": "losses, rates and counts",
    "_Spans": "checkpoints, evaluations and compiling",
    "_StreamWaits": "waits of the device",
    "_batch_size": "numbers of samples",
}
_ADOPT_AFTER = 8  # more calls than a GAN's usual 5 critic steps: then the old one is unused
_MAX_OTHERS = 1 << 14  # that step between two steps of the primary one: one for each parameter
_LOOKS = 8  # items checked for a batch's first tensor; collated batches have it in the first two
_FIELDS = 16  # of a batch, whose lengths are compared; Ultralytics has up to ten
_STALE_SECONDS = 24 * 3600  # long enough to read a ring the morning after a crash
_LOADED = ".loaded"  # created in the directory of rings once a rank of a job has loaded the probe
_STALE_LOOKS = 4096  # names: limits what a crowded directory costs to some milliseconds
_KEPT_RINGS = 16  # two attempts of eight ranks, 128 MiB: a crash loop must not fill a tmpfs
_UNKNOWN_MICROBATCHES = 0xFFFF
_WORKER = struct.Struct("<QQ")  # batches that a loader worker has made, nanoseconds that it took
_WORKER_SLOTS = 512  # in use at once; 8 KiB
_WORKERS_LOOK_NS = 1_000_000_000
_HALF, _WORD = struct.Struct("<e"), struct.Struct("<H")
_LARGEST_HALF = 65504.0
_LATE_NS = 1_000_000_000  # a slot of the extension may be written this long after its record
_MAX_WAITING = 4096  # of such slots: empty steps, as of a mock-up, may be 80,000 in a second
_PENDING_STEPS = 8  # by which the host is ahead of the device; more than frameworks queue
_MAX_WAITS = 64  # backward passes of one step whose ends are timed: more micro-batches are rare
_BUDGET = 0.001  # share of time that may be spent on timing what streams wait for
_FIRST_INTERVAL, _MAX_INTERVAL = 8, 1 << 16  # steps; powers of two, see `_StreamWaits`
_HELD_NS = 100_000  # recording an event takes 6 us on an H200, where the driver's queue is not full
_MAX_EVENTS = 4096  # of one process: 1,000 waits in each of two steps in flight
_UNKNOWN_SHARE = 0.01  # of a step may be waits of unknown origin: half of the promised accuracy
_MAX_FAILURES = 3  # of CUDA, after which it is not queried again
_SOCKET_PATH = 107  # bytes that the kernel accepts (sun_path in unix(7), less its NUL)
_SERVER_THREADS = 8  # of torch's worker server, on nodes of fewer CPUs (httplib.h)
_SEMAPHORE_SIZE, _SIGACTION_SIZE = 64, 256  # of sem_t and struct sigaction, at least
_TURN_SECONDS = 2.0  # for each rank of a node to start its server after the others
_HIGH_FD = 512  # above the descriptors that a program closes and reuses by number
_RLIMIT_FSIZE = 1  # bits/resource.h
_SIGXFSZ, _IGNORED = int(getattr(signal, "SIGXFSZ", 0)), int(signal.SIG_IGN)
_STEPLESS_NS, _STEPLESS_BACKWARDS = 10_000_000_000, 16  # so many, so long: then no step will come
_SIGNALS, _SIGNAL_NS = 32, 1_000_000_000
_SPANS = 1024  # a day of checkpoints every two minutes, with some evaluations; 64 KiB
_RECURRING = 3  # steps in turn with a `torch.load`: no program resumes as often
_EARLY_SPANS = 64  # kept until there is a ring
_MAX_SHARDS = 64  # files of one rank in one checkpoint whose sizes are read
_SAVE, _LOAD, _STAGE, _EVALUATE, _COMPILE, _JOIN = 1, 2, 3, 4, 5, 6
_OPEN, _DONE, _FAILED = 0, 1, 2
_BESIDE, _TERMINATING, _IN_MEMORY, _ONE_FILE, _NOT_THERE = 1, 2, 4, 8, 16
_LOSS, _LOSSES, _NOT_FINITE, _LEVEL, _RATE, _SKIPS, _TOKENS = range(1, 8)
_PARAMETERS, _DEAD_WORKERS, _CUDA_FULL, _FREE, _SPACE, _KEPT = range(8, 14)
_ONCE, _TOKEN_FLOPS, _SAMPLE_FLOPS, _NUMBERS = range(14, 18)
_BAD_SINCE, _BAD_SHARDS, _BAD_SHARD = range(18, 21)  # the last: of the first of _MAX_NAMED
_EPOCH = 24
_MAX_NAMED = 4  # shards of a loss; more of them indicate too little
_TYPES = {"fp32": 1, "float32": 1, "tf32": 2, "fp16": 3, "float16": 3, "half": 3, "bf16": 4}
_TYPES.update({"bfloat16": 4, "fp8": 5, "float8": 5, "fp4": 6})
_FLOPS_PER_PARAMETER = 6  # forward 2, backward 4 (arXiv:2001.08361, section 2.1)
_LOSSES_BEFORE = 4  # after which the level for spikes is set
_LEVEL_LOSSES, _SPIKE = 20, 3.0  # losses averaged into the level; multiple of the usual distance
_PENDING_LOSSES = 8  # being copied from a device
_WORKERS = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
_LOOK_AGAIN_NS = 5_000_000_000  # minimum time between two reads of a checkpoint's file system
_REQUESTS = 16  # checkpoints queued for a file system that does not answer
_EXIT_SECONDS = 0.1  # that the end of the process waits for it
_SIBLINGS = 4096  # names of a directory that are read
_NUMBER = re.compile(r"(?i)((?:rank|shard|part|of)[-_=]?)?\d+(?:\.\d+)?")
_OF_STEP = re.compile(r"(?i)(step|iter|iteration|checkpoint|ckpt|epoch)s?[-_=]?\d+")
_CHILD_LOOK_SECONDS = 5.0  # a fraction of what makes a job without steps look hung
_MAX_RINGS = 3  # of one process: a program that keeps closing all descriptors gets no more
_LOOK_NS = 3_000_000  # waits for another program last as long as its time slice (3 ms)
_IDLE_NS = 500_000  # less than this off the CPU contains no such wait; schedstat takes 5 to 40 us
_CALM_NS = 100_000_000  # between reads of schedstat while the thread is off the CPU only in sync
_WARY_NS = 1_000_000_000  # after it was off the CPU elsewhere: waits then count where they occur
_NEVER_NS = 1 << 62  # the time of the last reading if there is nothing to read

# A gloo thread that releases a finished collective acquires the interpreter's lock, to drop what
# torch keeps of the caller (in torch 2.13: `~AsyncAllreduceWork`, `~ThreadLocalState`). If it does
# so during interpreter exit, it aborts the process; this also happens without the probe, but more
# often with its hooks, and never with a pause before the exit. If it does so while the process
# group is destroyed under that lock, which waits for gloo's threads, both wait forever.
_SETTLE_SECONDS = 0.1

# Operators that block by themselves. Other collectives are waited for in Python, or at the end of a
# backward pass.
_BLOCKING = ("c10d::monitored_barrier_", "_c10d_functional::wait_tensor")

# The methods of torch's ProcessGroup that run collectives: every call from Python ends in one of
# them.
_COLLECTIVES = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "scatter", "barrier"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    *("alltoall", "alltoall_base", "send", "recv", "recv_anysource", "_end_coalescing"),
    *("all_gather_single", "all_gather_single_coalesced", "all_to_all_single"),  # torch 2.13
    *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
)
# Libraries whose streams wait for peers on their own: a module, and which of its variables is set
# then.
_UNSEEN = (
    ("deep_ep", ""),
    ("nvshmem", ""),
    ("transformer_engine.pytorch.module.base", "_ub_communicators"),
    ("torch.distributed._symmetric_memory", "_group_name_to_workspace_tensor"),
)
# The purpose of a wait, and why a sample is discarded.
_SYNC, _COPIES, _UNKNOWN, _END, _DATA = 0, 1, 2, 3, 4
_NO_WAIT, _UNSEEN_PATH, _POOL_DRY, _CAPTURE, _TOO_LATE, _UNKNOWN_WAITS, _BROKEN = range(1, 8)

# Savers of frameworks, which do more than call torch, and evaluations: module, class or none,
# function, kind of span. They are loaded by the first step, or never. The path of what is saved is
# found when they call torch.
_SAVERS = (
    ("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint", _SAVE),
    ("pytorch_lightning.trainer.trainer", "Trainer", "save_checkpoint", _SAVE),
    ("transformers.trainer", "Trainer", "_save_checkpoint", _SAVE),
    ("accelerate.accelerator", "Accelerator", "save_state", _SAVE),
    ("accelerate.accelerator", "Accelerator", "load_state", _LOAD),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_checkpoint", _SAVE),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "load_checkpoint", _LOAD),
    ("megatron.training.checkpointing", "", "save_checkpoint", _SAVE),
    ("megatron.training.training", "", "save_checkpoint", _SAVE),  # the same function
    # Its batches are fetched with gradients enabled, as those of training.
    ("transformers.trainer", "Trainer", "evaluation_loop", _EVALUATE),
)
# Loaders that are not torch's: module, class, and the method that gives a batch or begins a loop.
_LOADERS = (
    ("nvidia.dali.plugin.pytorch", "DALIGenericIterator", "__next__"),
    ("nvidia.dali.plugin.pytorch", "DALIRaggedIterator", "__next__"),
    ("torchdata.nodes.loader", "LoaderIterator", "__next__"),
    ("ffcv.loader.epoch_iterator", "EpochIterator", "__next__"),
    ("ray.data.iterator", "_IterableFromIterator", "__iter__"),
)
# Functions of frameworks that run a backward pass without torch's: module and name.
_BACKWARDS = (("megatron.core.pipeline_parallel.schedules", "custom_backward"),)
_PHASES = {"checkpoint": _SAVE, "load": _LOAD, "evaluation": _EVALUATE, "compile": _COMPILE}
_DCP_LOGGER = "c10d-NullHandler-dcp_logger"  # by which DCP announces beginnings and ends
# Of the process that writes checkpoints of a rank that does not wait for them (torch 2.7).
_CHECKPOINT_PROCESS = "torch.distributed.checkpoint._async_process_executor"
_DCP_KINDS = {"save": _SAVE, "load": _LOAD, "async_save": _STAGE}

# The first variable that is set wins. SLURM_NTASKS is not used: it is also set in a batch script,
# where a single process runs; likewise JOB_COMPLETION_INDEX numbers pods, see `_identity`.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_WORLD_SIZE = (
    *("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    "LOCAL_SIZE",  # DeepSpeed's launcher
)
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
_STAGES = ("torch.distributed.pipelining.stage", "_PipelineStageBase")  # and its base class
# What DeepSpeed asks for these groups, which it makes without descriptions (its utils/bwc.py): the
# grid of its own pipelines, or the object that a program passes as `mpu`, Megatron's or another.
_GROUPS_OF_DEEPSPEED = "deepspeed.utils.groups"
_TENSOR_GETTERS = ("tensor_model_parallel", "slice_parallel", "model_parallel")
_PIPELINE_GETTERS = ("pipeline_model_parallel", "pipe_parallel")
_NO_LAYOUT = (0, 0, 0)
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._/:@-]")  # readers reject a ring with other characters
_LOOPBACK = re.compile(r"localhost\b|127\.|\[?::1\b|0\.0\.0\.0\b")  # each node has its own


def _first_number(names: tuple[str, ...]) -> int:
    """Return the first of these variables that is a number of up to 9 digits; -1 if none."""
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal() and len(text) < 10), -1)


def _label(text: str, size: int) -> bytes:
    """Return `text` in the characters that readers accept, cut to a field of `size` bytes."""
    return _NOT_IN_LABELS.sub("_", text[: size - 1]).encode()


def _job_id(world_size: int, method: str = "") -> str:
    """Return the job's name, the same in all ranks: its launcher's, else from where they meet.

    Args:
        world_size: the number of its ranks.
        method: how this process joined the others, the `init_method` of `init_process_group`.
    """
    for name in ("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(name, "")
        if value and (name, value) != ("TORCHELASTIC_RUN_ID", "none"):
            return value + (_slurm_step(world_size) if name == "SLURM_JOB_ID" else "")
    meeting = "{}:{}".format(os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
    if meeting == ":":
        scheme, _, meeting = method.partition("?")[0].partition("://")
        if scheme != "tcp" or _LOOPBACK.match(meeting):
            # Ranks spawned by a script share their parent, as do all the workers of a Ray node,
            # which several jobs may use at a time.
            parent = os.getpid() if world_size == 1 else os.getppid()
            meeting = os.uname().nodename + str(parent) + meeting
    elif _LOOPBACK.match(meeting):
        meeting = (os.environ.get("HOSTNAME") or os.uname().nodename) + " " + meeting
    return "local/" + hashlib.sha256(meeting.encode()).hexdigest()[:8]


def _slurm_step(world_size: int) -> str:
    """Return what distinguishes a step of a SLURM job whose tasks are all ranks of one program.

    Several steps may run at a time, each with ranks from 0; the first is called like the job.
    Launchers of one program may be steps of their own, one on each node: these share a name.
    """
    step, tasks = _first_number(("SLURM_STEP_ID",)), _first_number(("SLURM_STEP_NUM_TASKS",))
    return f".{step}" if step > 0 and tasks == world_size else ""


def _replica_group() -> tuple[int, int]:
    """Return the TorchFT replica group of this process, and the number of groups; 0 and 1 without.

    Each group has its own launcher and world, with ranks from 0; the job consists of all groups.
    """
    group, groups = _first_number(("REPLICA_GROUP_ID",)), _first_number(("NUM_REPLICA_GROUPS",))
    return (group, groups) if 0 <= group < groups else (0, 1)


def _of_all_groups(rank: int, size: int) -> tuple[int, int]:
    """Return rank and world size over all replica groups, given those within one; -1 unknown."""
    group, groups = _replica_group()
    if min(rank, size) >= 0:
        rank += group * size
    return rank, size * groups if size > 0 else size


def _of_launcher(names: tuple[str, ...], size: int) -> int:
    """Return the first of these variables that counts among `size` ranks; -1 if none.

    A program started by mpirun or srun may spawn ranks, which inherit its variables.
    """
    stated = [_first_number((total,)) for total in _WORLD_SIZE]
    ours = (name for place, name in enumerate(names) if not place or stated[place] in (-1, size))
    return _first_number(tuple(ours))


def _identity(distributed: Any) -> tuple[int, int, int, int]:
    """Return rank, local rank, world size, local world size; -1 unknown, None if uninitialised."""
    if distributed is not None:
        size = distributed.get_world_size()
        rank, world_size = _of_all_groups(distributed.get_rank(), size)
        local_rank, local_size = (_of_launcher(n, size) for n in (_LOCAL_RANK, _LOCAL_WORLD_SIZE))
        return rank, local_rank, world_size, local_size
    local_rank, local_size = _first_number(_LOCAL_RANK), _first_number(_LOCAL_WORLD_SIZE)
    rank, world_size = _of_all_groups(_first_number(_RANK), _first_number(_WORLD_SIZE))
    if rank < 0 and local_rank < 0 and local_size <= 1:
        rank = _first_number(("JOB_COMPLETION_INDEX",))  # of the pod: its rank if it runs one
    if (rank, local_rank, world_size) == (-1, -1, -1):
        return 0, 0, 1, 1
    return rank, local_rank, world_size, local_size


def _place(distributed: Any, method: str) -> tuple[str, int, int]:
    """Return whose steps a ring has, as its header says: those of a job, rank and world size."""
    rank, _, world_size, _ = _identity(distributed)
    return _job_id(world_size, method), rank, world_size


def _layout(rank: int, world_size: int, tensor: list[int], pipeline: list[int]) -> tuple[int, ...]:
    """Return dp_group, tp_group and pp_stage of a rank, each plus 1; zeros if ranks form no grid.

    Ranks with the same tensor index t and stage p reduce one gradient shard, however else the job
    is split: dp_group = p * TP + t. With d counting those ranks, tp_group = p * DP + d.
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


def _ranks_of_stages(c10d: Any) -> "list[int] | None":
    """Return the ranks among which torch.distributed.pipelining splits the model; None without.

    Its stages know their group, which may be the default one and then has no telling description.
    They are found by what refers to their classes, once, at the first step of jobs that have loaded
    the module: 0.04 s among 290,000 objects. Looking at an object's class runs none of its code.
    """
    base = getattr(sys.modules.get(_STAGES[0]), _STAGES[1], None)
    if base is None:
        return None
    kinds, found = [], [base]
    while found:
        kinds.append(found.pop())
        found += kinds[-1].__subclasses__()
    known = {id(kind) for kind in kinds}
    stage = next((one for one in gc.get_referrers(*kinds) if id(type(one)) in known), None)
    if stage is None:
        return None
    return list(c10d.get_process_group_ranks(getattr(stage, "group", None) or c10d.group.WORLD))


def _ranks_by_deepspeed(c10d: Any, getters: tuple[str, ...]) -> "list[int] | None":
    """Return the ranks of this rank's group by the first getter that DeepSpeed's `mpu` has."""
    parallel = getattr(sys.modules.get(_GROUPS_OF_DEEPSPEED), "mpu", None)
    for name in getters:
        getter = getattr(parallel, "get_{}_group".format(name), None)
        if getter is not None:
            return list(c10d.get_process_group_ranks(getter()))
    return None


def _ring_name(pid: int, number: int) -> str:
    """Return the name of a process's ring; the number is that of its start, or beyond."""
    return "{}-{}.ring".format(pid, number)


def _process_start_ticks(pid: "int | str" = "self") -> int:
    """Return when a process started, in clock ticks since boot; 0 if the kernel does not say."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _header(
    torch_version: str,
    distributed: Any,
    attempt: int,
    start_ticks: int,
    layout: tuple[int, ...],
    gpu: bytes,
    created_unix_ns: int,
    capacity: int,
    job_id: str,
) -> bytes:
    """Return the ring's first page."""
    environ, identity = os.environ, _identity(distributed)
    node = environ.get("RANKSCOPE_NODE_NAME") or environ.get("NODE_NAME") or os.uname().nodename
    launcher = next((word for name, word in _LAUNCHERS if environ.get(name)), "none")
    geometry = (b"RKSCRING", 1, _HEADER.size, 0x01020304, _RECORD.size, capacity)
    process = (created_unix_ns, os.getpid(), attempt, start_ticks)
    job, pod = _label(job_id, 320), _label(environ.get("POD_UID", ""), 64)
    labels = (job, _label(node, 256), _label(launcher, 32), pod, _label(__version__, 16))
    texts = (*labels, torch_version.encode()[:31])
    groups = _replica_group()[1]
    return _HEADER.pack(*geometry, *process, *identity, *texts, *layout, groups, gpu)


class _LostError(OSError):
    """A descriptor of ours is closed, or refers to something else."""


class _Held:
    """A descriptor of ours, under a high number, with a way to tell that the number is still ours.

    Programs close all descriptors, as daemons do, and children before an exec, and what they open
    next may get the same number: it must not be read, written to or closed. The offset, which
    `pread` and `pwrite` neither need nor move, is set to a random number far beyond the end:
    whoever finds it there has the same file, checked in half the time of `fstat`.
    """

    def __init__(self, low: int) -> None:
        import fcntl

        try:
            self.number = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        except OSError:  # RLIMIT_NOFILE is lower
            self.number = os.dup(low)
        finally:
            os.close(low)
        self.mark = 1 << 40 | int.from_bytes(os.urandom(5), "little")
        os.lseek(self.number, self.mark, os.SEEK_SET)

    def is_ours(self) -> bool:
        """Return True if the number still refers to our file."""
        try:
            return os.lseek(self.number, 0, 1) == self.mark  # 1: from the current offset
        except OSError as error:  # closed, or a pipe or socket by now
            if error.errno is None:  # not the kernel's: raised by a signal's handler
                raise
            return False

    def close(self) -> None:
        """Close the descriptor if it is ours."""
        if self.is_ours():
            os.close(self.number)


class _Slots:
    """A file of slots, allocated at once and written only through its own descriptor.

    A mapping would need no descriptor, but a process that truncates the file would end the training
    with SIGBUS.
    """

    def __init__(self, path: str, header: bytes, capacity: int = _CAPACITY) -> None:
        self.path, self.first, self.capacity = path, len(header), capacity
        self.seek, self.put = os.lseek, os.pwrite
        # Without the conversion to an enumeration, which takes ten times as long.
        self.handler_of = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.held = _Held(os.open(path, flags))
        self.descriptor, self.mark = self.held.number, self.held.mark
        try:
            os.fchmod(self.descriptor, 0o644)  # whatever the umask: the agent may be another user
            size = self.first + capacity * _SLOT
            _check_limit(size)
            os.posix_fallocate(self.descriptor, 0, size)
            os.pwrite(self.descriptor, header, 0)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Delete the file, which has not been read so far."""
        self.held.close()
        os.unlink(self.path)

    def write(self, number: int, packed: bytes) -> None:
        """Write a record into its slot, or several into theirs; `number` counts from 0.

        Raises:
            _LostError: the program has closed the descriptor, or reuses its number.
            OSError: the file system or RLIMIT_FSIZE refuses.
        """
        place = self.first + number % self.capacity * _SLOT
        if self.handler_of(_SIGXFSZ) != _IGNORED:
            _check_limit(place + len(packed))
        descriptor = self.descriptor
        try:  # as `is_ours` does, without its call: this is part of every step
            ours = self.seek(descriptor, 0, 1) == self.mark
        except OSError as error:
            if error.errno is None:
                raise
            ours = False
        if not ours:
            raise _LostError("the program closed descriptor {}, {}".format(descriptor, self.path))
        self.put(descriptor, packed, place)


class _Ring:
    """This process's ring, locked as long as its descriptor is open, and its extension."""

    def __init__(
        self,
        directory: str,
        torch_version: str,
        distributed: Any,
        attempt: int,
        layout: tuple[int, ...] = _NO_LAYOUT,
        capacity: int = _CAPACITY,
        gpu: bytes = b"",
        method: str = "",
    ) -> None:
        import fcntl

        os.makedirs(directory, exist_ok=True)
        _remove_stale(directory)
        start_ticks = _process_start_ticks()
        number = start_ticks  # one more for a process that became another program by exec
        while os.path.lexists(os.path.join(directory, _ring_name(os.getpid(), number))):
            number += 1
        name = _ring_name(os.getpid(), number)
        self.path = os.path.join(directory, name)
        self.place = _place(distributed, method)
        self.attempt, self.written, created = attempt, 0, time.time_ns()
        self.pack, self.pack_slot = _RECORD.pack, _EXTENSION.pack
        self.waiting: list[bytes] = []  # slots of the extension
        self.waited_ns = 0  # durations of their steps
        known = (torch_version, distributed, attempt, start_ticks, layout, gpu)
        page = _header(*known, created, capacity, self.place[0])
        self.slots = _Slots(os.path.join(directory, "." + name), page, capacity)
        self.extension: _Slots | None = None
        self.spans: _Slots | None = None
        self.signals: _Slots | None = None
        self.refused: OSError | None = None  # why some of the other files are missing
        try:
            fcntl.flock(self.slots.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.extend(created)
            os.rename(self.slots.path, self.path)
        except BaseException:
            self.remove()
            raise
        self.slots.path = self.path

    def extend(self, created_unix_ns: int) -> None:
        """Create the other files; if there is only room for the ring, continue without them."""
        self.extension = self.beside("ext", b"RKSCEXTN", self.slots.capacity, created_unix_ns)
        if self.extension is not None:
            self.spans = self.beside("span", b"RKSCSPAN", _SPANS, created_unix_ns)
        if self.spans is not None:
            self.signals = self.beside("sig", b"RKSCSIGN", _SIGNALS, created_unix_ns)

    def beside(self, suffix: str, magic: bytes, capacity: int, created: int) -> _Slots | None:
        """Create a file of slots next to the ring; return None if there is no room."""
        words = (magic, 1, _SLOT, 0x01020304, capacity, created, os.getpid())
        path = _beside(self.path, suffix)
        with contextlib.suppress(OSError):
            os.unlink(path)  # left by an earlier process with this PID
        try:
            return _Slots(path, _EXTENSION_HEADER.pack(*words), capacity)
        except OSError as error:
            self.refused = error
            return None

    def files(self) -> Iterator[_Slots]:
        """Yield the files that were created."""
        return filter(None, (self.slots, self.extension, self.spans, self.signals))

    def remove(self) -> None:
        """Delete the files, which contain no record so far."""
        for slots in self.files():
            slots.remove()

    def close(self) -> None:
        """Close the descriptors that are ours, and leave the files."""
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
        """Write the next record into its slot, and its extension into another, now or later.

        Raises:
            _LostError: the program has closed a descriptor, or reuses its number.
            OSError: the file system or RLIMIT_FSIZE refuses.
        """
        number = self.written
        self.written = seq = number + 1
        check = seq & 0xFFFFFFFF
        if self.extension is not None:
            slot = self.pack_slot(seq, other_ns, cpu_wait_ns, marks, backwards, check)
            self.waiting.append(slot)
            self.waited_ns = waited_ns = self.waited_ns + step_ns
            if waited_ns > _LATE_NS or not seq % _MAX_WAITING:
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
        """Write the pending slots of the extension, in one piece."""
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
    """Reject a write that would cause SIGXFSZ, which by default ends the program.

    Python ignores that signal, but programs restore it; and limits change at run time. The module
    `resource` is not imported: nothing else does so, and a program may have its own of that name.
    """
    import ctypes

    limits = (ctypes.c_ulong * 2)()  # rlim_t of the soft and the hard limit
    if _c_library().getrlimit(_RLIMIT_FSIZE, limits) == 0 and limits[0] < end:
        raise OSError(errno.EFBIG, "RLIMIT_FSIZE of {} bytes is too small".format(limits[0]))


@functools.lru_cache(maxsize=None)
def _c_library() -> Any:
    """Return the C library, as an object of its own: what it says of a function is no other's."""
    import ctypes

    return ctypes.CDLL(None)


def _room_for_threads(count: int) -> bool:
    """Return True if this process may have so many more threads: they are started, and end.

    Nothing else shows all limits: those of the user, of memory and of the control groups around
    this one. They are not Python's, and wait in the C library.
    """
    import ctypes

    library, gate = _c_library(), ctypes.create_string_buffer(_SEMAPHORE_SIZE)
    threads = (ctypes.c_ulong * count)()
    library.sem_init(gate, 0, 0)
    library.pthread_join.argtypes = (ctypes.c_ulong, ctypes.c_void_p)
    started = 0
    try:
        while started < count:
            place = ctypes.byref(threads, started * ctypes.sizeof(ctypes.c_ulong))
            if library.pthread_create(place, None, library.sem_wait, gate):
                return False
            started += 1
        return True
    finally:
        for _ in range(count):
            library.sem_post(gate)
        for thread in threads[:started]:
            library.pthread_join(thread, None)


@contextlib.contextmanager
def _alone_in(directory: str) -> "Iterator[None]":
    """Keep the other ranks of the node from doing the same meanwhile.

    Raises:
        OSError: another one takes too long.
    """
    import fcntl

    until = time.perf_counter() + _TURN_SECONDS
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.perf_counter() > until:
                    raise
                time.sleep(0.005)
            except OSError:
                break  # where there are no locks, there are no turns
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process forked meanwhile would hold it
        os.close(descriptor)


def _beside(ring: str, suffix: str) -> str:
    """Return the path of a file that belongs to a ring: its extension, its socket."""
    return ring[: -len("ring")] + suffix


def _remove_stale(directory: str) -> None:
    """Delete rings of ended processes: those older than a day, and all but the newest few.

    One under creation is not locked at first, and the newest few are fewer than many nodes' ranks.
    """
    import fcntl

    found: list[tuple[float, str]] = []
    extensions: list[tuple[float, str]] = []
    with os.scandir(directory) as entries:
        for entry in itertools.islice(entries, _STALE_LOOKS):
            if re.fullmatch(r"\.?\d+-\d+\.(ring|ext|span|sig)", entry.name):
                kind = found if entry.name.endswith("ring") else extensions
                with contextlib.suppress(OSError):  # already gone
                    kind.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    before = time.time() - _STALE_SECONDS
    for place, (written, path) in enumerate(sorted(found, reverse=True)):
        created = not os.path.basename(path).startswith(".")
        if (created and place >= _KEPT_RINGS) or written < before:
            # Held by a living process, another user's, or already gone: not ours to delete.
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
    """Return the first dimension of the first tensor in a batch, or `_SIZE_UNKNOWN`.

    A sequence within a sequence has each sample by itself, where samples differ in size.
    """
    if (type(batch) is list or type(batch) is tuple) and batch and type(batch[0]) is tensor_type:
        shape = batch[0].shape  # the usual result of collating, four times as fast as below
        if shape:
            return int(shape[0])
    items: list[Any] = [batch]
    within: list[Any] = []  # a sequence
    for item in items:  # it grows during iteration
        if isinstance(item, tensor_type) and item.dim():
            return int(item.shape[0])
        if len(items) < _LOOKS:
            parts = itertools.islice(_parts(item, tensor_type), _LOOKS)
            (within if isinstance(item, (tuple, list)) else items).extend(parts)
    for item in within:
        if isinstance(item, tensor_type) and item.dim():
            return int(item.shape[0])
        if len(within) < _LOOKS and not isinstance(item, (tuple, list)):
            within.extend(itertools.islice(_parts(item, tensor_type), _LOOKS))
    return _SIZE_UNKNOWN


def _parts(item: Any, tensor_type: Any) -> Iterable[Any]:
    """Return what a collection holds already, without calling what its class may have overridden.

    Other mappings may read or decode what they are asked for.
    """
    kind = type(item)
    if issubclass(kind, collections.UserDict):
        item = vars(item).get("data")
        kind = type(item)
    if issubclass(kind, dict):
        return _fields(list(itertools.islice(dict.values(item), _FIELDS)), tensor_type)
    if issubclass(kind, tuple):
        return tuple.__iter__(item)
    return list.__iter__(item) if issubclass(kind, list) else ()


def _fields(fields: list[Any], tensor_type: Any) -> list[Any]:
    """Return the fields of a batch, the first of them a tensor of the length that most have.

    In detection some have a row for each object in all of the images (Ultralytics).
    """
    tensors = [one for one in fields if isinstance(one, tensor_type) and one.dim()]
    if len(tensors) < 2:
        return tensors + fields
    lengths = [int(one.shape[0]) for one in tensors]
    known = lengths + [len(one) for one in fields if type(one) is tuple or type(one) is list]
    most = max(range(len(tensors)), key=lambda place: known.count(lengths[place]))
    return [tensors[most], *fields]


class _Guard:
    """Keeps our errors away from training, and our hooks away from compilers."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        # Errors that each hook may still have, by what it observes: it is wrapped anew by some.
        self.left: dict[str, list[None]] = {}
        self.told: set[str] = set()  # what standard error says may go unseen
        # Code of the program's signal handlers: a handler may register another one, and then raise.
        self.handlers: weakref.WeakSet[Any] = weakref.WeakSet()

    def guarded(self, observe: Callable[..., Any]) -> Callable[..., Any]:
        """Return `observe` as a hook that never raises: the only place where our errors are caught.

        If it fails, the hook returns None, and at once after `_MAX_ERRORS` times; other hooks go
        on. Exceptions of the program that arrive meanwhile propagate as they would without us:
        torch's own signal handler reports how a loader worker died.
        """
        name = _name_of(observe)
        if name not in self.left:
            self.left[name] = [None] * _MAX_ERRORS
        left = self.left[name]

        def hook(*arguments: Any) -> Any:
            if not left:
                return None
            try:
                return observe(*arguments)
            except Exception as error:
                if self.of_program(error):
                    raise
                del left[-1:]
                self.report(error, name)
                return None

        return hook

    def note_handler(self, handler: Any) -> None:
        """Remember one of the program's signal handlers, or what else a signal may have."""
        if callable(handler) and len(self.handlers) < _MAX_HANDLERS:
            code = _code_of(handler)
            if code is not None:
                self.handlers.add(code)

    def of_program(self, error: Exception) -> bool:
        """Return True if the program raised it while our code ran.

        One of its signal handlers did, wherever its thread was, or another thread had it raised.
        """
        ask = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
        for number in range(1, signal.NSIG):
            self.note_handler(ask(number))
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if any(frame.f_code in self.handlers or _interrupts(frame) for frame in frames):
            return True
        return bool(frames) and _of_another_thread(error, frames[-1])

    def untraced(self, hook: Callable[..., Any], around: bool = False) -> Callable[..., Any]:
        """Return `hook` so that compilers neither inline it, trace what it calls, nor lose it.

        Its code is marked, which costs nothing per call. `_disable_dynamo`, which is all that older
        torch has, takes 1.2 us with warm caches, and several times that with cold ones.

        Args:
            hook: ours.
            around: it calls what may call the program's own code (a data set, the backward of a
                function), which compilers trace as without us.
        """
        frames: Any = getattr(getattr(self.torch._C, "_dynamo", None), "eval_frame", None)
        mark = getattr(frames, "set_code_exec_strategy", None)
        if mark is None:
            wrapped: Callable[..., Any] = self.torch._disable_dynamo(hook)
            return wrapped
        skip = frames._FrameAction.SKIP
        called = frames._FrameAction.DEFAULT if around else skip
        mark(hook.__code__, frames._FrameExecStrategy(skip, called))
        for name, value in (("disable", True), ("disable_recursive", not around)):
            setattr(hook, "_torchdynamo_" + name, value)
        return hook

    def scripted(self, replaced: Any, ours: Any) -> None:
        """Have TorchScript compile calls of `ours` to its own operator, as those of torch's."""
        builtins = getattr(getattr(self.torch, "jit", None), "_builtins", None)
        find = getattr(builtins, "_find_builtin", None)
        operator = find(replaced) if find is not None else None
        if builtins is not None and operator is not None:
            builtins._register_builtin(ours, operator)

    def report(self, error: Exception, name: str) -> None:
        """Report an error on standard error: one line for each thing unseen, or all to debug.

        Args:
            error: that a hook raised.
            name: of what the hook observes.
        """
        unseen = _SUBJECTS.get(name) or _SUBJECTS.get(name.partition(".")[0], "something")
        known = unseen in self.told
        self.told.add(unseen)
        with contextlib.suppress(Exception):  # standard error may be closed
            if os.environ.get("RANKSCOPE_PROBE_DEBUG") == "1":
                sys.stderr.write(traceback.format_exc())
            elif not known:
                seen = " ".join("{}: {}".format(type(error).__name__, error).split())
                sys.stderr.write("rankscope probe: {}; {} may go unseen\n".format(seen, unseen))


def _wraps(wrapped: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return what makes a function look like the one that it wraps.

    Unlike `functools.wraps`, also to `inspect.getfullargspec`, which asks for no wrapped function.
    """
    import inspect

    def wrap(wrapper: _Function) -> _Function:
        functools.update_wrapper(wrapper, wrapped)
        with contextlib.suppress(TypeError, ValueError):  # functions in C may have none
            wrapper.__signature__ = inspect.signature(wrapped)  # type: ignore[attr-defined]
        return wrapper

    return wrap


def _first_parameter(optimizer: Any) -> Any:
    """Return the first parameter that an optimizer updates; None if its shard is empty."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter
    return None


def _within_step(optimizer: Any) -> bool:
    """Return True if a `step()` that has ended was called by its own optimizer's `step()`.

    That of a subclass which extends it will end as well. Torch reports both. Each is within a frame
    of torch's that has the same code, of which the innermost belongs to the one that has ended.
    """
    wrapper = getattr(type(optimizer).step, "__code__", None)
    frame: Any = sys._getframe(1)
    found = 0
    while frame is not None:
        if frame.f_code is wrapper and frame.f_locals.get("args", (None,))[0] is optimizer:
            found += 1
        frame = frame.f_back
    return found > 1


def _hook_loaded(
    place: tuple[str, str, str],
    hooked: "set[tuple[str, str, str]]",
    around: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Replace a framework's function by one around it, once, if the framework is loaded.

    Modules may run code of their own when asked for a name.

    Args:
        place: its module, its class or none, and its name.
        hooked: the places of those that are replaced.
        around: returns what replaces it.
    """
    module, owner_name, name = place
    owner: Any = sys.modules.get(module)
    if owner is not None and owner_name:
        owner = getattr(owner, owner_name, None)
    call = getattr(owner, name, None)
    if callable(call) and place not in hooked:
        hooked.add(place)
        setattr(owner, name, around(call))


def _called_by(module: str) -> bool:
    """Return True if a function of a module is running in this thread."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def _name_of(observe: Callable[..., Any]) -> str:
    """Return the name of a function or method, also of one with some arguments given."""
    try:
        name: str = observe.__qualname__
    except AttributeError:
        name = getattr(getattr(observe, "func", observe), "__qualname__", type(observe).__name__)
    return name


def _code_of(handler: Any) -> Any:
    """Return the code of a function, a method, a partial or another callable; None if none."""
    with contextlib.suppress(Exception):  # objects answer for their attributes as they like
        handler = getattr(handler, "func", handler)
        if not hasattr(handler, "__code__"):
            handler = type(handler).__call__
        code = getattr(handler, "__code__", None)
        return code if isinstance(code, types.CodeType) else None
    return None


def _interrupts(frame: Any) -> bool:
    """Return True if this frame was given the one that it interrupts, as signal handlers are."""
    before = frame.f_back
    for value in list(frame.f_locals.values()) if before is not None else ():
        if value is before or (type(value) is tuple and any(one is before for one in value)):
            return True
    return False


def _of_another_thread(error: Exception, innermost: Any) -> bool:
    """Return True if PyThreadState_SetAsyncExc raised it, as libraries for time limits do.

    That is given a class, and interrupts any code: a class of the program's, without arguments, in
    code that is not the program's.
    """
    known = _is_known(type(error).__module__)
    return not known and not error.args and _is_known(innermost.f_globals.get("__name__"))


def _is_known(module: Any) -> bool:
    """Return True for a module of Python's or torch's, and for this one."""
    package = str(module).partition(".")[0]
    if package in ("torch", __name__) or package in sys.builtin_module_names:
        return True
    names = getattr(sys, "stdlib_module_names", None)
    if names is not None:
        return package in names
    # Before Python 3.10: by the place of its file, within which those of others are as well.
    own, folder = _file_of(package), os.path.dirname(_file_of("os"))
    return own.startswith(folder + os.sep) and "-packages" not in own[len(folder) :]


def _file_of(module: str) -> str:
    """Return the file of a loaded module; empty if none is known."""
    return str(getattr(sys.modules.get(module), "__file__", None) or "")


class _CpuWaits:
    """How long the training thread was runnable and waited for a CPU, from its schedstat.

    `total_ns` and `in_data_ns` are those of the current step: outside of sync, and while in data.
    `looked_ns` is the time of the last reading, `_NEVER_NS` if there is nothing to read.

    schedstat is read when the thread was off the CPU outside of sync, according to its CPU time,
    which takes neither a descriptor nor procfs: no wait is longer than that. Waits in sync since
    the last reading must not be included, so schedstat is also read after sync while there are such
    periods, and rarely otherwise.
    """

    def __init__(self, guard: "_Guard | None" = None) -> None:
        self.guard = guard if guard is not None else _Guard(None)
        self.look = guard.guarded(self.count) if guard is not None else self.count
        self.schedule: _Held | None = None
        self.restart()

    def restart(self) -> None:
        """Reset after a fork: the child has another thread."""
        if self.schedule is not None:
            self.schedule.close()
        self.schedule, self.looked_ns = None, _NEVER_NS
        self.total_ns = self.in_data_ns = self.seen_ns = 0
        self.read_ns = self.wary_ns = 0  # when schedstat was read; until when it is after sync
        # Since when the thread is not known to have been off the CPU, its CPU time by then, and its
        # time in sync; and the latter for all ended steps.
        self.since_ns = self.ran_ns = self.synced_ns = self.sync_ns = 0

    def begin_step(self, sync_ns: int) -> None:
        """Start counting for another step, after one that spent `sync_ns` in sync."""
        self.total_ns = self.in_data_ns = 0
        self.sync_ns += sync_ns

    def watch(self) -> None:
        """Follow how long this thread waits for a CPU, if the kernel counts that."""
        if self.schedule:
            self.schedule.close()
        self.schedule, self.looked_ns = None, _NEVER_NS
        with contextlib.suppress(OSError):  # no Linux, no procfs, or no CONFIG_SCHED_INFO
            flags = os.O_RDONLY | os.O_CLOEXEC
            self.schedule = _Held(os.open("/proc/thread-self/schedstat", flags))
            self.seen_ns, turns = self.read()
            if turns:  # else nothing is counted; zero until a first tick
                self.looked_ns = self.since_ns = self.read_ns = time.perf_counter_ns()
                self.ran_ns, self.synced_ns = time.thread_time_ns(), self.sync_ns

    def read(self) -> tuple[int, int]:
        """Return how long this thread has waited, in nanoseconds, and how often it ran.

        Raises:
            OSError: it cannot be read, or the descriptor is no longer ours.
            ValueError: it has another format.
        """
        held = self.schedule
        if held is None or not held.is_ours():
            raise _LostError("no schedstat")
        _, waited, turns = os.pread(held.number, 64, 0).split()
        return int(waited), int(turns)

    def count(self, now: int, sync_ns: int, outside: bool = True) -> None:
        """Count the waits for a CPU since the last reading as part of the time `outside` of sync.

        Periods that are short, or in which the thread was hardly ever off the CPU, are left to the
        next reading: they contain no significant wait. Waits between the end of a period, `now`,
        and the reading count in the next period. `sync_ns` is that of the step so far.
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
        """Read schedstat, and count the waits since the last reading up to a limit."""
        try:
            total, _ = self.read()
        except (OSError, ValueError) as error:  # the program closed it, or reused its number
            if self.guard.of_program(error):
                raise
            self.schedule, self.looked_ns = None, _NEVER_NS
            return
        waited = max(min(total - self.seen_ns, now - self.read_ns), 0)
        self.total_ns += min(waited, most_ns)
        self.seen_ns += waited
        self.read_ns = now


class _StepClock:
    """How the current step spends its time; durations in nanoseconds.

    Only the thread that ended the last step is measured: others do not block the training loop.
    `thread` is 0 until a step has ended.
    """

    def __init__(self, torch: Any, guard: "_Guard | None" = None) -> None:
        # Number of nodes that this thread has ever added to autograd graphs; unknown before torch
        # 2.1.
        count = getattr(torch.autograd, "_get_sequence_nr", None)
        self.graph_size: Callable[[], int] = (
            count if count is not None else itertools.count().__next__
        )
        self.cpu = _CpuWaits(guard)
        self.restart()

    def begin(self, now: int, unix_ns: int) -> None:
        """Begin a step now, on both clocks."""
        self.begin_ns, self.begin_unix_ns = now, unix_ns
        self.data_ns = self.sync_ns = self.samples = self.flags = 0
        self.other_ns = self.backwards = self.marked_ns = 0
        self.marks = _NO_MARKS
        # On the step's own clock, see `own`: from when time may not be compute, and when the last
        # backward pass ended.
        self.resting: int | None = None if self.in_backward else 0
        self.ready: int | None = None
        self.rest_sync = 0  # the part of sync before the rest
        self.nodes = 0 if self.in_backward else self.graph_size()
        self.straddles = self.in_backward  # the current backward pass began in the previous step

    def restart(self) -> None:
        """Reset after a fork: the child has another thread."""
        self.cpu.restart()
        self.thread = 0
        self.in_backward = False
        self.begin(0, 0)
        self.resting = None

    def own(self, now: int) -> int:
        """Return the step's time outside of data, sync and waits for a CPU.

        Time in spans does not count either. It may decrease, because waits for a CPU are seen some
        milliseconds after they began.
        """
        waited = self.cpu.total_ns - self.cpu.in_data_ns
        return now - self.begin_ns - self.data_ns - self.sync_ns - waited - self.marked_ns

    def mark(self, kind: int, spent_ns: int, sync_ns: int) -> None:
        """Attribute time of the step, `sync_ns` of it in sync, to a span."""
        checkpoint, evaluation, copies, late = _FOUR.unpack(self.marks)
        if kind == _EVALUATE:
            evaluation += spent_ns
        elif kind not in (_COMPILE, _JOIN):
            checkpoint += spent_ns
        self.marks = _FOUR.pack(checkpoint, evaluation, copies, late)
        self.marked_ns += spent_ns
        self.rest_sync += sync_ns

    def rest_until(self, own: int) -> None:
        """Count the time since an optimizer's step or the last batch as rest, if no forward began.

        What precedes a collective delays the other ranks, so it is not rest.
        """
        if self.resting is not None:
            if self.graph_size() == self.nodes:
                if self.sync_ns == self.rest_sync:
                    self.other_ns += max(own - self.resting, 0)
                self.resting, self.rest_sync = own, self.sync_ns
            else:
                self.resting = None

    def rest_from(self, own: int) -> None:
        """Count the time from here on as rest, unless a forward pass begins."""
        self.resting, self.nodes = own, self.graph_size()
        self.rest_sync = self.sync_ns

    def backward_ended(self, now: int) -> None:
        """Record the time at which a backward pass returns, when its gradients are ready."""
        own = self.own(now)
        if self.straddles:
            self.straddles = False
            self.rest_from(own)
        else:
            self.ready, self.resting = own, None

    def optimizer_ended(self, now: int) -> None:
        """Record the end of a further optimizer's `step()`, which is not compute either."""
        self.cpu.look(now, self.sync_ns)
        own = self.own(now)
        if self.ready is not None:
            self.other_ns += max(own - self.ready, 0)
            self.ready = None
        else:
            self.rest_until(own)
        self.rest_from(own)

    def optimizer_begins(self, now: int) -> None:
        """Use the start of an optimizer's `step()` as the end of an unseen backward pass."""
        if self.backwards == 0 and self.ready is None:
            self.cpu.look(now, self.sync_ns)
            self.ready = self.own(now)

    def end(self, now: int) -> int | None:
        """Return the rest of the ending step; None if no backward pass was seen."""
        if now - self.cpu.looked_ns > _LOOK_NS:
            self.cpu.look(now, self.sync_ns)
        own = self.own(now)
        if self.ready is not None:
            return self.other_ns + (own - self.ready if own > self.ready else 0)
        if self.in_backward or self.straddles:  # an optimizer that steps within another
            return self.other_ns
        if self.backwards:  # a further optimizer stepped after them
            self.rest_until(own)
            return self.other_ns
        return None


class _GlooWaits:
    """Time spent blocked in collectives on gloo, except at the ends of backward passes."""

    def __init__(self, torch: Any, distributed: Any, guard: _Guard, clock: _StepClock) -> None:
        self.torch, self.distributed = torch, distributed
        self.guard, self.clock = guard, clock
        self.libraries: list[Any] = []  # torch withdraws the kernels when these are collected
        self.launched: dict[str, int] = {}  # collectives of each group by the last pause

    def hook(self) -> None:
        """Time from now on what blocks in collectives."""
        if self.libraries:  # by this process, or by the one that it was forked from
            return
        atexit.register(time.sleep, _SETTLE_SECONDS)
        c10d, torch = self.distributed, self.torch
        for owner in (torch._C._distributed_c10d.Work, torch._C.Future):
            owner.wait = self.guard.untraced(self.timed(owner.wait))
        send = self.timed(c10d._broadcast_coalesced)  # by DDP, of buffers in the forward pass

        @_wraps(send)
        def buffers(process_group: Any, *arguments: Any, **options: Any) -> Any:
            return send(process_group, *arguments, **options)

        c10d._broadcast_coalesced = self.guard.untraced(buffers)
        destroy = self.settled(c10d.destroy_process_group)
        c10d.destroy_process_group = c10d.distributed_c10d.destroy_process_group = destroy
        for operator in _BLOCKING:
            namespace, _, name = operator.partition("::")
            packet = getattr(getattr(torch.ops, namespace), name, None)
            if packet is not None:  # not every version of torch has all of them
                kernel = _kernel(self.torch, self.timed(packet.default.redispatch))
                library = torch.library.Library(namespace, "IMPL")
                library.impl(name, kernel, "BackendSelect", with_keyset=True)
                self.libraries.append(library)

    def settled(self, end: Callable[..., Any]) -> Callable[..., Any]:
        """Return `end` with a pause before it, in which gloo's threads release what they hold."""
        quiet = self.guard.guarded(self.quiet)

        @_wraps(end)
        def destroy(*arguments: Any, **options: Any) -> Any:
            if not quiet():
                time.sleep(_SETTLE_SECONDS)
            return end(*arguments, **options)

        return destroy

    def quiet(self) -> bool:
        """Return True if no collective has begun since the last pause, as groups count them.

        Programs with many groups destroy them one after the other.
        """
        before, self.launched = self.launched, {}
        names = getattr(getattr(self.distributed.distributed_c10d, "_world", None), "pg_names", {})
        try:
            for group, name in list(names.items()):
                self.launched[name] = int(group._get_sequence_number_for_group())
        except Exception as error:  # backends that do not count raise what they like
            if self.guard.of_program(error):
                raise
            self.launched = {}
            return False
        counts = self.launched.items()
        return bool(counts) and all(before.get(name, 0) == count for name, count in counts)

    def timed(self, blocking: Callable[..., Any]) -> Callable[..., Any]:
        """Return `blocking` with its time counted as sync; nested calls count once.

        From a call of a method that a subclass of torch's has inherited, pybind11 looks whether the
        subclass overrides it, and finds ours. It takes a function of the method's own name that was
        called with the object as its first parameter for the end of the search.
        """
        now, thread_id = time.perf_counter_ns, threading.get_ident
        clock, cpu = self.clock, self.clock.cpu
        look = cpu.look

        @_wraps(blocking)
        def wait(work: Any, /, *arguments: Any, **options: Any) -> Any:
            if thread_id() != clock.thread:
                return blocking(work, *arguments, **options)
            before, begin = clock.sync_ns, now()
            if begin - cpu.looked_ns > _LOOK_NS:
                look(begin, before)
            try:
                return blocking(work, *arguments, **options)
            finally:
                end = now()
                clock.sync_ns = before + end - begin
                if end - cpu.looked_ns > _LOOK_NS:
                    look(end, clock.sync_ns, False)

        return wait


def _kernel(torch: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel for BackendSelect that continues with the operator's own one."""
    select = torch._C.DispatchKey.BackendSelect

    def launch(keys: Any, *arguments: Any, **options: Any) -> Any:
        return call(keys.remove(select), *arguments, **options)

    return launch


class _DeviceWaits:
    """How long the device waited at the ends of backward passes, by CUDA events that are reused.

    Nothing here waits for the device: `query()` only asks whether it has passed an event.
    """

    def __init__(self, cuda: Any, guard: _Guard) -> None:
        self.cuda = cuda
        self.ask, self.measure = guard.guarded(self.passed), guard.guarded(self.read)
        self.captures_now = guard.guarded(self.capturing)
        self.pool: list[Any] = []
        self.pending: list[tuple[Any, ...]] = []  # steps that the device may not have passed
        self.restart()

    def restart(self) -> None:
        """Reset the waits of the step."""
        self.pairs: list[tuple[Any, Any]] = []
        self.begun: Any = None
        self.spoiled: int = 0  # something cannot be timed, so the whole step is not
        self.fetches: list[tuple[Any, Any]] = []
        self.fetching: Any = None
        self.uncounted = False  # there were more fetches than are timed

    def prepare(self, step: int, step_ns: int) -> None:
        """Begin step number `step`, after one that took so long."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def event(self) -> Any:
        """Record an event in the current stream."""
        event = self.pool.pop() if self.pool else self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Record the end of all kernels of a backward pass; a capture would keep our event."""
        if self.cuda.is_current_stream_capturing() or len(self.pairs) >= _MAX_WAITS:
            self.spoiled = 1
        else:
            self.begun = self.event()

    def end(self) -> None:
        """Record the point at which the stream has all gradients."""
        if self.begun is not None:
            self.pairs.append((self.begun, self.event()))
            self.begun = None

    def fetch_begins(self) -> bool:
        """Record that the host begins to wait for a batch; return False if that is not timed.

        Nothing is queued until it has the batch, so that the time between this event and the next
        one is what the device stood still for it: none, if it was busy all along.
        """
        if self.fetching is not None or self.cuda.is_current_stream_capturing():
            return False
        if len(self.fetches) >= _MAX_WAITS:
            self.uncounted = True
            return False
        self.fetching = self.event()
        return True

    def fetch_ends(self) -> None:
        """Record that the host has the batch, unless its step ended before."""
        if self.fetching is not None:
            self.fetches.append((self.fetching, self.event()))
            self.fetching = None

    def fetch_lost(self) -> None:
        """Leave the step's data to the host's clock, as after too many fetches."""
        self.uncounted = True

    def take(self) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]], bool, bool]:
        """Return the ending step's waits and fetches, and whether each of them are complete."""
        complete = bool(self.pairs) and not self.spoiled
        taken = self.pairs, self.fetches, complete, not self.uncounted
        self.restart()
        return taken

    def capturing(self) -> bool:
        """Return True while a graph is under capture; after an error CUDA answers nothing."""
        return bool(self.cuda.is_current_stream_capturing())

    def passed(self, pairs: list[tuple[Any, Any]]) -> bool:
        """Return True if the device has passed all of these waits."""
        return all(end.query() for _, end in reversed(pairs))

    def read(self, pairs: list[tuple[Any, Any]]) -> int:
        """Return the nanoseconds of waits that the device has passed."""
        return int(sum(begin.elapsed_time(end) for begin, end in pairs) * 1e6)

    def give_back(self, pairs: list[tuple[Any, Any]]) -> None:
        """Release the events of these waits for reuse."""
        self.pool.extend(event for pair in pairs for event in pair)

    def add(self, *step: Any) -> None:
        """Queue a step that the host has ended, with the waits since the previous one."""
        self.pending.append((step, *self.take()))

    def ended(self, kept: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the steps that the device has passed, and unmeasured those beyond the limit.

        Args:
            kept: how many steps that it has not passed may stay queued.

        Yields:
            Nanoseconds of its waits, -1 where they are not known, and what `add` was given.
        """
        capturing = bool(self.pending) and self.captures_now()
        while self.pending:
            step, pairs, fetches, complete, fetched = self.pending[0]
            # A query would end the capture of a graph with an error.
            passed = False if capturing else self.ask(fetches + pairs)
            if passed is False and len(self.pending) <= kept:
                return
            del self.pending[0]
            waited_ns = self.measure(pairs) if passed and complete else -1
            standstill_ns = self.measure(fetches) if passed and complete and fetched else None
            if standstill_ns is not None:
                begin, step_ns, data_ns, *rest = step
                step = (begin, step_ns, min(data_ns, standstill_ns), *rest)
            if passed is not None:
                self.give_back(fetches + pairs)
            yield -1 if waited_ns is None else waited_ns, step

    def spoiling(self, blocking: Callable[..., Any]) -> Callable[..., Any]:
        """Return `blocking` as a wait of unknown length, which leaves its step unmeasured."""

        @_wraps(blocking)
        def wait(work: Any, /, *arguments: Any, **options: Any) -> Any:  # see `_GlooWaits.timed`
            self.spoiled = 1
            return blocking(work, *arguments, **options)

        return wait


def _uncovered(begin: float, end: float, spans: list[tuple[Any, ...]]) -> float:
    """Return how much of an interval no span covers; these are in order of their begin."""
    uncovered, reached = 0.0, begin
    for span in spans:
        uncovered += max(min(span[0], end) - reached, 0.0)
        reached = max(reached, min(span[1], end))
    return uncovered + end - reached


class _StreamWaits(_DeviceWaits):
    """The training stream's waits for peers and for copies, in sampled steps.

    A step is sampled as a whole or not at all: those whose number is a multiple of `every`, a power
    of two, so that ranks that sample more rarely share their steps with the others. It is chosen by
    what sampling costs in this process. Only during such a step, and the one before it, which
    records what streams carry, are hooks in place. Waits are bracketed on the training stream,
    which is identified by its device and number, whatever thread makes it wait. A wait is for peers
    if the other stream has carried a collective since the last wait for it, else for copies.
    """

    def __init__(self, torch: Any, distributed: Any, guard: _Guard, replicated: bool) -> None:
        self.torch, self.distributed, self.guard = torch, distributed, guard
        self.replicated = replicated  # by DistributedDataParallel, whose waits end backward passes
        # Owner, name, what its dictionary contains without us, ours, and what creates ours from
        # that.
        self.hooks: list[tuple[Any, str, Any, Any, Callable[..., Any]]] = []
        self.libraries: list[Any] = []
        self.stream: Any = None
        self.key = (-1, -1)
        self.sampling = self.noting = False
        self.period = self.made = self.captures = self.failures = self.seen = 0
        self.every = _FIRST_INTERVAL
        self.carried: dict[Any, int] = {}  # by stream: collectives
        self.waited: dict[Any, int] = {}  # by waiting and awaited stream: those waited for
        self.inside: set[int] = set()  # threads inside a call of ours
        self.launched_before: int | None = None
        # Own time in steps with and without hooks, samples, steps and their time, since `every` was
        # chosen; and own time and all time since the start.
        self.sample_ns = self.other_ns = self.samples = self.steps = self.lived_ns = 0
        self.own_ns = self.all_ns = self.added_ns = 0
        self.record_own = torch.cuda.Event.record
        super().__init__(torch.cuda, guard)
        self.take_sample, self.arrange = guard.guarded(self.taken), guard.guarded(self.arranged)
        self.read_times = guard.guarded(self.times)
        self.find_hooks()
        self.hook_graphs()

    def restart(self) -> None:
        """Reset the waits of the step."""
        self.pairs: list[tuple[Any, ...]] = []
        self.begun: Any = None
        self.fetching: Any = None
        self.base: Any = None
        self.spoiled = 0  # why the sample is discarded
        self.bracketed = False  # the end of a backward pass, where DistributedDataParallel waits

    def close(self) -> None:
        """Restore torch as it is without us, except for what detects graphs."""
        self.sampling = self.noting = False
        self.take_out()

    def find_hooks(self) -> None:
        """Prepare the hooks that bracket waits and record which streams carry collectives."""
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
        """Install the hooks, around those that others may have installed since the last time.

        Other threads may be inside what they replace: attributes change atomically, and the
        operator's table under its own lock, at a step's end, when no backward pass is in progress.
        """
        for number, (owner, name, own, ours, wrap) in enumerate(self.hooks):
            # Not the result of getattr: for a binding's method that is a function without `self`.
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
        """Remove what is still ours, and leave what others have installed over it."""
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
        """Detect captures of graphs, in which queries are illegal, and graphs with collectives."""
        graph = getattr(self.cuda, "CUDAGraph", None)
        if graph is None:
            return
        begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

        @_wraps(begin)
        def beginning(captured: Any, *arguments: Any, **options: Any) -> Any:
            self.captures += 1
            self.spoiled = self.spoiled or _CAPTURE
            captured._rankscope_launched = self.launched()
            try:
                return begin(captured, *arguments, **options)
            except BaseException:
                self.captures -= 1
                raise

        @_wraps(end)
        def ending(captured: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return end(captured, *arguments, **options)
            finally:
                self.captures = max(self.captures - 1, 0)
                # None of one whose capture had begun before there were hooks.
                before: Any = getattr(captured, "_rankscope_launched", None)
                now = self.launched()
                captured._rankscope_waits = None in (before, now) or now > before

        @_wraps(replay)
        def replaying(captured: Any, *arguments: Any, **options: Any) -> Any:
            if self.sampling and getattr(captured, "_rankscope_waits", True):
                self.spoiled = self.spoiled or _UNSEEN_PATH
            return replay(captured, *arguments, **options)

        graph.capture_begin, graph.capture_end, graph.replay = beginning, ending, replaying

    def launched(self) -> int | None:
        """Return the number of collectives launched by this process; None if a group hides it."""
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        try:
            groups = list(getattr(world, "pg_map", {}))
            return sum(int(group._get_sequence_number_for_group()) for group in groups)
        except Exception as error:  # backends that do not count raise what they like
            if self.guard.of_program(error):
                raise
            return None

    def unseen(self) -> bool:
        """Return True if a library is in use whose waits Python cannot see."""
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
        """Record an event in the training stream; return None if none is left, or no place."""
        if not self.pool and self.made >= _MAX_EVENTS:
            self.spoiled = self.spoiled or _POOL_DRY
            return None
        if self.pool:
            event = self.pool.pop()
        else:
            self.made += 1
            event = self.cuda.Event(enable_timing=True)
        began = time.perf_counter_ns()
        self.record_own(event, self.stream)
        held = time.perf_counter_ns() - began - _HELD_NS
        if held > 0:  # a full queue, which would have held up the program's own next call instead
            self.sample_ns -= held
        return event

    def open(self, kind: int) -> tuple[Any, ...]:
        """Record the start of a wait of the training stream, and whether the stream had run dry."""
        if not self.sampling:
            return (kind, None, False)
        if self.captures or self.cuda.is_current_stream_capturing():
            self.spoiled = self.spoiled or _CAPTURE
        if self.spoiled:
            return (kind, None, False)
        dry = self.stream.query()
        return (kind, self.event(), dry)

    def shut(self, opened: tuple[Any, ...]) -> None:
        """Record the end of a wait."""
        kind, begin, dry = opened
        if begin is not None and not self.captures:
            end = self.event()
            if end is not None:
                self.pairs.append((kind, begin, end, dry))

    def begin(self) -> None:
        """Record the end of all kernels of a backward pass of DistributedDataParallel."""
        if self.sampling:
            began, self.bracketed = time.perf_counter_ns(), True
            self.begun = self.open(_SYNC)
            self.sample_ns += time.perf_counter_ns() - began

    def end(self) -> None:
        """Record the point at which the stream has all gradients."""
        if self.begun is not None:
            began = time.perf_counter_ns()
            self.shut(self.begun)
            self.begun = None
            self.sample_ns += time.perf_counter_ns() - began

    def fetch_begins(self) -> bool:
        """Record that the host begins to wait for a batch, in a sampled step."""
        if not self.sampling or self.fetching is not None:
            return False
        began = time.perf_counter_ns()
        self.fetching = self.open(_DATA)
        self.sample_ns += time.perf_counter_ns() - began
        return True

    def fetch_ends(self) -> None:
        """Record that the host has the batch, unless its step ended before."""
        if self.fetching is None:
            return
        began = time.perf_counter_ns()
        self.shut(self.fetching)
        self.fetching = None
        self.sample_ns += time.perf_counter_ns() - began

    def fetch_lost(self) -> None:
        """Discard the sample: what the stream stood still for is unknown."""
        self.spoiled = self.spoiled or _BROKEN

    def bracketing(self, enter: Callable[..., Any], blocking: Callable[..., Any]) -> Any:
        """Return `blocking` with its waits in the training stream timed; nested calls once.

        Args:
            enter: returns the argument for `leave`, given the call's arguments.
            blocking: torch's own function.
        """
        now, thread_id, inside = time.perf_counter_ns, threading.get_ident, self.inside
        entered, left = self.guard.guarded(enter), self.guard.guarded(self.leave)

        @_wraps(blocking)
        def wait(owner: Any = self, /, *arguments: Any, **options: Any) -> Any:
            if owner is not self:  # only a function without an owner may be called without any
                arguments = (owner, *arguments)
            began, thread = now(), thread_id()
            if thread in inside or not self.noting:
                return blocking(*arguments, **options)
            opened, result = None, self
            try:  # an interrupt may come at any point
                inside.add(thread)
                opened = entered(arguments, options)
                self.sample_ns += now() - began
                result = blocking(*arguments, **options)
                return result
            finally:
                began = now()
                if left(opened, result) is None:
                    self.spoiled = self.spoiled or _BROKEN
                inside.discard(thread)
                self.sample_ns += now() - began

        # By which pybind11 finds it, see `_GlooWaits.timed`.
        wait.__code__ = wait.__code__.replace(co_name=getattr(blocking, "__name__", "wait"))
        return self.guard.untraced(wait)

    def enter_functional(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin a wait for a collective that was launched in C++, which only its wait reveals."""
        self.seen += 1
        return self.enter_work(arguments, options)

    def enter_work(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin a wait of the current stream for a collective; a wait of another is passed on."""
        key = self.key_of(None)
        return (None, self.open(_SYNC)) if key == self.key else (key, None)

    def enter_collective(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin a collective; one that returns no Work runs on the stream that launched it."""
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
        """Begin `event.synchronize()`: the training stream runs dry until the host continues."""
        return self.enter_wait(arguments[0], self.stream) if self.sampling else (None, None)

    def enter_stream_on_host(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `stream.synchronize()`, the same for everything queued in a stream."""
        source = self.key_of(arguments[0])
        if not self.sampling:
            return None, None
        return self.enter_source(self.key, source, self.carried.get(source, 0))

    def enter_device_on_host(self, arguments: Any, options: Any) -> tuple[Any, ...]:
        """Begin `torch.cuda.synchronize()`, which waits for unknown streams."""
        return None, self.open(_UNKNOWN)

    def enter_wait(self, event: Any, stream: Any) -> tuple[Any, ...]:
        """Begin a stream's wait for an event, which shows the stream that recorded it."""
        waiting = self.key_of(stream)
        period, source, carried = getattr(event, "_rankscope", None) or (-1, None, 0)
        if period != self.period:  # from before, or recorded where Python sees nothing
            return (None, self.open(_UNKNOWN)) if waiting == self.key else (None, None)
        return self.enter_source(waiting, source, carried)

    def enter_source(self, waiting: Any, source: Any, carried: int) -> tuple[Any, ...]:
        """Begin a stream's wait for another one, given the number of collectives on it so far."""
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
        """End what was entered; if None, something failed and the sample is incomplete."""
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
        """Return `Event.record` that also records the stream, and what it has carried so far."""
        now, note = time.perf_counter_ns, self.guard.guarded(self.note)

        @_wraps(record)
        def recorded(event: Any, *arguments: Any, **options: Any) -> Any:
            result = record(event, *arguments, **options)
            began = now()
            note(event, arguments[0] if arguments else options.get("stream"))
            self.sample_ns += now() - began
            return result

        return self.guard.untraced(recorded)

    def note(self, event: Any, stream: Any) -> None:
        """Record on an event its stream, and how many collectives preceded it there."""
        key = self.key_of(stream)
        event._rankscope = (self.period, key, self.carried.get(key, 0))

    def add(self, *step: Any) -> None:
        """Queue a step that the host has ended, with its waits if it was sampled."""
        self.added_ns = time.perf_counter_ns()
        sample: Any = None
        if self.sampling:
            sample = self.take_sample()
            if sample is None:
                self.spoiled = self.spoiled or _BROKEN
        self.pending.append((step, sample, self.spoiled))
        self.sampling = False
        self.restart()

    def taken(self) -> tuple[Any, ...]:
        """Return the sample of the ending step: its first and last event, and its waits."""
        if self.unseen() or self.launched_unseen():
            self.spoiled = self.spoiled or _UNSEEN_PATH
        if self.key_of(None) != self.key:  # the stream that waited is not the one that ends
            self.spoiled = self.spoiled or _UNSEEN_PATH
        waits = any(kind != _DATA for kind, *_ in self.pairs)
        if not waits or self.replicated > self.bracketed:
            self.spoiled = self.spoiled or _NO_WAIT
        if self.captures or self.cuda.is_current_stream_capturing():
            self.spoiled = self.spoiled or _CAPTURE
        dry = not self.spoiled and self.stream.query()
        final = None if self.spoiled else self.event()
        return self.base, self.pairs, final, dry

    def launched_unseen(self) -> bool:
        """Return True if more collectives were launched than our hooks saw.

        DistributedDataParallel's reducer launches its own, for which the ends of backward passes
        wait.
        """
        now = self.launched()
        if now is None or self.launched_before is None or self.replicated:
            return False
        return now - self.launched_before > self.seen

    def passed(self, sample: Any) -> bool:
        """Return True if the device has passed a step; never wait for it."""
        return bool(sample[2].query())

    def ended(self, kept: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the steps that the device has passed, and unmeasured those beyond the limit."""
        while self.pending:
            step, sample, why = self.pending[0]
            usable = sample is not None and sample[2] is not None and not why
            if usable and self.captures:
                passed: Any = False
            else:
                passed = not usable or self.ask(sample)
            if passed is False and len(self.pending) <= kept:
                return
            del self.pending[0]
            times: Any = None
            if usable:
                times = self.read_sample(sample) if passed else None
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

    def read_sample(self, sample: Any) -> Any:
        """Return the times of a sample that the device has passed; None if that fails.

        It is a cost of the sample, whichever step the host is in.
        """
        began = time.perf_counter_ns()
        times = self.read_times(sample)
        spent = time.perf_counter_ns() - began
        self.sample_ns += spent
        self.added_ns += spent
        return times

    def give_back(self, sample: Any) -> None:
        """Release the events of a sample for reuse."""
        base, pairs, final, _ = sample
        ours = [base, final, *(event for pair in pairs for event in pair[1:3])]
        self.pool.extend(event for event in ours if event is not None)

    def measured(self, step: tuple[Any, ...], times: Any, why: int) -> tuple[int, tuple[Any, ...]]:
        """Return the time in sync and the arguments of `add`, with what else was measured."""
        begin, step_ns, data_ns, *middle, marks = step
        number, count, flags, other_ns, backwards = middle
        flags |= _SAMPLED | why << _UNTIMED
        sync_ns = -1
        if times is not None:
            sync, copies, _, _, late, idle = (int(one * 1e6) for one in times)
            data_ns = min(data_ns, idle)
            busy = step_ns - data_ns
            sync_ns = min(sync, busy)
            checkpoint, evaluation, _, _ = _FOUR.unpack(marks)
            copies, late = min(copies, busy - sync_ns), min(max(late - data_ns, 0), busy - sync_ns)
            marks = _FOUR.pack(checkpoint, evaluation, copies, late)
        return sync_ns, (begin, step_ns, data_ns, number, count, flags, other_ns, backwards, marks)

    def times(self, sample: Any) -> tuple[float, ...]:
        """Return milliseconds of sync, copies, unknown waits, the total, lateness and input.

        Overlapping waits, as of two threads, count once. The host is late if the training stream
        had nothing left to do when its next wait came: since the previous wait, at most. Input is
        what the stream stood still for while the host waited for batches, other waits excluded.
        """
        base, pairs, final, dry = sample
        since = base.elapsed_time
        spans = [(since(begin), since(end), kind, idle) for kind, begin, end, idle in pairs]
        fetches = [(begin, end) for begin, end, kind, _ in spans if kind == _DATA]
        spans = sorted(span for span in spans if span[2] != _DATA)
        data = sum(_uncovered(begin, end, spans) for begin, end in fetches)
        whole = since(final)
        spans.append((whole, whole, _END, dry))
        totals, reached, late = [0.0, 0.0, 0.0, whole], 0.0, 0.0
        for begin, end, kind, idle in sorted(spans):
            if idle and begin > reached:
                late += begin - reached
            if end > reached and kind != _END:
                totals[kind] += end - max(begin, reached)
            reached = max(reached, end)
        return (*totals, late, data)

    def prepare(self, step: int, step_ns: int) -> None:
        """Begin step number `step`, after one that took so long: sample it or not."""
        noted = self.noting
        self.steps, self.lived_ns = self.steps + 1, self.lived_ns + step_ns
        if self.arrange(step) is None:
            self.failures += 1
            self.close()
        self.charge(noted or self.noting)

    def charge(self, noted: bool) -> None:
        """Count what was spent since the step's end, or since this was last called."""
        now = time.perf_counter_ns()
        if noted:
            self.sample_ns += now - self.added_ns
        else:
            self.other_ns += now - self.added_ns
        self.added_ns = now

    def arranged(self, step: int) -> bool:
        """Install the hooks for a sampled step, and for the one before it."""
        if self.samples and (step + 2) % self.every == 0:
            self.charge(self.noting)
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
        """Choose the sampling interval that keeps the total cost within the budget."""
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
    """Where backward passes begin, have computed everything, and end: sync is between the last two.

    `timed` states whether that is measured, which costs a hook in each backward pass.
    `device_waits` are those of CUDA, where the device waits at that point and not the host.
    """

    def __init__(
        self, torch: Any, guard: _Guard, clock: _StepClock, stepless: Callable[[], None]
    ) -> None:
        self.torch, self.guard, self.clock = torch, guard, clock
        self.stepless = guard.guarded(stepless)  # called for backward passes before any step
        self.queue_callback = torch.autograd.Variable._execution_engine.queue_callback
        self.hooked = False
        self.frameworks: set[Callable[..., Any]] = set()  # functions of theirs that are observed
        self.device_waits: _DeviceWaits | None = None
        self.restart()

    def restart(self) -> None:
        """Reset after a fork."""
        if self.device_waits is not None:
            self.device_waits.close()
        self.device_waits = None
        self.timed = self.armed = False  # armed: the next backward pass is to be observed
        self.wait_begin = self.wait_before = 0
        self.handle: Any = None  # of our hook in the current backward pass

    def hook(self) -> None:
        """Observe the ends of all backward passes from now on, including `Tensor.backward()`."""
        if self.hooked:  # by this process, or by the one that it was forked from
            return
        self.hooked = True
        autograd, guarded = self.torch.autograd, self.guard.guarded
        self.on_begin, self.on_computed = guarded(self.begun), guarded(self.computed)
        backward = autograd.backward
        autograd.backward = self.observed(backward)
        self.guard.scripted(backward, autograd.backward)

    def hook_frameworks(self) -> None:
        """Observe backward passes of loaded frameworks that call the autograd engine themselves."""
        for name, function in _BACKWARDS:
            module = sys.modules.get(name)
            backward = getattr(module, function, None)
            if callable(backward) and backward not in self.frameworks:
                ours = self.observed(backward)
                self.frameworks.add(ours)
                setattr(module, function, ours)

    def observed(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs a backward pass, with its begin and end recorded.

        Args:
            backward: that function; its first argument is what the pass begins with.
        """
        now, clock, thread_id = time.perf_counter_ns, self.clock, threading.get_ident
        stepless, guarded = self.stepless, self.guard.guarded
        arm, ended = guarded(self.arm), guarded(self.ended)

        @_wraps(backward)
        def running(tensors: Any, *arguments: Any, **options: Any) -> Any:
            # One that begins within another recomputes what activation checkpointing dropped.
            if clock.in_backward or thread_id() != clock.thread:
                if not clock.thread:
                    stepless()
                return backward(tensors, *arguments, **options)
            try:  # an interrupt may come at any point
                clock.in_backward = True
                clock.backwards += 1
                if self.timed:
                    arm(tensors)
                return backward(tensors, *arguments, **options)
            finally:
                clock.in_backward = False
                if self.timed:
                    ended()
                clock.backward_ended(now())

        return self.guard.untraced(running, around=True)

    def arm(self, tensors: Any) -> None:
        """Prepare to observe the end of a backward pass that begins with the first tensor.

        The engine runs final callbacks in the order in which they were queued. Ours is queued at
        the very beginning, so that it runs before that of the reducer, which waits for all buckets.
        """
        self.wait_begin = 0
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        if getattr(compiled, "compiled_autograd_enabled", False):
            return  # it compiles hooks, and fails at those that queue a callback
        first = tensors
        if isinstance(tensors, (list, tuple)):  # an iterator would lose what we took from it
            first = tensors[0] if tensors else None
        if isinstance(first, self.torch.Tensor) and first.requires_grad:
            self.armed = True
            self.handle = first.register_hook(self.on_begin)

    def begun(self, gradient: Any) -> None:
        """Queue our callback; a second backward pass through one tensor calls this twice."""
        if self.armed:
            self.armed = False
            self.queue_callback(self.on_computed)

    def computed(self) -> None:
        """Record the time at which a backward pass has computed everything; the rest is waiting."""
        if self.device_waits is not None:
            self.device_waits.begin()
        clock = self.clock
        self.wait_begin, self.wait_before = time.perf_counter_ns(), clock.sync_ns
        clock.cpu.look(self.wait_begin, clock.sync_ns)

    def ended(self) -> None:
        """Record the time at which a backward pass returns, with all buckets reduced.

        A hook that stayed would be the program's to save, and one more for each further pass.
        """
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.remove()
        if self.wait_begin:
            now, clock = time.perf_counter_ns(), self.clock
            clock.sync_ns = self.wait_before + now - self.wait_begin
            clock.cpu.look(now, clock.sync_ns, False)
            if self.device_waits is not None:
                self.device_waits.end()


class _Span:
    """What one thread is doing besides steps; times in nanoseconds."""

    def __init__(self, number: int, kind: int, begin_ns: int, step: int) -> None:
        self.number, self.kind, self.step = number, kind, step
        self.begin_ns = begin_ns
        self.unix_ns = time.time_ns() - (time.perf_counter_ns() - begin_ns)
        self.flags = self.target = 0
        self.own_ns = self.sync_ns = 0  # the step's, when it began
        self.of_step = -1  # when the step that it delays began; -1 for none
        self.path: Any = None
        self.outcome, self.duration_ns, self.blocked_ns, self.size = _OPEN, -1, -1, -1

    def packed(self, outcome: int, duration_ns: int, blocked_ns: int, size: int) -> bytes:
        """Return the contents of its slot."""
        seq = self.number + 1
        check = 4 * seq + outcome & 0xFFFFFFFF
        times = (self.unix_ns, duration_ns, blocked_ns, size)
        words = (self.step, self.target, self.flags, self.kind, outcome, 0, 0, check)
        return _SPAN.pack(seq, *times, *words)


class _Spans:
    """Marks what is not a step: checkpoints, evaluations and compiling, as they begin and end."""

    def __init__(
        self, torch: Any, guard: _Guard, clock: _StepClock, store: "_CheckpointStore"
    ) -> None:
        self.torch, self.guard, self.clock = torch, guard, clock
        self.begin, self.end = guard.guarded(self.begun), guard.guarded(self.ended)
        self.evaluating = guard.guarded(self.evaluates)
        self.end_evaluation = guard.guarded(self.evaluation_ended)
        self.frameworks: set[tuple[str, str, str]] = set()
        self.compiling_watched = False
        self.store = store
        self.restart()

    def restart(self) -> None:
        """Reset after a fork."""
        self.slots: _Slots | None = None
        self.passing = False  # the file gives way to another one, which should contain these, too
        self.early: list[tuple[int, bytes]] = []
        self.numbers = itertools.count()
        # Of each thread: `inside` something marked, `dcp`, and `loads`: the last step with a
        # `torch.load`, and how many steps in turn had one.
        self.here = threading.local()
        self.evaluation: _Span | None = None
        self.evaluated = (0, 0)  # until when, by the clock and by the step's own
        self.compiling: list[_Span] = []
        self.fetching = False  # samples, in the training thread
        self.fetching_beside: set[int] = set()  # threads, all as long as none is known as that one
        self.written_by_dcp = 0  # checkpoints that DCP is writing now, in any thread
        self.terminating = False
        self.step = 0

    def attach(self, slots: _Slots | None, passing: bool = False) -> None:
        """Write from now on, starting with the spans from before there was a file.

        Args:
            slots: of the file; None if there is none.
            passing: whether another file will take its place.
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
        """Write a span's slot; spans that end before there is a file are kept for it."""
        packed = span.packed(outcome, duration_ns, blocked_ns, size)
        if self.slots is not None:
            self.slots.write(span.number, packed)
        if (self.slots is None or self.passing) and outcome != _OPEN:
            del self.early[: -_EARLY_SPANS + 1]
            self.early.append((span.number, packed))

    def made(self, kind: int, begin_ns: int = 0, flags: int = 0, target: int = 0) -> _Span:
        """Return a span that began now or shortly before, which `put` shows to readers."""
        clock, thread, now = self.clock, threading.get_ident(), time.perf_counter_ns()
        span = _Span(next(self.numbers), kind, begin_ns or now, self.step & 0xFFFFFFFF)
        beside = _BESIDE if clock.thread not in (0, thread) else 0
        span.flags = flags | beside | (_TERMINATING if self.terminating else 0)
        span.target = target
        if thread == clock.thread:
            clock.cpu.look(now, clock.sync_ns)
            span.own_ns, span.sync_ns = clock.own(span.begin_ns), clock.sync_ns
            span.of_step = clock.begin_ns
        return span

    def close(self, span: _Span, outcome: int, size: int, now: int, own_ns: int) -> None:
        """End a span at a time given by the clock and by the step's own."""
        span.size, span.outcome, span.duration_ns = size, outcome, now - span.begin_ns
        clock, blocked_ns = self.clock, -1
        if span.of_step == clock.begin_ns:
            blocked_ns = max(own_ns - span.own_ns, 0)
            clock.mark(span.kind, blocked_ns, clock.sync_ns - span.sync_ns)
        span.blocked_ns = blocked_ns
        self.put(span, outcome, span.duration_ns, blocked_ns, size)

    def measured(self, span: _Span, size: int) -> None:
        """Record the bytes of a checkpoint, which are known once it has ended."""
        packed = span.packed(span.outcome, span.duration_ns, span.blocked_ns, size)
        for place, (number, _) in enumerate(self.early):
            if number == span.number:
                self.early[place] = number, packed
        if self.slots is not None:
            self.slots.write(span.number, packed)

    def close_now(self, span: _Span, outcome: int, now: int, size: int = -1) -> None:
        """End a span now."""
        if span.of_step == self.clock.begin_ns:
            self.clock.cpu.look(now, self.clock.sync_ns)
        self.close(span, outcome, size, now, self.clock.own(now))

    def begun(self, kind: int, target: Any, flags: int = 0) -> _Span | None:
        """Begin a span, unless it is part of another, or reads samples."""
        thread = threading.get_ident()
        path = target if isinstance(target, (str, bytes, os.PathLike)) else None
        if getattr(self.here, "inside", False):
            around = getattr(self.here, "span", None)
            if path is not None and around is not None and kind == _SAVE and not around.path:
                around.path = _absolute(path)  # of a saver that does not say where it saves
            return None
        if self.reads_samples(thread):
            return None
        if self.written_by_dcp and self.clock.thread != thread:
            return None  # a thread of DCP's writes tensors through torch.save
        path = None if path is None else _absolute(path)
        checksum = 0 if path is None else zlib.crc32(os.fsencode(path))
        if path is None:
            flags = _IN_MEMORY if hasattr(target, "getbuffer") else 0
        span = self.made(kind, 0, flags, checksum)
        span.path, self.here.span = path, span
        self.here.inside = True  # before readers see it: an interrupt finds what it has to end
        try:
            self.put(span, _OPEN)
        except Exception as error:
            if not self.guard.of_program(error):  # nothing will end it
                self.here.inside, self.here.span = False, None
            raise
        return span

    def broken_off(self, was_inside: bool) -> _Span | None:
        """Return the span of a call of `begin` that an interrupt ended; None if it began none."""
        if was_inside or not getattr(self.here, "inside", False):
            return None
        span: _Span | None = self.here.span
        return span

    def reads_samples(self, thread: int) -> bool:
        """Return True if a loader, in this thread or process, is fetching a batch."""
        if thread in self.fetching_beside or (self.fetching and thread == self.clock.thread):
            return True
        return self.torch.utils.data.get_worker_info() is not None

    def load_begun(self, kind: int, target: Any, flags: int) -> _Span | None:
        """Begin a span of `torch.load`, unless it recurs in each step: then it reads samples."""
        inside, thread = getattr(self.here, "inside", False), threading.get_ident()
        if self.clock.thread and not inside and not self.reads_samples(thread):
            step, steps = getattr(self.here, "loads", (-2, 0))
            if self.step != step:
                steps = steps + 1 if self.step == step + 1 else 1
                self.here.loads = self.step, steps
            if steps >= _RECURRING:
                return None
        return self.begun(kind, target, flags)

    def ended(self, span: _Span | None, outcome: int, target: Any) -> None:
        """End a span from `begun`; the file system is queried elsewhere, because it may hang."""
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
        begin: "Callable[..., Any] | None" = None,
    ) -> Callable[..., Any]:
        """Return a function marked as a span; its target is an argument by position or name."""
        begin, end = begin or self.begin, self.end

        @_wraps(call)
        def marked(*arguments: Any, **options: Any) -> Any:
            target = arguments[place] if 0 <= place < len(arguments) else options.get(name)
            span, outcome, begun = None, _FAILED, False
            was_inside = getattr(self.here, "inside", False)
            try:
                span = begin(kind, target, flags)
                begun = True
                result = call(*arguments, **options)
                outcome = _DONE
                return result
            finally:
                end(span if begun else self.broken_off(was_inside), outcome, target)

        return self.guard.untraced(marked, around=True)

    def hook(self) -> None:
        """Mark torch's own saving, loading and compiling."""
        import logging

        torch, note = self.torch, self.guard.guarded(self.dcp_said)
        serialization, load_begins = torch.serialization, self.guard.guarded(self.load_begun)
        save, load = serialization.save, serialization.load
        torch.save = serialization.save = self.marked(_SAVE, save, 1, "f", _ONE_FILE)
        torch.load = serialization.load = self.marked(_LOAD, load, 0, "f", 0, load_begins)
        self.guard.scripted(save, torch.save)

        def passing(record: logging.LogRecord) -> bool:
            note(record.msg)
            return True

        # By whatever names a program uses DCP's functions, and before it imports them.
        logging.getLogger(_DCP_LOGGER).addFilter(passing)
        compiled = getattr(torch, "compile", None)
        if compiled is None:
            return
        watch = self.guard.guarded(self.watch_compiling)

        @_wraps(compiled)
        def compiling(*arguments: Any, **options: Any) -> Any:
            made = compiled(*arguments, **options)
            if not self.compiling_watched:
                watch()
            return made

        torch.compile = compiling

    def hook_frameworks(self) -> None:
        """Mark the savers of the loaded frameworks."""
        mark = self.guard.guarded(self.hook_saver)
        for place in _SAVERS:
            mark(*place)

    def hook_saver(self, module: str, owner_name: str, name: str, kind: int) -> None:
        """Mark one of them, once."""
        place = (module, owner_name, name)
        _hook_loaded(place, self.frameworks, lambda call: self.marked(kind, call))

    def hook_termination(self) -> None:
        """Record when a handler of the program receives SIGTERM; it only sees its own handler.

        One that was registered before us is left alone: registering it again would replace what has
        been put over it without Python's knowledge, as faulthandler does.
        """
        handlers: Any = signal
        register, ask = handlers.signal, handlers.getsignal
        note = self.guard.note_handler
        for number in range(1, signal.NSIG):
            note(ask(number))

        def own(handler: Any) -> Any:
            if not isinstance(handler, types.FunctionType):  # objects answer as they like
                return handler
            return vars(handler).get("rankscope_noted", handler)

        @_wraps(register)
        def registering(signalnum: Any, handler: Any) -> Any:
            note(handler)
            if signalnum == signal.SIGTERM and callable(handler):
                handler = self.noting(handler)
            return own(register(signalnum, handler))

        @_wraps(ask)
        def asking(signalnum: Any) -> Any:
            return own(ask(signalnum))

        handlers.signal, handlers.getsignal = registering, asking

    def noting(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Return a handler that records its signal first."""

        def terminating(number: int, frame: Any) -> Any:
            self.terminating = True
            return handler(number, frame)

        terminating.rankscope_noted = handler  # type: ignore[attr-defined]
        return terminating

    def dcp_said(self, message: Any) -> None:
        """Record the beginning or end of one of DCP's calls, in the thread that makes it."""
        kind = _DCP_KINDS.get(str(message.get("func_name"))) if isinstance(message, dict) else None
        if kind is None:
            return
        here, target = self.here, message.get("checkpoint_id")
        if message["event"] == "start":
            was_inside = getattr(here, "inside", False)
            try:
                span = self.begun(kind, target)
            except BaseException:  # an interrupt, after which DCP says no more
                self.ended(self.broken_off(was_inside), _FAILED, None)
                raise
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

    def within_evaluation(self) -> bool:
        """Return True if this thread is inside of what is marked as an evaluation."""
        span = getattr(self.here, "span", None)
        return span is not None and span.kind == _EVALUATE

    def evaluates(self, begin: int, over: bool) -> None:
        """Record a batch that was fetched without gradients, or the end of such batches."""
        if self.evaluation is None and not over and not getattr(self.here, "inside", False):
            self.evaluation = self.made(_EVALUATE, begin)
            self.put(self.evaluation, _OPEN)
        now = time.perf_counter_ns()
        self.evaluated = now, self.clock.own(now)
        if over and self.evaluation is not None:
            self.end_evaluation()

    def evaluation_ended(self) -> None:
        """End an evaluation at its last batch."""
        span, self.evaluation = self.evaluation, None
        if span is not None:
            self.close(span, _DONE, -1, *self.evaluated)

    def was_evaluation(self, loop: "_Loop") -> None:
        """Mark a loop over a loader that turned out to be an evaluation after its end."""
        span = self.made(_EVALUATE, loop.begin_ns)
        since_ns = self.clock.sync_ns - loop.end_sync_ns
        span.own_ns, span.sync_ns = loop.own_ns, loop.sync_ns + since_ns
        self.close(span, _DONE, -1, loop.end_ns, loop.end_own_ns)

    def watch_compiling(self) -> None:
        """Have compilers report when they begin and end."""
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is not None:
            self.compiling_watched = True
            handler.register_start_callback(self.guard.guarded(self.compile_begins))
            handler.register_end_callback(self.guard.guarded(self.compile_ends))

    def compile_begins(self, *about: Any) -> None:
        """Record the beginning of compiling, the outermost one, which torch 2.6 does not report."""
        self.compiling.append(self.made(_COMPILE))
        self.put(self.compiling[-1], _OPEN)

    def compile_ends(self, *about: Any) -> None:
        """Record the end of compiling."""
        if self.compiling:
            self.close_now(self.compiling.pop(), _DONE, time.perf_counter_ns())


def _absolute(path: Any) -> str:
    """Return as text where a path of any type leads to."""
    return os.path.abspath(os.fsdecode(path))


def _position(target: Any) -> int:
    """Return how far an open file has been written; -1 if unknown."""
    if not isinstance(target, (str, bytes, os.PathLike)):
        with contextlib.suppress(AttributeError, OSError, TypeError, ValueError):
            return int(target.tell())
    return -1


def _shards(directory: str, rank: int) -> int:
    """Return the bytes that a rank has written to one of DCP's checkpoints; -1 if unknown."""
    size = 0
    for number in range(_MAX_SHARDS):
        path = os.path.join(directory, "__{}_{}.distcp".format(rank, number))
        try:
            size += os.stat(path).st_size
        except OSError:
            return size if number else -1
    return -1


def _versions(path: str) -> int:
    """Return the number of checkpoints in the directory of this one, itself included.

    Their names differ only in numbers: that of the file, or of a directory of a step around it.
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
    """Return a file's name without its numbers, except for those of ranks and shards."""
    return _NUMBER.sub(lambda match: match[0] if match[1] else "#", name)


class _CheckpointStore:
    """Queries the file system of checkpoints for their size and the free space.

    A thread does so, because a hung mount blocks its caller: while it hangs there is no other one,
    and a few requests wait for it. It ends when there are no more requests.
    """

    def __init__(self, guard: _Guard) -> None:
        self.guard = guard
        self.tell: Callable[[_Span, int], None] = lambda span, size: None
        self.note: Callable[[Mapping[int, float]], None] = lambda values: None
        self.restart()

    def restart(self) -> None:
        """Reset after a fork: the child has no such thread."""
        self.requests: collections.deque[tuple[_Span, str, int]] = collections.deque(
            maxlen=_REQUESTS
        )
        self.thread: threading.Thread | None = None
        self.lock = threading.RLock()  # a signal's handler may save a checkpoint amid `ask`
        self.looked_ns = -_LOOK_AGAIN_NS

    def ask(self, span: _Span, path: str, rank: int = -1) -> None:
        """Request the size of a checkpoint that has ended; `rank` owns a part of a directory."""
        self.requests.append((span, path, rank))
        with self.lock:
            if self.thread is None:
                look = self.guard.guarded(self.look)
                self.thread = threading.Thread(target=look, name="rankscope", daemon=True)
                try:
                    self.thread.start()
                except RuntimeError:  # the interpreter exits, or a limit
                    self.thread = None
                except BaseException:  # an interrupt: the next request starts another one
                    self.thread = None
                    raise

    def look(self) -> None:
        """Handle requests until there are none left."""
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
        """Return the size of a checkpoint, and the use of its file system."""
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
        """Allow the last request some time at the end of the process."""
        thread = self.thread
        if thread is not None:
            thread.join(_EXIT_SECONDS)


class _Signals:
    """What training reports about itself: losses, rates, counts; written as one table."""

    def __init__(self, torch: Any, guard: _Guard) -> None:
        self.torch, self.guard = torch, guard
        # Of the tensor itself: nothing that a program has put in its place is called.
        base = getattr(torch._C, "TensorBase", None) or getattr(torch._C, "_TensorBase", None)
        self.tensor, self.item = getattr(torch, "Tensor", None), getattr(base, "item", None)
        self.restart()

    def restart(self) -> None:
        """Reset after a fork."""
        self.slots: _Slots | None = None
        self.lock = threading.Lock()
        self.values: dict[int, tuple[float, int, int]] = {}  # value, Unix time, step
        self.seq = self.due_ns = self.step = 0
        self.losses = self.not_finite = self.newest_step = self.bad_step = 0
        self.newest = self.level = 0.0
        self.distance = 0.0  # the usual distance of a loss from its level
        self.optimizer: Any = None  # a weak reference
        self.rate_given = False
        self.read_failures = 0
        # Losses that a device has not copied yet: buffer, event, step, shards.
        self.pending: list[tuple[Any, Any, int, tuple[str, ...]]] = []
        self.shards: tuple[str, ...] = ()  # that the program says it reads
        self.bad_since = 0  # step of the first non-finite loss since the last finite one
        self.bad_shards: tuple[str, ...] = ()
        self.buffers: list[tuple[Any, Any]] = []  # to copy into, each with an event
        self.dead: set[str] = set()  # workers' pids

    def put(self, kind: int, value: float, step: int | None = None) -> None:
        """Record a value."""
        self.values[kind] = value, time.time_ns(), self.step if step is None else step

    def add(self, kind: int, more: float = 1.0, soon: bool = False) -> None:
        """Add to a count."""
        self.put(kind, self.values.get(kind, (0.0,))[0] + more)
        if soon:
            self.due_ns = 0

    def note_store(self, values: Mapping[int, float]) -> None:
        """Record the state of a checkpoint's file system, in a background thread."""
        for kind, value in values.items():
            self.put(kind, value)
        self.write()

    def flush(self, now: int) -> None:
        """Write the table at the end of a step, once a second."""
        self.due_ns = now + _SIGNAL_NS
        for put in (self.read_losses, self.put_losses, self.put_rate):
            self.guard.guarded(put)()
        self.write()

    def put_rate(self) -> None:
        """Record the learning rate of the primary optimizer, unless the program gives it."""
        optimizer = self.optimizer() if self.optimizer is not None else None
        groups = optimizer.param_groups if optimizer is not None else ()
        if groups and not self.rate_given:
            rate = groups[0].get("lr")
            if type(rate) in (int, float):  # one on a device is not read
                self.put(_RATE, float(rate))

    def write(self) -> None:
        """Write the table; if another thread is writing it, leave it to the next time."""
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
        """Record a loss: a number at once, a tensor's when it has been copied, without waiting.

        In CPU memory there is nothing to wait for.
        """
        if type(value) is self.tensor and self.item and value.is_cpu:
            if value.numel() == 1:
                self.note_loss(float(self.item(value)), self.step, self.shards)
        elif isinstance(value, (int, float)):
            self.note_loss(float(value), self.step, self.shards)
        elif value is None:
            return
        elif _is_number(value):
            self.note_loss(float(value), self.step, self.shards)
        elif self.read_failures < _MAX_FAILURES:
            try:
                self.read_losses()
                self.copy(value)
            except Exception:
                self.read_failures += 1
                raise

    def copy(self, value: Any) -> None:
        """Begin to copy a loss from its device; one captured into a graph has no value yet."""
        torch = self.torch
        if hasattr(value, "to_local"):  # the same on all ranks, if it is a loss
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
        functions = torch._C  # before 2.0 only the second existed
        plain = getattr(functions, "DisableTorchFunctionSubclass", None)
        with (plain or functions.DisableTorchFunction)():  # whatever a subclass would return
            value = value.detach()
            buffer.copy_(value.reshape(()) if value.dim() else value, non_blocking=True)
        if event is not None:
            event.record(torch.cuda.current_stream(value.device))
        self.pending.append((buffer, event, self.step, self.shards))

    def made_buffers(self, kind: str, data_type: Any) -> list[tuple[Any, Any]]:
        """Return memory for losses; for a device it is pinned, all at once and permanently."""
        torch = self.torch
        # Whatever the program's default device is; memory from inference mode is for that only.
        with torch.inference_mode(False):
            if kind == "cpu":
                return [(torch.empty((), dtype=torch.float64, device="cpu"), None)]
            whole = torch.empty(_PENDING_LOSSES, dtype=data_type, device="cpu", pin_memory=True)
            return [(part, torch.cuda.Event()) for part in whole.unbind()]

    def read_losses(self) -> None:
        """Read the losses that have been copied by now, from our own memory.

        While a graph is under capture none are read, because a query would end it with an error.
        """
        on_device = bool(self.pending) and self.pending[0][1] is not None
        if on_device and self.torch.cuda.is_current_stream_capturing():
            return
        while self.pending:
            buffer, event, step, shards = self.pending[0]
            if event is not None and not event.query():
                return
            del self.pending[0]
            self.buffers.append((buffer, event))
            self.note_loss(float(buffer.item()), step, shards)

    def note_loss(self, value: float, step: int, shards: "tuple[str, ...]") -> None:
        """Count a loss, and update the level unless it is a spike."""
        self.losses += 1
        before, self.newest, self.newest_step = self.newest, value, step
        if value - value != 0:  # infinite or NaN, in a third of the time of a call
            if before - before == 0:  # whatever is read later: the weights are not finite
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
        """Put the losses into the table, if there were any since the last time."""
        if self.losses != self.values.get(_LOSSES, (0.0,))[0]:
            self.put(_LOSS, self.newest, self.newest_step)
            self.put(_LOSSES, float(self.losses))
            if self.not_finite != self.values.get(_NOT_FINITE, (0.0,))[0]:
                self.put(_NOT_FINITE, float(self.not_finite), self.bad_step)
                self.put_shards()
            if self.losses > self.not_finite:
                self.put(_LEVEL, self.level)

    def put_shards(self) -> None:
        """Put into the table where non-finite losses began, and what was read there."""
        step, shards = self.bad_since, self.bad_shards
        self.put(_BAD_SINCE, float(step), step)
        self.put(_BAD_SHARDS, float(len(shards)), step)
        for place in range(_MAX_NAMED):
            self.values.pop(_BAD_SHARD + place, None)
        for place, name in enumerate(shards if len(shards) <= _MAX_NAMED else ()):
            checksum = zlib.crc32(name.encode(errors="surrogateescape"))
            self.put(_BAD_SHARD + place, float(checksum), step)

    def shards_are(self, *paths: Any) -> None:
        """Record the names of the files that the batch comes from, each once."""
        names = (os.fsdecode(path).rstrip("/").rpartition("/")[2] for path in paths)
        self.shards = tuple(dict.fromkeys(names))

    def worker_died(self, error: Exception) -> None:
        """Count the loader workers named in an error of the loader, each once."""
        named = _WORKERS.match(str(error))
        if named:
            self.count_dead(set(named[1].split(", ")))

    def count_dead(self, pids: "set[str]") -> None:
        """Count workers by their PIDs, each once."""
        pids = pids - self.dead
        if pids and len(self.dead) < _SIBLINGS:
            self.dead |= pids
            self.add(_DEAD_WORKERS, float(len(pids)), soon=True)

    def hook(self) -> None:
        """Count dead loader workers, and how often CUDA runs out of memory once it is in use."""
        data = self.torch.utils.data
        for owner, name in (
            (data._utils.signal_handling, "_error_if_any_worker_fails"),
            (data.dataloader._MultiProcessingDataLoaderIter, "_try_get_data"),
        ):
            noting = self.noting_deaths(getattr(owner, name))
            setattr(owner, name, self.guard.untraced(noting, around=True))
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
        """Return a function that raises when loader workers have died, with them counted."""
        died = self.guard.guarded(self.worker_died)

        @_wraps(call)
        def noting(*arguments: Any, **options: Any) -> Any:
            try:
                return call(*arguments, **options)
            except RuntimeError as error:
                died(error)
                raise

        return noting

    def noting_ends(self, shutdown: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that ends a loader's workers, and counts those that ended abnormally.

        A broken pipe may be all that the program notices of a worker's death.
        """
        ended = self.guard.guarded(self.workers_ended)

        @_wraps(shutdown)
        def noting(loader: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return shutdown(loader, *arguments, **options)
            finally:
                ended(loader)

        return noting

    def workers_ended(self, loader: Any) -> None:
        """Count workers of a stopped loader that were killed or raised an exception."""
        for worker in getattr(loader, "_workers", ()):
            if worker.exitcode not in (None, 0, -signal.SIGTERM):  # SIGTERM is the loader's own
                self.count_dead({str(worker.pid)})

    def rate(self, value: float) -> None:
        """Record the learning rate reported by the program."""
        self.rate_given = True
        self.put(_RATE, float(value))

    def epoch(self, value: Any) -> None:
        """Record the number of epochs reported by the program."""
        self.put(_EPOCH, float(value))

    def begins(self, optimizer: Any, once: "float | None") -> None:
        """Record the primary optimizer, whose parameters and learning rate these are.

        Args:
            optimizer: the one that steps.
            once: this rank's share of the model's parameters; None if unknown.
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
        """Record what the program says about its model."""
        if token is None and active is not None:
            token = _FLOPS_PER_PARAMETER * float(active)
        for kind, flops in ((_TOKEN_FLOPS, token), (_SAMPLE_FLOPS, sample)):
            if flops is not None:
                self.put(kind, float(flops))
        if numbers is not None:
            self.put(_NUMBERS, float(_TYPES[str(numbers).rsplit(".", 1)[-1].lower()]))


def _is_number(value: Any) -> bool:
    """Return True for what is a number in the host's memory, as NumPy's scalars are.

    Reading one that is on a device would wait for it. NumPy's arrays say that they are on "cpu".
    """
    kind = type(value)
    single = getattr(value, "size", 1) == 1  # a NumPy array may have more
    return hasattr(kind, "__float__") and single and getattr(value, "device", "cpu") == "cpu"


class _LoaderWorkers:
    """How fast the worker processes of loaders make batches, recorded in shared memory.

    Each worker has its own slot, whose number it knows when it is forked. The training process
    reads the slots of the loader that it takes batches from.
    """

    def __init__(self, torch: Any, guard: _Guard, clock: _StepClock) -> None:
        self.torch, self.guard, self.clock = torch, guard, clock
        self.look = guard.guarded(self.compare)
        self.table: Any = None  # anonymous memory, created for the first loader with workers
        self.owner = -1  # the process that created it
        self.next = 0  # slot of the first worker of the loader that starts next
        self.restart()

    def restart(self) -> None:
        """Reset after a fork; a worker keeps using the table."""
        self.looked_ns = self.step_began_ns = 0
        self.first = -1  # slot of the first worker of the loader read last
        self.taken = self.steps = 0  # batches that training has taken since, in so many whole steps
        self.of_step, self.whole = 0, False  # batches of this step, and whether that is all of them
        self.made = self.spent_ns = 0
        self.code = 0  # the upper half of the word in the extension's slots

    def hook(self) -> None:
        """Number the workers of each loader, and have them count."""
        data = self.torch.utils.data
        iterator, fetch = data.dataloader._MultiProcessingDataLoaderIter, data._utils.fetch
        iterator.__init__ = self.numbering(iterator.__init__)
        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            kind.fetch = self.counting(kind.fetch)

    def numbering(self, start: Callable[..., None]) -> Callable[..., None]:
        """Return a function that starts a loader's workers, with slots for them."""
        reserve, leave = self.guard.guarded(self.reserve), self.guard.guarded(self.leave)

        @_wraps(start)
        def started(iterator: Any, loader: Any, *arguments: Any, **options: Any) -> None:
            reserve(iterator, loader.num_workers)
            start(iterator, loader, *arguments, **options)
            leave(iterator)

        return started

    def reserve(self, iterator: Any, count: int) -> None:
        """Clear the slots of workers that are about to be forked."""
        if self.owner != os.getpid():  # a forked child's slots are its parent's
            import mmap

            self.table, self.next = mmap.mmap(-1, _WORKER_SLOTS * _WORKER.size), 0
            self.owner = os.getpid()
        for place in self.places(self.next, count):
            _WORKER.pack_into(self.table, place, 0, 0)
        iterator._rankscope_slot = self.next

    def leave(self, iterator: Any) -> None:
        """Continue after the slots of forked workers, and remember theirs."""
        self.next = (self.next + iterator._num_workers) % _WORKER_SLOTS

    def places(self, first: int, count: int) -> Iterator[int]:
        """Yield the offsets of slots in the table."""
        return (_WORKER.size * ((first + each) % _WORKER_SLOTS) for each in range(count))

    def counting(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """Return a worker's function that makes a batch, with its time recorded."""
        worker, now = self.torch.utils.data.get_worker_info, time.perf_counter_ns
        note = self.guard.guarded(self.note)

        @_wraps(fetch)
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
        """Count a batch of this worker."""
        (place,) = self.places(self.next + worker, 1)
        made, spent = _WORKER.unpack_from(self.table, place)
        _WORKER.pack_into(self.table, place, made + 1, spent + spent_ns)

    def took(self, iterator: Any, end_ns: int) -> None:
        """Record a batch that training has received; read the workers' slots when it is time."""
        if self.clock.begin_ns != self.step_began_ns:
            self.step_began_ns = self.clock.begin_ns
            if self.whole:
                self.taken += self.of_step
                self.steps += 1
            self.of_step, self.whole = 0, True
        if getattr(iterator, "_rankscope_slot", -1) == self.first:
            self.of_step += 1
        if end_ns - self.looked_ns > _WORKERS_LOOK_NS:
            self.looked_ns = end_ns
            self.look(iterator)

    def compare(self, iterator: Any) -> None:
        """Derive the time that a step's batches take from what the workers have made meanwhile."""
        first = getattr(iterator, "_rankscope_slot", -1)
        if first != self.first:  # of another loader; none has a slot if there are no workers
            self.first, self.made, self.spent_ns, self.code = first, 0, 0, 0
            self.taken = self.steps = 0
            self.whole = False
        if first < 0:
            return
        count = iterator._num_workers
        slots = [_WORKER.unpack_from(self.table, place) for place in self.places(first, count)]
        made, spent_ns = sum(slot[0] for slot in slots), sum(slot[1] for slot in slots)
        fresh = made - self.made
        if not (fresh >= count and self.taken):
            return  # the next reading has more to go by: a step may last longer than the pause
        seconds = (spent_ns - self.spent_ns) / 1e9 / fresh / count * self.taken / self.steps
        self.code = _WORD.unpack(_HALF.pack(min(1e3 * seconds, _LARGEST_HALF)))[0] << 16
        self.made, self.spent_ns = made, spent_ns
        self.taken = self.steps = 0


class _Loop:
    """A loop over a loader, and what the clock showed at its beginning and end.

    Many programs evaluate with gradients enabled while batches are fetched, and disabled only
    around the model. Such a loop is over before another one begins or continues, within a step, and
    no autograd graph has grown by then. What is fetched for training is used by then, or its loop
    is not over: where the last batches of an epoch are fetched ahead, their use comes first.
    """

    def __init__(
        self,
        clock: _StepClock,
        iterator: Any,
        begin: int,
        sync: int,
        counted: tuple[int, int, int],
    ) -> None:
        self.iterator, self.step, self.nodes = id(iterator), clock.begin_ns, clock.graph_size()
        self.begin_ns, self.sync_ns, self.own_ns = begin, sync, clock.resting or 0
        self.counted = counted  # data, waits for a CPU within it, and samples, at the beginning
        self.rest = clock.other_ns, clock.resting, clock.rest_sync
        self.batches = self.end_ns = self.end_own_ns = self.end_sync_ns = 0

    def fetched(self, clock: _StepClock, over: bool) -> None:
        """Record a batch, or the end; the step's own time then, had nothing counted as data."""
        if not over:
            self.batches += 1
            return
        self.end_ns, self.end_sync_ns = time.perf_counter_ns(), clock.sync_ns
        data, in_data, _ = self.counted
        again = clock.data_ns - data - (clock.cpu.in_data_ns - in_data)
        self.end_own_ns = clock.own(self.end_ns) + again

    def evaluated(self, clock: _StepClock) -> bool:
        """Return True if this was an evaluation, given that another loop begins or continues."""
        over = self.batches and self.end_ns and self.step == clock.begin_ns
        return bool(over and self.nodes == clock.graph_size())

    def give_back(self, clock: _StepClock) -> None:
        """Undo what the loop has added to the step's data, samples and rest."""
        clock.data_ns, clock.cpu.in_data_ns, clock.samples = self.counted
        clock.other_ns, clock.resting, clock.rest_sync = self.rest


class _Batches:
    """A loop over a loader that is not torch's.

    Args:
        loader: that it is over.
        advance: returns the next batch of such a loop.
    """

    def __init__(self, loader: Any, advance: Callable[[Any], Any]) -> None:
        self.iterator, self.advance = iter(loader), advance

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Any:
        return self.advance(self)


class _Loader:
    """How long batches are waited for, and how many samples they have."""

    def __init__(
        self, torch: Any, guard: _Guard, clock: _StepClock, spans: _Spans, backwards: _Backwards
    ) -> None:
        self.torch, self.guard, self.clock, self.spans = torch, guard, clock, spans
        self.backwards = backwards
        self.workers = _LoaderWorkers(torch, guard, clock)
        self.size = guard.guarded(_batch_size)
        self.used = False  # so far, by this process
        self.hooked: set[tuple[str, str, str]] = set()  # of `_LOADERS`
        self.hook_one = guard.guarded(self.hook_loader)
        self.advance = self.timed(lambda loop: next(loop.iterator), counted=True)
        self.looped = self.timed(lambda loader: _Batches(loader, self.advance), counted=False)
        self.loop: _Loop | None = None  # the one whose batches are being fetched, if it may end

    def fetching(self, fetch: Callable[[Any], Any], counted: bool) -> Callable[[Any], Any]:
        """Return a loader's method with its time counted as data, and its batches if `counted`."""
        now, thread_id, guarded = time.perf_counter_ns, threading.get_ident, self.guard.guarded
        clock, cpu, spans, backwards = self.clock, self.clock.cpu, self.spans, self.backwards
        note, look = guarded(functools.partial(self.fetched, counted)), cpu.look
        begins, ends = guarded(self.device_begins), guarded(self.device_ends)

        @_wraps(fetch)
        def method(loader: Any) -> Any:
            thread = thread_id()
            if thread != clock.thread:
                beside, begin, batch = spans.fetching_beside, now(), None
                nested = thread in beside
                try:
                    beside.add(thread)
                    batch = fetch(loader)
                    return batch
                finally:
                    if not nested:
                        beside.discard(thread)
                    if not clock.thread:
                        note(loader, batch, begin, 0, 0, 0, 0, 0)
            waits = backwards.device_waits and begins()
            begin = now()
            if begin - cpu.looked_ns > _LOOK_NS:
                look(begin, clock.sync_ns)
            data, sync, samples = clock.data_ns, clock.sync_ns, clock.samples
            waited, in_data = cpu.total_ns, cpu.in_data_ns
            batch, nested = None, spans.fetching
            try:
                spans.fetching = True
                batch = fetch(loader)
                return batch
            finally:
                spans.fetching = nested
                if waits is not None and ends(waits) is None:
                    waits.fetch_lost()
                note(loader, batch, begin, data, sync, samples, waited, in_data)

        return method

    def timed(self, fetch: Callable[[Any], Any], counted: bool) -> Callable[[Any], Any]:
        """Return the same function, hidden from compiled code."""
        return self.guard.untraced(self.fetching(fetch, counted), around=True)

    def hook_frameworks(self) -> None:
        """Time the loaded loaders that are not torch's."""
        for place in _LOADERS:
            self.hook_one(*place)

    def hook_loader(self, module: str, owner_name: str, name: str) -> None:
        """Time one of them, once."""

        def timed(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            if name == "__next__":
                return self.timed(call, counted=True)
            return self.timed(lambda loader: _Batches(call(loader), self.advance), counted=False)

        _hook_loaded((module, owner_name, name), self.hooked, timed)

    def batches(self, loader: Any) -> Any:
        """Return a loop over any loader, timed; torch's is timed as it is."""
        known = isinstance(loader, self.torch.utils.data.DataLoader)
        return iter(loader) if known else self.looped(loader)

    def device_begins(self) -> _DeviceWaits | None:
        """Have the device's time for a batch measured; return None if nothing does that."""
        waits = self.backwards.device_waits
        timed = waits is not None and self.torch.is_grad_enabled() and waits.fetch_begins()
        return waits if timed else None

    def device_ends(self, waits: _DeviceWaits) -> bool:
        """Have the device's time for a batch end; return True, unlike what fails."""
        waits.fetch_ends()
        return True

    def fetched(
        self,
        counted: bool,
        loader: Any,
        batch: Any,
        begin: int,
        data: int,
        sync: int,
        samples: int,
        waited: int,
        in_data: int,
    ) -> None:
        """Record that a batch has come, given what the clock showed when it was requested."""
        clock, spans = self.clock, self.spans
        cpu = clock.cpu
        if not self.torch.is_grad_enabled() or spans.within_evaluation():
            clock.flags |= _EVALUATION
            spans.evaluating(begin, batch is None)
            return
        if spans.evaluation is not None:
            spans.end_evaluation()
        self.used = True
        before = self.before(loader if counted else None, (data, in_data, samples))
        data, in_data, samples = before
        if clock.resting is not None:
            outside = begin - clock.begin_ns - clock.marked_ns
            clock.rest_until(outside - data - sync - waited + in_data)
            if not counted and batch is not None and clock.thread and not spans.fetching:
                self.loop = _Loop(clock, batch, begin, sync, before)
        end = time.perf_counter_ns()
        clock.data_ns = data + end - begin - (clock.sync_ns - sync)
        if end - cpu.looked_ns > _LOOK_NS:
            cpu.look(end, clock.sync_ns)
        cpu.in_data_ns = in_data + cpu.total_ns - waited
        if counted and batch is not None:
            size = self.size(batch, self.torch.Tensor)
            clock.samples = samples + (_SIZE_UNKNOWN if size is None else size)
            self.workers.took(loader, end)
        if counted and self.loop is not None and self.loop.iterator == id(loader):
            self.loop.fetched(clock, batch is None)

    def before(self, iterator: Any, counted: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return what the step had of data, waits within it and samples before a batch.

        Less than `counted` if the loop before this one was an evaluation, as is known by now.

        Args:
            iterator: the one that gives the batch; None if a loop begins.
            counted: what the clock showed.
        """
        loop = self.loop
        if loop is None or loop.iterator == id(iterator) or self.spans.fetching:
            return counted  # a loader within a data set is part of the one around it
        self.loop = None
        if not loop.evaluated(self.clock):
            return counted
        loop.give_back(self.clock)
        self.clock.flags |= _EVALUATION
        self.spans.was_evaluation(loop)
        return loop.counted


class _FlightRecorder:
    """Torch's own server, from which the agent fetches which collectives ran."""

    def __init__(self, torch: Any, distributed: Any) -> None:
        self.torch, self.distributed, self.socket = torch, distributed, ""

    def serve(self, ring: str) -> None:
        """Let the agent fetch the Flight Recorder over a socket, without this interpreter.

        The server is never shut down: that hangs right after its start, in its destructor as well.
        An extra reference keeps it until the process ends.
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
        with _alone_in(os.path.dirname(path)):
            self.start(server_type, path)
        self.socket = path
        atexit.register(self.close)

    def start(self, server_type: Any, path: str) -> None:
        """Start the server where a limit leaves room for its threads, and as many again.

        It starts them itself, and ends the process if one cannot be started. It ignores SIGPIPE,
        which is for the program to decide; its threads are given none.
        """
        import ctypes

        wanted = 1 + max(_SERVER_THREADS, (os.cpu_count() or 1) - 1)
        if not _room_for_threads(2 * wanted):
            raise OSError("no Flight Recorder: a limit leaves no room for more threads")
        library, kept = _c_library(), ctypes.create_string_buffer(_SIGACTION_SIZE)
        before = len(os.listdir("/proc/self/task"))
        known = library.sigaction(int(signal.SIGPIPE), None, kept) == 0
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
        try:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(server_type(path)))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            if known:
                library.sigaction(int(signal.SIGPIPE), kept, None)
        # Until it has its threads, another rank would find room where there is none.
        until = time.perf_counter() + _SETTLE_SECONDS
        while len(os.listdir("/proc/self/task")) < before + wanted and time.perf_counter() < until:
            time.sleep(0.001)

    def close(self) -> None:
        """Call nothing in a process that is exiting."""
        if self.socket:
            with contextlib.suppress(OSError):
                os.unlink(self.socket)

    def time_collectives(self) -> None:
        """Have NCCL's collectives timed on the device, on request only: it is not free.

        With CUDA_DEVICE_MAX_CONNECTIONS=1, as set by Megatron-LM, the events end all overlap of
        exchange and compute (pytorch issue 143890), so it is refused there.
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
    """Where this process's steps begin and end; which hooks and which ring it gets for them."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.distributed: Any = torch.distributed if torch.distributed.is_available() else None
        # What `is_initialized()` queries through three functions, which are cold at each step's
        # end.
        world = getattr(getattr(self.distributed, "distributed_c10d", None), "_world", None)
        self.world: Any = world if hasattr(world, "_default_pg") else None
        self.guard = _Guard(torch)
        self.clock = clock = _StepClock(torch, self.guard)
        self.store = _CheckpointStore(self.guard)
        self.signals = _Signals(torch, self.guard)
        self.spans = _Spans(torch, self.guard, clock, self.store)
        self.store.tell, self.store.note = self.spans.measured, self.signals.note_store
        self.backwards = _Backwards(torch, self.guard, clock, self.backward_without_step)
        self.loader = _Loader(torch, self.guard, clock, self.spans, self.backwards)
        self.gloo = _GlooWaits(torch, self.distributed, self.guard, clock)
        self.flight = _FlightRecorder(torch, self.distributed)
        self.hook_backwards = self.guard.guarded(self.backwards.hook_frameworks)
        self.flush_signals = self.guard.guarded(self.signals.flush)
        self.take_amounts = self.guard.guarded(self.note_amounts)
        # Functions that a program calls: compilers skip them.
        guarded, untraced = self.guard.guarded, self.guard.untraced
        self.take_step = untraced(guarded(self.ended_by_program))
        self.take_loss = untraced(guarded(self.signals.loss))
        self.take_rate = untraced(guarded(self.signals.rate))
        self.take_shards = untraced(guarded(self.signals.shards_are))
        self.take_model = untraced(guarded(self.signals.model))
        self.take_epoch = untraced(guarded(self.signals.epoch))
        self.take_tokens = guarded(functools.partial(self.signals.put, _TOKENS))
        self.ring: _Ring | None = None
        self.shown: _Ring | None = None  # before the first step, without records
        self.writes_rest = False  # at the end of the process
        self.replicas: list[Any] = []  # weak references to DistributedDataParallel modules
        self.optimizers: Any = weakref.WeakSet()  # classes
        self.nested = False  # a class and one that it inherits from both report their steps
        self.restart()

    def restart(self) -> None:
        """Reset everything measured, after a fork: the ring is the parent's."""
        for ring in filter(None, (self.ring, self.shown)):
            ring.close()  # its lock stays with the parent's descriptor
        self.ring = self.shown = None
        self.clock.restart()
        self.spans.restart()
        self.store.restart()
        self.signals.restart()
        self.backwards.restart()
        self.loader.used, self.loader.loop = False, None
        self.loader.workers.restart()
        self.flight.socket = ""
        self.step = self.rings = self.stepless = self.stepless_ns = 0
        # stepped: the primary optimizer did, or its scaler has skipped that, since the scaler's
        # update.
        self.stepped = self.watches_step_begins = False
        self.by_program = self.counted = False  # the program says where steps end; their samples
        self.primary: tuple[int, int] | None = None
        self.alive: Any = None  # a weak reference to the primary optimizer
        self.others: dict[tuple[int, int], int] = {}
        self.scaled = (0, 0)  # the scaler that steps the primary optimizer, and what it was given
        self.connected: bool | None = None
        self.device, self.timing = "", _TIMING_NONE
        self.method = ""  # by which this process joined others, see `_job_id`
        self.mesh: Any = None  # over which the primary optimizer's parameters are distributed
        self.layout: tuple[int, ...] = _NO_LAYOUT
        self.gpu = b""  # the UUID of the one that holds the primary optimizer's parameters

    def step_finished(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Process the end of an optimizer's `step()`, of any optimizer in this process."""
        if self.nested and _within_step(optimizer):
            return
        parameter = _first_parameter(optimizer)
        key = (id(optimizer), id(parameter))
        if key != self.primary:
            if not self.adopts(key):
                self.stepped = self.stepped or self.is_primary(key[0])
                self.other_stepped()
                return
            device = getattr(parameter, "device", None)
            self.primary, kind = key, device.type if device else self.device or self.used_device()
            if kind != self.device:
                self.device, self.connected = kind, None
            self.alive = weakref.ref(optimizer, self.primary_gone)
            self.gpu = self.guard.guarded(self.gpu_of)(device) or b""
            once = self.guard.guarded(self.parameters_once)(optimizer)
            self.guard.guarded(self.signals.begins)(optimizer, once)
        if self.others:
            self.others.clear()
        self.stepped = True
        if self.by_program:
            self.other_stepped()
            return
        if not self.clock.thread:
            self.mesh = getattr(parameter, "device_mesh", None)
            self.spans.hook_frameworks()
            self.loader.hook_frameworks()
            self.hook_backwards()
        flags = 0
        if options or len(arguments) > 1:
            closure = options.get("closure", next(iter(arguments[1:]), None))  # after the optimizer
            flags = _CLOSURE if closure is not None else 0
        self.end_step(flags)

    def gpu_of(self, device: Any) -> bytes:
        """Return the UUID of a GPU, empty if it is unknown: older versions of torch do not tell.

        Variables such as CUDA_VISIBLE_DEVICES and the limits of a container number GPUs anew, so
        that a process knows its GPU's number on the node only by that.
        """
        cuda = self.torch.cuda
        # A fake tensor has a device in a process that has not begun to use CUDA, and must not: not
        # even `is_available`, after which its forks could not use CUDA.
        if device is None or device.type != "cuda" or not cuda.is_initialized():
            return b""
        if device.index is None or cuda.is_current_stream_capturing():
            return b""
        text = str(getattr(cuda.get_device_properties(device.index), "uuid", ""))
        try:
            return bytes.fromhex(text.replace("-", ""))
        except ValueError:  # of a device that is not NVIDIA's
            return b""

    def parameters_once(self, optimizer: Any) -> "float | None":
        """Return this rank's share of the model, such that the shares of all ranks add up to it.

        Ranks that hold the same part share it equally; each rank has its own of a shard. None if
        unknown: of plain tensors that neither DistributedDataParallel nor FSDP holds, ranks may
        have copies as well as shards. Plain tensors that a tensor-parallel group replicates, such
        as norms, count in each of its ranks.
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
        """Return True if some ranks have a group of their own: then shards may have copies."""
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        groups = getattr(world, "pg_group_ranks", {}).values()
        return any(1 < len(group) < ranks for group in groups)

    def end_shown(self) -> None:
        """Remove the ring of a program without steps so far: the next one contains more."""
        shown, self.shown = self.shown, None
        self.spans.slots, self.spans.passing = None, False
        self.signals.slots = None
        if shown is not None:
            shown.remove()

    def adopts(self, key: tuple[int, int]) -> bool:
        """Decide whether an optimizer becomes the primary one: there is none, or it is unused."""
        if self.primary is None:
            return True
        others = self.others
        others[key] = count = others.get(key, 0) + 1
        if len(others) > _MAX_OTHERS:
            others.clear()
        return count >= _ADOPT_AFTER

    def is_primary(self, identity: int) -> bool:
        """Return True if the primary optimizer has this `id`."""
        primary = self.primary
        return primary is not None and primary[0] == identity

    def primary_gone(self, reference: Any) -> None:
        """Have the next optimizer that steps become the primary one."""
        if reference is self.alive:
            self.primary = None

    def other_stepped(self) -> None:
        """Process the end of a further optimizer's `step()`."""
        if threading.get_ident() == self.clock.thread and not self.clock.in_backward:
            self.clock.optimizer_ended(time.perf_counter_ns())

    def step_begins(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Process the start of an optimizer's `step()`."""
        if threading.get_ident() == self.clock.thread:
            self.clock.optimizer_begins(time.perf_counter_ns())

    def scaler_stepped(self, scaler: Any, optimizer: Any, before: bool) -> None:
        """Process a `GradScaler.step()`: if gradients overflowed, there was no optimizer's step.

        Args:
            scaler: one that may step several optimizers, or one of several.
            optimizer: what it was given: the optimizer, or what calls it.
            before: whether the primary optimizer had stepped since the scaler's update.
        """
        place = (id(scaler), id(optimizer))
        if self.stepped:
            self.scaled = place
        elif place == self.scaled or self.is_primary(place[1]):
            self.scaled = place
            self.skipped(scaler)
            self.stepped = True
        self.stepped = self.stepped or before

    def scaler_updated(self, scaler: Any) -> None:
        """Process a `GradScaler.update()`: without a preceding step, the program has skipped it."""
        if self.scaled[0] in (0, id(scaler)):
            if not self.stepped:
                self.skipped(scaler)
            self.stepped = False

    def skipped(self, scaler: Any) -> None:
        """Process an update of the primary optimizer that is left out."""
        if scaler.is_enabled() and self.primary is not None:
            self.signals.add(_SKIPS)
            if not self.by_program:
                self.end_step(_SKIPPED)

    def ended_by_program(self, samples: Any, tokens: Any) -> None:
        """Process the end of a step by the program; from the first one on only these count."""
        now = time.perf_counter_ns()
        if tokens is not None or samples is not None:
            self.take_amounts(samples, tokens)
        if not self.by_program:
            self.by_program = True
            if not self.device:
                self.device = self.used_device()
            if self.clock.thread and not self.step:  # begun by the optimizer, just before
                self.clock.begin(now, time.time_ns())
                return
        self.end_step(0)

    def note_amounts(self, samples: Any, tokens: Any) -> None:
        """Record what the program says that it processed in the ending step."""
        if samples is not None:
            self.clock.samples, self.counted = int(samples), True
        if tokens is not None:
            self.signals.add(_TOKENS, float(tokens))

    def end_step(self, flags: int) -> None:
        """End the step now, record it and begin the next; the first call only begins one."""
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
            self.connected, self.timing = connected, _TIMING_NONE
            self.timing = self.choose_timing()

    def initialized(self) -> bool:
        """Return True if this process has joined others."""
        return self.distributed is not None and bool(self.distributed.is_initialized())

    def watch_step_begins(self) -> None:
        """Have optimizers report when they begin to step, if nothing else shows it."""
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self.watches_step_begins = True
        register_optimizer_step_pre_hook(self.guard.untraced(self.guard.guarded(self.step_begins)))

    def record(self, step_ns: int, flags: int, other_ns: int = -1) -> None:
        """Write one record, into a ring created at the first; what fails is not recorded."""
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
        """Make a program visible that computes gradients and takes no step that we would see."""
        if self.ring is not None or self.shown is not None or self.rings:
            return
        now = time.perf_counter_ns()
        self.stepless += 1
        self.stepless_ns = self.stepless_ns or now
        if self.stepless >= _STEPLESS_BACKWARDS and now - self.stepless_ns > _STEPLESS_NS:
            self.show()

    def joined(self, method: Any) -> None:
        """Make a rank visible that has joined the others, and able to report its state.

        The process that writes a rank's checkpoints joins its like with that rank's number, and
        makes no steps: seen as the rank, it would be a restart that hangs.
        """
        if _called_by(_CHECKPOINT_PROCESS):
            return
        ring, self.method = self.ring or self.shown, str(method or "")
        if ring is not None and ring.place != _place(self.distributed, self.method):
            self.leave_ring()
        unseen = self.ring is None and self.shown is None and not self.rings
        if unseen and self.distributed.get_world_size() > 1:
            self.show()

    def left(self) -> None:
        """End the ring of a process that is no rank any longer and may live on.

        A worker of Ray or Dask waits for its next task then, for hours, and is not hung.
        """
        if not self.initialized() and (self.ring or self.shown) is not None:
            self.leave_ring()

    def trains_alone(self) -> bool:
        """Return True if this thread trains, and other ranks do not wait for it."""
        alone = self.ring is not None and not self.initialized()
        return alone and self.clock.thread == threading.get_ident()

    def left_to_children(self, pids: "list[int]") -> None:
        """End the ring of a process that waits for others to end, of which one trains instead."""
        if self.ring is None:
            return
        names = (_ring_name(pid, _process_start_ticks(pid)) for pid in pids)
        place = os.path.dirname(self.ring.path)
        if any(os.path.lexists(os.path.join(place, name)) for name in names):
            self.leave_ring()

    def leave_ring(self) -> None:
        """End the ring of a process that has become another rank, or none, and count steps anew.

        A restart within the process may give it another rank, or a world of another size, and a
        worker that Ray or Dask uses again another job: what the ring's header says remains true of
        its records. Other ranks may be processes that have just started, so that, as in those, the
        first step only begins with the next optimizer's step.
        """
        self.guard.guarded(self.write_rest)()
        self.guard.guarded(self.end_shown)()
        if self.ring is not None:
            self.ring.close()
        self.ring, self.rings, self.layout, self.connected = None, 0, _NO_LAYOUT, None
        self.spans.slots = self.signals.slots = None
        self.step = self.spans.step = self.signals.step = self.clock.thread = 0

    def show(self) -> None:
        """Create a ring without records, which the first step's ring replaces."""
        self.rings = _MAX_RINGS  # what refuses it is not tried again
        self.shown = self.made_ring(_STEPLESS_CAPACITY)
        self.rings = 0
        self.guard.guarded(self.spans.attach)(self.shown.spans, True)
        self.signals.slots = self.shown.signals
        self.serve_flight(self.shown)

    def open_ring(self) -> None:
        """Create a ring; a full disk, or whatever else prevents the first, is not tried again."""
        again, self.rings = self.rings, _MAX_RINGS
        if not again and self.initialized():
            self.guard.guarded(self.find_layout)()
        self.ring = self.made_ring(_CAPACITY)
        self.rings = again + 1
        self.guard.guarded(self.spans.attach)(self.ring.spans)
        self.signals.slots = self.ring.signals
        if not self.writes_rest:
            self.writes_rest = True
            atexit.register(self.guard.guarded(self.write_rest))
        if not again:
            self.serve_flight(self.ring)
            if self.flight.socket:
                self.guard.guarded(self.flight.time_collectives)()
        if self.ring.refused is not None:
            self.guard.report(self.ring.refused, "_Ring")

    def made_ring(self, capacity: int) -> _Ring:
        """Return a new ring with what is known of this process by now."""
        joined = self.distributed if self.initialized() else None
        attempt = min(max(_first_number(("TORCHELASTIC_RESTART_COUNT",)), 0), 0xFFFF)
        version = self.torch.__version__
        known = (version, joined, attempt, self.layout, capacity, self.gpu, self.method)
        return _Ring(_ring_directory(), *known)

    def serve_flight(self, ring: _Ring) -> None:
        """Start the server for the agent next to a ring, if other ranks may wait for this one."""
        if self.initialized() and self.distributed.get_world_size() > 1:
            self.guard.guarded(self.flight.serve)(ring.path)

    def write_rest(self) -> None:
        """Write what is still pending for the device or for batching when the process ends."""
        self.write_passed(0)
        if self.ring is not None:
            self.ring.flush()
        self.guard.guarded(self.store.wait)()
        self.guard.guarded(self.signals.flush)(0)

    def write_passed(self, kept: int) -> None:
        """Write the steps that the device has passed, leaving at most `kept` others."""
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
        """Write one record into the ring; `sync_ns` is -1 if it was not separated from compute."""
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
                self.ring = None  # the next step creates another one, with a lock that holds
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
        tensor = tensor or _ranks_by_deepspeed(c10d, _TENSOR_GETTERS)
        pipeline = pipeline or _ranks_by_deepspeed(c10d, _PIPELINE_GETTERS)
        pipeline = pipeline or _ranks_of_stages(c10d)
        if tensor or pipeline:
            size = c10d.get_world_size()
            self.layout = _layout(c10d.get_rank(), size, tensor or [], pipeline or [])
            self.spread_layout(size // (len(tensor or [0]) * len(pipeline or [0])))
        self.mesh = None

    def spread_layout(self, replicas: int) -> None:
        """Number the layout's groups over all of TorchFT's replica groups.

        Args:
            replicas: ranks of one replica group that have the same shard.
        """
        (group, groups), (shard, layer, stage) = _replica_group(), self.layout
        if layer and groups > 1:
            among = (layer - 1) % replicas + group * replicas
            self.layout = shard, (stage - 1) * groups * replicas + among + 1, stage

    def choose_timing(self) -> int:
        """Decide whether blocked time can be told from compute, and install hooks for it."""
        if not self.connected:  # by the environment: other ranks may bypass torch
            return _TIMING_WALL if _identity(None)[2] == 1 else _TIMING_NONE
        if _replica_group()[1] > 1:  # torchft makes groups wait for each other outside of torch
            return _TIMING_NONE
        if self.distributed.get_world_size() == 1:
            return _TIMING_WALL
        if self.device == "cpu":
            self.device = self.computing_device()
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

    def computing_device(self) -> str:
        """Return the type of device that computes if the optimizer's parameters are on the CPU.

        They are there alone where the optimizer is offloaded: the mesh of FSDP's parameters and
        modules of DistributedDataParallel show where the model is. "" is unknown: something, which
        may be the model, has run collectives on CUDA by another backend than gloo.
        """
        live = [module for module in (replica() for replica in self.replicas) if module]
        kinds = {one.device.type for module in live for one in module.parameters()}
        mesh = getattr(self.mesh, "device_type", None)
        kinds.update([mesh] if mesh else [])
        others = kinds - {"cpu"}
        if others:
            return str(min(others))
        return "cpu" if kinds or not self.used_cuda() else ""

    def used_device(self) -> str:
        """Return the type of device that a program uses of which no parameter is known."""
        return "cuda" if self.torch.cuda.is_initialized() else "cpu"

    def used_cuda(self) -> bool:
        """Return True unless it is known that CUDA ran no collective, or that gloo ran them all."""
        cuda, config = self.torch.cuda, str(self.distributed.get_backend_config())
        other = "cuda:" in config and "cuda:gloo" not in config
        if not (other and cuda.is_initialized()):
            return False
        device = self.torch.device("cuda")
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        groups = list(getattr(world, "pg_map", {}))
        try:
            backends = [group._get_backend(device) for group in groups]
            return any(int(one._get_sequence_number_for_group()) for one in backends)
        except Exception as error:  # backends that do not count raise what they like
            if self.guard.of_program(error):
                raise
            return True

    def time_device_waits(self) -> bool:
        """Time the device's waits, if all of them are at the ends of backward passes.

        That is the case with DistributedDataParallel alone. Sharded parameters are waited for layer
        by layer, and ranks of further groups wait for each other in many places: there, the
        training stream's waits are bracketed wherever they are, in sampled steps. Return True if
        the ends of backward passes are to be observed.
        """
        modules = [module for module in (replica() for replica in self.replicas) if module]
        world = getattr(self.distributed.distributed_c10d, "_world", None)
        groups = [
            ranks for ranks in getattr(world, "pg_group_ranks", {}).values() if len(ranks) > 1
        ]
        alone = bool(modules) and self.mesh is None and len(groups) == 1
        waits = self.backwards.device_waits
        if self.times_streams(alone):
            if isinstance(waits, _StreamWaits):  # it is in place already, around torch's graphs
                waits.close()
                waits.replicated = bool(modules)
            else:
                self.backwards.device_waits = _StreamWaits(
                    self.torch, self.distributed, self.guard, bool(modules)
                )
            return bool(modules)
        if not alone:
            return False
        if type(waits) is _DeviceWaits:
            return True
        waits = self.backwards.device_waits = _DeviceWaits(self.torch.cuda, self.guard)
        work = self.torch._C._distributed_c10d.Work
        work.wait = self.guard.untraced(waits.spoiling(work.wait))
        return True

    def times_streams(self, alone: bool) -> bool:
        """Return True if waits are to be timed wherever they are.

        Args:
            alone: all waits are at the ends of backward passes, as far as torch shows.
        """
        wanted = os.environ.get("RANKSCOPE_PROBE_STREAM_WAITS")
        if wanted in ("0", "1"):
            return wanted == "1"
        return not alone and "cuda:nccl" in str(self.distributed.get_backend_config())

    def replicated(self, module: Any) -> None:
        """Record a model that DistributedDataParallel wraps."""
        self.replicas.append(weakref.ref(module))

    def install(self) -> None:
        """Install the hooks of every process; those for collectives wait for a first step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        guarded, untraced = self.guard.guarded, self.guard.untraced
        # First, because a child's hooks must not write to its parent's ring if a later line raises.
        os.register_at_fork(after_in_child=guarded(self.restart))
        # What is called by hooks around the program's code; all guarded ones have the same code.
        for own in (guarded(self.restart), _StepClock.backward_ended, _Spans.broken_off):
            untraced(own)
        self.backwards.hook()
        guarded(self.spans.hook)()
        guarded(self.spans.hook_termination)()
        guarded(self.signals.hook)()
        guarded(self.loader.workers.hook)()
        # Untraced: compiled code must neither inline a hook, which it cannot, nor lose it.
        register_optimizer_step_post_hook(untraced(guarded(self.step_finished)))
        for hook in (
            *(self.hook_input, self.hook_scaler, self.hook_optimizers),
            *(self.hook_joining, self.hook_replicas, self.hook_waiting),
        ):
            guarded(hook)()

    def hook_input(self) -> None:
        """Time what waits for batches."""
        loading = self.torch.utils.data.dataloader
        iterator, loader = loading._BaseDataLoaderIter, loading.DataLoader
        iterator.__next__ = self.loader.timed(iterator.__next__, counted=True)
        loader.__iter__ = self.loader.timed(loader.__iter__, counted=False)

    def hook_scaler(self) -> None:
        """Have GradScalers report what they step, and their updates."""
        # Before torch 2.3 CUDA's is the only one; since then it inherits from the other.
        scaler_type = getattr(self.torch.amp, "GradScaler", self.torch.cuda.amp.GradScaler)
        step, update, guard = scaler_type.step, scaler_type.update, self.guard
        note_step = guard.untraced(guard.guarded(self.scaler_stepped))
        note = guard.untraced(guard.guarded(self.scaler_updated))

        @_wraps(step)
        def stepping(scaler: Any, optimizer: Any, *arguments: Any, **options: Any) -> Any:
            before, self.stepped = self.stepped, False
            try:
                result = step(scaler, optimizer, *arguments, **options)
            except BaseException:
                self.stepped = before
                raise
            note_step(scaler, optimizer, before)
            return result

        @_wraps(update)
        def updating(scaler: Any, *arguments: Any, **options: Any) -> None:
            update(scaler, *arguments, **options)
            note(scaler)

        scaler_type.step, scaler_type.update = stepping, updating

    def hook_optimizers(self) -> None:
        """Have optimizers report when they make their class report its steps."""
        from torch.optim.optimizer import Optimizer

        patch: Any = getattr(Optimizer, "_patch_step_function", None)
        if patch is None:
            return
        note, hook_loaders = self.guard.guarded(self.find_nested), self.loader.hook_frameworks

        @_wraps(patch)
        def patching(optimizer: Any) -> None:
            patch(optimizer)
            note(type(optimizer))
            hook_loaders()  # loops that begin before the first step are seen as well

        kind: Any = Optimizer
        kind._patch_step_function = patching

    def find_nested(self, kind: type) -> None:
        """Notice a class that reports its steps as well as one that it inherits from.

        The latter reports them from its own first instance on, which may come later.
        """
        self.optimizers.add(kind)
        self.nested = self.nested or any(
            sum(hasattr(vars(one).get("step"), "hooked") for one in known.__mro__) > 1
            for known in self.optimizers
        )

    def hook_replicas(self) -> None:
        """Have DistributedDataParallel report the models that it wraps."""
        parallel = self.torch.nn.parallel.DistributedDataParallel
        make, note = parallel.__init__, self.guard.guarded(self.replicated)

        @_wraps(make)
        def making(*arguments: Any, **options: Any) -> None:
            make(*arguments, **options)  # its own parameter is called `module` as well
            note(arguments[0])

        parallel.__init__ = making

    def hook_joining(self) -> None:
        """Mark `init_process_group`, and have it and `destroy_process_group` report their ends."""
        if self.distributed is None:
            return
        c10d, leave = self.distributed.distributed_c10d, self.distributed.destroy_process_group
        note, note_left = self.guard.guarded(self.joined), self.guard.guarded(self.left)
        torchs_own = c10d.init_process_group
        join = self.spans.marked(_JOIN, torchs_own)

        @_wraps(join)
        def joining(*arguments: Any, **options: Any) -> None:
            join(*arguments, **options)
            note(arguments[1] if len(arguments) > 1 else options.get("init_method"))

        @_wraps(leave)
        def leaving(*arguments: Any, **options: Any) -> None:
            leave(*arguments, **options)
            note_left()

        self.distributed.init_process_group = c10d.init_process_group = joining
        # `init_device_mesh` joins by a name of its own.
        mesh: Any = sys.modules.get("torch.distributed.device_mesh")
        if getattr(mesh, "init_process_group", None) is torchs_own:
            mesh.init_process_group = joining
        self.distributed.destroy_process_group = c10d.destroy_process_group = leaving

    def hook_waiting(self) -> None:
        """Have a process that waits for one that it has started look now and then who trains.

        It may have taken steps by itself before it started ranks: to warm up, or as a test.
        """
        from multiprocessing.process import BaseProcess

        from torch.multiprocessing.spawn import ProcessContext

        kinds: tuple[Any, Any] = BaseProcess, ProcessContext
        join, join_any = (kind.join for kind in kinds)
        look = self.guard.guarded(self.left_to_children)

        @_wraps(join)
        def waiting(process: Any, timeout: "float | None" = None) -> None:
            while timeout is None and self.trains_alone() and process.exitcode is None:
                join(process, _CHILD_LOOK_SECONDS)
                look([process.pid])
            join(process, timeout)

        @_wraps(join_any)
        def waiting_for_any(context: Any, *arguments: Any, **options: Any) -> Any:
            while not (arguments or options) and self.trains_alone():
                running = len(context.sentinels)
                if join_any(context, _CHILD_LOOK_SECONDS) or len(context.sentinels) < running:
                    return not context.sentinels
                look(context.pids())
            return join_any(context, *arguments, **options)

        kinds[0].join, kinds[1].join = waiting, waiting_for_any


_probe: _Probe | None = None


def watch() -> None:
    """Measure this process's optimizer steps from now on; further calls do nothing.

    Never raises except for the user's Ctrl-C: whatever prevents the probe from starting is reported
    in one line.
    """
    try:
        _start()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - training goes on without us
        _say_not_started(error)


def _say_not_started(error: BaseException) -> None:
    with contextlib.suppress(Exception):  # standard error may be closed
        sys.stderr.write("rankscope probe: not started: {!r}\n".format(error))


class phase:  # noqa: N801 - it is called in a `with` statement, as a function is
    """Mark a `with` block as not being a step: its time is not compute.

    What torch.save and the like write inside is part of it; an exception marks it as failed and
    propagates. Nothing is marked if the probe is switched off or did not start.

    Args:
        name: "checkpoint", "load", "evaluation" or "compile"; with any other name nothing is
            marked.
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
            spans = self.probe.spans
            was_inside = getattr(spans.here, "inside", False)
            try:
                self.span = spans.begin(self.kind, self.path)
            except BaseException:  # an interrupt, after which `__exit__` is not called
                spans.end(spans.broken_off(was_inside), _FAILED, self.path)
                raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.probe is not None and self.span is not None:
            self.probe.spans.end(self.span, _DONE if kind is None else _FAILED, self.path)
            self.span = None


class checkpoint(phase):  # noqa: N801
    """Mark what a `with` block saves as a checkpoint, if no library known to the probe saves it.

    Args:
        path: the file or directory that is written; ranks that write to the same path are
            recognised by it, and the size of a file is recorded.
    """

    def __init__(self, path: Any = None) -> None:
        super().__init__("checkpoint", path)


def step(samples: int | None = None, tokens: int | None = None) -> None:
    """End a training step here; after the first call optimizers no longer end steps.

    For loops whose optimizers are not torch's, and for what only the program knows.

    Args:
        samples: that this rank processed in it.
        tokens: likewise.
    """
    if _probe is not None:
        _probe.take_step(samples, tokens)


def batches(loader: "Iterable[_Item]") -> "Iterator[_Item]":
    """Time a loop's waits for its batches, where the loader is none that the probe knows.

    Without it, what a program loads by itself counts as computing. `for batch in batches(loader):`

    Args:
        loader: what the loop is over, such as a generator. Exceptions propagate.
    """
    return iter(loader) if _probe is None else _probe.loader.batches(loader)


def loss(value: Any) -> None:
    """Report the step's training loss, once a step.

    A tensor is copied without waiting for its device, and read one or more steps later.

    Args:
        value: a number, or a tensor of one element on the CPU or on CUDA.
    """
    if _probe is not None:
        _probe.take_loss(value)


def shards(*paths: Any) -> None:
    """Report which files of the dataset the following losses come from, until the next call.

    If a loss is infinite or NaN, it is then known what was read for the first one that was. Only
    names without directories count, of at most four files: a loss that came from more is linked to
    none of them. Call it in the training process, whenever the files change or with each batch.

    Args:
        paths: of shards, or their addresses.
    """
    if _probe is not None:
        _probe.take_shards(*paths)


def learning_rate(value: float) -> None:
    """Report the learning rate, if it is not that of the optimizer's first group."""
    if _probe is not None:
        _probe.take_rate(value)


def epoch(value: float) -> None:
    """Report how many passes over the dataset training has made, including partial ones.

    Call it at the end of each pass, or as often as desired: 2.5 is the middle of the third. Ranks
    that share the dataset report the same number. The cost of an epoch is derived from it.
    """
    if _probe is not None:
        _probe.take_epoch(value)


def model(
    active_parameters: "float | None" = None,
    flops_per_token: "float | None" = None,
    flops_per_sample: "float | None" = None,
    dtype: Any = None,
) -> None:
    """Describe the work of this model's steps, once and identically in all ranks; None is unknown.

    Without it a token counts as 6 FLOPs for each parameter that the optimizer updates: too many for
    a mixture of experts, in which a token uses only some, and too few if parameters are frozen.

    Args:
        active_parameters: of the whole model, used by one token.
        flops_per_token: forward and backward, instead of 6 for each of them.
        flops_per_sample: the same per sample, for a model without tokens.
        dtype: of the computation, "bf16", "fp16", "fp8", "fp4", "tf32" or "fp32", which determines
            the GPU's peak; without it, that of 16 bits.
    """
    if _probe is not None:
        _probe.take_model(active_parameters, flops_per_token, flops_per_sample, dtype)


def _made_again_by(make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a `__reduce__` for callbacks whose class pickle does not find: it has no module."""

    def reduced(callback: Any) -> "tuple[Any, ...]":
        return make, (), dict(vars(callback))

    return reduced


def transformers_callback() -> Any:
    """Return a callback for transformers' Trainer: loss, epoch, and tokens if it counts them.

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
    hooks["__reduce__"] = _made_again_by(transformers_callback)
    return type("RankscopeCallback", (transformers.TrainerCallback,), hooks)()


def lightning_callback() -> Any:
    """Return a callback for Lightning's Trainer: the loss of each batch, and the epochs."""
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
    hooks["__reduce__"] = _made_again_by(lightning_callback)
    return type("RankscopeCallback", (lightning.Callback,), hooks)()


def _autoload() -> None:
    """Run `_start` at the end of `import torch`, which any error from here would make fail."""
    try:
        _start()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - see above; says it where one can see it
        if os.environ.get("RANKSCOPE_PROBE_DEBUG") == "1":
            _say_not_started(error)


def _say_loaded() -> None:
    """Record in the directory of rings that a rank of a job has loaded the probe.

    A job that never returns from `init_process_group` has no ring: only this distinguishes it from
    a program that was given the probe's environment and does not load it.
    """
    if _identity(None)[2] > 1:
        with contextlib.suppress(OSError):  # the first ring creates it, or says why not
            word = os.path.join(_ring_directory(), _LOADED)
            os.close(os.open(word, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))


def _mark_process() -> None:
    """Map a byte of this file, whose name then stands in /proc/PID/maps: the probe is loaded here.

    Outside of pods, where `.loaded` is that of all programs, an agent tells by it a trainer that
    waits to join others from what is only given the probe's environment. Nothing reads the byte,
    and no descriptor stays open, as one would of `mmap.mmap`.
    """
    with contextlib.suppress(Exception):  # without the mark a rank is seen from its ring on
        import ctypes

        library = _c_library()
        library.mmap.restype = ctypes.c_void_p
        number, size = ctypes.c_int, ctypes.c_size_t
        library.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_long)
        descriptor = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
        try:
            library.mmap(None, 1, 1, 2, descriptor, 0)  # PROT_READ, MAP_PRIVATE of sys/mman.h
        finally:
            os.close(descriptor)


def _ring_directory() -> str:
    return os.environ.get("RANKSCOPE_RING_DIR") or "/run/rankscope"


def _start() -> None:
    global _probe
    if _probe is None and os.environ.get("RANKSCOPE_PROBE") != "0":
        import torch.utils.data

        _probe = _Probe(torch)
        _probe.guard.guarded(_probe.install)()
        _say_loaded()
        _mark_process()
