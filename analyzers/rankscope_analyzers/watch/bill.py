"""The cost of projects' GPU time at the prices of rankscope.yaml: sums that are never reset.

A second is priced when it is counted: a price that changes later does not change past costs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rankscope_agent.contract.metrics import goodput as metrics
from rankscope_agent.contract.metrics import gpus
from rankscope_agent.contract.model import Sample
from rankscope_analyzers.configuration.values import Configuration
from rankscope_analyzers.findings.finding import RankLocation
from rankscope_analyzers.goodput import parts
from rankscope_analyzers.goodput.parts import Sums, sums_of
from rankscope_analyzers.intake.observed import Observed
from rankscope_analyzers.text.sanitize import name as inert

SECONDS_PER_HOUR = 3600.0

Owner = tuple[str, str]
"""Project and class of jobs."""


class Bill:
    """Costs of all projects, in one currency.

    Args:
        configuration: prices and budgets.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._known = configuration
        self._costs: dict[Owner, Sums] = {}
        self._unpriced: dict[str, float] = defaultdict(float)

    def owner(self, job_id: str, labelled: Owner) -> Owner:
        """Return project and class of a job: by its pods' labels, else by its namespace."""
        project, job_class = labelled
        return self._known.project_of(job_id, project), job_class

    def add(self, owner: Owner, seconds: Mapping[str, float], model: str) -> None:
        """Add the cost of GPU time.

        Args:
            owner: project and class.
            seconds: of GPUs, by part.
            model: of the GPUs, empty if unknown.
        """
        if not self._known.currency:
            return
        price = self._known.price(model, owner[0])
        if price is None:
            self._unpriced[owner[0]] += sum(seconds.values())
            return
        cost = {part: spent * price / SECONDS_PER_HOUR for part, spent in seconds.items()}
        self._costs[owner] = parts.added((self._costs.get(owner, {}), cost))

    def samples(self) -> Iterator[Sample]:
        """Yield costs and budgets; nothing without prices."""
        currency = self._known.currency
        if not currency:
            return
        for (project, job_class), costs in self._costs.items():
            labels = {"project": inert(project), "job_class": inert(job_class)}
            for part, cost in costs.items():
                yield metrics.PROJECT_COST.sample(cost, part=part, currency=currency, **labels)
        for project, seconds in self._unpriced.items():
            yield metrics.PROJECT_UNPRICED.sample(seconds, project=inert(project))
        for project, amount in self._known.budgets.items():
            yield metrics.PROJECT_BUDGET.sample(amount, project=inert(project), currency=currency)

    def kept(self) -> Any:
        """Return the sums in JSON-ready form."""
        return {
            "currency": self._known.currency,
            "costs": [[*owner, dict(costs)] for owner, costs in self._costs.items()],
            "unpriced": dict(self._unpriced),
        }

    def restore(self, kept: Any) -> None:
        """Continue from saved sums, from nothing if they are None or in another currency.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: they are invalid.
        """
        self._costs, self._unpriced = {}, defaultdict(float)
        if kept is None or kept["currency"] != self._known.currency:
            return
        costs = {
            (str(project), str(job_class)): parts.added([sums_of(sums)])
            for project, job_class, sums in kept["costs"]
        }
        unpriced = {str(project): float(seconds) for project, seconds in kept["unpriced"].items()}
        if not all(0 <= seconds < math.inf for seconds in unpriced.values()):
            raise ValueError(f"{unpriced!r} are not sums")
        self._costs = costs
        self._unpriced.update(unpriced)


Models = Mapping[tuple[str, str], str]
"""Models of GPUs, by node and UUID."""


def gpu_models(observed: Observed) -> Models:
    """Return the models of all GPUs that are seen.

    A node whose GPUs are all of one model has it without a UUID, too, for ranks whose GPU is not
    known.
    """
    found: dict[tuple[str, str], str] = {}
    of_nodes: dict[str, set[str]] = {}
    for one in observed.of(gpus.GPU_INFO):
        model = one.labels.get("model", "")
        found[one.node, one.labels.get("uuid", "")] = model
        of_nodes.setdefault(one.node, set()).add(model)
    alike = {(node, ""): min(models) for node, models in of_nodes.items() if len(models) == 1}
    return alike | found


def models_of(locations: Iterable[RankLocation], models: Models) -> list[str]:
    """Return the model of each rank's GPU, empty if unknown."""
    return [models.get((one.node, one.uuid), "") for one in locations]


def most_common(models: Iterable[str]) -> str:
    """Return the model that most ranks have, empty if none is known."""
    known = Counter(filter(None, models))
    return known.most_common(1)[0][0] if known else ""
