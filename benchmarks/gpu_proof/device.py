"""Whether there is a GPU that torch may use."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from functools import cache

from benchmarks.gpu_proof.outcome import NotAvailableError


def need_gpu() -> None:
    """Require a GPU that torch may use.

    Raises:
        NotAvailableError: there is none, or no torch with CUDA.
    """
    missing = lacking()
    if missing:
        raise NotAvailableError(missing)


@cache
def lacking() -> str:
    """Return what torch lacks, empty for nothing; determined once, in a separate process."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    try:
        ctypes.CDLL("libcuda.so.1")  # of the driver: no device without it, and no import of torch
    except OSError:
        return "torch sees no CUDA device"
    asked = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", asked], check=False, capture_output=True)
    return "torch sees no CUDA device" if done.returncode else ""
