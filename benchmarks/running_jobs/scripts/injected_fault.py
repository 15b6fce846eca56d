"""Faults in a training script, switched on from outside; by default there are none.

INJECTED_FAULT is a JSON object: `what` goes wrong, on which `ranks` (default all), from `begin`
seconds after the start on, and how much. Scripts call the functions here where a real cause would
be. A device's compute time is slept, so that several ranks fit on one core.
"""

from __future__ import annotations

import gc
import io
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

BORN = time.monotonic()
RANK = int(os.environ["RANK"])
INJECTED_FAULT = json.loads(os.environ.get("INJECTED_FAULT") or "{}")
SETTINGS = json.loads(os.environ.get("SETTINGS") or "{}")

COMPUTE_SECONDS = float(SETTINGS.get("compute", 0.04))
LOAD_SECONDS = float(SETTINGS.get("load", 0.003))
JITTER = float(SETTINGS.get("jitter", 0.0))
CHECKPOINT_EVERY = int(SETTINGS.get("checkpoint_every", 0))
CHECKPOINT_SECONDS = float(SETTINGS.get("checkpoint", 0.5))
WRITERS = SETTINGS.get("writers", [0])
LOG_EVERY = int(SETTINGS.get("log_every", 0))
LOG_SECONDS = float(SETTINGS.get("log", 0.05))
EVALUATE_EVERY = int(SETTINGS.get("evaluate_every", 0))
EVALUATE_SECONDS = float(SETTINGS.get("evaluate", 1.0))
EVALUATORS = SETTINGS.get("evaluators")

_noise = random.Random(RANK)  # noqa: S311 - noise, no secret
_garbage: list[object] = []


def amount(what: str) -> float:
    """Return how much of `what` goes wrong on this rank now: seconds, or a factor; 0 for none."""
    if INJECTED_FAULT.get("what") != what or RANK not in INJECTED_FAULT.get("ranks", [RANK]):
        return 0.0
    now = time.monotonic() - BORN - INJECTED_FAULT.get("begin", 0.0)
    if now < 0 or now > INJECTED_FAULT.get("end", 1e9):
        return 0.0
    if now % INJECTED_FAULT.get("period", 1e9) > INJECTED_FAULT.get("burst", 1e9):
        return 0.0
    ramp = INJECTED_FAULT.get("ramp", 0.0)
    return float(INJECTED_FAULT["amount"]) * (min(1.0, now / ramp) if ramp else 1.0)


def compute(share: float = 1.0) -> None:
    """Take the time of a device's kernels, or of a CPU's if the settings select it."""
    seconds = share * (COMPUTE_SECONDS * (1 + amount("slower")) + amount("compute"))
    seconds *= 1 + JITTER * _noise.random()
    if SETTINGS.get("busy"):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
    else:
        time.sleep(seconds)


def load() -> None:
    """Take the time of reading a batch."""
    time.sleep(LOAD_SECONDS * (1 + JITTER * _noise.random()) + amount("input"))


def after(step: int) -> None:
    """Do what a loop does after a step besides training; some of it goes wrong."""
    every = INJECTED_FAULT.get("every", 1)
    if step % every == every - 1:
        if amount("collection"):
            _collect(int(amount("collection")))
        time.sleep(amount("stall"))
    if amount("raise"):
        raise RuntimeError("the loss is not a number")
    if LOG_EVERY and step % LOG_EVERY == LOG_EVERY - 1 and RANK == 0:
        time.sleep(LOG_SECONDS)
    if CHECKPOINT_EVERY and step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 and RANK in WRITERS:
        _checkpoint()


def evaluates(step: int) -> bool:
    """Return True if this rank evaluates after a step."""
    due = EVALUATE_EVERY and step % EVALUATE_EVERY == EVALUATE_EVERY - 1
    return bool(due and (EVALUATORS is None or RANK in EVALUATORS))


def evaluate() -> None:
    """Take the time of an evaluation."""
    time.sleep(EVALUATE_SECONDS)


def _collect(objects: int) -> None:
    """Collect garbage with many live objects, which delays everything."""
    if not _garbage:
        _garbage.extend([[number] for number in range(objects)])
    gc.collect()


class _SlowFile(io.BytesIO):
    """A file on a storage that takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def close(self) -> None:
        """Take nothing more."""

    def write(self, data: Any) -> int:
        """Wait as long as all of it takes, once, and store nothing."""
        time.sleep(self.seconds)
        self.seconds = 0.0
        return len(memoryview(data).cast("B"))


def _checkpoint() -> None:
    """Write a file, on a storage that takes its time."""
    if SETTINGS.get("torch_save"):
        import torch

        torch.save(torch.zeros(1024), _SlowFile(CHECKPOINT_SECONDS * (1 + amount("storage"))))
        return
    with tempfile.NamedTemporaryFile(dir=os.environ.get("TMPDIR")) as file:
        Path(file.name).write_bytes(bytes(1 << 20))
        time.sleep(CHECKPOINT_SECONDS * (1 + amount("storage")))
