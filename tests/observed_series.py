"""Series of agents as they are observed, put together by hand."""

from __future__ import annotations

import numpy as np

from rankscope_analyzers.intake.observed import Observed, Series


def series(metric, value, node="n", times=(0.0,), **labels):
    values = np.full(len(times), value)
    return Series(node, metric.name, labels, np.array(times), values)


def observed(*found):
    by_name = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    return Observed({"n": by_name})
