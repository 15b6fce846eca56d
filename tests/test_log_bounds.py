"""The last that is still taken and the first that is not, of each limit on what logs say."""

from __future__ import annotations

import json

import pytest

from rankscope_agent.contract.failures import error_files, summaries, tracebacks
from rankscope_agent.contract.kernel.host_incidents import _is_bring_up
from rankscope_agent.contract.kernel.log import read
from rankscope_agent.contract.log_text.framing import Unframer
from rankscope_agent.contract.log_text.prefixes import split
from rankscope_agent.contract.nccl import job_size
from rankscope_agent.contract.nccl.facts import Facts, Limits, Process
from rankscope_agent.contract.nccl.signs import read_environment
from rankscope_agent.contract.nccl.writers import Writers
from rankscope_analyzers.logs import nccl_findings


@pytest.mark.parametrize(("size", "known"), [(4 << 20, True), ((4 << 20) + 1, False)])
def test_an_error_file_has_four_mebibytes_at_most(size, known):
    extra = {"py_callstack": "Traceback", "timestamp": "1"}
    text = json.dumps({"message": {"message": "ValueError: x", "extraInfo": extra}}).encode()
    assert (error_files.parse(text.ljust(size)) is not None) is known


def framed(frames):
    lines = ["Traceback (most recent call last):"]
    lines += ['  File "a.py", line 1, in f'] * frames
    return [*lines, "ValueError: x"]


@pytest.mark.parametrize(("frames", "known"), [(3999, True), (4000, False)])
def test_a_traceback_has_4000_lines_at_most(frames, known):
    found = tracebacks.read(framed(frames))
    assert (found is not None and "ValueError" in str(found)) is known


def test_4000_lines_are_kept_of_a_rank_in_torchruns_table():
    entry = summaries.RankEnd.__new__(summaries.RankEnd)
    entry.lines = ["first"]
    for _ in range(4100):
        summaries._take(entry, "  line")
    assert len(entry.lines) == 4000


@pytest.mark.parametrize(
    ("down", "up", "brought_up"),
    [
        (10.0, 300.0, True),
        (10.0, 301.0, False),
        (2e9 + 10.0, 2e9 + 300.0, True),
        (2e9 + 10.0, 2e9 + 301.0, False),
        (1e9 - 10.0, 1e9 + 10.0, False),
    ],
)
def test_links_may_go_down_and_up_in_a_boots_first_five_minutes(down, up, brought_up):
    assert _is_bring_up(down, up) is brought_up


def test_400_characters_are_kept_of_a_kernels_message():
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=71, name=a, " + "x" * 1000
    assert len(read(line.encode()).text) == 400


def test_64_settings_of_a_process_are_kept_with_200_characters_each():
    process = Process("gpu-00", 7)
    for number in range(65):
        read_environment(process, f"NCCL_X{number} set by environment to {'v' * 300}")
    assert len(process.environment) == 64
    assert {len(value) for value in process.environment.values()} == {200}


def test_400_characters_are_kept_of_a_warning():
    facts = Facts()
    facts.warn("code", "x" * 500, Limits())
    assert len(facts.warnings["code"].example) == 400


@pytest.mark.parametrize(("stated", "size"), [(1 << 20, 1 << 20), ((1 << 20) + 1, 0)])
def test_a_job_has_2_to_the_20_ranks_at_most(stated, size):
    assert job_size.world_size(f"world_size={stated}\n".encode()) == size


@pytest.mark.parametrize(("between", "size"), [(586, 64), (800, 0), (1300, 0)])
def test_flags_of_nodes_and_processes_stand_near_each_other(between, size):
    text = f"--nnodes=8{' ' * between}--nproc_per_node=8\n"
    assert job_size.world_size(text.encode()) == size


def test_only_flags_near_each_other_are_multiplied():
    text = "--nnodes=8 --nproc_per_node=8\n".ljust(1300) * 200
    assert list(job_size._products(text.encode())) == [64] * 200


@pytest.mark.parametrize(("before", "size"), [(999, 16), (1000, 0)])
def test_processes_of_a_node_are_looked_for_1000_times(before, size):
    text = "--num_gpus=4 " * before + "--num_gpus=8 --nnodes=2\n"
    assert max(job_size._products(text.encode()), default=0) == (size or 8)


@pytest.mark.parametrize(("before", "size"), [(999, 16), (1000, 0)])
def test_a_word_is_looked_for_1000_times(before, size):
    text = "world_size=x " * before + "world_size=16\n"
    assert job_size.world_size(text.encode()) == size


def test_the_end_of_a_thread_name_has_320_bytes(monkeypatch):
    searched = []
    monkeypatch.setattr(
        "rankscope_agent.contract.nccl.writers.MPI_TAG",
        type("Pattern", (), {"search": staticmethod(lambda text: searched.append(len(text)))}),
    )
    writers = Writers.__new__(Writers)
    writers._facts, writers.limits, writers.threads = Facts(), Limits(), {}
    writers.process = lambda host, pid: Process(host, pid)
    writers._add = lambda token, process: process
    writers.thread(b"x" * 400, torn=False)
    assert searched == [320]


@pytest.mark.parametrize(("ranks", "absent"), [(1000, 999), (1025, 1024), (5000, 1024)])
def test_1024_ranks_that_are_not_there_are_named(ranks, absent):
    assert len(nccl_findings._absent([0], ranks)) == absent


@pytest.mark.parametrize(("size", "oversized"), [((1 << 20) - 1, 0), (1 << 20, 1)])
def test_a_mebibyte_is_kept_of_a_line_without_an_end(size, oversized):
    framing = Unframer()
    assert len(framing.feed(b"x" * size)) == size * oversized
    assert framing.oversized == oversized


@pytest.mark.parametrize(("tags", "begins"), [(8, True), (9, False)])
def test_eight_prefixes_are_taken_off_a_line(tags, begins):
    _, words = split(b"[rank7]: " * tags + b"words")
    assert (words == b"words") is begins
