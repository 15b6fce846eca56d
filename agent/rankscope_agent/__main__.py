"""Run the agent as `python -m rankscope_agent`."""

from __future__ import annotations

import sys

from rankscope_agent.cli import main

sys.exit(main())
