"""From the records of a job, however they are stored, to its incidents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account, Dropped, Rules
from rankscope_analyzers.steps.tables import RecordTable
from rankscope_analyzers.stragglers.assembly import BLOCK_ROWS, Assembler, Block
from rankscope_analyzers.stragglers.detector import Detector
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.rows import PLACES, REQUIRED, rows_of
from rankscope_analyzers.stragglers.shape import Shape


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found in the records of a job, and which of them were of no use."""

    incidents: tuple[Incident, ...]
    dropped: tuple[Dropped, ...]


def detect(records: RecordTable, job: Layout, block_rows: int = BLOCK_ROWS) -> Judged:
    """Return the incidents in a job's records.

    Args:
        records: all of them.
        job: layout of the job.
        block_rows: records that are judged at once; the answer does not depend on it.

    Raises:
        RecordError: a column is missing, nothing is usable, or records contradict the layout.
    """
    account = Account()
    detector = Detector(records.node_names)
    for made in assembled(records, job, account, block_rows):
        if isinstance(made, Shape):
            detector.restart(made)
        else:
            detector.feed(made.counters, made.ends, made.steps)
    return Judged(detector.incidents, account.dropped)


def assembled(
    records: RecordTable, job: Layout, account: Account, block_rows: int = BLOCK_ROWS
) -> Iterator[Shape | Block]:
    """Yield the steps of a job's records, the shape of each run before its blocks.

    Raises:
        RecordError: as for `detect`.
    """
    step_records.require(records.columns, REQUIRED)
    rules = Rules(REQUIRED, world=job.world)
    columns = (*REQUIRED, *(name for name in PLACES if name in records.columns))
    assembler = Assembler(job, account, block_rows)
    used = 0
    for batch in records.batches(columns):
        keep = step_records.usable(batch.table, rules, batch.row, account)
        rows = rows_of(batch.table, batch.row, keep)
        used += len(rows)
        yield from assembler.take(rows)
    if not used:
        raise account.nothing_left()
    yield from assembler.finish()
