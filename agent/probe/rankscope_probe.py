"""Record how long each optimizer step of a PyTorch process took, and where the time went.

torch >= 2.5 calls `_autoload` at the end of `import torch` when this folder is on PYTHONPATH; older
ones need `rankscope_probe.watch()` once, before training. Nothing is printed, nothing is sent: one
record per step goes to a ring file that the node's agent reads. RANKSCOPE_RING_DIR says where
(default /run/rankscope; keep it on tmpfs or an emptyDir with medium Memory, as a write that waits
for a disk waits in the training loop), RANKSCOPE_PROBE=0 switches the probe off,
RANKSCOPE_PROBE_COLLECTIVES=0 leaves collectives alone (compute and sync are then not measured),
RANKSCOPE_PROBE_DEBUG=1 prints the tracebacks of errors that are otherwise only counted.

What a step is. It ends when `step()` of the primary optimizer returns, and the next one begins at
that moment. Primary is the optimizer that steps first; called several times with other parameters
(DeepSpeed's sub-groups) it ends one step, when the parameters it began with come round again. The
first call (step 0) only starts the clock, as nobody saw its beginning: the first record is step 1.
A GradScaler update without a step since the last one also ends a step, flagged SKIPPED.

* data: blocked in torch's DataLoader while gradients are enabled; -1 if it was never used so far.
* sync: blocked in collectives of a gloo process group: in `Work.wait()` and its like, and at the end
  of a backward, where DistributedDataParallel waits for its buckets. A collective that runs beside
  the backward is not waiting. 0 where there is one process; -1 on other backends.
* compute: the rest, whatever it is (evaluation, checkpoints and logging too); -1 where sync is -1.

The ring, version 1. `<pid>-<process_start_ticks>.ring`, made under a name with a leading dot, then
renamed. All little-endian. 4096 bytes of header, zero padded: "<8sHHIIIqIIQiiii" =
  magic "RKSCRING", version 1, header_size 4096, byte_order_mark 0x01020304, record_size 64,
  capacity 65536 (records), created_unix_ns, pid, attempt, process_start_ticks (field 22 of
  /proc/self/stat, 0 unknown), rank, local_rank, world_size, local_world_size (-1 unknown),
then NUL-padded UTF-8: job_id 320 bytes, node 256, launcher 32, pod_uid 64, probe_version 16,
torch_version 32. Behind it `capacity` records of 64 bytes, "<QqqqqqIIHHI" =
  seq (from 1; in slot (seq - 1) % capacity), start_unix_ns, step_ns, data_ns, compute_ns, sync_ns
  (-1 not measured), step, samples (0xFFFFFFFF unknown), flags, attempt, check (seq & 0xFFFFFFFF).
A slot of zeros is empty. One pwrite per record is the only write after creation; the writer holds
flock(LOCK_EX) for as long as it lives. flags: bits 0-1 timing source (0 none, 2 wall), 1 << 2 the
optimizer ran a closure, 1 << 3 the scaler skipped the update, 1 << 4 batches were fetched without
gradients, 1 << 5 first record of the process.
"""

from __future__ import annotations

import os
import struct
import sys
import time

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing
if TYPE_CHECKING:
    from typing import Any, Callable

__version__ = "0.1.0"
__all__ = ["watch"]

_CAPACITY = 65536  # 1.8 hours at ten steps a second, the fastest loop worth a post-mortem; 4 MiB
_HEADER_SIZE = 4096  # one page, so that records never straddle one
_HEADER = struct.Struct("<8sHHIIIqIIQiiii320s256s32s64s16s32s")
_RECORD = struct.Struct("<QqqqqqIIHHI")

_TIMING_NONE = 0
_TIMING_WALL = 2
_CLOSURE = 1 << 2
_SKIPPED = 1 << 3
_EVALUATION = 1 << 4
_FIRST = 1 << 5
_UNKNOWN_SAMPLES = 0xFFFFFFFF
_SIZE_UNKNOWN = -(1 << 40)  # keeps a step's sum negative whatever the other batches add

