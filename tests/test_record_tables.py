"""Records come in order of their start, from memory and from Parquet files alike."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankscope_analyzers.steps.layout import layout
from rankscope_analyzers.steps.parquet import ParquetTable
from rankscope_analyzers.steps.tables import BATCH_ROWS, FrameTable
from rankscope_analyzers.stragglers import feed
from suite_jobs import fault, made

COLUMNS = ("step", "rank", "t_start_unix_seconds", "step_seconds")


def records(count, shuffle_blocks_of=1):
    """Return records whose start is the step, shuffled inside blocks of some records."""
    random = np.random.default_rng(3)
    step = np.arange(count)
    order = np.lexsort((random.random(count), step // shuffle_blocks_of))
    rank = step[order] % 7
    return pd.DataFrame(
        {
            "step": step[order],
            "rank": rank,
            "node": [f"node-{number}" for number in rank],
            "t_start_unix_seconds": step[order] + 0.5,
            "step_seconds": 1.0,
        }
    )


def parquet(path, frame, **options):
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, **options)
    return ParquetTable(path)


def read(table):
    """Return all batches below each other, with the row numbers and the names of nodes."""
    parts = [pd.DataFrame({**batch.table, "row": batch.row}) for batch in table.batches(COLUMNS)]
    whole = pd.concat(parts, ignore_index=True)
    names = [*table.node_names, None]
    return whole.assign(node=[names[number] for number in whole["node"]])


@pytest.mark.parametrize("blocks", [1, 1000, BATCH_ROWS + 7, 10**9])
def test_a_file_gives_its_records_in_order_however_they_are_shuffled(tmp_path, blocks):
    frame = records(3 * BATCH_ROWS + 5, blocks)
    table = parquet(tmp_path / "records.parquet", frame, row_group_size=50_000)
    whole = read(table)
    assert (np.diff(whole["t_start_unix_seconds"]) > 0).all()
    expected = frame.iloc[whole["row"] - 1].reset_index(drop=True)
    for name in (*COLUMNS, "node"):
        assert whole[name].tolist() == expected[name].tolist()
    assert table.rank_count == 7


@pytest.mark.parametrize("blocks", [1, BATCH_ROWS + 7, 10**9])
def test_texts_that_end_with_each_part_of_a_file_are_read_beside_numbers_that_do_not(
    tmp_path, blocks
):
    """The first pass reads numbers alone where no record names a node, the second one texts too."""
    frame = records(2 * BATCH_ROWS + 5, blocks).drop(columns="node").assign(job_id="team/a")
    table = parquet(tmp_path / "records.parquet", frame, row_group_size=50_000)
    parts = [pd.DataFrame(batch.table) for batch in table.batches((*COLUMNS, "job_id"))]
    starts = pd.concat(parts)["t_start_unix_seconds"]
    assert len(starts) == len(frame)
    assert (np.diff(starts) > 0).all()


@pytest.mark.parametrize("blocks", [1, 1000, 10**9])
def test_memory_and_file_give_the_same(tmp_path, blocks):
    frame = records(70_000, blocks)
    of_file = read(parquet(tmp_path / "records.parquet", frame))
    pd.testing.assert_frame_equal(read(FrameTable(frame)), of_file, check_dtype=False)


def test_no_more_of_a_file_is_kept_than_its_disorder_demands(tmp_path):
    table = parquet(tmp_path / "records.parquet", records(5 * BATCH_ROWS, 1000))
    newest = [batch.table["t_start_unix_seconds"].max() for batch in table.batches(COLUMNS)]
    assert newest[0] < 1.1 * BATCH_ROWS
    assert len(newest) >= 5


def test_what_is_no_number_is_unknown_and_nodes_may_be_missing(tmp_path):
    frame = records(10).astype({"rank": object, "node": object})
    frame.loc[4, "node"] = None
    frame["rank"] = [*map(str, frame["rank"][:9]), "seven"]
    whole = read(parquet(tmp_path / "records.parquet", frame))
    assert whole["rank"].isna().tolist() == [False] * 9 + [True]
    assert whole["node"].isna().tolist() == [False] * 4 + [True] + [False] * 5


def test_records_without_a_start_come_too(tmp_path):
    frame = records(10)
    frame.loc[3, "t_start_unix_seconds"] = np.nan
    for table in (FrameTable(frame), parquet(tmp_path / "records.parquet", frame)):
        whole = read(table)
        assert sorted(whole["row"]) == list(range(1, 11))
        assert whole.loc[whole["t_start_unix_seconds"].isna(), "row"].tolist() == [4]


def test_nodes_may_be_numbers(tmp_path):
    frame = records(10).assign(node=np.arange(10) % 2 + 5)
    for table in (FrameTable(frame), parquet(tmp_path / "records.parquet", frame)):
        assert table.node_names == ("5", "6")
        assert read(table)["node"].tolist() == ["5", "6"] * 5


def test_a_file_and_a_table_give_the_same_verdict(tmp_path):
    simulated = made(fault("gpu_compute", "gpu", 1.4))
    job = layout(simulated.meta, 0)
    of_file = feed.detect(parquet(tmp_path / "records.parquet", simulated.records), job)
    assert of_file == feed.detect(FrameTable(simulated.records), job)
    assert of_file.incidents
