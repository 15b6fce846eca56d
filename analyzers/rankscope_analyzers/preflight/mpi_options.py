"""Variables that mpirun's options pass on to the ranks: of Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_LISTS = frozenset({"mca_base_env_list", "-genvlist"})


def handed_on(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield name and value of each variable, None for the value that the launcher has."""
    for word, after, third in zip(words, words[1:], [*words[2:], ""], strict=False):
        name, equals, value = after.strip("'\"").partition("=")
        if word in {"-x", "-genv", "--genv"}:
            by_word = third if word != "-x" else None
            yield name, value.strip("'\"") if equals else by_word
        elif word in _LISTS:
            for one in re.split("[;,]", after.strip("'\"")):
                name, equals, value = one.partition("=")
                yield name, value if equals else None
