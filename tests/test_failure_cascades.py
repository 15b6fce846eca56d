"""Jobs that fail together, and jobs that fail again and again, each for itself."""

from collections.abc import Mapping, Sequence

import pytest

from alert_timelines import Series, steady
from clusters_apart import Followed, follow_together
from servers import require_server


def _failure(node: str, job: str) -> str:
    name = "rankscope_job_last_failure_timestamp_seconds"
    return f'{name}{{node="{node}",job_id="{job}",reason="Error",detail="application"}}'


def _repeatedly(job: str, node: str, first: int, count: int = 1000) -> tuple[Series, ...]:
    """Return a job that fails in a minute, and then every five minutes in a crash loop."""

    def failed(states: Sequence[str], step: int) -> list[str]:
        minutes = range(0, len(states) * step, step)
        times = [first + 5 * min(max(0, one - first) // 5, count - 1) for one in minutes]
        return [
            "_" if one < first else f"{60 * at}" for one, at in zip(minutes, times, strict=True)
        ]

    return (
        Series(_failure(node, job), failed),
        steady(f'rankscope_job_pods{{node="{node}",job_id="{job}",phase="Pending"}}', 1),
    )


OTHERS_RUN = tuple(
    steady(f'rankscope_job_pods{{node="m{i}",job_id="c/j{i}",phase="Running"}}', 8)
    for i in range(20)
)


WHOLE, ONE = "RankscopeJobFailureCascade", "RankscopeJobInCascade"


def loops(*started: tuple[str, str, int, int]) -> list[Series]:
    return [
        one for job, node, first, count in started for one in _repeatedly(job, node, first, count)
    ]


def at_different_times() -> Followed:
    """Three broken jobs of two users, started an hour apart."""
    own = loops(("a/x", "n0", 60, 1000), ("a/y", "n1", 120, 1000), ("b/z", "n2", 180, 1000))
    minutes = (70, 130, 182, 190, 300)
    return Followed(
        [*OTHERS_RUN, *own], [(name, minute, 0) for name in (WHOLE, ONE) for minute in minutes]
    )


def for_a_while() -> Followed:
    """What they share is broken from minute 100 to 200; another job failed long before."""
    shared = loops(("a/x", "n0", 100, 20), ("a/y", "n1", 103, 20), ("b/z", "n2", 106, 20))
    checks = [(WHOLE, 94, 0), (WHOLE, 110, 1), (ONE, 110, 3)]
    checks += [
        (name, minute, n) for minute in (130, 160, 200) for name, n in ((WHOLE, 1), (ONE, 3))
    ]
    checks += [(WHOLE, 246, 0), (ONE, 246, 0)]
    return Followed([*OTHERS_RUN, *shared, *loops(("d/own", "n9", 30, 1000))], checks)


def twice() -> Followed:
    """The network fails twice; each time all jobs of it are started again and train."""
    failed = tuple(
        Series(
            _failure(f"n{i}", job),
            lambda states, step: [
                "_" if i * step < 100 else f"{60 * (100 if i * step < 145 else 145)}"
                for i in range(len(states))
            ],
        )
        for i, job in enumerate(("a/x", "a/y", "b/z"))
    )
    checks = [(WHOLE, 102, 1), (WHOLE, 140, 0), (WHOLE, 148, 1), (ONE, 148, 3)]
    return Followed([*OTHERS_RUN, *failed], checks)


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> Mapping[str, str]:
    """What promtool has to say against each, of two alerts of which each reads the other's."""
    clusters = {
        "at different times": at_different_times(),
        "for a while": for_a_while(),
        "twice": twice(),
    }
    folder = tmp_path_factory.mktemp("rules")
    return follow_together(folder, require_server("promtool"), clusters, step=2, sample=1)


def test_jobs_that_fail_again_and_again_since_different_times_are_no_cascade(said):
    assert not said["at different times"]


def test_a_cascade_goes_on_while_its_jobs_fail_again_and_again_and_mutes_no_other(said):
    assert not said["for a while"]


def test_a_second_cascade_is_one_too(said):
    assert not said["twice"]
