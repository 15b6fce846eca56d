"""Launch a job as torchrun does, but fork its ranks, for which it has imported torch.

usage: launched.py OPTION... SCRIPT ARGUMENT..., with torchrun's options.
"""

from __future__ import annotations

import atexit
import runpy
import sys

from torch.distributed import run
from torch.distributed.launcher.api import elastic_launch


def become_rank(script: str, *arguments: str) -> None:
    """Run the script as this process, which multiprocessing ends without its exit handlers."""
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        atexit._run_exitfuncs()


def main() -> None:
    """Be the launcher of one node."""
    arguments = run.parse_args(["--start-method=fork", *sys.argv[1:]])
    config, _, _ = run.config_from_args(arguments)
    launch = elastic_launch(config, become_rank)
    launch(arguments.training_script, *arguments.training_script_args)


if __name__ == "__main__":
    main()
