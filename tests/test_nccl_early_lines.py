"""What NCCL up to 2.3 says, and what others say of NCCL."""

from __future__ import annotations

import tracemalloc

import pytest

from nccl_job_text import edge, info, verdict_of
from rankscope_analyzers.logs import nccl_explanation


def member(rank: int, size: int, host: str) -> str:
    return info(rank, f"comm 0x7f12{rank:04x}0 rank {rank} nranks {size}", host=host)


def test_a_communicator_without_an_event_says_its_size():
    verdict = verdict_of(member(3, 4, "a") + member(1, 4, "b"))
    assert (verdict.nranks, verdict.network.socket_fallback) == (4, None)


def test_all_ranks_on_one_host_need_no_network():
    text = "".join(member(rank, 4, "a") for rank in range(4))
    assert verdict_of(text).network.socket_fallback is False


def test_ranks_without_a_communicator_on_one_host_need_no_network():
    text = "".join(info(rank, f"rank {rank} nranks 4", host="a") for rank in range(4))
    assert verdict_of(text).network.socket_fallback is False


@pytest.mark.parametrize(
    "text",
    [
        "".join(member(rank, 4, "a") for rank in range(3)),
        "".join(member(rank, 4, "ab"[rank % 2]) for rank in range(4)),
        "".join(member(rank, 4, "a") for rank in range(4)) + member(9, 16, "a"),
        "".join(member(rank, 4, "a") for rank in range(4)) + info(1, "Using network IB", host="b"),
    ],
)
def test_some_ranks_or_several_hosts_do_not_tell(text):
    assert verdict_of(text).network.socket_fallback is None


@pytest.mark.parametrize(
    "text", [member(0, 1 << 20, "a"), info(0, edge((1 << 20) - 2, (1 << 20) - 1, "P2P/IPC"))]
)
def test_a_rank_of_a_million_in_one_line_takes_no_memory(text):
    verdict_of(text)  # compiles the patterns
    tracemalloc.start()
    try:
        assert verdict_of(text).network.socket_fallback is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_line_that_was_cut_off_names_no_size_of_its_own():
    assert (
        verdict_of(info(0, "comm 0x7f120 rank 0 nranks 4 cudaDev 0 busId 1a0 - Init")).nranks == 4
    )
    assert verdict_of(info(0, "comm 0x7f120 rank 0 nranks ")).nranks is None


EARLY = """\
gpu-0:18553:18553 [0] INFO NET : Using interface eth0:10.0.0.1<0>
gpu-0:18553:18553 [0] INFO Using internal Network Socket
NCCL version 2.2.13+cuda9.0
gpu-0:18553:18612 [0] INFO comm 0x7fa42c00a3b0 rank 0 nranks 2
gpu-0:18553:18611 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out
gpu-0:18553:18611 [0] INFO transport/net_socket.cu:118 -> 2
gpu-0:18553:18611 [0] INFO bootstrap.cu:28 -> 2 [Net]
"""


def test_lines_without_nccls_name_are_read(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(EARLY)
    explained = nccl_explanation.NcclExplanation([str(log)]).as_object()
    assert (explained["nranks"], explained["net_selected"]) == (2, "Socket")
    assert explained["warnings"]
    # the bootstrap went through that file
    assert (explained["socket_fallback"], explained["inter_node_transports"]) == (None, [])


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("INFO 06-12 13:10:35 utils.py:623] vLLM is using nccl==2.20.5\n", "2.20.5"),
        ("sglang is using nccl==2.21.5\nNCCL version 2.20.3+cuda12.2\n", "2.20.3+cuda12.2"),
        ("nvidia-nccl-cu12==2.19.3\n", None),
    ],
)
def test_the_version_is_that_of_the_library_in_use(text, version):
    assert verdict_of(text).nccl_version == version


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("Initializing an LLM engine with config: model='m', tensor_parallel_size=4, seed=0\n", 4),
        (
            "LLM engine (v0.6) with config: tensor_parallel_size\n=4, pipeline_parallel_size=2\n",
            8,
        ),
        ("rollout: tensor_parallel_size=2\n", None),
    ],
)
def test_an_engine_says_its_ranks(text, ranks):
    assert verdict_of(text).nranks == ranks
