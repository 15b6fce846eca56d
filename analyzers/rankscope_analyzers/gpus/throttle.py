"""GPUs that are slower, hotter or on less power than their peers, why, and the time lost.

Peers are GPUs of the same model in the same job, or on the same node if no job is known, that were
equally busy. Utilisation does not distinguish a GPU that all wait for from those that wait: both
are busy. Only the clock, which waiting does not lower, shows that a GPU is slow. Pure: a frame of
samples in (`gpu_frames.GPU_COLUMNS`), findings out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from rankscope_analyzers.findings.builder import make_finding
from rankscope_analyzers.findings.finding import Cost, Evidence, Finding, Where
from rankscope_analyzers.gpus.peers import Normal, Row, comparable, with_peers
from rankscope_analyzers.numeric import grouped
from rankscope_analyzers.numeric.arrays import Floats, Integers
from rankscope_analyzers.text.name_lists import named

Kind = Literal[
    "thermal_slowdown",
    "power_brake",
    "power_cap",
    "clock_low",
    "power_limit_differs",
    "power_low",
    "temperature_high",
]

LOADED_UTILIZATION = 0.5
"""Samples below this are of a GPU without work, whose clock is low on purpose. A training job that
is held up by a slow rank still shows 0.9 and more, as waiting in a collective is a kernel, too."""

IDLE_POWER = 0.2
"""Fraction of its power limit below which a GPU that does not report how busy it is has no work, if
nothing holds its clock down: without any, at their lowest clock, those that can be partitioned draw
10 to 18 % (A100, A30, H100, B200)."""

LOW_CLOCK = 0.95
"""Below this fraction of its peers' median clock a GPU is slow: boards of one model differ by a few
steps of 15 MHz, which is 2 to 3 %, at the same power."""

LOW_CLOCK_AT_LIMIT = 0.90
"""The same if all are at their power limit: the clock that a board reaches there depends on its
silicon and its cooling, and boards of one model differ by 8 % (Sinha and others, SC 2022)."""

SLOWDOWN_SHARE = 0.05
"""Fraction of the time under thermal slowdown from which on it is a finding: a twentieth of the
time at half the clock costs a synchronous job 5 %; less is a GPU that touches its limit now and
then."""

BRAKE_SHARE = 0.01
"""Fraction of the time under the power brake, which the power supply requests: it never should."""

CAP_EXCESS = 0.2
"""Fraction of the time under the power cap above that of the peers. All GPUs that train hard reach
their limit at times, so that the cap alone means nothing."""

LIMIT_DIFFERENCE = 0.02
"""Enforced limits that differ by less are the same setting on boards that round it differently."""

LOW_POWER = 0.7
"""Fraction of the peers' power at the same clock below which a GPU does less work than they."""

HOT_EXCESS_CELSIUS = 12.0
"""Degrees above the median of its peers: positions in a chassis differ by 5 to 8, as the last ones
in the air flow are hotter."""

REASONS: Mapping[str, str] = {
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "sw_thermal_slowdown": "software thermal slowdown",
    "hw_power_brake": "hardware power brake",
    "sw_power_cap": "software power cap",
}
"""Reasons with a counter of seconds, and what people call them."""

