import json
import re
from dataclasses import replace

import pytest

from faulty_clusters import Cluster
from rankscope_agent.sources.pods.command_line import parse_command
from rankscope_analyzers import cli
from rankscope_analyzers.commands.record import _not_one
from rankscope_analyzers.intake.agent_pages import AgentPoll
from rankscope_analyzers.runs.files import RunRecordFiles
from rankscope_analyzers.runs.keeping import keep
from rankscope_analyzers.runs.record import RankFacts, RecordFormatError, differences, record, speed
from rankscope_analyzers.text.file_stem import file_stem
from ring_writer import RingWriter
from running_agent import running_agent
from simulated_jobs import Fault, Job

MAX_ARGUMENTS = 256
RENEW_SECONDS = 600.0

NODES = {"gpu-0": "healthy", "gpu-1": "healthy"}


def facts(rank: int, **changes) -> RankFacts:
    fields = {
        "rank": rank,
        "node": f"gpu-{rank // 8}",
        "uuid": f"GPU-{rank}",
        "pod": "team/llm",
        "attempt": 0,
        "image": "repo/train@sha256:aa",
        "command": ("python", "train.py", "--lr=3e-4", f"--local_rank={rank % 8}"),
        "environment": {"NCCL_IB_HCA": "mlx5"},
        "versions": {"torch": "2.13.0", "NCCL": "2.28.3"},
    }
    return RankFacts(**{**fields, **changes})


@pytest.fixture(scope="module")
def fast():
    return Cluster(NODES, Job(ranks=16, steps=60)).report()


@pytest.fixture(scope="module")
def slow():
    fault = Fault("compute", (3,), 0.5)
    return Cluster({"gpu-0": "healthy", "gpu-7": "healthy"}, Job(16, 60, faults=(fault,))).report()


def test_what_is_the_same_on_all_ranks_stands_once(fast):
    found = record(fast, [facts(rank) for rank in range(16)])
    assert list(found["command"]) == ["python train.py --lr=3e-4"]
    assert found["environment"] == {"NCCL_IB_HCA": {"mlx5": list(range(16))}}
    assert len(found["ranks"]) == 16
    assert json.loads(json.dumps(found)) == found


def test_every_kind_of_change_is_named(fast, slow):
    before = record(fast, [facts(rank) for rank in range(16)])
    changed = {
        "image": "repo/train@sha256:bb",
        "command": ("python", "train.py", "--lr=3e-4", "--compile"),
        "versions": {"torch": "2.13.0", "NCCL": "2.29.1"},
        "attempt": 1,
    }
    after_facts = [facts(rank, **changed) for rank in range(16)]
    after_facts[5] = facts(5, **changed, environment={"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"})
    after = record(slow, after_facts)
    found = {(one.subject, one.name): (one.before, one.after) for one in differences(before, after)}
    assert found == {
        ("image", ""): ("repo/train@sha256:aa", "repo/train@sha256:bb"),
        ("version", "NCCL"): ("2.28.3", "2.29.1"),
        ("command", ""): ("", "--compile"),
        ("environment", "NCCL_DEBUG"): ("", "INFO"),
        ("place", "nodes"): ("gpu-1", "gpu-7"),
    }
    assert 1.3 < speed(before, after) < 1.6
    assert differences(before, before) == ()


@pytest.mark.parametrize(
    ("before", "after", "gone", "come"),
    [
        ("--tp 8 --pp 4", "--tp 4 --pp 8", "--tp 8 --pp 4", "--tp 4 --pp 8"),
        ("--tp 8 --workers 2", "--tp 8 --workers 8", "--workers 2", "--workers 8"),
        ("--tp=8 --seed 1", "--seed 1 --tp=8", None, None),
        ("--tp=8 data --twice 1 --twice 1", "--tp=8 data --twice 1", "--twice 1", ""),
    ],
)
def test_an_option_is_compared_with_its_value(fast, before, after, gone, come):
    old, new = (
        record(fast, [facts(rank, command=("train.py", *words.split())) for rank in range(4)])
        for words in (before, after)
    )
    found = [(one.subject, one.before, one.after) for one in differences(old, new)]
    assert found == ([] if gone is None else [("command", gone, come)])


def test_ranks_that_change_places_on_the_same_nodes_are_listed_and_so_are_other_adapters(fast):
    before = record(fast, [])
    after = json.loads(json.dumps(before))
    after["ranks"][0]["node"], after["ranks"][15]["node"] = "gpu-1", "gpu-0"
    after["ranks"][3]["nics"] = ["mlx5_7"]
    places = before["ranks"]
    found = {one.name: (one.before, one.after) for one in differences(before, after)}
    uuids = [places[rank]["gpu_uuid"] for rank in (0, 15)]
    assert found == {
        "ranks": (
            f"rank 0: gpu-0 {uuids[0]}, rank 15: gpu-1 {uuids[1]}",
            f"rank 0: gpu-1 {uuids[0]}, rank 15: gpu-0 {uuids[1]}",
        ),
        "NICs": (f"rank 3: {' '.join(places[3]['nics'])}", "rank 3: mlx5_7"),
    }
    turned = {**before, "ranks": [{**one, "rank": 15 - one["rank"]} for one in places]}
    (found,) = [one for one in differences(before, turned) if one.name == "ranks"]
    assert found.before.startswith("rank 0: gpu-0 ")
    assert found.after.endswith(" and 8 more")


