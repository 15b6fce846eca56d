"""Attacks by files of pods, each a process on one core: `attackers.py KIND FOLDER PAUSE [COUNT]`.

FOLDER is the node's: volumes of pods are in `kubelet/pods`, logs in `logs`. It prints `ready` once
its files are made, attacks from the first line of its standard input until that ends, with a pause
of PAUSE seconds after each act, and then prints how often it acted. The attacks over the network
are those of tests/attackers.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import standard_input
from inspector_files import line
from nccl_job_text import start
from ring_writer import PAGE, RingWriter, record_bytes

NAMESPACE, VICTIM = "tenant", "team/llm"
READY, BEGIN = "ready\n", "begin\n"
VOLUME = "volumes/kubernetes.io~empty-dir/rankscope"
PODS = 20
RINGS, RING_PODS, RING_CAPACITY = 64, 16, 1024
NAMES = 4096
LOGS, LOG_BYTES, MOST_LOG_BYTES = 300, 64 << 10, 1 << 20
INSPECTOR_FILES, MOST_INSPECTOR_BYTES = 300, 1 << 20


def uid(number: int) -> str:
    """Return the UID of one of the tenant's pods."""
    return f"bad00000-0000-4000-8000-{number:012d}"


def volume(folder: Path, number: int) -> Path:
    """Make the volume of one of the tenant's pods."""
    made = folder / "kubelet" / "pods" / uid(number) / VOLUME
    made.mkdir(parents=True, exist_ok=True)
    return made


def rings(folder: Path) -> Generator[None]:
    """Hold as many rings as an agent reads, and overwrite those of one pod as fast as possible.

    The others claim to be ranks of the team's job, with numbers that it does not have.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    writers = [
        RingWriter(
            volume(folder, pod),
            f"{n}-1.ring",
            rank=n,
            job_id="x" if pod < RING_PODS else VICTIM,
            capacity=RING_CAPACITY,
        )
        for pod in range(PODS)
        for n in range(RINGS)
    ]
    for writer in writers:
        writer.step(8)
    for lap in itertools.count():
        first = lap * RING_CAPACITY + 1
        whole = b"".join(record_bytes(seq) for seq in range(first, first + RING_CAPACITY))
        for writer in writers[:RINGS]:
            yield
            os.pwrite(writer.descriptor, whole, PAGE)


def names(folder: Path, others: int = NAMES) -> Generator[None]:
    """Fill volumes with empty files, and change one in each repeatedly.

    Args:
        folder: the node's.
        others: files in each volume but the first, which has as many as an agent reads.
    """
    places = [volume(folder, pod) for pod in range(PODS)]
    for place, count in zip(places, [NAMES] + [others] * (PODS - 1), strict=True):
        for number in range(count):
            os.close(os.open(place / f"empty-{number}.ring", os.O_CREAT | os.O_WRONLY))
    for number in itertools.count():
        for place in places:
            yield
            (place / f"empty-{number % NAMES}.ring").unlink(missing_ok=True)
            (place / f"empty-{number % NAMES}.ring").touch()


def logs(folder: Path) -> Generator[None]:
    """Log NCCL's lines, for ever another job, in the containers of all pods."""
    paths = [
        folder / "logs" / f"{NAMESPACE}_bad-{n % PODS}_{uid(n % PODS)}" / f"c{n}" / "0.log"
        for n in range(LOGS)
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for number in itertools.count():
        text = "".join(start(rank, 64, f"NET/{number}") for rank in range(64)).encode()
        for path in paths:
            yield
            with path.open("ab") as log:
                if log.tell() > MOST_LOG_BYTES:
                    log.truncate(0)
                log.write(text[:LOG_BYTES])


def inspector(folder: Path) -> Generator[None]:
    """Write more Inspector files than an agent follows."""
    places = [volume(folder, pod) / "nccl-inspector" for pod in range(PODS)]
    for place in places:
        place.mkdir(exist_ok=True)
    for number in itertools.count():
        yield
        path = places[number % PODS] / f"node-pid{number % INSPECTOR_FILES}.log"
        with path.open("a") as log:
            if log.tell() > MOST_INSPECTOR_BYTES:
                log.truncate(0)
            log.write("".join(line(rank=number % 4096) for _ in range(64)))


KINDS: Mapping[str, Callable[..., Generator[None]]] = {
    "rings": rings,
    "names": names,
    "logs": logs,
    "inspector": inspector,
}


def main() -> None:
    """Attack from the first line of the standard input until its end."""
    kind, folder, pause, *counts = sys.argv[1:]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    times = 0
    with contextlib.closing(KINDS[kind](Path(folder), *map(int, counts))) as attack:
        next(attack)
        sys.stdout.write(READY)
        sys.stdout.flush()
        sys.stdin.readline()
        ended = standard_input.end()
        for _ in itertools.takewhile(lambda _: not ended.is_set(), attack):
            times += 1
            ended.wait(float(pause))
    sys.stdout.write(f"{times}\n")


if __name__ == "__main__":
    main()
