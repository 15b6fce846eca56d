"""Series that bring about the alerts about goodput, what it costs, and recoveries."""

from __future__ import annotations

from alert_accounts import recoveries, spending
from alert_series import (
    burn,
)
from alert_timelines import Case, counter, steady

GOODPUT_CASES: dict[str, Case] = {
    "RankscopeGoodputBurnFast": burn(570, 6, 425, Case((), lag=62, settle=380, step=1, gap=3)),
    "RankscopeGoodputBurnSlow": burn(
        100, 6, 28, Case((), lag=24 * 60 + 30, settle=3 * 1440 + 60, step=12, gap=20, again=20)
    ),
    "RankscopeObjectiveMissed": burn(
        100, 6, 55, Case((), lag=24 * 60 + 30, settle=2 * 1440, step=30, gap=20, again=20)
    ),
    "RankscopeBudgetPace": Case(
        (
            counter(
                'rankscope_project_cost_total{project="llm",job_class="",part="restart",'
                'currency="EUR"}',
                *(4, 0.1, 0.9),
            ),
            steady('rankscope_project_budget{project="llm",currency="EUR"}', 30 * 1440),
        ),
        lag=100,
        linger=310,
        settle=380,
        gap=3,
        again=10,
    ),
    # Of a day, bad must be two hours and a half until its mean is twice that of the week before.
    "RankscopeSpendingUnusual": Case(
        (
            spending("llm", {"bad": 10.0, "good": 1.0, "below": 1.9}),
            # Grows as much, and is a small part of what all spend.
            spending("notebooks", {"bad": 0.5, "good": 0.1, "below": 0.1}),
            spending("vision", dict.fromkeys(("bad", "good", "below"), 10.0)),
        ),
        lag=170,
        linger=1440,
        settle=7 * 1440 + 60,
        step=12,
        gap=20,
        again=20,
    ),
    "RankscopeRecoverySlow": Case(
        recoveries({"bad": 4, "good": 0, "below": 1}, 40),
        lag=20,
        linger=60,
        gap=3,
        again=12,
        remembers=True,
    ),
}
