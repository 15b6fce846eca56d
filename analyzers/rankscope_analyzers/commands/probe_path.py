"""`rankscope probe-path`: the directory to put on a trainer's PYTHONPATH."""

from __future__ import annotations

import argparse
import sys

from rankscope_analyzers.demo.probe_folder import ProbeMissingError, probe_folder

FAILURES: tuple[type[Exception], ...] = (ProbeMissingError,)


def run(_options: argparse.Namespace) -> int:
    """Print the directory.

    Raises:
        ProbeMissingError: the installation has no probe.
    """
    sys.stdout.write(f"{probe_folder()}\n")
    return 0
