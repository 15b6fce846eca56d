"""`rankscope explain flight-recorder`: dumps in hand, of JSON and of pickle, and what is none."""

from __future__ import annotations

import gzip
import json
import pickle
import tracemalloc

import pytest

from flight_servers import dump, entry
from rankscope_analyzers import cli

AT = 1_760_000_000_000_000_000


def write(folder, late=2, size=4, form=json.dumps):
    """Write the dumps of ranks of which one has not entered the fifth collective."""
    for rank in range(size):
        entries = [entry(number, AT + number) for number in range(1, 5)]
        if rank != late:
            entries.append(entry(5, AT + 5, retired=False))
        whole = json.loads(dump(*entries)) | {"pg_config": {}}
        body = form(whole)
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(body.encode() if isinstance(body, str) else body)
    return sorted(map(str, folder.glob("nccl_trace_rank_*")))


def explained(capsys, *files):
    assert cli.main(["explain", "flight-recorder", *files, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def as_pickle(whole):
    return pickle.dumps(whole, protocol=2)


@pytest.mark.parametrize("form", [json.dumps, as_pickle])
def test_the_rank_that_never_entered_is_named(tmp_path, capsys, form):
    found = explained(capsys, *write(tmp_path, form=form))
    assert found["suspects"] == [2]
    assert found["summary"] == (
        "rank 2 has not entered all_reduce 5 of default_pg, where 3 ranks wait"
    )
    reached = {one["rank"]: one["enqueued"] for one in found["groups"]}
    assert reached == {0: 5, 1: 5, 2: 4, 3: 5}


def test_a_person_reads_it_as_sentences(tmp_path, capsys):
    assert cli.main(["explain", "flight-recorder", *write(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rank 2 has not entered all_reduce 5 of default_pg, where 3 ranks wait.")
    assert "Suspected: rank 2." in out
    assert "rank 2: newest collective of each group: default_pg: 4" in out


def test_ranks_without_a_dump_are_named(tmp_path, capsys):
    files = write(tmp_path, late=None)
    found = explained(capsys, *files[:1], *files[2:])
    assert (found["ranks_without_dump"], found["suspects"]) == ([1], [1])


def of_torch_2_3(rank, groups, *calls):
    """Return a dump as torch 2.3 writes it; rank 0 is still in the last of its calls."""
    entries = [
        {
            "record_id": at,
            "pg_id": group,
            "seq_id": number,
            "op_id": number,
            "profiling_name": f"nccl:{name}",
            "time_created_ns": AT + at,
            "input_sizes": [[3]],
            "output_sizes": [[3]],
            "state": "scheduled" if (rank, at) == (0, len(calls) - 1) else "completed",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": (rank, at) != (0, len(calls) - 1),
            "frames": [],
        }
        for at, (group, name, number) in enumerate(calls)
    ]
    whole = {"version": "1.4", "entries": entries, "pg_config": groups}
    return f"nccl_trace_rank_{rank}", pickle.dumps(whole, protocol=2)


def written(folder, *dumps):
    for name, body in dumps:
        (folder / name).write_bytes(body)
    return [str(folder / name) for name, _ in dumps]


def test_dumps_of_torch_2_3_name_groups_by_their_ranks(tmp_path, capsys):
    everyone, pair, other = [0, 1, 2, 3], [0, 1], [2, 3]
    files = written(
        tmp_path,
        of_torch_2_3(0, {0: everyone, 1: pair}, (0, "all_reduce", 1), (1, "all_gather", 8)),
        of_torch_2_3(1, {0: everyone, 1: pair}, (1, "all_gather", 7), (0, "all_reduce", 1)),
        of_torch_2_3(2, {0: everyone, 1: other}, (0, "all_reduce", 1), (1, "all_gather", 9)),
        of_torch_2_3(3, {0: everyone, 1: other}, (0, "all_reduce", 1), (1, "all_gather", 9)),
    )
    found = explained(capsys, *files)
    assert found["suspects"] == [1]
    assert (
        found["summary"]
        == "rank 1 has not entered all_gather 8 of group of ranks 0, 1, where 1 rank waits"
    )
    assert found["entries_skipped"] == 0


def test_messages_in_dumps_of_torch_2_3_are_of_their_own_groups(tmp_path, capsys):
    groups = {0: [0, 1], 1: [0, 1]}
    files = written(
        tmp_path,
        of_torch_2_3(0, groups, (0, "all_reduce", 1), (1, "coalesced", 1), (1, "recv 0<-1", 2)),
        of_torch_2_3(1, groups, (0, "all_reduce", 1)),
    )
    assert explained(capsys, *files)["suspects"] == [1]
    mixed = written(tmp_path, of_torch_2_3(0, groups, (0, "all_reduce", 1), (0, "send 0->1", 2)))
    assert cli.main(["explain", "flight-recorder", *mixed]) == 1
    assert "numbers messages and collectives of a group together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"version": "1.1"}, "version '1.1', expected 2.x"),
        ({"pg_config": [7]}, "version 1.4 lacks or garbles"),
        ({"pg_config": {0: ["0"]}}, "garbles a number that is none"),
        ({"pg_config": dict.fromkeys(range(5), [0] * 1_000_000)}, "there are too many"),
        ({"entries": [{"pg_id": 0}]}, "version 1.4 lacks or garbles 'profiling_name'"),
    ],
)
def test_other_early_dumps_are_refused_with_what_was_expected(tmp_path, capsys, changed, why):
    name, body = of_torch_2_3(0, {0: [0]}, (0, "all_reduce", 1))
    (path,) = written(tmp_path, (name, pickle.dumps(pickle.loads(body) | changed, protocol=2)))
    assert cli.main(["explain", "flight-recorder", path]) == 1
    assert why in capsys.readouterr().err


def test_where_nobody_waits_nothing_is_said(tmp_path, capsys):
    (tmp_path / "trace_0.json").write_bytes(dump(entry(1, AT)))
    found = explained(capsys, str(tmp_path / "trace_0.json"))
    assert (found["suspects"], found["summary"]) == ([], "")


class Attack:
    def __reduce__(self):
        return print, ("never",)


LARGE = b"".join([gzip.compress(bytes(1 << 20))] * 200)
"""What unpacks to 200 MiB: gzip's format lets members follow each other."""


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("trace_0", b"nonsense", "no Flight Recorder dump"),
        ("trace_0", pickle.dumps(Attack()), "the pickle was refused"),
        ("trace_0", dump(version="3.0"), "'3.0', expected 2.x (PyTorch 2.4 and"),
        ("trace", dump(), "does not end in its rank"),
        ("trace_9999999", dump(), "does not end in its rank"),
        ("trace_1795000000", dump(), "does not end in its rank"),
        ("trace_0", dump(entry(1, AT))[:-40], "neither a pickle nor JSON"),
        (
            "trace_0",
            pickle.dumps(json.loads(dump(entry(1, AT))))[:-40],
            "the pickle was refused",
        ),
        ("trace_0", LARGE, "no dump is so large"),
    ],
)
def test_what_is_no_dump_is_refused_in_one_sentence(tmp_path, capsys, name, body, why):
    (tmp_path / name).write_bytes(body)
    assert cli.main(["explain", "flight-recorder", str(tmp_path / name)]) == 1
    captured = capsys.readouterr()
    assert why in captured.err
    assert "never" not in captured.out


def test_a_file_of_two_gigabytes_is_refused_before_it_is_read_whole(tmp_path, capsys):
    with (tmp_path / "trace_0").open("wb") as sink:
        sink.truncate(2 << 30)
    tracemalloc.start()
    assert cli.main(["explain", "flight-recorder", str(tmp_path / "trace_0")]) == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "more than 64 MiB" in capsys.readouterr().err
    assert peak < 256 << 20


def test_hostile_names_do_not_reach_the_terminal(tmp_path, capsys):
    path = tmp_path / "x\x1b]0;owned\x07 \u202e_0"
    path.write_bytes(b"nonsense")
    assert cli.main(["explain", "flight-recorder", str(path)]) == 1
    captured = capsys.readouterr()
    assert "\x1b" not in captured.err
    assert "\u202e" not in captured.err
    hostile = json.loads(dump(entry(1, AT), entry(2, AT, retired=False)))
    for one in hostile["entries"]:
        one["process_group"] = [one["process_group"][0], "<script>\x1b[2J\u202e"]
    (tmp_path / "y_1").write_text(json.dumps(hostile))
    assert cli.main(["explain", "flight-recorder", str(tmp_path / "y_1")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize(
    "name",
    ["fr.v2.rank_{0}", "job.12.trace_{0}", "rank_{0}_node12", "{0}", "fr_{0}.json", "t{0}x.p2"],
)
def test_a_rank_is_read_from_the_names_that_people_give(tmp_path, capsys, name):
    files = []
    for rank in (3, 14):
        files.append(tmp_path / name.format(rank))
        files[-1].write_bytes(dump(entry(1, AT)))
    assert explained(capsys, *map(str, files))["ranks"] == [3, 14]


def test_two_dumps_of_one_rank_are_refused(tmp_path, capsys):
    for name in ("a_1", "b_1"):
        (tmp_path / name).write_bytes(dump())
    files = [str(tmp_path / "a_1"), str(tmp_path / "b_1")]
    assert cli.main(["explain", "flight-recorder", *files]) == 1
    assert "two dumps of rank 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rank", "why"), [(199_999, "no Flight Recorder dump"), (200_000, "does not end in its rank")]
)
def test_a_number_from_200_000_on_is_no_rank(tmp_path, capsys, rank, why):
    path = tmp_path / f"nccl_trace_rank_{rank}"
    path.touch()
    assert cli.main(["explain", "flight-recorder", str(path)]) == 1
    assert why in capsys.readouterr().err
