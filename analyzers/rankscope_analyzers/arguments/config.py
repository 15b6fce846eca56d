"""Options of `rankscope config`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import shtab


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
        default=Path("rankscope.yaml"),
        metavar="FILE",
        help="default: %(default)s",
    )
    file.complete = shtab.FILE
