"""GPUs that are lost, hang, have bad memory or degraded links, as findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rankscope_agent.contract.metrics import gpus as metrics
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.findings.advice import FEWER_NVLINKS, NO_NVLINK, NVLINK_ERRORS
from rankscope_analyzers.findings.finding import Advice, Evidence, Finding, Where
from rankscope_analyzers.intake.observed import Observed, Series, in_force
from rankscope_analyzers.layers.job_view import JobView
from rankscope_analyzers.layers.series_findings import series_finding
from rankscope_analyzers.text.name_lists import named

BUSY_UTILIZATION = 0.5
"""An idle GPU lowers its PCIe link speed to save power; a busy one does not."""

ALIKE_SHARE = 0.75
"""Fraction of a job's GPUs of one model that must have the same number of NVLinks up, for fewer to
be a fault. Links of cards have two ends: one that is down is missing on two GPUs, a quarter of a
node of eight."""

MINIMUM_ALIKE = 4
"""Two pairs of cards at least: where two pairs differ, either may be as it was built."""


@dataclass(frozen=True, slots=True)
class State:
    """A series whose value alone shows a fault.

    Args:
        wrong: returns whether a series shows it.
        phrase: about the GPU; {label} stands for a label of the series.
        labels: that select the series.
        state: label that holds the state, of which a GPU has one at a time.
        counted: True for a counter, whose increase is judged.
        instead: advice that replaces the table's.
    """

    metric: Metric
    wrong: Callable[[Series], bool]
    phrase: str
    kind: str
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = ""
    counted: bool = False
    instead: Advice | None = None


def _is_set(series: Series) -> bool:
    return series.last >= 1


def _is_down(series: Series) -> bool:
    return series.last == 0


def _grew(series: Series) -> bool:
    return series.increase() > 0


def _is_asked(series: Series) -> bool:
    return _is_set(series) and series.labels.get("action") not in NO_RECOVERY


NO_RECOVERY = frozenset(("none", "", None))

STATES: Sequence[State] = (
    State(
        metrics.GPU_LOST, _is_set, "the driver has lost it: it has fallen off the bus",
        "gpu_lost",
    ),
    State(
        metrics.GPU_UNRESPONSIVE, _is_set, "the driver does not answer about it",
        "gpu_unresponsive",
    ),
    State(
        metrics.GPU_RECOVERY_ACTION, _is_asked, "the driver asks for the action {action}",
        "gpu_recovery_needed", state="action",
    ),
    State(
        metrics.GPU_ECC_ERRORS, _grew, "memory errors that could not be corrected",
        "ecc_uncorrected",
        {"kind": "uncorrected", "scope": "volatile"}, counted=True,
    ),
    State(
        metrics.GPU_REMAP_FAILURE, _is_set, "a bad memory row could not be replaced",
        "row_remap_failed",
    ),
    State(
        metrics.GPU_REMAP_PENDING, _is_set, "bad memory rows wait for a reset to be replaced",
        "row_remap_pending",
    ),
    State(
        metrics.GPU_FABRIC_UNHEALTHY, _is_set, "the NVLink fabric's check {check} fails",
        "fabric_unhealthy",
    ),
    State(
        metrics.GPU_NVLINK_LINK_UP, _is_down, "NVLink {link} is down",
        "nvlink_degraded",
    ),
    State(
        metrics.GPU_NVLINK_LINK_ERRORS, _grew, "NVLink {link} has errors of type {type}",
        "nvlink_degraded", counted=True, instead=NVLINK_ERRORS,
    ),
)  # fmt: skip
"""States that are wrong in themselves, without a comparison with other GPUs."""

DOWNGRADES = (
    (metrics.GPU_PCIE_WIDTH, metrics.GPU_PCIE_WIDTH_MAX, "lanes"),
    (metrics.GPU_PCIE_GENERATION, metrics.GPU_PCIE_GENERATION_MAX, "generation"),
)
DOWNGRADED = "gpu_pcie_degraded"
KINDS = frozenset((DOWNGRADED, *(state.kind for state in STATES)))

READS: tuple[Metric, ...] = (
    *dict.fromkeys(state.metric for state in STATES),
    *(metric for pair in DOWNGRADES for metric in pair[:2]),
    metrics.GPU_UTILIZATION,
    metrics.GPU_INFO,
    metrics.GPU_NVLINKS_UP,
)


def findings(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield what is wrong with the job's GPUs."""
    for state in STATES:
        found = observed.of(state.metric, **state.labels)
        for series in in_force(found, state.state) if state.state else found:
            where = job.of_gpu(series)
            if where and state.wrong(series):
                yield _finding(state, series, where, job)
    yield from _pcie(observed, job)
    yield from _fewer_links(observed, job)
    yield from _no_links(observed, job)


