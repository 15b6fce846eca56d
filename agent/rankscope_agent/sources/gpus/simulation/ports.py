"""The RDMA ports of a simulated node: a sysfs tree whose counters increase while the agent runs.

A reader of the kernel's tree can read this one: files have the same names and formats, and are
written in place, because readers keep them open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rankscope_agent.settings.simulation import MODELS, Model, Simulation
from rankscope_agent.sources.gpus.simulation import physics
from rankscope_agent.sources.gpus.simulation.nvml import pci_address

PREFIX = "rankscope-simulated-"
LOCK = ".lock"
"""File in the tree that its agent has locked: otherwise a tree whose agent was killed would never
be removed from memory."""

UPDATE_SECONDS = 1.0
"""Time between two updates of the counters: as often as they are read."""

MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - a directory of random name is made in it
"""Location of the tree if it exists: on a disk, hundreds of small writes per second would wear
it."""

WORD_BYTES = 4
"""port_xmit_data and port_rcv_data count words of four bytes."""

PACKET_BYTES = 4096 + 58
"""A full RoCE or InfiniBand packet with its headers."""

TRAFFIC_SHARE = 0.3
"""Share of a port's rate that gradient exchange uses on average."""

WAIT_TICKS, CONGESTED_WAIT_TICKS = 1_500, 9_000_000
"""Ticks per second in which a port cannot send, without and with congestion."""

CONGESTED_SHARE = 0.45
"""Share of the other ports' traffic that a congested port still carries."""

CONGESTION_PACKETS = 5200
"""Congestion notifications per second of a congested port."""

FLAP_PERIOD, FLAP_DOWN = 30.0, 6.0
"""Seconds from one loss of a flapping link to the next, and the duration of each loss."""

STORAGE_PORT = 2
"""Index of the adapter for storage, if there is one more adapter than GPUs."""

MODULES = {"nvidia/taint": "OE\n", "nvidia_peermem/version": "590.48.01\n"}
"""Drivers by which adapters access GPU memory: the open driver's, and the separate module."""

COUNTERS_AT_ZERO = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
)
HARDWARE_COUNTERS_AT_ZERO = (
    "duplicate_request",
    "implied_nak_seq_err",
    "out_of_buffer",
    "req_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "rnr_nak_retry_err",
    "rp_cnp_ignored",
    "rx_icrc_encapsulated",
)
"""Files of mlx5 that stay at zero here."""


@contextlib.contextmanager
def simulated_sysfs(simulation: Simulation) -> Iterator[Path]:
    """Yield the root of a sysfs with the node's RDMA ports, which is updated until the end."""
    memory = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    remove_abandoned(Path(memory or tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX, dir=memory) as folder,
        _locked(Path(folder) / LOCK),
    ):
        tree = PortTree(Path(folder), simulation, time.time)
        tree.write()
        stop = threading.Event()
        thread = threading.Thread(target=_keep, args=(tree, stop), name="simulation", daemon=True)
        thread.start()
        try:
            yield Path(folder)
        finally:
            stop.set()
            thread.join()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that is released when the process ends, however it ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove trees of killed agents: owned by us and no longer locked."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it is in use, or was just removed by another process
            _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    if folder.lstat().st_uid == os.geteuid() and (folder / LOCK).is_file():
        with _locked(folder / LOCK):
            shutil.rmtree(folder)


def _keep(tree: PortTree, stop: threading.Event) -> None:
    while not stop.wait(UPDATE_SECONDS):
        tree.write()


class PortTree:
    """The tree of one node.

    Args:
        root: an empty directory, which becomes the sysfs.
        simulation: the node.
        clock: returns the time in seconds.
    """

    def __init__(self, root: Path, simulation: Simulation, clock: Callable[[], float]) -> None:
        self._root = root
        self._simulation = simulation
        self._model = MODELS[simulation.model]
        self._clock = clock
        self._begin = clock()
        self._written: dict[Path, str] = {}
        for index in range(simulation.count):
            self._device_folder(pci_address(index), _bus(index), index)
        for port in range(self._model.ports):
            self._adapter(port)
        for name, text in MODULES.items():
            self._put(root / "module" / name, text)

    def write(self) -> None:
        """Update every file."""
        elapsed = self._clock() - self._begin
        for port in range(self._model.ports):
            folder = self._root / "class/infiniband" / f"mlx5_{port}" / "ports/1"
            for name, text in port_files(self._simulation, port, elapsed).items():
                self._put(folder / name, text)

    def _adapter(self, port: int) -> None:
        """Write what does not change: the adapter's identity and location."""
        device = self._root / "class/infiniband" / f"mlx5_{port}"
        address = f"0000:{0x1D + 0x10 * port & 0xFF:02x}:00"
        gpu = served_gpu(self._simulation, port)
        near = port * self._simulation.count // self._model.ports if gpu is None else gpu
        bus = f"pci{address[:7]}" if gpu is None else _bus(gpu)
        pci = self._device_folder(address, bus, near)
        files = {
            "fw_ver": "28.39.3004\n",
            "hca_type": f"{self._model.port_type}\n",
            "board_id": "MT_0000000838\n",
            "node_guid": f"5e25:73ff:fe00:{port:04x}\n",
            "node_type": "1: CA\n",
        }
        for name, text in files.items():
            self._put(device / name, text)
        (device / "device").symlink_to(pci)

    def _device_folder(self, address: str, bus: str, index: int) -> Path:
        """Create a PCI device; each half of a node is attached to its own socket."""
        folder = self._root / "devices" / bus / f"{address}.0"
        half = max(1, self._simulation.count // 2)
        self._put(folder / "numa_node", f"{min(1, index // half)}\n")
        link = self._root / "bus/pci/devices" / f"{address}.0"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        return folder

    def _put(self, path: Path, text: str) -> None:
        """Write a file in one piece and in place, if it has changed."""
        if self._written.get(path) == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text.encode(), 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)
        self._written[path] = text


