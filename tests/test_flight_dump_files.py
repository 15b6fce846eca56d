"""Dumps of a Flight Recorder as files: real ones in both forms, and false ones."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

from rankscope_agent.contract.flight_dump import DumpError, Frame, read
from rankscope_agent.contract.untrusted_pickle import loads

MAX_FRAMES = 64
JOB = """
import json, sys, time
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as recorder
store = "file://" + sys.argv[1] + "/store"
dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
for count in range(5):
    dist.all_reduce(torch.ones(4, 2))
group = dist.new_group([0])
dist.all_gather([torch.ones(3)], torch.ones(3), group=group)
for _ in range(200):  # gloo's threads retire the last one when they come to it
    if all(one["retired"] for one in json.loads(recorder._dump_fr_trace_json())["entries"]):
        break
    time.sleep(0.05)
open(sys.argv[1] + "/pickle", "wb").write(recorder._dump_fr_trace())
open(sys.argv[1] + "/json", "wb").write(recorder._dump_fr_trace_json())
time.sleep(0.1)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def dumps(bare_nursery, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flight")
    (folder / "job.py").write_text(JOB)
    command = [str(folder / "job.py"), str(folder)]
    done = bare_nursery.end_of([bare_nursery.start(command, {"TORCH_FR_BUFFER_SIZE": "100"})])
    assert [one.code for one in done] == [0], done
    return {name: (folder / name).read_bytes() for name in ("pickle", "json")}


def test_a_real_pickle_is_read_as_pickle_reads_it(dumps):
    assert loads(dumps["pickle"]) == pickle.loads(dumps["pickle"])


def test_both_forms_of_a_real_dump_say_the_same_but_for_the_stacks(dumps):
    by_pickle, by_json = read(dumps["pickle"]), read(dumps["json"])
    assert by_pickle.skipped == by_json.skipped == 0
    assert len(by_pickle.entries) == 6
    bare = [replace(entry, frames=()) for entry in by_pickle.entries]
    assert bare == [replace(entry, frames=()) for entry in by_json.entries]
    assert by_pickle.version == by_json.version


def test_a_real_dump_says_what_ran(dumps):
    dump = read(dumps["pickle"])
    first, last = dump.entries[0], dump.entries[-1]
    assert (first.group, first.description, first.operation) == (
        "0",
        "default_pg",
        "gloo:all_reduce",
    )
    assert [entry.sequence for entry in dump.entries] == [1, 2, 3, 4, 5, 1]
    assert first.input_sizes == ((4, 2),)
    assert (last.operation, last.input_sizes) == ("gloo:all_gather", ((3,),))
    assert any(
        frame.function == "<module>" and frame.file.endswith("job.py") for frame in first.frames
    )
    assert not first.is_message


def entry(**changed):
    whole = {
        "record_id": 0,
        "process_group": ("0", "default_pg"),
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "op_id": 9,
        "is_p2p": False,
        "state": "started",
        "time_created_ns": 1_795_272_662_623_976_391,
        "time_discovered_started_ns": 1_795_272_662_700_000_000,
        "time_discovered_completed_ns": None,
        "input_sizes": [[2, 3]],
        "output_sizes": [[2, 3]],
        "input_dtypes": ["BFloat16"],
        "output_dtypes": ["BFloat16"],
        "timeout_ms": 600_000,
        "retired": False,
        "frames": [{"name": "step", "filename": "/app/train.py", "line": 12}],
    }
    return whole | changed


def dumped(*entries, version="2.10", **more):
    return pickle.dumps({"version": version, "entries": list(entries), **more}, 2)


def test_fields_of_nccl_are_read():
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    dump = read(dumped(entry(), pg_config=config))
    (one,) = dump.entries
    assert (one.state, one.sequence, one.operation_id) == ("started", 7, 9)
    assert (one.started_ns, one.completed_ns) == (1_795_272_662_700_000_000, None)
    assert one.frames == (Frame("step", "/app/train.py", 12),)
    assert dump.groups == {"0": (0, 1, 2)}


@pytest.mark.parametrize(
    "changed",
    [
        {"process_group": ("0",)},
        {"process_group": ("\x1b[31m", "x")},
        {"profiling_name": 5},
        {"profiling_name": "x" * 200},
        {"collective_seq_id": -1},
        {"collective_seq_id": True},
        {"time_created_ns": 2**63},
        {"time_created_ns": 1.5},
        {"state": "lost"},
        {"is_p2p": 1},
        {"input_sizes": [["many"]]},
        {"input_sizes": 7},
        {"frames": [{"name": "f"}]},
        {"frames": "main"},
    ],
)
def test_an_entry_that_cannot_be_true_is_skipped_and_counted(changed):
    dump = read(dumped(entry(**changed), entry()))
    assert (len(dump.entries), dump.skipped) == (1, 1)


def test_what_is_no_entry_is_skipped():
    assert read(dumped(None, 5, [], {}, "x")).skipped == 5


def test_stacks_and_their_texts_are_bounded():
    frame = {"name": "f\x1b[2J" + "x" * 5000, "filename": "y" * 5000 + ".py", "line": 1}
    (one,) = read(dumped(entry(frames=[frame] * 500))).entries
    assert len(one.frames) == MAX_FRAMES
    assert len(one.frames[0].function) <= 256
    assert one.frames[0].file.endswith(".py")
    assert "\x1b" not in one.frames[0].function


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "malformed"),
        (b"[1]", "malformed"),
        (b"no dump", "malformed"),
        (b"[" * 100_000, "malformed"),
        (pickle.dumps([1], 2), "malformed"),
        (pickle.dumps({"version": "2.1", "entries": 5}, 2), "malformed"),
        (pickle.dumps({"version": "1.5", "entries": []}, 2), "version"),
        (json.dumps({"version": 2, "entries": []}).encode(), "version"),
        (b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.", "refused_opcode"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "too_large"),
        (dumped(entry())[:-40], "malformed"),
        (b'{"version":"2.1","entries":[' + b"{}," * 3_000_000 + b"{}]}", "too_large"),
    ],
)
def test_what_is_no_dump_is_refused_with_a_reason(body, reason):
    with pytest.raises(DumpError) as caught:
        read(body)
    assert caught.value.reason == reason


def test_a_file_of_gigabytes_is_refused_by_its_size():
    body = memoryview(b"\x80" * (64 << 20))
    with pytest.raises(DumpError, match="67108865 bytes, at most 67108864 are read"):
        read(bytes(body) + b"\x80")
