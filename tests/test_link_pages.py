"""From ports' files over the collector's samples to findings: nothing between them is made up."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rankscope_agent.contract.metrics import rdma
from rankscope_agent.settings.simulation import parse_simulation
from rankscope_agent.sources.gpus.simulation.ports import PortTree, served_gpu
from rankscope_agent.sources.rdma.tree import RdmaTree
from rankscope_analyzers.links.counters import analyze
from rankscope_analyzers.links.frame import column_of

PERIOD = 15.0
LOOKS = 21


class Node:
    """A simulated node whose ports are read by the agent's own reader."""

    def __init__(self, folder: Path, name: str, text: str):
        simulation = parse_simulation(text)
        assert simulation is not None
        self.simulation, self.name, self.now = simulation, name, 1e9
        folder.mkdir()
        self.ports = PortTree(folder, simulation, lambda: self.now)
        self.ports.write()
        self.tree = RdmaTree(folder, 10_000, everything=False)
        self.tree.refresh()

    def rows(self):
        """Yield the rows of a frame, as of now."""
        self.ports.write()
        by_port: dict[tuple[str, str], dict[str, float]] = {}
        models = {}
        for sample in self.tree.samples():
            labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
            column = column_of(sample.metric.name, labels)
            if sample.metric is rdma.DEVICE_INFO:
                models[labels["device"]] = labels["board_id"]
            elif column is not None:
                by_port.setdefault((labels["device"], labels["port"]), {})[column] = sample.value
        for (device, port), columns in by_port.items():
            gpu = served_gpu(self.simulation, int(device.removeprefix("mlx5_")))
            yield {
                "t_unix_seconds": self.now,
                "node": self.name,
                "device": device,
                "port": port,
                "job_id": "job",
                "gpu": gpu,
                "rank": gpu,
                "model": models[device],
                **columns,
            }


@pytest.fixture
def findings(tmp_path):
    def look(*texts: str):
        nodes = [Node(tmp_path / f"n{i}", f"node{i}", text) for i, text in enumerate(texts)]
        rows = []
        for _ in range(LOOKS):
            for node in nodes:
                rows += node.rows()
                node.now += PERIOD
        for node in nodes:
            node.tree.close()
        return analyze(pd.DataFrame(rows))

    return look


@pytest.mark.parametrize("nodes", [1, 3])
def test_healthy_nodes_have_no_findings(findings, nodes):
    assert findings(*["h100x8"] * nodes) == ()


@pytest.mark.parametrize("healthy", [0, 2])
def test_a_congested_port_is_named_with_its_gpu(findings, healthy):
    found = findings("h100x8:congestion@5", *["h100x8"] * healthy)
    assert {f.where.devices[0] for f in found} == {"mlx5_5"}
    assert {f.where.nodes for f in found} == {("node0",)}
    assert {"congestion", "asymmetric_rail"} <= {f.kind for f in found}
    assert {f.where.ranks for f in found} == {(4,)}  # mlx5_2 is for storage and has no GPU


@pytest.mark.parametrize("healthy", [0, 2])
def test_a_flapping_port_is_named_and_pages(findings, healthy):
    found = findings("h100x8:flap@3", *["h100x8"] * healthy)
    assert {f.where.devices[0] for f in found} == {"mlx5_3"}
    assert ("flapping", "page") in {(f.kind, f.severity) for f in found}


def test_a_node_that_is_congested_as_a_whole_is_named_beside_others(findings):
    found = findings("h100x8:congestion@all", "h100x8", "h100x8", "h100x8")
    assert {f.where.nodes for f in found} == {("node0",)}
    assert {f.where.devices[0] for f in found} >= {f"mlx5_{i}" for i in range(9) if i != 2}