def served_gpu(simulation: Simulation, port: int) -> int | None:
    """Return the GPU that shares a PCIe switch with an adapter; None for a storage adapter.

    On boards with fewer adapters than GPUs, adapters are attached elsewhere and serve no particular
    GPU.
    """
    ports = MODELS[simulation.model].ports
    if ports < simulation.count:
        return None
    if ports == simulation.count:
        return port
    gpu = port - (port > STORAGE_PORT)
    return gpu if port != STORAGE_PORT and gpu < simulation.count else None


def _bus(gpu: int) -> str:
    """Return the path of the switch above a GPU."""
    address = pci_address(gpu)
    root = f"{address[:5]}{int(address[5:7], 16) - 1:02x}"
    return f"pci{root}/{root}:01.0"


def port_files(simulation: Simulation, port: int, elapsed: float) -> Mapping[str, str]:
    """Return the files of a port by path below `ports/1`.

    Args:
        simulation: the node.
        port: index of the adapter on it.
        elapsed: seconds since the simulation began.
    """
    model = MODELS[simulation.model]
    faults = simulation.fault(port)
    flapping = any(fault.flaps for fault in faults)
    down = flapping and elapsed % FLAP_PERIOD >= FLAP_PERIOD - FLAP_DOWN
    files = {
        "state": "1: DOWN\n" if down else "4: ACTIVE\n",
        "phys_state": "2: Polling\n" if down else "5: LinkUp\n",
        "rate": f"{model.port_rate}\n",
        "link_layer": "InfiniBand\n",
    }
    counters = _counters(simulation, model, port, elapsed)
    return files | {path: f"{value}\n" for path, value in counters.items()}


def _counters(simulation: Simulation, model: Model, port: int, elapsed: float) -> Mapping[str, int]:
    faults = simulation.fault(port)
    congested = any(fault.congested for fault in faults)
    flapping = any(fault.flaps for fault in faults)
    seconds = physics.UPTIME_SECONDS + elapsed
    bad_seconds = physics.FAULT_SECONDS + elapsed if congested or flapping else 0.0
    bytes_sent = _bytes(simulation, model, port) * (
        seconds - (bad_seconds * (1 - CONGESTED_SHARE) if congested else 0.0)
    )
    packets = int(bytes_sent / PACKET_BYTES)
    losses = int((bad_seconds + FLAP_DOWN) // FLAP_PERIOD) if flapping else 0
    notifications = int(CONGESTION_PACKETS * bad_seconds) if congested else 0
    waited = WAIT_TICKS * seconds + (CONGESTED_WAIT_TICKS * bad_seconds if congested else 0)
    counters = {
        "port_xmit_data": int(bytes_sent / WORD_BYTES),
        "port_rcv_data": int(bytes_sent / WORD_BYTES),
        "port_xmit_packets": packets,
        "port_rcv_packets": packets,
        "unicast_xmit_packets": packets,
        "unicast_rcv_packets": packets,
        "port_xmit_wait": int(waited),
        "link_downed": min(losses, 255),  # eight bits wide, and saturates
        "link_error_recovery": min(losses, 255),
        "symbol_error": losses * 40,
        "port_rcv_errors": losses * 3,
        **dict.fromkeys(COUNTERS_AT_ZERO, 0),
    }
    hardware = {
        "lifespan": 12,
        "np_cnp_sent": notifications // 3,
        "np_ecn_marked_roce_packets": notifications,
        "rp_cnp_handled": notifications,
        "out_of_sequence": notifications // 50 + losses * 120,
        "packet_seq_err": notifications // 80 + losses * 60,
        "local_ack_timeout_err": losses * 9,
        "roce_adp_retrans": notifications // 200,
        "roce_slow_restart": notifications // 300,
        **dict.fromkeys(HARDWARE_COUNTERS_AT_ZERO, 0),
    }
    named = {f"counters/{name}": value for name, value in counters.items()}
    return named | {f"hw_counters/{name}": value for name, value in hardware.items()}


def _bytes(simulation: Simulation, model: Model, port: int) -> float:
    """Return the bytes per second of a healthy port; a storage adapter only carries checkpoints."""
    rate = float(model.port_rate.split()[0]) * 1e9 / 8
    if model.ports > simulation.count and port == STORAGE_PORT:
        return rate * TRAFFIC_SHARE / 20
    return rate * TRAFFIC_SHARE * physics.pace(simulation)