_MAX_ERRORS = 100  # a hook that failed this often will fail for ever: stop trying
_ADOPT_AFTER = 8  # more calls than a GAN's usual 5 critic steps: then the old primary is gone
_MAX_OTHERS = 4096  # one optimizer per parameter of a large model; bounds memory, not use
_LOOKS = 8  # items looked at for a batch's first tensor; collated batches have it in the first two
_STALE_SECONDS = 24 * 3600  # long enough to read a ring after a night's crash
_STALE_LOOKS = 64  # names, which is as many rings as the agent reads of one directory
_HIGH_FD = 512  # out of the way of descriptors that a program closes and reuses by number

# What DistributedDataParallel's reducer and torch's own communication hooks launch in a backward.
# Other collectives are waited for in Python, where the wait is seen without a cost per launch.
_LAUNCHES = (("c10d", "allreduce_"), ("c10d", "allgather_"))
_BLOCKING = (("c10d", "monitored_barrier_"), ("_c10d_functional", "wait_tensor"))

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
_LABEL_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/:@-"
)


def _first_number(names: tuple[str, ...]) -> int:
    """Return the first of these variables that holds a number below 2^31; -1 if none does."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit() and len(text) <= 10 and int(text) < 1 << 31:
            return int(text)
    return -1


def _label(text: str, size: int) -> bytes:
    """Return `text` in the characters that readers accept, cut to a field of `size` bytes."""
    return "".join(c if c in _LABEL_CHARACTERS else "_" for c in text[: size - 1]).encode()


def _job_id(world_size: int) -> str:
    """Name the job as all its ranks do: as its launcher calls it, else by where they meet."""
    for name in ("RANKSCOPE_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(name, "")
        if value and (name, value) != ("TORCHELASTIC_RUN_ID", "none"):
            return value
    import hashlib

    meeting = "{}:{}".format(os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))
    if meeting == ":":  # ranks that a script spawned by itself share their parent
        meeting = os.uname().nodename + str(os.getpid() if world_size == 1 else os.getppid())
    return "local/" + hashlib.sha256(meeting.encode()).hexdigest()[:8]


def _identity(distributed: Any) -> tuple[int, int, int, int]:
    """Return rank, local rank, world size and local world size; -1 where unknown.

    Args:
        distributed: torch.distributed if it is initialised, else None.
    """
    local_rank, local_size = _first_number(_LOCAL_RANK), _first_number(_LOCAL_WORLD_SIZE)
    if distributed is not None:
        return distributed.get_rank(), local_rank, distributed.get_world_size(), local_size
    rank, world_size = _first_number(_RANK), _first_number(_WORLD_SIZE)
    if rank < 0 and local_rank < 0 and local_size <= 1:
        rank = _first_number(("JOB_COMPLETION_INDEX",))  # of the pod: its rank if it runs one
    if (rank, local_rank, world_size) == (-1, -1, -1):
        return 0, 0, 1, 1
    return rank, local_rank, world_size, local_size


def _process_start_ticks() -> int:
    """Return when this process started, in clock ticks since boot; 0 if the kernel does not say."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _header(torch_version: str, distributed: Any, start_ticks: int) -> bytes:
    """Return the ring's first page."""
    rank, local_rank, world_size, local_size = _identity(distributed)
    environ = os.environ
    node = environ.get("NODE_NAME") or environ.get("RANKSCOPE_NODE") or os.uname().nodename
    launcher = next((word for name, word in _LAUNCHERS if environ.get(name)), "none")
    return _HEADER.pack(
        b"RKSCRING",
        1,
        _HEADER_SIZE,
        0x01020304,
        _RECORD.size,
        _CAPACITY,
        time.time_ns(),
        os.getpid(),
        _attempt(),
        start_ticks,
        rank,
        local_rank,
        world_size,
        local_size,
        _label(_job_id(world_size), 320),
        _label(node, 256),
        _label(launcher, 32),
        _label(environ.get("POD_UID", ""), 64),
        _label(__version__, 16),
        torch_version.encode()[:31],
    ).ljust(_HEADER_SIZE, b"\0")


