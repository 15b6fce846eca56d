"""Options of `rankscope config`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import shtab

DEFAULT_FILE = Path("rankscope.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what to do, and with which file."""
    parser.add_argument(
        "action",
        choices=("check", "example", "render", "schema", "agent-flags"),
        help="list the errors in FILE with line and column; print an example; print FILE with all"
        " defaults; print the JSON Schema; print the equivalent flags of agents",
    )
    file: Any = parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help=f"default: {DEFAULT_FILE}; example and schema take none",
    )
    file.complete = shtab.FILE
