"""The option --config of commands that read rankscope.yaml."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_config(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare the option.

    Args:
        parser: of the command.
        what: it reads of the file, in words.
    """
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"rankscope.yaml: {what}; see rankscope config"
    )
