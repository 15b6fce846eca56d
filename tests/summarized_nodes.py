"""A node whose agent sums up what it reads."""

from rankscope_agent.collecting.summary.node import NodeSummary
from rankscope_agent.contract.model import Scrape

GPU = {"gpu": "5", "uuid": "GPU-a", "pci": "0000:3b:00"}
PORT = {"device": "mlx5_3", "port": "1"}
POD = {"pod_namespace": "team", "pod_name": "llm-0"}
DEVICE = tuple(GPU.values())
AT = tuple(PORT.values())


def scrape(*samples):
    return Scrape("any", True, 0.1, samples, "", 1.0)


class Node:
    """Sums up one picture after another, fifteen seconds apart unless said otherwise."""

    def __init__(self):
        self.summary = NodeSummary()
        self.now = 1000.0

    def look(self, *samples, after=15.0):
        """Return the summary as values by metric and labels."""
        self.now += after
        found = list(self.summary.collect([scrape(*samples)], self.now))
        keys = [(one.metric.name, one.labels) for one in found]
        assert len(keys) == len(set(keys)), "a series is there once"
        return {(one.metric, one.labels): one.value for one in found}


def of(found, metric):
    return {labels: value for (of_metric, labels), value in found.items() if of_metric is metric}
