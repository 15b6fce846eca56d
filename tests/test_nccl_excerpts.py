"""NCCL logs as people paste them: without heads, in excerpts, with launchers' and others' words."""

from __future__ import annotations

import json

import pytest

from nccl_job_text import COMM_ID, comm, edge, facts_of, info, start, verdict_of
from rankscope_agent.contract.nccl.facts import Transport
from rankscope_agent.contract.nccl.job_size import world_size
from rankscope_analyzers import cli
from rankscope_analyzers.logs.nccl_findings import findings

OPENING_BYTES = 256 << 10


@pytest.mark.parametrize(
    ("line", "transports", "gdr"),
    [
        ("0 : NET/IB/0/GDRDMA [receive] via NET/IB/0/GDRDMA [send]", ("NET/IB",), True),
        ("0 : NET/IB/1 [receive] via NET/IB/0 [send]", ("NET/IB",), False),
        ("3[3] -> 0[0] [send] via NET/IB/0/GDRDMA", ("NET/IB",), True),
        ("00 : 3[3] -> 0[0] [receive] via NET/Socket/0", ("NET/Socket",), False),
        ("1 -> 0 via P2P/IPC", (), None),
        ("[send] via NET/Socket/0", ("NET/Socket",), False),
        ("[receive] via NET/IB/2/GDRDMA", ("NET/IB",), True),
    ],
)
def test_connections_without_a_channels_head_prove_their_transport(line, transports, gdr):
    verdict = verdict_of(info(0, line))
    assert (verdict.network.transports, verdict.network.gdr) == (transports, gdr)
    assert facts_of(info(0, line)).unparsed == 0


@pytest.mark.parametrize("quote", ["", "`", "*", "\\n'", '"', '","x"', "</code>", ")"])
def test_what_quotes_a_line_is_no_part_of_it(quote):
    lines = [edge(3, 4, "NET/Socket/0"), edge(1, 2, "SHM/direct/direct"), "Using network Socket"]
    verdict = verdict_of("".join(f"`{info(0, line).rstrip()}{quote}\n" for line in lines))
    assert (verdict.network.transports, verdict.net_selected) == (("NET/Socket",), "Socket")
    assert {t.name for t in verdict.connections} == {"NET/Socket", "SHM/direct/direct"}


def test_connections_without_ranks_count_by_direction():
    facts = facts_of(info(0, "0 : NET/IB/0/GDRDMA [receive] via NET/IB/0/GDRDMA [send]") * 2)
    assert facts.headless == {
        Transport("NET/IB", True, "receive"): 2,
        Transport("NET/IB", True, "send"): 2,
    }


RAS = """
Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         2         4         8        32        64   RUNNING      OK
    1         1         1         2         2         2      INIT  MISMATCH
"""

SIZES = {
    "init: rank=0, world_size=16, backend=nccl": 16,
    "> using world size: 24, data-parallel-size: 6": 24,
    "export WORLD_SIZE=8": 8,
    "      WORLD_SIZE:         32\n      RANK:               0": 32,
    "{'rank': 1, 'world_size': 4}": 4,
    "Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 12 nodes.": 12,
    "Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/6": 6,
    "$ ./all_reduce --nranks 2 --size 8M": 2,
    "+ mpirun --allow-run-as-root -np 16 -H a:8,b:8 ./all_reduce_perf -b 8": 16,
    "$ mpirun -np 24 --hostfile hosts python train.py": 24,
    "+ mpiexec.hydra -ppn 8 -n 32 ./train": 32,
    "srun -N 4 -n 32 python train.py": 32,
    "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d train.py": 16,
    "torchrun \\\n  --nproc-per-node 4 \\\n  --nnodes 3 \\\n  train.py": 12,
    "model='m', tensor_parallel_size=4, pipeline_parallel_size=2, dtype=x": 8,
    "#  Rank  0 Group  0 Pid  25 on  gpu-00 device  0 [0x10] X\n"
    "#  Rank  3 Group  0 Pid  28 on  gpu-00 device  3 [0x20] X": 4,
    "[INFO] [launch.py:164:main] dist_world_size=8": 8,
    "Namespace(distributed_world_size=24, device_id=0)": 24,
    "accelerate launch --num_processes=16 --num_machines 2 train.py": 16,
    "Distributed environment: MULTI_GPU  Backend: nccl\nNum processes: 8\nProcess index: 3": 8,
    "(TrainTrainable pid=9) - (node_id=aa, ip=10.0.0.4, pid=51) world_rank=0, local_rank=0\n"
    "(TrainTrainable pid=9) - (node_id=bb, ip=10.0.0.5, pid=52) world_rank=3, local_rank=1": 4,
    RAS: 32,
}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_the_size_is_taken_from_others_where_nccl_does_not_print_it(text, size):
    assert world_size(text.encode()) == size
    verdict = verdict_of(f"{text}\n{info(0, 'Using network IB')}")
    assert (verdict.nranks, verdict.nranks_from, verdict.world_size) == (size, "others", size)


