"""The flag for how long a job may stand still before it is called hung."""

from __future__ import annotations

import argparse

from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS

HANG_AFTER = f"{HANG_AFTER_SECONDS:.0f}s"


def add_argument(parser: argparse.ArgumentParser, default: str | None = HANG_AFTER) -> None:
    """Declare after how long without a step a job is called hung.

    Args:
        parser: of the command.
        default: what the option is if it is not given; None to tell that from any age.
    """
    parser.add_argument(
        "--hang-after",
        default=default,
        metavar="AGE",
        help=f"time without a step after which a job counts as hung (default {HANG_AFTER}), or five"
        " of its slow steps if that is longer",
    )
