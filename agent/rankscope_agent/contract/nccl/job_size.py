"""The number of ranks of a job according to others that write into its log.

These are launchers, PyTorch and NCCL's RAS. They count if NCCL's own lines about communicators are
missing: at level WARN, or in an excerpt. Pure: from text to numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

MAX_SIZE = 1 << 20
"""Sizes above this are garbage: 64 times the largest known jobs."""

OPENING_BYTES = 256 << 10
"""How much of a log is examined: commands and process groups are printed at its beginning, and
excerpts are smaller."""

NEAR = 600
"""Two flags this close belong to one command, which may span several lines."""

MAX_MATCHES = 1000
"""Occurrences of a word that are examined: the first 256 KiB have some 1,500 lines."""

_NUMBER = rb"['\"]?[ \t]{0,16}(?:[=:]|is\b|of\b)?[ \t]{0,16}['\"]?(\d{1,7})\b"
_OF_THE_JOB = (b"dist_", b"distributed_", b"global_")
"""Words that precede it in DeepSpeed, fairseq and others and do not change its meaning."""

_OF_A_GROUP = re.compile(rb"(?:[A-Za-z]P |[Ll]ocal[ _-]|[\w-])\Z")
"""Words that precede a size other than the job's: `DP world size`, `local_world_size`."""

_MPI = rb"[^\n]{0,400}?(?<=\s)(?:-np|-n|--np|--n|-c|--num-proc)[ =](\d{1,7})\b"

Words = tuple[tuple[bytes, bytes], ...]

_JOB: Words = (
    # PyTorch and frameworks based on it, Megatron's `using world size: 16`
    (b"world_size", _NUMBER),
    (b"world size", _NUMBER),
    (b"World size", _NUMBER),
    (b"World Size", _NUMBER),
    (b"WORLD_SIZE", _NUMBER),
    (b"barrier for key:", rb"\S{1,80} with (\d{1,7}) nodes"),
    (b"MEMBER: ", rb"\d{1,7}/(\d{1,7})\b"),  # PyTorch Lightning
    (b"Starting with ", rb"(\d{1,7}) processes"),
    (b"num_processes", _NUMBER),  # accelerate, JAX
    (b"--num_processes", rb"[ =](\d{1,7})\b"),
    (b"Num processes: ", rb"(\d{1,7})\b"),
    (b"--nranks", rb"[ =](\d{1,7})\b"),
    (b"--num-ranks", rb"[ =](\d{1,7})\b"),
    # launchers
    (b"mpirun ", _MPI),
    (b"mpiexec ", _MPI),
    (b"mpiexec.hydra ", _MPI),
    (b"orterun ", _MPI),
    (b"prterun ", _MPI),
    (b"horovodrun ", _MPI),
    (b"srun ", rb"[^\n]{0,400}?(?:(?<=\s)-n ?|--ntasks[ =])(\d{1,7})\b"),
    (b"SLURM_NTASKS=", rb"(\d{1,7})\b"),
)
"""Words that are followed by the job's size, each with the pattern of what follows. A pattern is
compiled where its word is found: a log has few of them."""

_GROUP: Words = (
    (b"nranks=", rb"(\d{1,7})\b"),  # NCCL's calls
    (b" nRanks ", rb"(\d{1,7})\b"),  # RCCL's connections
    (b"NCCL INFO rank ", rb"\d{1,7} nranks (\d{1,7})\b"),  # up to NCCL 2.3
    (b"initialization options: size: ", rb"(\d{1,7})\b"),  # PyTorch's process groups
)
"""The same for a communicator, outside the lines about communicators."""

_PER_NODE = re.compile(
    rb"(?:--nproc[_-]per[_-]node|--num_gpus|nproc_per_node)[ =:]{1,12}(\d{1,5})\b"
)
_NODES = re.compile(rb"(?:--nnodes|--num_nodes|max_nodes)[ =:]{1,12}(\d{1,6})(?![:\d])")
_PER_NODE_WORDS = (b"nproc", b"--num_gpus")

_PARALLEL = re.compile(rb"tensor_parallel_size=(\d{1,5}), pipeline_parallel_size=(\d{1,5})")
"""vLLM's engine: there are no other ranks."""

_ENGINE = re.compile(
    rb".{0,3000}?tensor_parallel_size\s{0,4}=(\d{1,5})"
    rb"(?:,\s{1,4}pipeline_parallel_size\s{0,4}=(\d{1,5}))?",
    re.DOTALL,
)
"""The text after its name; terminals wrap the line of a thousand characters, and early versions
have no pipeline parallelism."""

_ENGINES = 16
"""Engines that are examined: a log has few."""

_USED_VERSION = re.compile(rb"using nccl==(\d{1,2}\.\d{1,3}\.\d{1,3})\b")
"""The line in which vLLM and SGLang print the version of the loaded library."""

