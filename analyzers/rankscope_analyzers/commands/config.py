"""`rankscope config`: check rankscope.yaml, print an example of it, or its effective values."""

from __future__ import annotations

import argparse
import sys

import yaml

from rankscope_analyzers.arguments.config import DEFAULT_FILE
from rankscope_analyzers.command import InputError
from rankscope_analyzers.configuration import rendering, values
from rankscope_analyzers.configuration.document import ConfigurationError
from rankscope_analyzers.configuration.example import EXAMPLE
from rankscope_analyzers.text.sanitize import visible

FAILURES: tuple[type[Exception], ...] = (InputError,)

WITHOUT_FILE = frozenset(("example", "schema"))
"""Actions that print the same whatever a file contains."""


def run(options: argparse.Namespace) -> int:
    """Print what was requested; return 1 if the file cannot be used, with a line for each error.

    Raises:
        InputError: a file is given to what reads none.
    """
    if options.file is not None and options.action in WITHOUT_FILE:
        raise InputError(f"{options.action} reads no file: leave out {options.file}")
    file = options.file or DEFAULT_FILE
    if options.action == "example":
        sys.stdout.write(EXAMPLE)
    elif options.action == "schema":
        sys.stdout.write(values.schema_text())
    else:
        try:
            known = values.read(file)
        except ConfigurationError as error:
            sys.stderr.writelines(f"{visible(line)}\n" for line in str(error).splitlines())
            return 1
        if options.action == "check":
            sys.stdout.write(f"{visible(str(file))}: no errors\n")
        elif options.action == "agent-flags":
            sys.stdout.write(f"{known.agent_flags()}\n")
        else:
            sys.stdout.write(yaml.safe_dump(rendering.as_object(known), sort_keys=False))
    return 0
