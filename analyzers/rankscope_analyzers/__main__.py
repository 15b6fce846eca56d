"""Run the command `rankscope` as `python -m rankscope_analyzers`."""

from __future__ import annotations

import sys

from rankscope_analyzers.cli import main

sys.exit(main())