GIGA = 1e9

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is wrong with one GPU."""

    kind: Kind
    reason: str
    row: Row
    peers: Normal


def analyze(samples: pd.DataFrame) -> tuple[Finding, ...]:
    """Return what deviates, the most costly first.

    Args:
        samples: columns of `gpu_frames.GPU_COLUMNS`, rows in any order. One sample per GPU shows
            its state at that moment; time lost requires two, and a minute gives good figures.
    """
    gpus = summarize(samples)
    if gpus.empty:
        return ()
    found = [*_deviations(gpus), *_limits(gpus)]
    return tuple(sorted(found, key=lambda finding: -seconds_lost(finding)))


def summarize(samples: pd.DataFrame) -> pd.DataFrame:
    """Return one row per GPU that had work: medians over that time, and shares of time by reason.

    In addition to the columns of medians: `loaded_seconds`, and `<reason>_share` for each of
    `REASONS`: the share of time by its counter, of looks if the GPU has no counter, NaN if it has
    neither.
    """
    if samples.empty:
        return pd.DataFrame()
    ordered = samples.sort_values("time", kind="stable").astype(dict.fromkeys(NUMBERS, np.float64))
    loaded = _is_loaded(ordered)
    groups = ordered.groupby(KEY, sort=True)
    gpus = groups[["model", "job_id"]].last()
    numbers: Integers = np.asarray(groups.ngroup(), dtype=np.int64)
    count = len(gpus)
    lasted = grouped.spans(numbers, _floats(ordered["time"]), count)
    busy = ordered[loaded].groupby(numbers[loaded])
    gpus[list(MEDIANS)] = busy[list(MEDIANS)].median().reindex(range(count)).to_numpy()
    share = grouped.means(numbers, _floats(loaded), count)
    gpus["loaded_seconds"] = np.where(share > 0, lasted * share, np.nan)
    for reason in REASONS:
        gpus[f"{reason}_share"] = _time_share(ordered, reason, numbers, lasted)
    gpus = gpus[gpus["loaded_seconds"].notna()].reset_index()
    order = gpus["gpu"].map(lambda gpu: (len(str(gpu)), str(gpu)))  # 10 comes after 9
    return gpus.assign(order=order).sort_values(["node", "order"]).drop(columns="order")


def without_peers(gpus: pd.DataFrame) -> dict[str, list[str]]:
    """Return the GPUs that cannot be compared, by node: nothing is known of what is normal there.

    Args:
        gpus: from `summarize`.
    """
    if gpus.empty:
        return {}
    compared = {tuple(row[name] for name in KEY) for row, normal in with_peers(gpus) if normal}
    found: dict[str, list[str]] = {}
    for name in gpus[KEY].itertuples(index=False, name=None):
        if name not in compared:
            found.setdefault(str(name[0]), []).append(str(name[-1]))
    return found


KEY = ["node", "uuid", "pci", "gpu"]
MEDIANS = (
    "utilization_ratio",
    "sm_clock_hertz",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
)
NUMBERS = (
    *MEDIANS,
    *(f"{reason}_seconds" for reason in REASONS),
    *(f"{reason}_active" for reason in REASONS),
)


def _is_loaded(samples: pd.DataFrame) -> pd.Series[bool]:
    """Return which samples are of GPUs with work; partitioned ones do not say how busy they are."""
    utilization = samples["utilization_ratio"]
    draws_little = samples["power_watts"] < IDLE_POWER * samples["power_limit_watts"]
    held_down = (samples[[f"{reason}_active" for reason in REASONS]] > 0).any(axis=1)
    return (utilization >= LOADED_UTILIZATION) | (utilization.isna() & ~(draws_little & ~held_down))


def _time_share(ordered: pd.DataFrame, reason: str, numbers: Integers, lasted: Floats) -> Floats:
    """Return each GPU's share of time under a reason, from its counter, else from looks."""
    count = len(lasted)
    seconds = _floats(ordered[f"{reason}_seconds"])
    grown = grouped.increases(numbers, seconds, count)
    counted = np.minimum(grown / np.where(lasted > 0, lasted, np.nan), 1.0)
    looked = grouped.means(numbers, _floats(ordered[f"{reason}_active"]), count)
    return np.where(np.isnan(counted), looked, counted)


def _floats(column: pd.Series[Any]) -> Floats:
    return np.asarray(column, dtype=np.float64)


def _deviations(gpus: pd.DataFrame) -> Iterator[Finding]:
    judged: dict[tuple[str, str, Kind, str], list[_Judged]] = {}
    for row, normal in with_peers(gpus):
        for found in _judge(row, normal):
            key = str(row["node"]), str(row["job_id"]), found.kind, found.reason
            judged.setdefault(key, []).append(found)
    for members in judged.values():
        yield _finding(sorted(members, key=lambda one: (len(one.row["gpu"]), one.row["gpu"])))


