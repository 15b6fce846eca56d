"""Lines that a real libnccl prints, which it does without a GPU up to where it looks for one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_job_text import facts_of

# ncclGetUniqueId starts the bootstrap; ncclCommInitRank then fails for want of a driver, and warns.
SCRIPT = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
unique = Id()
lib.ncclGetUniqueId(ctypes.byref(unique))
comm = ctypes.c_void_p()
lib.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0)
"""


def library() -> Path | None:
    """Find the library of a wheel such as nvidia-nccl-cu12, or the one a variable names."""
    named = os.environ.get("RANKSCOPE_TEST_LIBNCCL")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else ()
    found = [lib for place in places for lib in Path(place).glob("nccl/lib/libnccl.so*")]
    return found[0] if found else None


LIBRARY = library()


@pytest.mark.skipif(LIBRARY is None, reason="no libnccl of a wheel and no RANKSCOPE_TEST_LIBNCCL")
def test_what_the_real_library_prints_is_read(tmp_path):
    log = tmp_path / "nccl.log"
    environment = os.environ | {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(log),
        "NCCL_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-c", SCRIPT, str(LIBRARY)]
    subprocess.run(command, env=environment, timeout=120, check=False, capture_output=True)
    facts = facts_of(log.read_bytes())
    (process,) = [process for process in facts.processes.values() if process.host]
    assert process.environment["NCCL_SOCKET_IFNAME"] == "lo"
    assert any(code.startswith("CUDA_FAILURE") for code in facts.warnings)
    assert facts.unparsed == 0