def test_values_that_differ_between_ranks_come_with_them(fast):
    before = record(fast, [facts(rank) for rank in range(4)])
    odd = [
        facts(rank, environment={"NCCL_IB_HCA": "bad" if rank == 2 else "mlx5"})
        for rank in range(4)
    ]
    (found,) = differences(before, record(fast, odd))
    assert (found.before, found.after) == ("mlx5", "bad (rank 2), mlx5 (ranks 0, 1, 3)")


@pytest.mark.parametrize(
    "broken", [{}, {"format": 2}, {"format": 1, "images": []}, {"format": 1, "images": {}}]
)
def test_what_is_no_record_is_refused(broken, fast):
    with pytest.raises(RecordFormatError):
        differences(record(fast, []), broken)


def test_what_was_not_read_is_in_the_record_and_no_run_is_called_the_same(tmp_path, capsys):
    (tmp_path / "rings").mkdir()
    RingWriter(tmp_path / "rings", node="test-node", world_size=2, local_world_size=1).step(12)
    file = str(tmp_path / "a.json")
    with running_agent(tmp_path, "--simulate=h100x2") as agent:
        given = ["record", "--agent", agent.url, "--agent", "127.0.0.1:1", "--since", "9000d"]
        assert cli.main([*given, "--job", "team/job", file]) == 0
    assert "Not read: agent 127.0.0.1:1 cannot be reached" in capsys.readouterr().err
    assert cli.main(["diff", "--no-color", file, file]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "Nothing differs in what both records have." in said
    assert f"Not read for {file}: agent 127.0.0.1:1 cannot be reached" in said
    assert "are the same" not in said


@pytest.mark.parametrize(
    ("wanted", "known", "sentence"),
    [
        (None, [], "there is no job in what was read; rankscope doctor shows what agents do not"),
        ("b", [], "there is no job in what was read; rankscope doctor"),
        ("c", ["a", "b"], "there is no job 'c' in what was read; there are: a, b"),
        (None, ["a", "b"], "one job is recorded at a time; there are: a, b (choose with --job)"),
    ],
)
def test_why_no_run_is_recorded_and_what_to_do(wanted, known, sentence):
    assert _not_one(wanted, known).startswith(sentence)


@pytest.mark.parametrize(
    ("command", "others", "said"),
    [
        ("record", ("--job", "a", "x"), "Asking agent 127.0.0.1:1 for the run; "),
        ("capture", ("--job", "a", "x"), "Asking agent 127.0.0.1:1 for the evidence; "),
        ("diagnose", (), "Asking agent 127.0.0.1:1; "),
        ("jobs", (), "Asking agent 127.0.0.1:1; "),
        ("verify", ("a",), "Looking at job a; "),
        ("verify", ("a", "--wait", "0s"), "Looking at job a for up to 0s; "),
        ("watch", ("--once",), "The first look judges the last 30m: "),
    ],
)
def test_a_terminal_is_told_what_is_waited_for(
    tmp_path, capsys, monkeypatch, command, others, said
):
    monkeypatch.chdir(tmp_path)
    given = [command, "--agent", "127.0.0.1:1", *others]
    for is_terminal in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda known=is_terminal: known)
        assert cli.main(given) == 1
        assert capsys.readouterr().err.startswith(said) is is_terminal


