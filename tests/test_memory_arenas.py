"""Threads share few of the C library's arenas."""

import subprocess
import sys

import pytest

from rankscope_analyzers.demo.free_ports import free_port
from running_agent import agent_environment

ARENAS = """
import ctypes, threading
from pathlib import Path
from rankscope_agent.web.memory_arenas import limit_arenas

if {limited}:
    assert limit_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
met = threading.Barrier(8)

def allocate():
    met.wait()
    libc.malloc(4000)
    met.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
maps = Path("/proc/self/maps").read_text().splitlines()
# The heap of an arena begins at a multiple of 64 MiB.
print(sum(int(line.split("-")[0], 16) % (64 << 20) == 0 and "rw-p" in line for line in maps))
"""


@pytest.mark.parametrize(("limited", "least", "most"), [(True, 0, 1), (False, 2, 16)])
def test_threads_share_one_arena_beside_the_main_one(limited, least, most):
    command = [sys.executable, "-c", ARENAS.format(limited=limited)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=agent_environment(), timeout=60
    )
    assert least <= int(done.stdout) <= most


IMPORTED = """
import sys
from contextlib import suppress
from rankscope_analyzers import cli

with suppress(SystemExit):
    cli.main(["{command}", "--agent", "{nobody}", *{more}])
sys.exit("pyarrow" in sys.modules)
"""


@pytest.mark.parametrize(
    ("command", "more", "imported"), [("watch", ["--once"], 0), ("diagnose", [], 1)]
)
def test_a_watch_does_not_import_pyarrow_which_pandas_takes_where_it_is(command, more, imported):
    program = IMPORTED.format(command=command, nobody=f"127.0.0.1:{free_port()}", more=more)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=agent_environment(),
        stdout=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == imported


def test_pyarrow_can_be_imported_after_what_goes_without_it():
    from rankscope_analyzers.isolation.absent_package import absent

    assert "colorsys" not in sys.modules or sys.modules.pop("colorsys")
    with absent("colorsys"), pytest.raises(ModuleNotFoundError):
        __import__("colorsys")
    assert __import__("colorsys").rgb_to_hsv(0, 0, 0)
    with absent("colorsys"):
        assert __import__("colorsys")
