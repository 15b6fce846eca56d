"""What a log proves about the network, and what it does not."""

from __future__ import annotations

import pytest

from nccl_job_text import comm, edge, info, start, verdict_of

NODES = (
    "comm 0x55{rank:04x}0 rank {rank} nRanks {nranks} nNodes {nodes} localRanks 8 localRank 0"
    " MNNVL {mnnvl}"
)


def described(rank: int, nranks: int, nodes: int, network: str, mnnvl: int = 0) -> str:
    """Return a rank's start of which no connection was printed."""
    line = NODES.format(rank=rank, nranks=nranks, nodes=nodes, mnnvl=mnnvl)
    return "".join(
        info(rank, text)
        for text in (
            f"Using network {network}",
            comm(rank, nranks, "START"),
            line,
            comm(rank, nranks, "COMPLETE"),
        )
    )


def test_a_socket_connection_is_a_fallback():
    network = verdict_of(start(7, 16, "NET/Socket/0", network="Socket")).network
    assert (network.socket_fallback, network.gdr, network.transports) == (
        True,
        False,
        ("NET/Socket",),
    )


def test_a_socket_connection_of_one_rank_among_others_is_a_fallback():
    text = start(7, 16, "NET/IB/0/GDRDMA") + start(15, 16, "NET/Socket/0", network="Socket")
    assert verdict_of(text).network.socket_fallback is True


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("NCCL_NET set by environment to Socket", "forced_by_environment"),
        ("NCCL_IB_DISABLE set by environment to 1.", "forced_by_environment"),
        ("NCCL_IB_DISABLE set by environment to 0.", "unexplained"),
        ("NCCL_NET_PLUGIN set by environment to none", "forced_by_environment"),
        ("NCCL_NET_PLUGIN set by environment to libx.so", "unexplained"),
        ("NET/OFI No eligible providers were found", "plugin_failed"),
        ("Failed to initialize NET plugin Libfabric", "plugin_failed"),
        ("Failed to initialize NET plugin IB", "unexplained"),
        ("NET/IB : No device found.", "no_rdma_device"),
        ("Failed to open libibverbs.so[.1]", "verbs_library_missing"),
    ],
)
def test_a_fallback_has_a_reason(line, reason):
    text = start(7, 16, "NET/Socket/0", network="Socket", extra=(line,))
    assert verdict_of(text).network.reason == reason


def test_adapters_that_the_filter_excludes_are_the_wrong_interface():
    lines = ("NCCL_IB_HCA set to mlx9", "NET/IB : No device found.")
    text = start(7, 16, "NET/Socket/0", network="Socket", extra=lines)
    assert verdict_of(text).network.reason == "wrong_interface"


@pytest.mark.parametrize(
    "text",
    [
        info(0, "Using network Socket"),
        info(0, "NET/Socket : Using [0]eth0:10.0.0.5<0>") + info(0, "Bootstrap : Using eth0:1<0>"),
        "\ngpu-00:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote"
        " peer gpu-01<3>\n",
        "NCCL version 2.20.5+cuda12.4\n",
        "",
        described(0, 16, 2, "IB"),
        described(0, 16, 2, "Socket"),
        start(0, 16, "P2P/IPC", network="Socket"),
    ],
    ids=["network", "bootstrap", "WARN level", "version", "empty", "lazy IB", "lazy Socket", "P2P"],
)
def test_what_a_log_cannot_tell_stays_unknown(text):
    assert verdict_of(text).network.socket_fallback is None
    assert verdict_of(text).network.gdr is None


def test_a_lazy_socket_job_on_several_nodes_says_what_is_probable():
    reason = verdict_of(described(0, 16, 2, "Socket")).network.reason
    assert reason == "socket_selected_no_connection_seen"


@pytest.mark.parametrize(
    "text",
    [
        described(0, 8, 1, "Socket"),
        described(0, 72, 1, "Socket", mnnvl=1),
        "".join(start(rank, 8, "SHM/direct/direct", network="Socket") for rank in range(8)),
        start(0, 2, "P2P/direct pointer", network="Socket")
        + info(1, edge(1, 0, "P2P/direct pointer")),
        described(0, 1, 1, "Socket"),
        start(7, 16, "NET/IB/0"),
        start(7, 16, "NET/AWS Libfabric/0/GDRDMA", network="AWS Libfabric"),
    ],
    ids=["one node", "NVL72", "one host", "all by P2P", "one rank", "IB", "EFA"],
)
def test_a_healthy_job_is_no_fallback(text):
    assert verdict_of(text).network.socket_fallback is False


