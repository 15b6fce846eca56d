"""Options of `rankscope preflight` for a step's target duration, and what it exchanges."""

from __future__ import annotations

import argparse

from rankscope_analyzers.command import positive_seconds, share
from rankscope_analyzers.preflight.budget_check import LAYOUTS
from rankscope_analyzers.preflight.step_target import DEFAULTS, Target, TargetError, count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a step's target duration, and what it exchanges; or use the job's annotations."""
    parser.add_argument(
        "--parameters", type=_count, metavar="N", help="parameters of the model, such as 7B"
    )
    parser.add_argument(
        "--step-seconds", type=positive_seconds, metavar="SECONDS", help="target step time"
    )
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="all-reduce: each rank has the whole model; sharded: FSDP, ZeRO 3",
    )
    parser.add_argument(
        "--parameter-bytes",
        type=_count,
        metavar="BYTES",
        help=f"bytes per parameter or gradient on the wire (default {DEFAULTS.parameter_bytes:g})",
    )
    parser.add_argument(
        "--overlap",
        type=share,
        metavar="SHARE",
        help=f"share of a step behind which communication can hide (default {DEFAULTS.overlap:g})",
    )
    parser.add_argument(
        "--node-gbits",
        type=_count,
        metavar="GBIT",
        help="bandwidth of a node over all rails in Gbit/s (default: what its agent reports)",
    )


def target(options: argparse.Namespace) -> Target:
    """Return the target in the options."""
    return Target(
        options.parameters,
        options.step_seconds,
        options.layout,
        options.parameter_bytes,
        options.overlap,
        options.node_gbits,
    )


def _count(text: str) -> float:
    try:
        return count(text)
    except TargetError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
