"""`make fuzz`: fuzzes every parser of untrusted input, each in a separate process."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from benchmarks.commands import environment
from benchmarks.fuzzing.mutation import mutated
from benchmarks.fuzzing.table import TARGETS, part_of
from benchmarks.fuzzing.target import Target

ROOT = Path(__file__).parents[2]
FINDINGS = "crash-*", "timeout-*", "oom-*"
START_INPUTS = 200
"""Damaged seeds at the start of a corpus: they change members of JSON, which guessing rarely
reaches."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """The result for one target.

    Args:
        runs: number of its inputs.
        corpus: inputs of them that reached something new.
        findings: files of those that broke it.
        output: the end of what its process printed, if it broke.
    """

    runs: int
    corpus: int
    findings: tuple[Path, ...]
    output: str


def fuzz(target: Target, folder: Path, runs: int, seed: int) -> Fuzzed:
    """Fuzz a target in a directory, which keeps its corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(mutated(seed, START_INPUTS, list(target.seeds()))):
        (folder / f"start-{number:04d}").write_bytes(data)
    command = [sys.executable, "-m", "benchmarks.fuzzing.guided", part_of(target), target.name]
    paths = f"{ROOT}:{ROOT / 'tests'}"
    done = subprocess.run(
        [*command, str(runs), str(folder), str(seed)],
        env={**os.environ, **environment(), "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
    )
    counted = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    findings = tuple(path for pattern in FINDINGS for path in sorted(folder.glob(pattern)))
    output = "" if done.returncode == 0 else (done.stdout + done.stderr)[-3000:]
    kept = len(list(folder.iterdir())) - len(findings)
    return Fuzzed(int(counted[1]) if counted else 0, kept, findings, output)


def main() -> int:
    """Fuzz what the command line selects; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzzing", description=__doc__)
    parser.add_argument("--target", action="append", default=[], choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, help="inputs of each target, in place of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs that are drawn")
    parser.add_argument("--corpus", type=Path, help="where corpora are kept; nowhere by default")
    options = parser.parse_args()
    found = False
    with tempfile.TemporaryDirectory(prefix="rankscope-fuzzing-") as name:
        for target in (TARGETS[name] for name in options.target or TARGETS):
            began = time.monotonic()
            folder = (options.corpus or Path(name)) / target.folder
            one = fuzz(target, folder, options.runs or target.runs, options.seed)
            _print(
                f"{target.name:24}{one.runs:8} inputs {time.monotonic() - began:6.0f} s"
                f" {one.corpus:6} in its corpus {len(one.findings):3} found"
            )
            found = found or bool(one.findings or one.output)
            _print(one.output)
            for path in one.findings:
                _print(f"{path.name}: {path.read_bytes()[:400]!r}")
    return int(found)


def _print(line: str) -> None:
    if line:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
