"""Thresholds at which panels change colour: blue is good, orange is unusual, vermilion is bad."""

from __future__ import annotations

from rankscope_dashboards.parts.panels import BAD, GOOD, WARN

ANY_IS_BAD = ((None, GOOD), (1, BAD))
ANY_IS_ODD = ((None, GOOD), (1, WARN))

LOST_SHARE = ((None, GOOD), (0.05, WARN), (0.2, BAD))
"""Fraction of step time: below 5 % is the noise of most jobs, a fifth is one wasted node in
five."""

SLOWER = ((None, GOOD), (0.1, WARN), (0.2, BAD))
"""Excess over the median: some percent are noise, `RankscopeStraggler` fires at a fifth."""

BUSY_PORT = ((None, GOOD), (0.8, WARN), (0.95, BAD))
"""Fraction of a port's rate; RDMA over Ethernet begins to pause senders somewhat below line
rate."""