@pytest.mark.parametrize(
    "text",
    [
        "local_world_size=8 tp_world_size=4 LOCAL_WORLD_SIZE=8 local world size: 8",
        "a checkpoint of a DP world size of 16",
        "torchrun --nnodes=1:4 --nproc_per_node=8 train.py",
        "world_size=99999999",
        "mpirun --version; step 3 of 16; rank 3 of the job",
    ],
)
def test_sizes_of_parts_and_ranges_are_not_the_jobs(text):
    assert world_size(text.encode()) == 0


def test_nccls_own_word_goes_before_that_of_others():
    verdict = verdict_of("world_size=16\n" + start(0, 4, "NET/IB/0"))
    assert (verdict.nranks, verdict.nranks_from, verdict.world_size) == (4, "communicator", 16)
    calls = "AllReduce: opCount 0 sendbuff 0x1 count 4 comm 0x5 [nranks=8] stream 0x7"
    assert verdict_of("world_size=16\n" + info(0, calls)).nranks == 8


def test_the_size_of_a_process_group_is_that_of_a_communicator():
    options = "[Rank 3] ProcessGroupNCCL initialization options: size: 16, global rank: 3, TIMEOUT"
    verdict = verdict_of(f"{options}\n{info(3, edge(3, 11, 'NET/IB/3'))}")
    assert (verdict.nranks, verdict.nranks_from) == (16, "others")


def test_the_hosts_of_all_ranks_are_its_nodes_where_nccl_does_not_count_them():
    whole = "".join(info(rank, comm(rank, 16, "START")) for rank in range(16))
    part = "".join(info(rank, comm(rank, 16, "START")) for rank in range(15))
    assert [c.communicator.nodes_seen for c in verdict_of(whole).communicators] == [2]
    assert [c.communicator.nodes_seen for c in verdict_of(part).communicators] == [None]


