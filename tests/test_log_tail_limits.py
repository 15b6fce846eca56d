"""How much of a job's logs is kept as evidence."""

from __future__ import annotations

import pytest

from rankscope_agent.sources.evidence import log_tails


@pytest.mark.parametrize(("length", "kept"), [(2048, 2048), (2049, 2048), (9000, 2048)])
def test_2048_characters_of_a_line_are_kept(length, kept):
    assert len(log_tails._shown(b"x" * length)) == kept