def test_a_real_agent_is_recorded_and_compared(tmp_path, capsys):
    (tmp_path / "rings").mkdir()
    writer = RingWriter(tmp_path / "rings", node="test-node", world_size=1, local_world_size=1)
    writer.step(12)
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    with running_agent(tmp_path, "--simulate=h100x2") as agent:
        given = ["record", "--agent", agent.url, "--since", "9000d"]
        assert cli.main([*given, "--job", "team/job", str(first)]) == 0
    found = json.loads(first.read_text())
    assert found["versions"]["torch"] == {"2.13.0+cpu": [0]}
    assert found["median_step_seconds"] == pytest.approx(0.1)
    found["versions"]["torch"] = {"2.14.0\x1b[2J": [0]}
    found["median_step_seconds"] = 0.2
    second.write_text(json.dumps(found))
    capsys.readouterr()
    assert cli.main(["diff", "--no-color", str(first), str(second)]) == 0
    said = capsys.readouterr().out
    assert "slower, 2.00 times as long" in said
    assert "2.13.0+cpu" in said
    assert "\x1b" not in said
    assert cli.main(["diff", "--json", str(first), str(second)]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_ratio"] == 2.0


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '{"format": 7}'])
def test_files_that_are_no_records_are_one_sentence(tmp_path, content, capsys):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert cli.main(["diff", str(path), str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_records_are_kept_by_job_and_attempt_and_renewed(tmp_path, fast):
    files = RunRecordFiles(tmp_path / "records")
    assert files.due("team/llm", 0.0)
    path = files.write(record(fast, [facts(0, attempt=2)]), 0.0)
    assert re.fullmatch(r"team_llm-[0-9a-f]{8}\.attempt-2\.json", path.name)
    assert not files.due("team/llm", RENEW_SECONDS - 1)
    assert files.due("team/llm", RENEW_SECONDS)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("job_id", "stem"),
    [("../../etc/passwd", "etc_passwd"), ("..", "job"), ("a/b", "a_b"), ("", "job")],
)
def test_no_name_of_a_job_leaves_the_directory(job_id, stem):
    assert file_stem(job_id).rpartition("-")[0] == stem


def test_two_jobs_never_share_a_file():
    assert file_stem("a_b") == "a_b"
    stems = {file_stem(job_id) for job_id in ("a/b", "a_b", "a b", "a/b ", "x" * 129, "x" * 130)}
    assert len(stems) == 6
    assert max(map(len, stems)) == 128


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("python\0train.py\0--lr=1\0", ("python", "train.py", "--lr=1")),
        ("x\0--api-key\0abc\0--y\0", ("x", "--api-key", "***", "--y")),
        ("x\0--hf-token=abc\0", ("x", "--hf-token=***")),
        ("x\0hf_abcdefghijkl\0", ("x", "***")),
        ("x\0s3://user:pass@host/b\0", ("x", "s3***host/b")),
        ("x\0--token\0--next\0", ("x", "--token", "--next")),
        ("", ()),
    ],
)
def test_commands_are_kept_without_what_looks_secret(given, kept):
    assert parse_command(given.encode()) == kept


def test_endless_commands_are_cut():
    found = parse_command(b"x" * 5000 + b"\0" + b"y\0" * 1000)
    assert len(found) == MAX_ARGUMENTS
    assert len(found[0]) == 256


class CountingAgent:
    """Knows one rank of each job, and counts how often it is asked."""

    def __init__(self, node, jobs, **row):
        self.node, self.asked = node, []
        self.ranks = [{"job_id": job, "rank": 0, "attempt": 3, **row} for job in jobs]

    def json(self, path):
        self.asked.append(path)
        return {"ranks": self.ranks if path == "/api/v1/ranks" else []}


ASKED_ONCE = ["/api/v1/pods", "/api/v1/ranks"]


def test_of_each_node_with_due_jobs_the_agent_is_asked_once_and_of_others_never(tmp_path, fast):
    jobs = [replace(fast, job_id=f"job-{number}") for number in range(3)]
    agents = {node: CountingAgent(node, ["job-0", "job-1", "job-2"]) for node in (*NODES, "gpu-2")}
    poll = AgentPoll((), agents, (), 0.0)
    files = RunRecordFiles(tmp_path)
    for now in (1000.0, 1001.0):  # records are due once
        assert keep(files, poll, jobs, now, print) == []
    assert [one.asked for one in agents.values()] == [ASKED_ONCE, ASKED_ONCE, []]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"job-{number}.attempt-3.json" for number in range(3)
    ]


def test_all_agents_are_asked_about_a_job_whose_nodes_are_unknown(tmp_path, fast):
    agents = {node: CountingAgent(node, ["job-0"]) for node in (*NODES, "gpu-2")}
    lost = replace(fast, job_id="job-0", locations={})
    keep(RunRecordFiles(tmp_path), AgentPoll((), agents, (), 0.0), [lost], 1000.0, print)
    assert [one.asked for one in agents.values()] == [ASKED_ONCE] * 3


def test_what_an_agent_knows_of_one_job_and_raises_costs_no_other_its_record(tmp_path, fast):
    agent = CountingAgent("gpu-0", ["good"])
    agent.ranks.append({"job_id": "bad", "rank": 0, "torch_version": Unprintable()})
    jobs = [replace(fast, job_id=name) for name in ("bad", "good")]
    poll = AgentPoll((), {"gpu-0": agent}, (), 0.0)
    (error,) = keep(RunRecordFiles(tmp_path), poll, jobs, 1000.0, print)
    assert (error.about, error.reason) == ("bad", "ZeroDivisionError: of this one")
    assert [file.name for file in tmp_path.iterdir()] == ["good.attempt-3.json"]


class Unprintable:
    def __str__(self):
        raise ZeroDivisionError("of this one")
