"""Port counter samples as a frame, and the increase of each port's counters.

Columns of the frame, one row for each port and moment (a port that serves several ranks may have a
row for each of them):

| column | what it is |
|---|---|
| `t_unix_seconds`, `node`, `device`, `port` | when and which; all four are needed |
| `job_id` | whose traffic the port carries; ports of one job are peers |
| `rank`, `gpu` | rank and GPU that the port serves, empty for one that serves none (storage) |
| `model` | the adapter's board id: ports of one model can do the same |
| `rate_bytes_per_second`, `max_rate_bytes_per_second`, `pci_link_ratio`, `state` | as they stand |
| `lost` | 1 while the port's device is gone from its node |
| any column of `link_quantities` | cumulative counters; `transmit_bytes`, `receive_bytes` as well |

`column_of` names the column of one of our series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from rankscope_agent.contract.metrics import netdev, rdma
from rankscope_agent.contract.model import Metric
from rankscope_analyzers.numeric import grouped
from rankscope_analyzers.numeric.arrays import Floats, Integers, Strings

KEY = ["node", "device", "port"]
REQUIRED = ("t_unix_seconds", *KEY)

CEILINGS: Mapping[str, float] = {
    "link_downed": 255,
    "link_recoveries": 255,
    "symbol_error": 65_535,
    "port_rcv_errors": 65_535,
    "port_xmit_discards": 65_535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "transmit_wait_ticks": 2**32 - 1,
}
"""Values at which counters stop by the InfiniBand specification; a counter with that value is
unknown."""

_PLAIN: Mapping[Metric, str] = {
    rdma.TRANSMIT_BYTES: "transmit_bytes",
    rdma.RECEIVE_BYTES: "receive_bytes",
    rdma.TRANSMIT_WAIT: "transmit_wait_ticks",
    rdma.LINK_DOWNED: "link_downed",
    rdma.LINK_RECOVERIES: "link_recoveries",
    rdma.LINK_FLAPS: "link_flaps",
    rdma.PORT_STATE: "state",
    rdma.DEVICE_LOST: "lost",
    rdma.PORT_RATE: "rate_bytes_per_second",
    netdev.PCI_LINK_RATIO: "pci_link_ratio",
}
_LABELLED: Mapping[Metric, tuple[str, str]] = {
    rdma.PORT_ERRORS: ("type", "{}"),
    rdma.HW_EVENTS: ("event", "{}"),
    rdma.CONGESTION: ("type", "{}"),
    netdev.PFC_FRAMES: ("direction", "pfc_pause_frames_{}"),
    netdev.PFC_SECONDS: ("direction", "pfc_pause_seconds_{}"),
    netdev.PHY_EVENTS: ("type", "{}"),
    netdev.CARRIER_CHANGES: ("direction", "carrier_{}"),
}
READS: tuple[Metric, ...] = (*_PLAIN, *_LABELLED)
"""All series that a frame's columns come from."""

_PLAIN_COLUMNS = {metric.name: column for metric, column in _PLAIN.items()}
_LABELLED_COLUMNS = {metric.name: form for metric, form in _LABELLED.items()}


class LinkFrameError(ValueError):
    """The frame cannot be read; the argument says which column and why."""


def column_of(name: str, labels: Mapping[str, str]) -> str | None:
    """Return the frame's column for a series, None for one that no conclusion reads.

    Series that differ in another label (priorities of PFC) share a column and are to be summed.
    """
    if name in _PLAIN_COLUMNS:
        return _PLAIN_COLUMNS[name]
    label, form = _LABELLED_COLUMNS.get(name, ("", ""))
    return form.format(labels[label]) if label in labels else None


Steps = tuple[Integers, Floats, Floats, Floats]
"""The increase of a counter between samples, in the order of ports: port, start, end, increase."""