def test_several_communicators_of_a_size_on_a_node_do_not_make_one_that_is_whole():
    # Before 2.16 no commId tells the ranks of one data-parallel group from those of another.
    old = "comm 0x7f{pid}0 rank {rank} nranks 2 cudaDev 0 busId 1000 - Init COMPLETE"
    text = "".join(
        info(rank, old.format(pid=pid, rank=rank), pid=pid)
        for rank, pid in ((0, 1), (1, 2), (1, 3))
    )
    assert verdict_of(text).network.socket_fallback is None


def test_gpudirect_is_what_connections_say_not_what_devices_can():
    lines = (
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "Connected all rings, use ring PXN 0 GDR 1",
    )
    network = verdict_of(start(7, 16, "NET/IB/0", extra=lines)).network
    assert (network.gdr, network.gdr_missing) == (False, 1)


def test_an_error_of_the_data_path_proves_its_transport():
    line = "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"
    network = verdict_of(f"\na:1:2 [0] transport/net_ib.cc:1 NCCL WARN {line}\n").network
    assert (network.socket_fallback, network.gdr, network.transports) == (False, None, ("NET/IB",))


def test_a_back_trace_through_the_socket_transport_proves_it():
    network = verdict_of(info(1, "transport/net_socket.cc:474 -> 6")).network
    assert (network.socket_fallback, network.gdr) == (True, False)


def test_the_network_selected_is_taken_from_most_processes():
    text = (
        start(0, 16, "P2P/IPC")
        + start(1, 16, "P2P/IPC")
        + start(2, 16, "P2P/IPC", network="Socket")
    )
    assert verdict_of(text).net_selected == "IB"
    assert (
        verdict_of(info(0, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:1<0>")).net_selected
        == "IB"
    )
    assert verdict_of(info(0, "NET/IB : Using [RO]; OOB eth0:1<0>")).net_selected is None


def test_a_job_of_which_one_communicator_probably_takes_sockets_is_not_called_healthy():
    other = "0x99"
    lazy = "".join(
        info(rank, text, pid=7000 + rank)
        for rank in (0, 8)
        for text in (
            "Using network Socket",
            comm(rank, 16, "START", other),
            f"comm 0x55{rank:04x}0 rank {rank} nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0",
            comm(rank, 16, "COMPLETE", other),
        )
    )
    healthy = start(7, 16, "NET/IB/0/GDRDMA")
    assert verdict_of(healthy).network.socket_fallback is False
    network = verdict_of(healthy + lazy).network
    assert (network.socket_fallback, network.reason) == (None, "socket_selected_no_connection_seen")
    assert network.transports == ("NET/IB",)


def test_a_plugin_that_is_assigned_is_the_network_selected():
    text = info(0, "Initialized NET plugin IB") + info(
        0, "Assigned NET plugin AWS Libfabric to comm"
    )
    assert verdict_of(text).net_selected == "AWS Libfabric"


def domain(nranks: int, via: str, *, linked: int) -> str:
    """Return the start of ranks on two nodes of which the first ones are linked in a row."""
    ranks = "".join(described(rank, nranks, 2, "Socket", mnnvl=1) for rank in range(nranks))
    return ranks + "".join(info(rank, edge(rank, rank + 1, via)) for rank in range(linked))


def test_nvlink_that_connects_all_ranks_of_several_nodes_needs_no_network():
    network = verdict_of(domain(16, "P2P/MNNVL", linked=15)).network
    assert (network.socket_fallback, network.reason) == (False, "local_only")


def test_nvlink_of_some_ranks_of_several_nodes_proves_nothing():
    network = verdict_of(domain(16, "P2P/MNNVL", linked=14)).network
    assert (network.socket_fallback, network.reason) == (None, "no_connection_seen")


@pytest.mark.parametrize("network", ["IB", "IBext_v8"])
def test_an_error_of_verbs_is_of_the_verbs_network_in_use(network):
    text = info(0, f"Using network {network}")
    text += info(0, "x").replace(
        "NCCL INFO x", "ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed"
    )
    assert verdict_of(text).network.transports == (f"NET/{network}",)
