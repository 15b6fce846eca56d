"""A Dask worker keeps what it frees while it judges a trace, and gives it back afterwards."""

from __future__ import annotations

import json
import subprocess
import sys

from running_agent import agent_environment

FAULTS = """
import json, resource
from contextlib import nullcontext
from pathlib import Path
import numpy as np
from rankscope_analyzers.stragglers.worker_memory import freed_memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

def held_pages():
    before = resident_pages()
    arrays = [np.ones(1 << 17) for _ in range(48)]
    above = bytes(100_000)  # so that the heap cannot shrink
    del arrays
    return resident_pages() - before

first = faults()
with freed_memory_kept():
    faults()
    kept = faults()
    before = resident_pages()
    held = held_pages()
left = resident_pages() - before
print(json.dumps([first, kept, held, left, held_pages()]))
"""

MIB_PAGES = (1 << 20) // 4096


def measured(**variables):
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=agent_environment(**variables),
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def test_a_worker_of_dask_reuses_memory_while_it_judges_and_returns_it():
    first, kept, held, left, later = measured(MALLOC_TRIM_THRESHOLD_="65536")
    assert first > 100 * MIB_PAGES
    assert kept < 10 * MIB_PAGES
    assert held > 40 * MIB_PAGES
    assert max(left, later) < 4 * MIB_PAGES


def test_other_processes_are_left_alone():
    first, kept, *_ = measured()
    assert max(first, kept) < 100 * MIB_PAGES
