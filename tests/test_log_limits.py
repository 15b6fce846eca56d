"""What is kept of a log that says a lot, and numbers in it that no job has."""

import pytest

from rankscope_agent.contract.failures.sightings import Signs
from rankscope_agent.contract.nccl.job_size import world_size


def test_32_lines_that_nothing_explains_are_quoted_and_the_rest_is_counted():
    signs = Signs()
    for word in range(26):
        for other in "ab":
            signs.quote("rank0.log", word, f"ERROR {chr(97 + word)}{other} failed")
    assert len(signs.quotes) == 32
    assert signs.beyond_limits == 52 - 32
    signs.quote("rank0.log", 99, "ERROR aa failed")
    assert signs.beyond_limits == 52 - 32, "what is quoted is counted there"


@pytest.mark.parametrize(("stated", "size"), [(2**20, 2**20), (2**20 + 1, 0)])
def test_a_job_of_more_than_a_million_ranks_is_none(stated, size):
    assert world_size(b"WORLD_SIZE=%d\n" % stated) == size
