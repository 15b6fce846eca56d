"""A clock that a test moves."""

import pytest


class Clock:
    """Seconds that pass when a test says so; may stand for the module `time`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    monotonic = time = __call__

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock():
    return Clock()
