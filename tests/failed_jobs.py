"""Logs of failed jobs, in the form that torchrun and PyTorch 2.13 gave them on gloo."""

from __future__ import annotations

from collections.abc import Mapping

LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by"
    " peer [10.0.0.{peer}]:27834. This is typically caused by a remote worker crashing."
)


def traceback(rank: int | None, *last: str, line: int = 14) -> str:
    """Return what a rank prints when an exception ends it."""
    tag = "" if rank is None else f"[rank{rank}]: "
    lines = (
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 42, in main',
        "    batch = load(step)",
        "            ^^^^^^^^^^",
        f'  File "/app/train.py", line {line}, in load',
        "    raise something",
        *last,
    )
    return "".join(f"{tag}{text}\n" for text in lines)


def lost(rank: int | None, peer: int = 5) -> str:
    """Return what a rank prints whose peer went away."""
    return traceback(rank, LOST.format(peer=peer), line=50)


def entry(index: int, rank: int, code: int, second: int, *error: str) -> str:
    """Return one rank of torchrun's table."""
    signal = {-9: " (SIGKILL)", -15: " (SIGTERM)", -11: " (SIGSEGV)"}.get(code, "")
    told = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    if error:
        told = "Traceback (most recent call last):\n" + "".join(
            f"  {line}\n" for line in ('  File "/app/train.py", line 14, in load', *error)
        )
    return (
        f"[{index}]:\n"
        f"  time      : 2026-11-21_15:12:{second:02d}\n"
        "  host      : gpu-00\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {28312 + rank}) {signal}\n"
        "  error_file: <N/A>\n"
        f"  traceback : {told}\n"
    )


def table(root: int, codes: Mapping[int, int], *, agent: int = 28257, second: int = 34) -> str:
    """Return how torchrun ends: its agent's words, its own exception and the table."""
    others = [rank for rank in codes if rank != root]
    return "".join(
        (
            *(
                f"W1121 15:12:39.13 {agent} torch/distributed/elastic/multiprocessing/api.py:1028]"
                f" Sending process {28312 + rank} closing signal SIGTERM\n"
                for rank in others
            ),
            agent_end(root, codes[root], agent),
            "Traceback (most recent call last):\n",
            '  File "/venv/torch/distributed/run.py", line 1032, in <module>\n    main()\n',
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
            f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n",
            *(entry(n + 1, rank, codes[rank], second + 3) for n, rank in enumerate(others)),
            f"{'-' * 60}\nRoot Cause (first observed failure):\n",
            entry(0, root, codes[root], second),
            f"{'=' * 60}\n",
        )
    )


def agent_end(rank: int, code: int, agent: int = 28257) -> str:
    """Return what torchrun's agent says when an attempt ends."""
    return (
        f"E1121 15:12:39.362 {agent} torch/distributed/elastic/multiprocessing/api.py:1002] failed"
        f" (exitcode: {code}) local_rank: {rank} (pid: {28312 + rank}) of binary: /usr/bin/python\n"
    )


def cri(text: str, second: int = 0, stream: str = "stderr") -> str:
    """Return lines as a container runtime keeps them."""
    return "".join(
        f"2026-11-21T02:14:{second:02d}.123456789Z {stream} F {line}\n"
        for line in text.splitlines()
    )
