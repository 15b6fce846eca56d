"""The option --config of commands that read rankscope.yaml."""

from __future__ import annotations

import argparse

from rankscope_analyzers.command import InputError
from rankscope_analyzers.configuration.document import ConfigurationError
from rankscope_analyzers.configuration.values import Configuration, read


def configured(options: argparse.Namespace) -> Configuration:
    """Return the cluster's configuration, defaults without one.

    Raises:
        InputError: it cannot be used.
    """
    try:
        return read(options.config) if options.config else Configuration()
    except ConfigurationError as error:
        raise InputError("--config: " + "; ".join(str(error).splitlines())) from None
