"""Lets `python -m rankscope_agent` run the agent."""

from __future__ import annotations

import sys

from rankscope_agent.cli import main

sys.exit(main())
