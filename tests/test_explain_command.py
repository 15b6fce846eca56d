"""`rankscope explain`: what an engineer with a log in hand gets."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from nccl_job_text import start
from rankscope_analyzers import cli
from rankscope_analyzers.commands import explain

KEYS = {
    "nccl_version",
    "nranks",
    "ranks_seen",
    "net_selected",
    "inter_node_transports",
    "gdr",
    "socket_fallback",
    "reason",
    "init_complete_ranks",
    "warnings",
    "communicators",
    "verdict",
}

FALLBACK = start(7, 16, "NET/Socket/0", network="Socket", extra=("NET/IB : No device found.",))


def explained(capsys, *arguments: str) -> dict[str, object]:
    assert cli.main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_has_the_promised_members(tmp_path, capsys):
    log = tmp_path / "nccl.log"
    log.write_text(FALLBACK)
    said = explained(capsys, "nccl-log", str(log))
    assert set(said) >= KEYS
    assert (said["socket_fallback"], said["reason"]) == (True, "no_rdma_device")
    assert (said["ranks_seen"], said["nranks"], said["gdr"]) == ([7], 16, False)
    assert said["findings"][0]["runbook"] == "docs/runbooks/RankscopeSocketFallback.md"


def test_settings_show_where_processes_differ(tmp_path, capsys):
    log = tmp_path / "nccl.log"
    lines = [
        start(rank, 2, "NET/IB/0", extra=(f"NCCL_IB_HCA set to mlx5_{rank}",)) for rank in (0, 1)
    ]
    log.write_text("".join(lines))
    assert explained(capsys, "nccl-log", str(log))["environment"] == {
        "NCCL_IB_HCA": ["mlx5_0", "mlx5_1"]
    }
    assert cli.main(["explain", "nccl-log", str(log)]) == 0
    assert "settings: NCCL_IB_HCA=mlx5_0 or mlx5_1" in capsys.readouterr().out.splitlines()


def test_a_log_cannot_write_to_the_terminal(tmp_path, capsys):
    log = tmp_path / "nccl.log"
    log.write_text(start(0, 2, "NET/IB/0", network="\x1b]0;owned\x07"))
    assert cli.main(["explain", "nccl-log", str(log)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_text_says_the_verdict_first(tmp_path, capsys):
    log = tmp_path / "nccl.log"
    log.write_text(FALLBACK)
    assert cli.main(["explain", "nccl-log", str(log)]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == (
        "verdict: data between nodes goes over TCP sockets: the process sees no RDMA device"
    )


def test_logs_of_several_pods_are_one_job(tmp_path, capsys):
    names = []
    for rank in (0, 8):
        log = tmp_path / f"{rank}.log"
        log.write_text(start(rank, 16, "NET/IB/0/GDRDMA"))
        names.append(str(log))
    said = explained(capsys, "nccl-log", *names)
    assert (said["ranks_seen"], said["socket_fallback"], said["gdr"]) == ([0, 8], False, True)
    (communicator,) = said["communicators"]
    assert communicator["hosts"] == ["gpu-00", "gpu-01"]


def test_standard_input_is_read(monkeypatch, capsys):
    source = types.SimpleNamespace(buffer=io.BytesIO(FALLBACK.encode()))
    monkeypatch.setattr(sys, "stdin", source)
    assert explained(capsys, "nccl-log", "-")["socket_fallback"] is True


@pytest.mark.parametrize("cut", [0, 40])
def test_gzip_is_read_up_to_where_it_is_cut_off(tmp_path, capsys, cut):
    log = tmp_path / "0.log.20261121-021400.gz"
    whole = gzip.compress(FALLBACK.encode() * 50)
    log.write_bytes(whole[: len(whole) - cut])
    assert cli.main(["explain", "nccl-log", str(log), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["socket_fallback"] is True
    assert ["cut off" in sentence for sentence in said["not_read"]] == [True] * (cut > 0)


@pytest.mark.parametrize("padding", [b"", b"\0" * 200_000, gzip.compress(b"\n" * 70_000, mtime=0)])
def test_members_and_padding_after_a_gzip_belong_to_it(tmp_path, capsys, padding):
    log = tmp_path / "0.log.gz"
    log.write_bytes(gzip.compress(FALLBACK.encode() * 200) + padding)
    assert cli.main(["explain", "nccl-log", str(log)]) == 0
    assert capsys.readouterr().err == ""


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    assert cli.main(["explain", "nccl-log", str(tmp_path / "no.log")]) == 1
    assert "no.log: No such file" in capsys.readouterr().err
    assert cli.main(["explain", "nccl-log", str(tmp_path)]) == 1
    assert "Is a directory" in capsys.readouterr().err


def test_escapes_of_a_log_do_not_reach_the_terminal(tmp_path, capsys):
    log = tmp_path / "nccl.log"
    log.write_bytes(b"\na:1:2 [0] x.cc:1 NCCL WARN Cuda failure \x1b]0;owned\x07 \x9b31m\n")
    assert cli.main(["explain", "nccl-log", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "CUDA_FAILURE" in shown
    assert "\x1b" not in shown


def test_the_watchdog_log_names_suspects(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2,"
        " OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=8000) ran for 8097"
        " milliseconds before timing out.\n"
        "     [1] finished collective #2, but didn't join collective #3 (count from 1)\n"
    )
    said = explained(capsys, "watchdog-log", str(log))
    assert [suspect["rank"] for suspect in said["suspects"]] == [1]
    assert said["victims"] == [0]
    assert cli.main(["explain", "watchdog-log", str(log)]) == 0
    assert "rank 1 is the first suspect" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["nccl-log", "watchdog-log", "job-log"])
def test_explaining_a_log_imports_neither_pandas_nor_numpy(kind, tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(FALLBACK)
    code = (
        "import sys; from rankscope_analyzers import cli; status = cli.main(sys.argv[1:]);"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'rich', 'shtab'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, "explain", kind, str(log)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": f"{root / 'agent'}:{root / 'analyzers'}"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


BOMB_MEBIBYTES, MOST_GROWTH_KIB = 32, 24 << 10


def peak_kib(kind: str, path: Path) -> int:
    """Explain a log in a process of its own; return the most memory that it held."""
    command = [sys.executable, "-m", "rankscope_analyzers", "explain", kind, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in {0, 1}  # 1: nothing in it is of such a log
    return used.ru_maxrss


@pytest.fixture(scope="module")
def least_kib(tmp_path_factory):
    """Return the most memory that the explanation of hardly anything holds, by kind."""
    empty = tmp_path_factory.mktemp("empty") / "empty.log"
    empty.write_text("step 1\n")
    return functools.cache(lambda kind: peak_kib(kind, empty))


@pytest.fixture(scope="module")
def bomb_of(tmp_path_factory):
    """Write a small file that unpacks to much of a piece, once for all kinds."""

    @functools.cache
    def written(piece: bytes) -> Path:
        bomb = tmp_path_factory.mktemp("bomb") / "bomb.gz"
        with gzip.open(bomb, "wb") as packed:
            for _ in range(BOMB_MEBIBYTES):
                packed.write(piece * ((1 << 20) // len(piece)))
        return bomb

    return written


@pytest.mark.parametrize("kind", [kind for kind in explain.KINDS if kind.endswith("-log")])
@pytest.mark.parametrize("piece", [b"\0", b"step 1\n"], ids=["one endless line", "lines"])
def test_a_small_file_that_unpacks_to_much_is_read_in_little_memory(
    bomb_of, least_kib, kind, piece
):
    bomb = bomb_of(piece)
    assert bomb.stat().st_size < 1 << 20
    assert peak_kib(kind, bomb) - least_kib(kind) < MOST_GROWTH_KIB
