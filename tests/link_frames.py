"""Frames of port counters as a job's nodes give them, healthy but noisy, with faults put in."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

GPUS = 8
SAMPLES = 21
PERIOD = 30.0
START = 1_700_000_000.0
RATE = 50e9  # NDR
TRAFFIC = 10e9  # bytes a second of a GPU's port
STORAGE = "mlx5_bond_0"

# Events a second of a healthy port under load.
NOISE = {
    "out_of_sequence": 0.02,
    "packet_seq_err": 0.02,
    "local_ack_timeout_err": 0.001,
    "cnp_handled": 40.0,
    "cnp_sent": 40.0,
    "ecn_marked": 60.0,
    "transmit_wait_ticks": 2e5,
    "symbol_error": 0.001,
    "port_rcv_errors": 0.0005,
    "pfc_pause_frames_receive": 5.0,
    "pfc_pause_seconds_receive": 0.0005,
}


@cache
def healthy(nodes: int, seed: int, burst: float) -> pd.DataFrame:
    """Return the counters of a healthy job, sample by sample of each port; nobody changes them."""
    random = np.random.default_rng(seed)
    places = [(node, index) for node in range(nodes) for index in range(GPUS + 1)]
    ports = [{**named(*place), **counted(place[1], random, burst)} for place in places]
    columns = {name: [port[name] for port in ports] for name in ports[0]}
    kinds = {"gpu": object}  # storage has none
    return pd.DataFrame(
        {
            name: np.concatenate(values)
            if isinstance(values[0], np.ndarray)
            else pd.Series([one for one in values for _ in range(SAMPLES)], dtype=kinds.get(name))
            for name, values in columns.items()
        }
    )


def named(node: int, index: int) -> dict[str, object]:
    """Return what stays as it is of a port: of a GPU, or the last of a node, for storage."""
    serves = index < GPUS
    return {
        "t_unix_seconds": START + PERIOD * np.arange(SAMPLES),
        "node": f"node{node}",
        "device": f"mlx5_{index}" if serves else STORAGE,
        "port": "1",
        "job_id": "team/job",
        "rank": float(node * GPUS + index) if serves else np.nan,
        "gpu": f"GPU-{node}-{index}" if serves else None,
        "model": "MT_0000000838" if serves else "MT_0000000884",
        "state": 4.0,
        "rate_bytes_per_second": RATE if serves else RATE / 2,
        "pci_link_ratio": 1.0,
        "link_flaps": 0.0,
        "link_downed": 3.0,
    }


def counted(index: int, random: np.random.Generator, burst: float) -> dict[str, object]:
    """Return the counters of a port that grow."""
    load = TRAFFIC * random.normal(1, 0.03) if index < GPUS else 0.05 * TRAFFIC
    grown = np.maximum(load * PERIOD * random.normal(1, 0.02, SAMPLES), 0)
    columns: dict[str, object] = {
        "transmit_bytes": random.integers(0, 10**15) + np.cumsum(grown),
        "receive_bytes": random.integers(0, 10**15) + np.cumsum(grown),
    }
    for name, rate in NOISE.items():
        mean = rate * load / TRAFFIC * PERIOD * np.exp(burst * random.normal())
        counts = random.poisson(random.gamma(2, mean / 2, SAMPLES)).astype(float)
        columns[name] = random.integers(0, 1000) + np.cumsum(counts)
    return columns


class Cluster:
    """A job's ports over ten minutes; `rows` selects some of them, `add` makes a counter grow.

    Args:
        burst: how unlike healthy ports are: 0 is pure chance, 1 spreads their rates threefold.
    """

    def __init__(self, nodes: int = 4, seed: int = 0, burst: float = 0.5):
        self.times = START + PERIOD * np.arange(SAMPLES)
        self.frame = healthy(nodes, seed, burst).copy()

    def rows(self, node: str = "", device: str = "") -> pd.Series:
        chosen = pd.Series(True, index=self.frame.index)
        if node:
            chosen &= self.frame["node"] == node
        if device:
            chosen &= self.frame["device"] == device
        return chosen

    def add(self, rows: pd.Series, column: str, rate: float, since: float = 0.0) -> None:
        """Let a counter of these ports grow by `rate` a second more, from `since` seconds on."""
        elapsed = self.frame.loc[rows, "t_unix_seconds"] - START - since
        self.frame.loc[rows, column] += np.maximum(0.0, elapsed) * rate

    def set(self, rows: pd.Series, column: str, value: float, since: float = 0.0) -> None:
        late = self.frame["t_unix_seconds"] >= START + since
        self.frame.loc[rows & late, column] = value

    def scale(self, rows: pd.Series, factor: float) -> None:
        """Let these ports carry a part of their traffic only."""
        for column in ("transmit_bytes", "receive_bytes"):
            first = self.frame[rows].groupby(["node", "device"])[column].transform("first")
            self.frame.loc[rows, column] = first + factor * (self.frame.loc[rows, column] - first)


def named_ports(findings):
    """Return the kind, nodes and first device of each finding."""
    return [(f.kind, f.where.nodes, f.where.devices[0]) for f in findings]
