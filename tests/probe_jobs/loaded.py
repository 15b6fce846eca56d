"""Load what extends torch, as the end of `import torch` does, then run a script as `__main__`.

usage: loaded.py SCRIPT ARGUMENT..., forked from the nursery without the probe, which has imported
torch otherwise. Modules are found along the PYTHONPATH of now, not along the nursery's.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import torch

PROBE = str(Path(__file__).parents[2] / "agent" / "probe")


def main() -> None:
    folders = os.environ.get("PYTHONPATH", PROBE).split(os.pathsep)
    sys.path[:] = [*folders, *(folder for folder in sys.path if folder != PROBE)]
    torch._import_device_backends()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
