"""Fuzzes one target by the branches that inputs reach: `guided PART NAME RUNS CORPUS SEED`.

A separate program, because atheris ends the process that it runs in. The corpus is a directory, to
which it adds inputs that reach something new; an input that breaks the target is saved there too,
as `crash-*`, `timeout-*` or `oom-*`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import atheris
from benchmarks.fuzzing.target import Target, run

SECONDS_OF_AN_INPUT = 10
MOST_MIB = 2048
MOST_BYTES = 1 << 14


def _instrumented(part: str, name: str) -> Target:
    """Return a target, importing no more than its part: each instrumented module takes time."""
    with atheris.instrument_imports(include=["rankscope_agent", "rankscope_analyzers"]):
        module = import_module(f"benchmarks.fuzzing.{part}")
    targets: Sequence[Target] = module.TARGETS
    return next(target for target in targets if target.name == name)


def main() -> None:
    """Fuzz what the command line selects."""
    part, name, runs, corpus, seed = sys.argv[1:]
    target = _instrumented(part, name)

    def one_input(data: bytes) -> None:
        run(target, data)

    flags = [f"-runs={runs}", f"-seed={seed}", f"-max_len={MOST_BYTES}", "-print_final_stats=1"]
    flags += [f"-timeout={SECONDS_OF_AN_INPUT}", f"-rss_limit_mb={MOST_MIB}"]
    flags += [f"-artifact_prefix={corpus}/", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *flags, corpus], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
