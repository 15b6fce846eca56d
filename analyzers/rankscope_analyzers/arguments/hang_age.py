"""The flag for how long a job may stand still before it is called hung."""

from __future__ import annotations

import argparse

from rankscope_analyzers.hangs.threshold import HANG_AFTER_SECONDS

HANG_AFTER = f"{HANG_AFTER_SECONDS:.0f}s"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare after how long without a step a job is called hung."""
    parser.add_argument(
        "--hang-after",
        default=HANG_AFTER,
        metavar="AGE",
        help="time without a step after which a job counts as hung (default %(default)s), or five"
        " of its slow steps if that is longer",
    )