_RAY_RANK = re.compile(rb"\bworld_rank=(\d{1,7})\b")
"""The line in which Ray lists the workers that it started."""

# nccl-tests: #  Rank  0 Group  0 Pid  25 on  node-a device  0 [0x10] NVIDIA A100
_TEST_RANK = re.compile(rb"# {1,4}Rank {1,8}(\d{1,7}) [^\n]{0,120}\bdevice\b")
_TEST_HOST = re.compile(
    rb"# {1,4}Rank {1,8}(\d{1,7}) [^\n]{0,60}\bPid {1,12}\d{1,10} {1,4}on {1,64}(\S{1,255})"
    rb" {1,4}device\b"
)

# RAS: group, communicators, nodes, ranks per node, ranks per communicator, ranks, status, errors
_RAS_ROW = re.compile(
    rb"^\s{0,12}\d{1,6}\s+\d{1,7}\s+\d{1,7}\s+\d{1,5}(?:-\d{1,5})?\s+(\d{1,7})\s+\d{1,8}\s+"
    rb"(?:RUNNING|INIT|FINALIZE|ABORT|UNKNOWN|NOCOMM)",
    re.MULTILINE,
)
_RAS_WORDS = (b"Ranks", b"RUNNING")


def world_size(text: bytes) -> int:
    """Return the largest job size that a text states; 0 if it states none.

    Args:
        text: complete lines.
    """
    return max((size for size in _sizes(text) if size <= MAX_SIZE), default=0)


def group_size(text: bytes) -> int:
    """Return the largest communicator size in calls and connections; 0 if there is none.

    Args:
        text: complete lines.
    """
    found = (size for word, rest in _GROUP for size in _after(word, rest, text))
    return max((size for size in found if size <= MAX_SIZE), default=0)


def stated_version(text: bytes) -> str:
    """Return NCCL's version as stated by others than NCCL; empty if none does."""
    match = _USED_VERSION.search(text) if b"using nccl==" in text else None
    return match[1].decode() if match else ""


def on_one_host(text: bytes) -> bool:
    """Return True if the table of nccl-tests shows a single host for several ranks."""
    rows = _TEST_HOST.findall(text) if b"Rank " in text else []
    ranks = {int(rank) for rank, _ in rows}
    whole = len(ranks) == len(rows) > 1 and ranks == set(range(len(rows)))
    return whole and len({host for _, host in rows}) == 1


def _sizes(text: bytes) -> Iterator[int]:
    """Yield every size; each word is searched before its pattern, which is slow."""
    for word, rest in _JOB:
        yield from _after(word, rest, text)
    if any(word in text for word in _PER_NODE_WORDS):
        yield from _products(text)
    if b"tensor_parallel_size=" in text:
        yield from (int(one) * int(other) for one, other in _PARALLEL.findall(text))
    if b"tensor_parallel_size" in text:
        yield from _engines(text)
    if b"world_rank=" in text:
        yield from (int(rank) + 1 for rank in _RAY_RANK.findall(text))
    if b"Rank " in text:
        yield from (int(rank) + 1 for rank in _TEST_RANK.findall(text))
    if all(word in text for word in _RAS_WORDS):
        yield from map(int, _RAS_ROW.findall(text))


def _after(word: bytes, rest: bytes, text: bytes) -> Iterator[int]:
    """Yield the numbers after a word that stands by itself."""
    index = -1
    for _ in range(MAX_MATCHES):
        index = text.find(word, index + 1)
        if index < 0:
            return
        found = re.compile(rest).match(text, index + len(word))
        if found is not None and not _is_of_a_group(word, text[max(0, index - 16) : index]):
            yield int(found[1])


def _is_of_a_group(word: bytes, before: bytes) -> bool:
    """Return True if the text before a word limits it to a part of the job."""
    if not word[:1].isalpha() or before.endswith(_OF_THE_JOB):
        return False
    return _OF_A_GROUP.search(before) is not None


def _engines(text: bytes) -> Iterator[int]:
    """Yield the numbers of ranks of vLLM's engines."""
    index = -1
    for _ in range(_ENGINES):
        index = text.find(b"LLM engine ", index + 1)
        if index < 0:
            return
        engine = _ENGINE.match(text, index)
        if engine is not None:
            yield int(engine[1]) * int(engine[2] or 1)


def _products(text: bytes) -> Iterator[int]:
    """Yield nodes times processes per node, from flags that are close to each other."""
    nodes = list(islice(_NODES.finditer(text), MAX_MATCHES))
    starts = [match.start() for match in nodes]
    for match in islice(_PER_NODE.finditer(text), MAX_MATCHES):
        first = bisect_left(starts, match.start() - NEAR)
        for near in nodes[first : bisect_right(starts, match.start() + NEAR)]:
            yield int(match[1]) * int(near[1])