def _finding(state: State, series: Series, where: Where, job: JobView) -> Finding:
    phrase = state.phrase.format_map(series.labels)
    value, unit = (series.increase(), "count") if state.counted else (series.last, "state")
    since = series.first_change() if state.counted else series.held_since()
    evidence = Evidence(series.name, value, 1.0 if state.wrong is _is_down else 0.0, unit, phrase)
    sentence = f"{gpu_name(where)}: {phrase}"
    return series_finding(
        state.kind, "gpu", job.job_id, where, sentence, (evidence,), since, instead=state.instead
    )


def gpu_name(where: Where) -> str:
    """Return a GPU's name: index, node and UUID."""
    gpu = named(where.gpus, "GPU") if where.gpus else "a GPU"
    uuid = f", {where.uuids[0]}" if len(where.uuids) == 1 else ""
    return f"{gpu} of node {', '.join(where.nodes)}{uuid}"


def _pcie(observed: Observed, job: JobView) -> Iterator[Finding]:
    busy = {
        _key(series)
        for series in observed.of(metrics.GPU_UTILIZATION)
        if series.values.max() >= BUSY_UTILIZATION
    }
    for now, best, what in DOWNGRADES:
        most = {_key(s): s.last for s in observed.of(best)}
        for series in observed.of(now):
            where, key = job.of_gpu(series), _key(series)
            # The largest value: a link may be idle between two steps and faster in the next.
            value, full = float(series.values.max()), most.get(key, 0.0)
            if where and key in busy and value < full:
                sentence = (
                    f"{gpu_name(where)}: its PCIe link runs at {what} {value:.0f} of {full:.0f}"
                )
                evidence = Evidence(series.name, value, full, what, "PCIe link under load")
                yield series_finding(DOWNGRADED, "gpu", job.job_id, where, sentence, (evidence,))


def _fewer_links(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield GPUs with fewer NVLinks up than most of their model, though none was seen to go down.

    What was down when the agent began is no fault of a card by itself: bridges connect any number
    of its links. Most cards of a job are built alike, however.
    """
    reported = {_key(one) for one in observed.of(metrics.GPU_NVLINK_LINK_UP) if _is_down(one)}
    alike: dict[str, list[tuple[Series, Where]]] = defaultdict(list)
    for series, model in _counted_links(observed):
        where = job.of_gpu(series)
        if where and series.last > 0:
            alike[model].append((series, where))
    for several in alike.values():
        ((usual, count),) = Counter(series.last for series, _ in several).most_common(1)
        if count < max(MINIMUM_ALIKE, ALIKE_SHARE * len(several)):
            continue
        for series, where in several:
            if series.last < usual and _key(series) not in reported:
                yield _link_finding(series, where, usual, job)


def _no_links(observed: Observed, job: JobView) -> Iterator[Finding]:
    """Yield GPUs of which no NVLink is up while others of their node and model have some.

    Agents report none only of boards, and of cards that had some. Where no GPU of a node has any,
    its fabric is not started, or the node is a virtual machine without NVLink.
    """
    reported = {_key(one) for one in observed.of(metrics.GPU_NVLINK_LINK_UP) if _is_down(one)}
    most: dict[tuple[str, str], float] = defaultdict(float)
    none: list[tuple[Series, str]] = []
    for series, model in _counted_links(observed):
        most[series.node, model] = max(most[series.node, model], series.last)
        if series.last == 0 and _key(series) not in reported:
            none.append((series, model))
    for series, model in none:
        where, usual = job.of_gpu(series), most[series.node, model]
        if where and usual > 0:
            phrase = f"none of its NVLinks is up, {usual:.0f} of others of its model and node"
            evidence = (Evidence(series.name, 0.0, usual, "links", phrase),)
            sentence = f"{gpu_name(where)}: {phrase}"
            yield series_finding(
                "nvlink_degraded", "gpu", job.job_id, where, sentence, evidence,
                series.held_since(), instead=NO_NVLINK,
            )  # fmt: skip


def _counted_links(observed: Observed) -> Iterator[tuple[Series, str]]:
    """Yield how many NVLinks of GPUs are up, and their models where these are known."""
    models = {_key(one): one.labels.get("model", "") for one in observed.of(metrics.GPU_INFO)}
    for series in observed.of(metrics.GPU_NVLINKS_UP):
        model = models.get(_key(series), "")
        if model:
            yield series, model


def _link_finding(series: Series, where: Where, usual: float, job: JobView) -> Finding:
    phrase = f"{series.last:.0f} NVLinks are up, {usual:.0f} of most others of its model"
    evidence = (Evidence(series.name, series.last, usual, "links", phrase),)
    sentence = f"{gpu_name(where)}: {phrase}"
    return series_finding(
        "nvlink_degraded", "gpu", job.job_id, where, sentence, evidence,
        severity="ticket", instead=FEWER_NVLINKS,
    )  # fmt: skip


def _key(series: Series) -> tuple[str, str | None]:
    return series.node, series.labels.get("uuid")
