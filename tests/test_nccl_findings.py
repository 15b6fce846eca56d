"""What the comparison of ranks finds, and what it does not blame."""

from __future__ import annotations

import pytest

from nccl_job_text import comm, edge, facts_of, info, start
from rankscope_agent.contract.nccl.verdict import judge
from rankscope_analyzers.findings.finding import Finding
from rankscope_analyzers.logs.nccl_findings import findings


def found(text: str) -> dict[str, Finding]:
    facts = facts_of(text)
    return {finding.kind: finding for finding in findings(facts, judge(facts))}


def healthy(nranks: int = 16) -> str:
    starts = (start(rank, nranks, "NET/IB/0/GDRDMA") for rank in range(nranks))
    return "".join(starts)


def test_a_healthy_job_has_no_findings():
    assert found(healthy()) == {}
    assert found(start(0, 16, "NET/IB/0/GDRDMA")) == {}  # one pod's log of a larger job


def test_a_fallback_comes_first_and_says_why():
    finding = found(start(7, 16, "NET/Socket/0", extra=("NET/IB : No device found.",)))
    assert next(iter(finding)) == "socket_fallback"
    assert "sees no RDMA device" in finding["socket_fallback"].summary
    assert finding["socket_fallback"].where.nodes == ("gpu-00",)


def test_a_rank_without_gpudirect_among_others_is_named():
    text = healthy(15).replace("nranks 15", "nranks 16") + start(15, 16, "NET/IB/0")
    finding = found(text)["gdr_missing"]
    assert (finding.where.ranks, finding.where.nodes) == ((15,), ("gpu-01",))


def test_a_job_in_which_nobody_has_gpudirect_is_none_of_its_ranks_fault():
    assert "gdr_missing" not in found("".join(start(r, 4, "NET/IB/0") for r in range(4)))


def test_a_rank_claimed_twice_is_found_with_its_hosts():
    text = start(3, 4, "NET/IB/0") + start(3, 4, "NET/IB/0").replace("gpu-00:4003", "gpu-09:4003")
    finding = found(text)["duplicate_rank"]
    assert (finding.where.ranks, finding.where.nodes) == ((3,), ("gpu-00", "gpu-09"))


def test_a_world_size_that_disagrees_is_found():
    text = healthy(8) + start(8, 9, "NET/IB/0/GDRDMA")
    assert found(text)["world_size_disagrees"].where.ranks == (8,)


def test_a_rank_on_another_network_or_with_fewer_channels_is_named():
    slow = start(9, 16, "NET/IB/0/GDRDMA").replace("network IB", "network Socket")
    slow = slow.replace("16 coll channels", "2 coll channels")
    others = "".join(start(r, 16, "NET/IB/0/GDRDMA") for r in range(16) if r != 9)
    result = found(others + slow)
    assert result["network_differs"].where.ranks == result["channels_differ"].where.ranks == (9,)
    assert "most have IB" in result["network_differs"].summary


def test_a_start_that_does_not_end_names_who_hangs_and_who_never_began():
    text = "".join(info(rank, comm(rank, 16, "START")) for rank in range(16) if rank not in {4, 11})
    result = found(text)
    assert len(result["init_incomplete"].where.ranks) == 14
    assert result["missing_rank"].where.ranks == (4, 11)


def test_ranks_whose_logs_are_not_there_are_not_missing():
    text = info(0, comm(0, 16, "START")) + info(0, comm(0, 16, "COMPLETE"))
    assert found(text) == {}


def test_shared_memory_is_degraded_only_beside_hosts_that_do_without():
    shared = "".join(start(rank, 16, "SHM/direct/direct") for rank in range(8))
    direct = "".join(start(rank, 16, "P2P/CUMEM") for rank in range(8, 16))
    assert "intra_node_degraded" not in found(shared)
    finding = found(shared + direct)["intra_node_degraded"]
    assert finding.where.nodes == ("gpu-00",)


SWITCH = "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)"


@pytest.mark.parametrize(
    ("extra", "said"),
    [((), "SHM"), (("NCCL_P2P_DISABLE set by environment to 1.",), "switched off")],
)
def test_shared_memory_where_there_is_nvswitch_is_degraded_on_all_hosts(extra, said):
    text = "".join(start(rank, 8, "SHM/direct/direct", extra=(SWITCH, *extra)) for rank in range(8))
    assert said in found(text)["intra_node_degraded"].summary
    plain = "".join(start(rank, 8, "SHM/direct/direct") for rank in range(8))
    assert not found(plain)


def test_versions_that_differ_name_the_rare_one():
    text = "".join(
        info(r, f"NCCL version 2.{27 if r < 16 else 20}.3+cuda12.9")
        + info(r, edge(r, r + 1, "P2P/IPC"))
        for r in range(24)
    )
    finding = found(text)["version_differs"]
    assert finding.where.nodes == ("gpu-02",)
