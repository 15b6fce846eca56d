"""Options of `rankscope probe-path`."""

from __future__ import annotations

import argparse


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command takes no arguments."""
