"""Logs are merged although the process may not have all of them open at once."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys

import pytest

from failed_jobs import cri
from rankscope_analyzers.intake.log_files import CHUNK_BYTES, chunks
from rankscope_analyzers.intake.log_sources import SPARE_DESCRIPTORS

LOGS, OPEN = 100, 10
LIMITED = """
import resource, sys
from rankscope_analyzers import cli
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
code = cli.main(["logs", "--from", sys.argv[3]])
sys.stderr.write(str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path):
    """Fill a directory with logs, the last of several chunks, and one of them compressed."""
    for number in range(LOGS):
        (tmp_path / f"{number:03d}.log").write_text(cri(f"of {number}", 1) + cri("end", 59))
    long = "".join(cri(f"line {number} {'x' * 90}", number // 100) for number in range(3000))
    assert len(long) > 3 * CHUNK_BYTES
    (tmp_path / "long.log").write_text(long)
    (tmp_path / "packed.log.gz").write_bytes(gzip.compress(long.encode(), mtime=0))
    return tmp_path


def merged(folder, soft, hard):
    command = [sys.executable, "-c", LIMITED, str(soft), str(hard), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, int(done.stderr)


def test_more_logs_than_descriptors_are_merged_as_fewer_would_be(folder):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    whole, limit = merged(folder, hard, hard)
    assert (len(whole.splitlines()), limit) == (2 * LOGS + 2 * 3000, hard)
    few = SPARE_DESCRIPTORS + OPEN
    assert merged(folder, few, few) == (whole, few)
    assert merged(folder, few, 1024) == (whole, SPARE_DESCRIPTORS + LOGS + 2)


def test_a_log_that_is_replaced_while_it_is_not_open_ends_there(folder, capsys):
    log = folder / "long.log"
    for replace in (lambda: (folder / "000.log").replace(log), log.unlink):
        read = chunks(str(log), stays_open=False)
        first = next(read)
        assert first
        replace()
        assert list(read) == []
        assert capsys.readouterr().err == f"{log}: was replaced; read up to there\n"