@dataclass(frozen=True)  # without slots: what each finding asks again is computed once
class Ports:
    """The ports of a frame.

    Args:
        table: a row for each port: job_id, node, device, port, gpu, model, ranks.
        numbers: for each sample, the port's row in `table`; samples are in order of time.
        times: Unix time of each sample.
        samples: the samples' numeric columns.
    """

    table: pd.DataFrame
    numbers: Integers
    times: Floats
    samples: pd.DataFrame

    @property
    def count(self) -> int:
        """Return the number of ports."""
        return len(self.table)

    def roles(self) -> Strings:
        """Return what each port is for (P,); ports of one job and role do the same work.

        `serves`: a rank of its job, or a GPU if no rank is known; `idle`: a GPU that no rank uses;
        `other`: neither, as for storage; the port's model if none of that is known.
        """
        table = self.table
        ranks, gpus = table["ranks"].map(bool), table["gpu"] != ""
        ranks_known = ranks.groupby(table["job_id"]).transform("any")
        gpus_known = gpus.groupby(table["job_id"]).transform("any")
        alone = np.where(ranks_known | gpus_known, "other", table["model"])
        otherwise = np.where(gpus, np.where(ranks_known, "idle", "serves"), alone)
        return np.where(ranks, "serves", otherwise).astype(np.str_)

    def has(self, column: str) -> bool:
        """Return True if the frame has this column."""
        return column in self.samples

    def latest(self, column: str) -> Floats:
        """Return each port's newest known value (P,), NaN where there is none."""
        found = np.full(self.count, np.nan)
        if self.has(column):
            values = self.samples[column].to_numpy(np.float64)
            known = np.isfinite(values)
            found[self.numbers[known]] = values[known]  # the last assignment to an index wins
        return found

    def newest(self, column: str) -> Floats:
        """Return the time of each port's newest known value (P,), -inf where there is none."""
        found = np.full(self.count, -np.inf)
        if self.has(column):
            known = np.isfinite(self.samples[column].to_numpy(np.float64))
            found[self.numbers[known]] = self.times[known]
        return found

    def largest(self, column: str) -> Floats:
        """Return each port's largest known value (P,), NaN where there is none."""
        if not self.has(column):
            return np.full(self.count, np.nan)
        values = self.samples[column].groupby(self.numbers).max()
        return values.reindex(range(self.count)).to_numpy(np.float64)

    def samples_of(self, row: int) -> Integers:
        """Return the samples of a port, in order of time."""
        begin, end = np.searchsorted(self.numbers[self._by_port], (row, row + 1))
        return self._by_port[begin:end]

    @cached_property
    def _by_port(self) -> Integers:
        return np.argsort(self.numbers, kind="stable")

    def steps(self, column: str) -> Steps:
        """Return the increase of a counter between samples.

        A counter that falls was reset, and its increase is its new value. One at its ceiling is
        unknown.
        """
        if column not in self._steps:
            self._steps[column] = self._compute_steps(column)
        return self._steps[column]

    def steps_of(self, row: int, column: str) -> tuple[Floats, Floats, Floats]:
        """Return start, end and increase between the samples of one port."""
        ports, starts, ends, grown = self.steps(column)
        begin, end = np.searchsorted(ports, (row, row + 1))
        return starts[begin:end], ends[begin:end], grown[begin:end]

    @cached_property
    def _steps(self) -> dict[str, Steps]:
        return {}

    def _compute_steps(self, column: str) -> Steps:
        if not self.has(column):
            return np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0)
        values = self.samples[column].to_numpy(np.float64)
        known = np.isfinite(values) & (values >= 0) & (values != CEILINGS.get(column, -1))
        order = self._by_port[known[self._by_port]]
        ports, values, times = self.numbers[order], values[order], self.times[order]
        same = ports[1:] == ports[:-1]
        grown = np.diff(values)
        grown = np.where(grown < 0, values[1:], grown)
        return ports[1:][same], times[:-1][same], times[1:][same], grown[same]

    def increase(self, column: str) -> Floats:
        """Return the increase of a counter in each port (P,), NaN where it has no two values."""
        if column not in self._increases:
            ports, _, _, grown = self.steps(column)
            self._increases[column] = grouped.sums(ports, grown, self.count)
        return self._increases[column]

    @cached_property
    def _increases(self) -> dict[str, Floats]:
        return {}

    @cached_property
    def durations(self) -> Floats:
        """Return how long each port was watched (P,) in seconds, 0 with a single sample."""
        return grouped.spans(self.numbers, self.times, self.count)


def read_ports(frame: pd.DataFrame) -> Ports:
    """Check a frame and sort it by port and time.

    Values that are not finite numbers count as unknown; rows without a time or a port are dropped.

    Raises:
        LinkFrameError: a required column is missing.
    """
    missing = [name for name in REQUIRED if name not in frame]
    if missing:
        raise LinkFrameError(f"columns {missing} are missing, have {list(frame.columns)}")
    rows = frame.copy()
    rows["t_unix_seconds"] = pd.to_numeric(rows["t_unix_seconds"], errors="coerce")
    rows = rows[np.isfinite(rows["t_unix_seconds"]) & rows[KEY].notna().all(axis=1)]
    for name in KEY:
        rows[name] = rows[name].astype(str)
    rows = rows.sort_values("t_unix_seconds", kind="stable")
    table = _identities(rows)
    rows = rows.drop_duplicates([*KEY, "t_unix_seconds"], keep="last")
    keys = pd.MultiIndex.from_frame(rows[KEY])
    numbers = pd.MultiIndex.from_frame(table[KEY]).get_indexer(keys).astype(np.int64)
    samples = rows.drop(columns=[*KEY, *(n for n in _IDENTITY if n in rows)])
    samples = samples.apply(pd.to_numeric, errors="coerce").reset_index(drop=True)
    times = samples.pop("t_unix_seconds").to_numpy(np.float64)
    return Ports(table, numbers, times, samples.replace([np.inf, -np.inf], np.nan))


_IDENTITY = ("job_id", "rank", "gpu", "model")


def _identities(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each port, with the newest values of what changed in the meantime."""
    known = rows.assign(**{name: None for name in _IDENTITY if name not in rows})
    groups = known.groupby(KEY, sort=True)
    table = groups[["job_id", "gpu", "model"]].last().reset_index()
    ranks = _ranks(known)
    table["ranks"] = [ranks.get(key, ()) for key in table[KEY].itertuples(index=False, name=None)]
    for name in ("job_id", "gpu", "model"):
        table[name] = [_text(value) for value in table[name]]
    return table


def _ranks(rows: pd.DataFrame) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Return the ranks of each port that has any."""
    numbers = pd.to_numeric(rows["rank"], errors="coerce").to_numpy(np.float64)
    is_rank = numbers >= 0
    known = rows.loc[is_rank, KEY].assign(rank=numbers[is_rank]).drop_duplicates()
    found: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for *key, rank in known.itertuples(index=False, name=None):
        found[tuple(key)].add(int(rank))
    return {key: tuple(sorted(ranks)) for key, ranks in found.items()}


def _text(value: object) -> str:
    """Return a label as text, empty if it is unknown; GPU numbers lose their `.0`."""
    if value is None or value != value:  # NaN is not itself
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
