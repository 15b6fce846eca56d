"""Shell completion, if the library for it is installed."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")


class _PrintCompletion(argparse.Action):
    """Prints the parser's completion script for a shell and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        # Imported here so that a serving agent does not load it.
        script = importlib.import_module("shtab").complete(parser, shell=values)
        sys.stdout.write(f"{script}\n")
        parser.exit()


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add `--print-completion SHELL` if shtab is installed."""
    if importlib.util.find_spec("shtab") is not None:
        parser.add_argument(
            "--print-completion",
            action=_PrintCompletion,
            choices=SHELLS,
            help="print a completion script for a shell and exit",
        )