def _judge(row: Row, normal: Normal) -> Iterator[_Judged]:
    """Yield what is wrong with a GPU; a slow clock is reported once, with its best explanation."""
    at_limit = _share(row, "sw_power_cap") >= CAP_EXCESS
    pace = _ratio(row, normal, "sm_clock_hertz")
    slow = pace < LOW_CLOCK
    thermal = max(("hw_thermal_slowdown", "sw_thermal_slowdown"), key=lambda at: _share(row, at))
    if _share(row, thermal) >= SLOWDOWN_SHARE:
        yield _Judged("thermal_slowdown", thermal, row, normal)
    elif _share(row, "hw_power_brake") >= BRAKE_SHARE:
        yield _Judged("power_brake", "hw_power_brake", row, normal)
    elif (slow and _capped(row, normal)) or (at_limit and pace < LOW_CLOCK_AT_LIMIT):
        yield _Judged("power_cap", "sw_power_cap", row, normal)
    elif slow and not at_limit:
        yield _Judged("clock_low", "", row, normal)
    elif _ratio(row, normal, "power_watts") < LOW_POWER:
        yield _Judged("power_low", "", row, normal)
    hotter = row["temperature_celsius"] - normal.get("temperature_celsius", np.nan)
    if hotter > HOT_EXCESS_CELSIUS and _share(row, thermal) < SLOWDOWN_SHARE:
        yield _Judged("temperature_high", "", row, normal)


def _capped(row: Row, normal: Normal) -> bool:
    usual = normal.get("sw_power_cap_share", np.nan)
    excess = _share(row, "sw_power_cap") - (0.0 if np.isnan(usual) else float(usual))
    return excess >= CAP_EXCESS


def _share(row: Row, reason: str) -> float:
    """Return the share of time of a reason, 0 if unknown."""
    share = float(row[f"{reason}_share"])
    return 0.0 if np.isnan(share) else share


def _ratio(row: Row, normal: Normal, column: str) -> float:
    """Return a value divided by the peers'; NaN, which is below nothing, if one is unknown."""
    expected = float(normal.get(column, np.nan))
    return float(row[column]) / expected if expected > 0 else float("nan")


def _lost(judged: _Judged) -> float:
    return _missing(judged) * float(judged.row["loaded_seconds"])


def _missing(judged: _Judged) -> float:
    """Return the fraction of its peers' clock that a GPU lacks, 0 if unknown."""
    missing = 1 - _ratio(judged.row, judged.peers, "sm_clock_hertz")
    return max(0.0, missing) if missing == missing else 0.0


def _finding(members: Sequence[_Judged]) -> Finding:
    """Combine the GPUs of a node that have the same fault into one finding with the highest cost.

    The cost is the time under load times the missing fraction of the clock.
    """
    worst = max(members, key=lambda one: (_lost(one), _missing(one)))  # one look has no time
    row, seconds = worst.row, _lost(worst)
    where = Where(
        nodes=(str(row["node"]),),
        uuids=tuple(str(at.row["uuid"]) for at in members),
        gpus=tuple(str(at.row["gpu"]) for at in members),
    )
    summary = _summary_text(members, worst, seconds)
    evidence = tuple(_evidence(worst))
    made = make_finding(worst.kind, "gpu", str(row["job_id"]), where, summary, evidence)
    loaded = float(row["loaded_seconds"])
    fraction = seconds / loaded if loaded > 0 else 0.0
    return replace(made, cost=Cost(fraction, seconds / SECONDS_PER_HOUR))


def _evidence(judged: _Judged) -> Iterator[Evidence]:
    row, normal = judged.row, judged.peers
    for column, unit, meaning in (
        ("sm_clock_hertz", "Hz", "SM clock under load"),
        ("temperature_celsius", "C", "core temperature under load"),
        ("power_watts", "W", "power under load"),
        ("power_limit_watts", "W", "enforced power limit"),
    ):
        expected = float(normal.get(column, np.nan))
        if not np.isnan(row[column]):
            yield Evidence(column, float(row[column]), expected, unit, meaning)
    if judged.reason:
        column = f"{judged.reason}_share"
        meaning = f"share of time under {REASONS[judged.reason]}"
        yield Evidence(column, float(row[column]), float(normal.get(column, np.nan)), "", meaning)


