"""From the records of a job, however they are stored, to its incidents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope_analyzers.steps import records as step_records
from rankscope_analyzers.steps.layout import Layout
from rankscope_analyzers.steps.records import Account, Dropped, Rules
from rankscope_analyzers.steps.tables import RecordTable
from rankscope_analyzers.stragglers.assembly import BLOCK_ROWS, Assembler, Block
from rankscope_analyzers.stragglers.chores import NOTHING, Waited
from rankscope_analyzers.stragglers.detector import Detector
from rankscope_analyzers.stragglers.incidents import Incident
from rankscope_analyzers.stragglers.rows import PARTS, REQUIRED, USED, rows_of
from rankscope_analyzers.stragglers.shape import Shape
from rankscope_analyzers.stragglers.view import Part


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found in the records of a job.

    Args:
        incidents: in order of detection.
        dropped: records that were of no use.
        known: parts of the step that the newest steps were judged by.
        chores: what first ranks did while all others waited.
        notes: what was compared otherwise than usual, as sentences.
    """

    incidents: tuple[Incident, ...]
    dropped: tuple[Dropped, ...]
    known: frozenset[Part] = frozenset()
    chores: Waited = NOTHING
    notes: tuple[str, ...] = ()


def detect(records: RecordTable, job: Layout, block_rows: int = BLOCK_ROWS) -> Judged:
    """Return the incidents in a job's records.

    Args:
        records: all of them.
        job: layout of the job.
        block_rows: records that are judged at once; the answer does not depend on it.

    Raises:
        RecordError: a column is missing, nothing is usable, or records contradict the layout.
    """
    return _detected(records, job, block_rows, whole=False)


def judge(records: RecordTable, job: Layout) -> Judged:
    """Return what is known of a job as of its newest record: in short jobs, sooner than `detect`.

    Raises:
        RecordError: as for `detect`.
    """
    return _detected(records, job, BLOCK_ROWS, whole=True)


def _detected(records: RecordTable, job: Layout, block_rows: int, *, whole: bool) -> Judged:
    account = Account()
    detector = Detector(records.node_names)
    shape: Shape | None = None
    begun: Shape | None = None
    for made in assembled(records, job, account, block_rows):
        if isinstance(made, Shape):
            begun = shape = made
        else:
            if begun is not None:
                detector.restart(begun, made.steps.step if whole else None)
                begun = None
            detector.feed(made.counters, made.ends, made.steps, made.marked)
    detector.finish()
    return Judged(
        detector.conclude() if whole else detector.incidents,
        account.dropped,
        detector.known,
        detector.chores,
        () if shape is None else tuple(_notes(shape)),
    )


def _notes(shape: Shape) -> Iterator[str]:
    """Say what is not known of how ranks work together."""
    if shape.pipeline > 1 and not shape.counted:
        yield f"micro-batches of a step were not counted: taken for {shape.microbatches}"


def assembled(
    records: RecordTable, job: Layout, account: Account, block_rows: int = BLOCK_ROWS
) -> Iterator[Shape | Block]:
    """Yield the steps of a job's records, the shape of each run before its blocks.

    Raises:
        RecordError: as for `detect`.
    """
    step_records.require(records.columns, REQUIRED)
    columns = tuple(name for name in USED if name in records.columns)
    parts = tuple(name for name in PARTS if name in columns)
    rules = Rules(REQUIRED, parts, world=None if job.by_groups else job.world)
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