def _attempt() -> int:
    """Return how often the launcher has restarted the job."""
    return min(max(_first_number(("TORCHELASTIC_RESTART_COUNT",)), 0), 0xFFFF)


def _open_ring(directory: str, torch_version: str, distributed: Any) -> int:
    """Make this process's ring and return its descriptor, locked for as long as it is open.

    Raises:
        OSError: the directory cannot be made or written, or has no room for the whole ring.
    """
    import fcntl

    os.makedirs(directory, exist_ok=True)
    _remove_stale(directory)
    start_ticks = _process_start_ticks()
    name = "{}-{}.ring".format(os.getpid(), start_ticks)
    temporary = os.path.join(directory, "." + name)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    low = os.open(temporary, flags, 0o644)
    try:
        os.fchmod(low, 0o644)  # whatever the umask: the agent may be another user
        os.posix_fallocate(low, 0, _HEADER_SIZE + _CAPACITY * _RECORD.size)
        os.pwrite(low, _header(torch_version, distributed, start_ticks), 0)
        fcntl.flock(low, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ring = _move_high(low)
        os.rename(temporary, os.path.join(directory, name))
    except OSError:
        os.close(low)
        os.unlink(temporary)
        raise
    return ring


def _move_high(low: int) -> int:
    """Return a copy of a descriptor at a high number and close it, or itself where there is none."""
    import fcntl

    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    except OSError:  # RLIMIT_NOFILE is lower
        return low
    os.close(low)
    return high


def _remove_stale(directory: str) -> None:
    """Delete rings here that nobody holds and nobody wrote to for a day."""
    import itertools
    import re

    own = re.compile(r"\.?\d+-\d+\.ring")
    before = time.time() - _STALE_SECONDS
    with os.scandir(directory) as entries:
        for entry in itertools.islice(entries, _STALE_LOOKS):
            try:
                if own.fullmatch(entry.name) and entry.stat().st_mtime < before:
                    _remove_unheld(entry.path)
            except OSError:  # held, another user's, or another rank was faster
                continue


def _remove_unheld(path: str) -> None:
    """Delete a ring unless a process holds it.

    Raises:
        OSError: a process holds it, or it is not ours to delete.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


def _batch_size(batch: Any, tensor_type: Any) -> int:
    """Return the first dimension of the first tensor in a batch, or `_SIZE_UNKNOWN`."""
    items = [batch]
    for item in items:  # grows while it is walked
        if isinstance(item, tensor_type):
            if item.dim():
                return int(item.shape[0])
        elif len(items) < _LOOKS:
            if hasattr(item, "values"):  # also what only looks like a dict
                item = list(item.values())
            if isinstance(item, (tuple, list)):
                items.extend(item[:_LOOKS])
    return _SIZE_UNKNOWN


def _ran_closure(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Tell whether an optimizer's `step` was given a closure; `arguments` begin with itself."""
    return (len(arguments) > 1 and arguments[1] is not None) or bool(options.get("closure"))


class _Probe:
    """What one process has measured of its current step, and the hooks that measure it.

    Times are perf_counter_ns, durations nanoseconds. Only the thread that ran the last step is
    measured: what others wait for does not hold the training loop.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.distributed = torch.distributed if torch.distributed.is_available() else None
        self.is_grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self.graph_task: Callable[[], int] = torch._C._current_graph_task_id
        self.queue_callback = torch.autograd.Variable._execution_engine.queue_callback
        self.thread_id: Callable[[], int] = sys.modules["threading"].get_ident
        self.libraries: list[Any] = []  # torch takes the kernels back when these are collected
        self.errors = 0
        self.ring = -1
        self.restart()

    def restart(self) -> None:
        """Forget all that was measured, as a forked child must: the ring is its parent's."""
        if self.ring >= 0:
            os.close(self.ring)  # the lock stays with the parent's descriptor
        self.ring = -1
        self.attempt = _attempt()
        self.ring_refused = False
        self.written = 0
        self.step = 0
        self.thread = 0  # 0: no step has ended yet
        self.primary: tuple[int, int] | None = None
        self.others: dict[tuple[int, int], int] = {}
        self.device = ""
        self.connected: bool | None = None
        self.timing = _TIMING_NONE
        self.loader_used = False
        self.stepped = False  # since the last GradScaler.update
        self.task = -1  # the backward whose end is already being watched
        self.wait_begin = self.wait_before = 0
        self.begin(0)

    def begin(self, now: int) -> None:
        """Start the clock of a step."""
        self.begin_unix_ns = time.time_ns()
        self.begin_ns = now
        self.data_ns = self.sync_ns = self.samples = self.flags = 0

    def guarded(self, observe: Callable[..., None]) -> Callable[..., None]:
        """Return `observe` as a hook that never raises: the one place where our errors end."""

        def hook(*arguments: Any) -> None:
            if self.errors >= _MAX_ERRORS:
                return
            try:
                observe(*arguments)
            except Exception as error:  # noqa: BLE001 - training goes on whatever happens to us
                self.errors += 1
                self.report(error)

        return hook

    def report(self, error: Exception) -> None:
        """Say the first error in one line on standard error; for debugging all with traceback."""
        import contextlib
        import traceback

        with contextlib.suppress(Exception):  # standard error may be closed
            if os.environ.get("RANKSCOPE_PROBE_DEBUG") == "1":
                sys.stderr.write(traceback.format_exc())
            elif self.errors == 1:
                seen = " ".join("{}: {}".format(type(error).__name__, error).split())
                sys.stderr.write(
                    "rankscope probe: {}; training goes on, its steps may be "
                    "missing (RANKSCOPE_PROBE_DEBUG=1 tells more)\n".format(seen)
                )

    def step_finished(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Take the end of an optimizer's `step()`, of any optimizer in this process."""
        self.stepped = True
        parameter = next(g["params"][0] for g in optimizer.param_groups if g["params"])
        key = (id(optimizer), id(parameter))
        if key != self.primary and not self.adopts(key):
            return
        self.others.clear()
        if self.primary != key:
            self.primary, self.device = key, parameter.device.type
        self.end_step(_CLOSURE if _ran_closure(arguments, options) else 0)

    def adopts(self, key: tuple[int, int]) -> bool:
        """Decide whether another optimizer becomes the primary one: there is none, or it is gone."""
        if self.primary is None:
            return True
        if len(self.others) >= _MAX_OTHERS:
            self.others.clear()
        self.others[key] = self.others.get(key, 0) + 1
        return self.others[key] >= _ADOPT_AFTER

    def scaler_updated(self, scaler: Any) -> None:
        """Take a `GradScaler.update()`: with no step before it, gradients had overflowed."""
        if scaler.is_enabled() and not self.stepped and self.primary is not None:
            self.end_step(_SKIPPED)
        self.stepped = False

    def end_step(self, flags: int) -> None:
        """End the step here, record it and begin the next; the first call only begins one."""
        now = time.perf_counter_ns()
        if self.thread:
            self.step += 1
            self.record(now - self.begin_ns, flags | self.flags)
        self.thread = self.thread_id()
        self.begin(now)
        connected = self.distributed is not None and self.distributed.is_initialized()
        if connected is not self.connected:
            self.connected = connected
            self.timing = self.choose_timing()

    def record(self, step_ns: int, flags: int) -> None:
        """Write one record, into a ring made at the first.

        Raises:
            OSError: there is no ring, or it takes no more records; `written` then stays.
        """
        if self.ring < 0:
            if self.ring_refused:
                return
            self.ring_refused = True  # one try: a full disk is not asked again every step
            directory = os.environ.get("RANKSCOPE_RING_DIR") or "/run/rankscope"
            joined = self.distributed if self.connected else None
            self.ring = _open_ring(directory, self.torch.__version__, joined)
            flags |= _FIRST
        data_ns = min(self.data_ns, step_ns) if self.loader_used else -1
        compute_ns = sync_ns = -1
        if self.timing:
            sync_ns = min(self.sync_ns, step_ns - max(data_ns, 0))
            compute_ns = step_ns - max(data_ns, 0) - sync_ns
        seq = self.written + 1
        samples = self.samples
        packed = _RECORD.pack(
            seq,
            self.begin_unix_ns,
            step_ns,
            data_ns,
            compute_ns,
            sync_ns,
            self.step & 0xFFFFFFFF,
            samples if 0 <= samples < _UNKNOWN_SAMPLES else _UNKNOWN_SAMPLES,
            flags | self.timing,
            self.attempt,
            seq & 0xFFFFFFFF,
        )
        os.pwrite(self.ring, packed, _HEADER_SIZE + (seq - 1) % _CAPACITY * 64)
        self.written = seq

    def choose_timing(self) -> int:
        """Decide whether blocked time can be told from compute, and hook what is needed for it."""
        if not self.connected:  # by the environment alone: other ranks may talk past torch
            return _TIMING_WALL if _identity(None)[2] == 1 else _TIMING_NONE
        if self.distributed.get_world_size() == 1:
            return _TIMING_WALL
        gloo = "cpu:gloo" in str(self.distributed.get_backend_config())
        if not gloo or self.device != "cpu" or os.environ.get("RANKSCOPE_PROBE_COLLECTIVES") == "0":
            return _TIMING_NONE
        if not self.libraries:
            self.hook_collectives()
        return _TIMING_WALL

    def hook_collectives(self) -> None:
        """Time what blocks in collectives, and learn of launches inside a backward."""
        c10d = self.torch._C._distributed_c10d
        for owner, name in (
            (c10d.Work, "wait"),
            (self.torch._C.Future, "wait"),
            (self.distributed, "_broadcast_coalesced"),  # DDP's buffers, in forward
        ):
            setattr(owner, name, self.timed(getattr(owner, name)))
        select = self.torch._C.DispatchKey.BackendSelect
        note = self.guarded(self.launched)
        for operators, wrap in (
            (_LAUNCHES, lambda call: _announced(call, note)),
            (_BLOCKING, self.timed),
        ):
            for namespace, name in operators:
                self.hook_operator(namespace, name, wrap, select)

    def hook_operator(self, namespace: str, name: str, wrap: Any, select: Any) -> None:
        """Put a kernel in front of an operator's own; one this torch does not have is left out."""
        packet = getattr(getattr(self.torch.ops, namespace), name, None)
        if packet is None:
            return
        call = wrap(packet.default.redispatch)

        def kernel(keys: Any, *arguments: Any, **options: Any) -> Any:
            return call(keys.remove(select), *arguments, **options)

        library = self.torch.library.Library(namespace, "IMPL")
        library.impl(name, kernel, "BackendSelect", with_keyset=True)
        self.libraries.append(library)

    def timed(self, blocking: Callable[..., Any]) -> Callable[..., Any]:
        """Return `blocking` with its time counted as sync; calls inside it count once."""
        clock, thread_id = time.perf_counter_ns, self.thread_id

        def wait(*arguments: Any, **options: Any) -> Any:
            if thread_id() != self.thread:
                return blocking(*arguments, **options)
            before, begin = self.sync_ns, clock()
            try:
                return blocking(*arguments, **options)
            finally:
                self.sync_ns = before + clock() - begin

        return _like(blocking, wait)

    def launched(self) -> None:
        """Take the launch of a collective: inside a backward, watch what blocks at its end.

        The engine runs final callbacks in the order in which they were queued. The reducer queues
        its own, which waits for all buckets, after launching the last of them: later than this.
        """
        task = self.graph_task()
        if task not in (-1, self.task) and self.thread_id() == self.thread:
            self.task = task
            self.queue_callback(self.guarded(self.backward_waits))

    def backward_waits(self) -> None:
        """Take the moment at which a backward has computed all; what follows is waiting."""
        self.wait_begin, self.wait_before = time.perf_counter_ns(), self.sync_ns
        self.queue_callback(self.guarded(self.backward_ended))

    def backward_ended(self) -> None:
        """Take the moment at which the reducer has all buckets."""
        self.sync_ns = self.wait_before + time.perf_counter_ns() - self.wait_begin

    def fetching(self, fetch: Callable[[Any], Any], counted: bool) -> Callable[[Any], Any]:
        """Return a loader's method with its time counted as data, and its batches if `counted`."""
        tensor_type = self.torch.Tensor
        clock, thread_id = time.perf_counter_ns, self.thread_id

        def fetched(batch: Any, begin: int, data: int, sync: int, samples: int) -> None:
            if not self.is_grad_enabled():
                self.flags |= _EVALUATION
                return
            self.loader_used = True
            self.data_ns = data + clock() - begin - (self.sync_ns - sync)
            if counted and batch is not None:
                self.samples = samples + _batch_size(batch, tensor_type)

        note = self.guarded(fetched)

        def method(loader: Any) -> Any:
            if self.thread and thread_id() != self.thread:
                return fetch(loader)
            before = clock(), self.data_ns, self.sync_ns, self.samples
            batch = None
            try:
                batch = fetch(loader)
                return batch
            finally:
                note(batch, *before)

        return _like(fetch, method)

    def updating(self, update: Callable[..., None]) -> Callable[..., None]:
        """Return `GradScaler.update` with skipped steps noticed."""
        note = self.guarded(self.scaler_updated)

        def method(scaler: Any, *arguments: Any, **options: Any) -> None:
            update(scaler, *arguments, **options)
            note(scaler)

        return _like(update, method)

    def install(self) -> None:
        """Put the hooks in that every process gets; those for collectives wait for a first step."""
        from torch.amp.grad_scaler import GradScaler  # noqa: PLC0415
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import dataloader

        # Untraced: a compiled step() must neither inline the hook nor lose it.
        hook = getattr(self.torch, "_disable_dynamo", _unchanged)(self.guarded(self.step_finished))
        register_optimizer_step_post_hook(hook)
        iterator, loader = dataloader._BaseDataLoaderIter, dataloader.DataLoader
        iterator.__next__ = self.fetching(iterator.__next__, counted=True)
        loader.__iter__ = self.fetching(loader.__iter__, counted=False)
        GradScaler.update = self.updating(GradScaler.update)
        os.register_at_fork(after_in_child=self.restart)


def _unchanged(function: Callable[..., None]) -> Callable[..., None]:
    """Return `function`."""
    return function


def _like(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Return `wrapper` under the name and documentation of what it wraps."""
    import functools

    return functools.wraps(original)(wrapper)


def _announced(call: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """Return `call` with `note` run before each call."""

    def announced(*arguments: Any, **options: Any) -> Any:
        note()
        return call(*arguments, **options)

    return announced


_probe: _Probe | None = None


def watch() -> None:
    """Measure this process's optimizer steps from now on; further calls do nothing."""
    global _probe
    if _probe is None and os.environ.get("RANKSCOPE_PROBE") != "0":
        import torch

        _probe = _Probe(torch)
        _probe.guarded(_probe.install)()


def _autoload() -> None:
    """Run `watch` at the end of `import torch`, which any error from here would make fail."""
    try:
        watch()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - see above; says it where one can see it
        if os.environ.get("RANKSCOPE_PROBE_DEBUG") == "1":
            sys.stderr.write("rankscope probe: not started: {!r}\n".format(error))