def _summary_text(members: Sequence[_Judged], worst: _Judged, seconds: float) -> str:
    row, normal = worst.row, worst.peers
    who = f"{named((at.row['gpu'] for at in members), 'GPU')} of node {row['node']}"
    facts = []
    clock, usual = float(row["sm_clock_hertz"]), float(normal.get("sm_clock_hertz", np.nan))
    if _ratio(row, normal, "sm_clock_hertz") < LOW_CLOCK:
        facts.append(f"SM clock {clock / GIGA:.2f} GHz against {usual / GIGA:.2f}")
    if worst.reason:
        share = _share(row, worst.reason)
        facts.append(f"{REASONS[worst.reason]} {share:.0%} of the time")
    if worst.kind in {"thermal_slowdown", "temperature_high"}:
        facts.append(_set_against(row, normal, "temperature_celsius", "C"))
    if worst.kind == "power_low":
        clocks_known = np.isfinite(_ratio(row, normal, "sm_clock_hertz"))
        at = " at the same clock" if clocks_known else "; its clock is unknown"
        facts.append(_set_against(row, normal, "power_watts", "W") + at)
    if worst.kind == "power_cap":
        facts.append(f"limit {_set_against(row, normal, 'power_limit_watts', 'W')}")
    if seconds:
        facts.append(f"{seconds:.1f} s lost of {row['loaded_seconds']:.0f} s")
    return f"{who}: {'; '.join(facts)}"


def _set_against(row: Row, normal: Normal, column: str, unit: str) -> str:
    expected = float(normal.get(column, np.nan))
    text = f"{float(row[column]):.0f} {unit}"
    return text if np.isnan(expected) else f"{text} against {expected:.0f} {unit}"


def _limits(gpus: pd.DataFrame) -> Iterator[Finding]:
    """Find nodes of a job on which GPUs of the same model have a lower power limit than elsewhere.

    Without a job the GPUs of a node are compared with each other.
    """
    known = gpus[gpus["power_limit_watts"].notna()]
    keys = [comparable(known), known["model"]]
    usual = known.groupby(keys)["power_limit_watts"].transform("max")
    is_low = known["power_limit_watts"] < usual * (1 - LIMIT_DIFFERENCE)
    keys = [*(key[is_low] for key in keys), known["node"][is_low]]
    for (_, _, node), part in known[is_low].groupby(keys, sort=True):
        yield _limit_finding(str(node), part, float(usual[part.index[0]]))


def _limit_finding(node: str, part: pd.DataFrame, usual: float) -> Finding:
    lowest = float(part["power_limit_watts"].min())
    gpus = tuple(str(gpu) for gpu in part["gpu"])
    job = str(part["job_id"].iloc[0])
    others = f"others of job {job}" if job else "others of the node"
    who = f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus)} of node {node}"
    meaning = "enforced power limit"
    evidence = Evidence("power_limit_watts", lowest, usual, "W", meaning)
    where = Where((node,), uuids=tuple(str(uuid) for uuid in part["uuid"]), gpus=gpus)
    summary = f"{who}: power limit {lowest:.0f} W, {others} have {usual:.0f} W"
    return make_finding("power_limit_differs", "gpu", job, where, summary, (evidence,))


def seconds_lost(deviation: Finding) -> float:
    """Return how much of the worst GPU's loaded time a deviation cost; 0 at a normal clock."""
    return deviation.cost.gpu_hours * SECONDS_PER_HOUR if deviation.cost else 0.0


def reason_of(deviation: Finding) -> str:
    """Return the driver's reason for the clock, empty if there is none."""
    shares = (one.source.removesuffix("_share") for one in deviation.evidence)
    return next((name for name in shares if name in REASONS), "")
