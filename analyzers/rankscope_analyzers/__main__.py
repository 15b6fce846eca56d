"""Lets `python -m rankscope_analyzers` run the command `rankscope`."""

from __future__ import annotations

import sys

from rankscope_analyzers.cli import main

sys.exit(main())
