"""Trees of RDMA devices for tests, written file by file as sysfs has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

COUNTERS: Mapping[str, int] = {
    "port_xmit_data": 1000,
    "port_rcv_data": 2000,
    "port_xmit_packets": 30,
    "port_rcv_packets": 40,
    "unicast_xmit_packets": 30,
    "multicast_rcv_packets": 0,
    "port_xmit_wait": 7,
    "symbol_error": 0,
    "link_downed": 0,
    "link_error_recovery": 0,
    "port_rcv_errors": 0,
    "port_xmit_discards": 0,
    "local_link_integrity_errors": 0,
    "excessive_buffer_overrun_errors": 0,
    "VL15_dropped": 0,
}
HW_COUNTERS: Mapping[str, int] = {
    "lifespan": 12,
    "out_of_sequence": 0,
    "packet_seq_err": 0,
    "local_ack_timeout_err": 0,
    "duplicate_request": 0,
    "np_cnp_sent": 5,
    "rp_cnp_handled": 0,
    "req_cqe_error": 0,
}


def write(path: Path, text: object) -> None:
    """Write a file as the kernel would show it, over what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def add_port(
    sysfs: Path,
    device: str = "mlx5_0",
    port: int = 1,
    counters: Mapping[str, object] = COUNTERS,
    hw_counters: Mapping[str, object] = HW_COUNTERS,
    *,
    state: str = "4: ACTIVE",
    rate: str = "400 Gb/sec (4X NDR)",
    link_layer: str = "InfiniBand",
) -> Path:
    """Write a device with a port; return the port's folder."""
    folder = sysfs / "class" / "infiniband" / device
    for name, text in (("fw_ver", "28.41.1000"), ("board_id", "MT_1"), ("hca_type", "MT4129")):
        write(folder / name, text)
    place = folder / "ports" / str(port)
    for name, text in (
        ("state", state),
        ("phys_state", "5: LinkUp"),
        ("rate", rate),
        ("link_layer", link_layer),
    ):
        write(place / name, text)
    for kind, values in (("counters", counters), ("hw_counters", hw_counters)):
        for name, value in values.items():
            write(place / kind / name, value)
    return place
