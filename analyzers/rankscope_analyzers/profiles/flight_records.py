"""Completes step records with wait times from Flight Recorders if probes measure none.

Only steps that lie wholly in sampled windows of their rank, and all of whose collectives are known
on all their ranks, get sync and compute. With NCCL without durations they get none: a host launches
collectives long before its device reaches them. What hosts do show, which of them is late, is
reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rankscope_analyzers.profiles import collective_waits
from rankscope_analyzers.profiles.collective_waits import LAUNCH_COLUMNS
from rankscope_analyzers.steps.clocks import ClockOffset

NS = 1e9
US = 1e6

BLOCKING_BACKEND = "gloo"
"""Backend whose hosts launch a collective when it is to begin; those of others queue it for the
device."""

HOST_LATE_SHARE = 0.05
"""Fraction of a step by which a host must be last before it is reported."""

MARGIN_SECONDS = 120.0
"""Windows this much older than the oldest record are of no use; clocks differ by less."""


class WindowError(ValueError):
    """Windows have another form than agents send; the message states what was seen."""


def tables(windows: Sequence[Mapping[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return launches and spans of windows, as agents send them under `/api/v1/collectives`.

    Raises:
        WindowError: a member is missing, or columns differ in length.
    """
    try:
        launches = [_launches(window) for window in windows]
        spans = [[w["rank"], w["begin_ns"] / NS, w["end_ns"] / NS] for w in windows]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise WindowError(f"a window of collectives lacks or garbles {error}") from error
    empty = pd.DataFrame(columns=LAUNCH_COLUMNS)
    return (
        pd.concat(launches, ignore_index=True) if launches else empty,
        pd.DataFrame(spans, columns=["rank", "begin", "end"]),
    )


def _launches(window: Mapping[str, Any]) -> pd.DataFrame:
    duration = np.asarray(window["duration_us"], dtype=np.float64)
    groups, operations = np.array(window["groups"], str), np.array(window["operations"], str)
    return pd.DataFrame(
        {
            "rank": int(window["rank"]),
            "group": groups[np.asarray(window["group"], dtype=np.int64)],
            "operation": operations[np.asarray(window["operation"], dtype=np.int64)],
            "seq": np.asarray(window["seq"], dtype=np.int64),
            # As integers to the microsecond: a float holds today's nanoseconds only to 0.2 us.
            "time": np.asarray(window["time_ns"], dtype=np.int64) // 1000 / US,
            "duration": np.where(duration >= 0, duration / US, np.nan),
            "enqueued": window["backend"] != BLOCKING_BACKEND,
        }
    )


def complete(
    records: pd.DataFrame,
    windows: Sequence[Mapping[str, Any]],
    offsets: Mapping[int, ClockOffset],
    world_size: int,
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Fill in sync and compute if records have none; also return notes about them.

    Args:
        records: columns of the trace contract, of one job.
        windows: of that job, as agents send them.
        offsets: of the clocks of the ranks' nodes.
        world_size: ranks that the job has.

    Raises:
        WindowError: the windows have another form than agents send.
    """
    blind = records["sync_seconds"].isna()
    launches, spans = tables(windows)
    if not blind.any() or spans.empty:
        return records, ()
    silent = sorted(set(range(world_size)) - set(spans["rank"].tolist()))
    if silent:
        return records, (
            f"{len(silent)} of {world_size} ranks, the first is rank {silent[0]}, have no windows"
            " of collectives, so that waiting for them cannot be distinguished from compute",
        )
    if launches.empty:
        return records, (
            "no collective is in any Flight Recorder: waiting cannot be distinguished from compute",
        )
    oldest = records["t_start_unix_seconds"].min() - MARGIN_SECONDS
    launches = launches[launches["time"] >= oldest].reset_index(drop=True)
    found = collective_waits.lateness(launches, offsets)
    steps = pd.DataFrame(
        {
            "rank": records["rank"],
            "start": records["t_start_unix_seconds"],
            "end": records["t_start_unix_seconds"] + records["step_seconds"],
        }
    )[blind]
    waits = collective_waits.by_step(found, steps, _blocking(records, launches), spans)
    if waits.table.empty:
        return records, tuple(_why_none(records, found, waits))
    filled = _filled(records, waits)
    return filled, (_about_windows(filled, blind, waits),)


def _blocking(records: pd.DataFrame, launches: pd.DataFrame) -> frozenset[str]:
    """Return the groups of which all ranks share a tensor-parallel group of several."""
    if "tp_group" not in records.columns:
        return frozenset()
    tensor = records.drop_duplicates("rank", keep="last").set_index("rank")["tp_group"]
    members = launches[["group", "rank"]].drop_duplicates()
    tensor_ranks = members.assign(place=members["rank"].map(tensor)).groupby("group")["place"]
    several = tensor_ranks.size() > 1
    return frozenset(
        str(name) for name in tensor_ranks.nunique().index[several & (tensor_ranks.nunique() == 1)]
    )


def _filled(records: pd.DataFrame, waits: collective_waits.Waits) -> pd.DataFrame:
    keys = ["rank", "t_start_unix_seconds"]
    table = waits.table.rename(columns={"start": "t_start_unix_seconds"}).drop_duplicates(keys)
    joined = records[keys].merge(table, how="left", on=keys)
    waited = joined["waited"].to_numpy(np.float64)
    known = np.isfinite(waited) & records["sync_seconds"].isna().to_numpy()
    busy = (records["step_seconds"] - records["data_seconds"].fillna(0.0)).to_numpy(np.float64)
    sync = np.clip(waited, 0.0, busy)
    filled = records.copy()
    filled.loc[known, "sync_seconds"] = sync[known]
    filled.loc[known, "compute_seconds"] = (busy - sync)[known]
    if "timing_source" in filled.columns:
        source = np.where(joined["timed"].eq(True), "kernel", "host")
        filled.loc[known, "timing_source"] = source[known]
    return filled


def _about_windows(
    filled: pd.DataFrame, blind: pd.Series[bool], waits: collective_waits.Waits
) -> str:
    unknown, total = int((blind & filled["sync_seconds"].isna()).sum()), int(blind.sum())
    how = "durations on the device" if waits.table["timed"].all() else "launches on the host"
    return (
        f"{unknown} of {total} step records lie outside of the Flight Recorder's sampled windows"
        f" or hold collectives that not all ranks recorded; in the others sync is waiting by {how},"
        " and transfer is in compute"
    )


def _why_none(
    records: pd.DataFrame, found: pd.DataFrame, waits: collective_waits.Waits
) -> Iterator[str]:
    """Return why no step got its waits, and what the hosts show nevertheless."""
    if not (found["enqueued"] & ~found["timed"]).any():
        yield (
            "no step lies wholly in the sampled windows of its Flight Recorder with collectives"
            " that all ranks recorded"
        )
        return
    yield "the Flight Recorder of NCCL has no durations: when hosts launch shows no device's time"
    step = float(records["step_seconds"].median())
    rank = max(waits.late, key=lambda number: waits.late[number], default=None)
    if rank is not None and waits.late[rank] > HOST_LATE_SHARE * step:
        yield (
            f"compute is unknown, but rank {rank}'s host comes last to collectives, by"
            f" {waits.late[rank] * 1e3:.0f} ms in a step of {step * 1e3:.0f} ms"
        )