def test_only_the_beginning_of_a_log_is_searched_for_a_size():
    filler = "step 3 loss 2.5\n" * (OPENING_BYTES // 16 + 1)
    assert verdict_of(filler + "world_size=16\n").world_size is None


def ring(ranks: range, via: str, **where: str) -> str:
    size = len(ranks)
    return "".join(info(rank, edge(rank, (rank + 1) % size, via), **where) for rank in ranks)


def test_a_ring_that_closes_through_shared_memory_needs_no_network():
    text = info(0, "Using network Socket") + ring(range(2), "SHM/direct/direct")
    network = verdict_of(text).network
    assert (network.socket_fallback, network.reason) == (False, "local_only")


@pytest.mark.parametrize(
    "text",
    [
        ring(range(2), "SHM/direct/direct") + "world_size=16\n",
        ring(range(2), "SHM/direct/direct") + info(9, "Using network Socket"),
        info(0, edge(0, 1, "SHM/direct/direct")),
        ring(range(2), "SHM/direct/direct") + info(0, comm(0, 4, "START")),
    ],
    ids=["a larger job", "another host", "one way only", "a larger communicator"],
)
def test_a_part_of_a_job_that_stays_on_its_node_proves_nothing(text):
    assert verdict_of(text).network.socket_fallback is None


def test_a_communicator_of_one_process_is_on_one_node():
    line = comm(0, 3, "START").replace("ncclCommInitRank", "ncclCommInitAll")
    network = verdict_of(info(0, "Using network Socket") + info(0, line)).network
    assert (network.socket_fallback, network.reason) == (False, "single_node")


@pytest.mark.parametrize(
    ("version", "network"), [("2.4.8", "Socket"), ("2.28.9", None), ("", "Socket")]
)
def test_old_nccl_names_its_network_by_its_interface_alone(version, network):
    line = info(0, "NET/Socket : Using [0]eth0:10.0.0.5<0>")
    text = f"NCCL version {version}+cuda12.4\n{line}" if version else line
    assert verdict_of(text).net_selected == network
    both = line + info(0, "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.5<0>")
    assert verdict_of(both).net_selected == "IB"


def summaries(text: str) -> list[str]:
    facts = facts_of(text)
    return [f.summary for f in findings(facts, verdict_of(text)) if f.kind == "channels_differ"]


OLD = "comm 0x55{rank:04x}0 rank {rank} nranks 4 cudaDev {rank} busId 1a000 - Init COMPLETE"


def test_channels_of_nccl_before_2_18_are_compared_over_ranks():
    lines = [
        info(rank, f"{2 if rank == 3 else 24} coll channels, 32 p2p channels")
        + info(rank, OLD.format(rank=rank))
        for rank in range(4)
    ]
    (said,) = summaries("".join(lines))
    assert said == "rank 3: channels 2, most have 24"
    alike = "".join(line.replace("2 coll", "24 coll").replace("224", "24") for line in lines)
    assert summaries(alike) == []


def test_channels_are_compared_where_no_communicator_is_shown():
    text = "".join(
        info(rank, f"{'2' if rank == 9 else '16'} coll channels, 0 nvls channels")
        for rank in (0, 1, 8, 9)
    )
    assert summaries(text) == ["processes have 2 channels, most have 16"]
    assert summaries(text.replace("2 coll", "16 coll")) == []


def test_using_channels_is_read():
    text = info(0, comm(0, 2, "START")) + info(0, "Using 12 channels per peer")
    (communicator,) = verdict_of(text).communicators
    assert communicator.communicator.channels == (12,)


def explained(capsys, path) -> dict[str, object]:
    assert cli.main(["explain", "nccl-log", "--json", str(path)]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_log_of_the_info_level_is_not_told_to_use_it(tmp_path, capsys):
    path = tmp_path / "nccl.log"
    path.write_text(info(0, "Setting affinity for GPU 0 to ff"))
    assert "NCCL_DEBUG=INFO" not in explained(capsys, path)["verdict"]
    path.write_text("gpu-00:1:2 [0] misc/socket.cc:50 NCCL WARN Connect to 10.0.0.1<3> failed\n")
    assert "NCCL_DEBUG=INFO" in explained(capsys, path)["verdict"]


def test_lines_whose_beginning_was_cut_off_are_read(tmp_path, capsys):
    path = tmp_path / "nccl.log"
    path.write_text(
        "# P2P over NVLink\nChannel 00/0 : 2[2] -> 1[1] via P2P/CUMEM\n"
        "> Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA\nUsing network IB\n"
    )
    said = explained(capsys, path)
    assert (said["net_selected"], said["inter_node_transports"], said["gdr"]) == (
        "IB",
        ["NET/IB"],
        True,
    )


def test_a_log_cut_at_both_ends_keeps_what_is_whole():
    text = start(7, 16, "NET/IB/0/GDRDMA") + start(15, 16, "NET/IB/0/GDRDMA")
    cut = text[25:-25]
    verdict = verdict_of(cut.encode())
    assert (verdict.nranks, verdict.network.socket_fallback, verdict.network.gdr) == (
        16,
        False,
        True,
    )


def test_ten_thousand_interleaved_ranks_of_two_jobs_in_one_file():
    first = [start(rank, 8192, "NET/IB/0/GDRDMA").splitlines() for rank in range(0, 8192, 2)]
    second = [
        start(rank, 2048, "NET/Socket/0", network="Socket")
        .replace("gpu-", "other-")
        .replace("0x1d2c", "0x9e9e")
        .splitlines()
        for rank in range(0, 2048, 2)
    ]
    starts = first + second
    text = "".join(
        f"{lines[step]}\n" for step in range(len(starts[0])) for lines in starts if lines
    )
    verdict = verdict_of(text)
    sizes = {c.communicator.nranks: c.network.socket_fallback for c in verdict.communicators}
    assert sizes == {8192: False, 2048: True}
    assert verdict.network.socket_fallback is True


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_logs_in_other_encodings_are_read(encoding, tmp_path, capsys):
    path = tmp_path / "nccl.log"
    path.write_bytes(("\r\n".join(start(7, 16, "NET/IB/0").splitlines()) + "\r\n").encode(encoding))
    assert explained(capsys, path)["nranks"] == 16


TABLE = "#  Rank  {rank} Group  0 Pid   5425 on   {host} device  {rank} [0x01] NVIDIA RTX 4090\n"
SOCKETS = "".join(info(0, text) for text in ("NET/IB : No device found.", "Using network Socket"))


def table(*hosts: str) -> str:
    return "".join(TABLE.format(rank=rank, host=host) for rank, host in enumerate(hosts))


def test_a_benchmark_on_one_host_needs_no_network():
    verdict = verdict_of(table("gpu-00", "gpu-00", "gpu-00") + SOCKETS)
    assert (verdict.network.socket_fallback, verdict.network.reason) == (False, "single_node")
    assert verdict.nranks == 3


@pytest.mark.parametrize(
    "log",
    [
        table("gpu-00", "gpu-01") + SOCKETS,
        table("gpu-00") + SOCKETS,
        table("gpu-00", "gpu-00").replace("Rank  0", "Rank  2") + SOCKETS,
        table("gpu-00", "gpu-00") + SOCKETS + info(9, "Using network Socket"),
    ],
    ids=["two hosts", "one rank", "a rank is missing", "another host speaks"],
)
def test_a_table_that_does_not_prove_one_host_leaves_it_open(log):
    assert verdict_of(log).network.socket_fallback is None


def test_a_benchmark_on_one_host_that_used_sockets_did():
    log = table("gpu-00", "gpu-00") + info(0, "Channel 00 : 0[0] -> 1[1] [send] via NET/Socket/0")
    assert verdict_of(log).network.socket_fallback is True


def test_old_nccl_says_a_ranks_size_without_its_communicator():
    assert verdict_of(info(0, "rank 0 nranks 4")).nranks == 4


def test_an_excerpt_without_a_communicator_shows_its_connections_and_channels(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(
        info(0, edge(0, 1, "SHM/direct/direct"))
        + info(1, "16 coll channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer")
        + info(2, "0 : NET/IB/0/GDRDMA [receive] via NET/IB/0/GDRDMA [send]")
    )
    assert cli.main(["explain", "nccl-log", str(log), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["communicators"] == []
    assert said["coll_channels"] == [16]
    assert said["connections"] == {
        "SHM/direct/direct": 1,
        "NET/IB/GDRDMA receive": 1,
        "NET/IB/GDRDMA send": 1,
    }


@pytest.mark.parametrize("last", ["nranks 1", "nranks 16", "commId 0x1d", f"commId {COMM_ID}"])
def test_a_log_that_ends_within_a_number_makes_no_other_communicator(last):
    line = info(3, comm(3, 16, "START"))
    end = line[: line.index(last) + len(last)]
    verdict = verdict_of(start(0, 16, "NET/IB/0") + end)
    assert [(c.communicator.name, c.communicator.nranks) for c in verdict.communicators] == [
        (COMM_ID, 16)
    ]
