"""Traces that hold more than a trace may are refused in one sentence, before they are unpacked."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import resource
import zipfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankscope_analyzers import cli
from rankscope_analyzers.steps import (
    job_records,
    parquet,
    parquet_columns,
    record_files,
    stored_traces,
)
from rankscope_analyzers.steps.job_records import SourceError

MAX_COLUMNS = 256

STEPS = "step,rank,t_start_unix_seconds,step_seconds\n"


def refused(folder, complaint):
    with pytest.raises(SourceError, match=complaint) as raised:
        stored_traces.from_traces([folder])
    assert str(folder / "records") in str(raised.value)


def test_text_that_unpacks_to_more_than_a_trace_is_not_unpacked_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "MAX_TEXT_BYTES", 1 << 20)
    (tmp_path / "records.csv.gz").write_bytes(
        gzip.compress((STEPS + "1,1,1,1\n" * 200_000).encode())
    )
    refused(tmp_path, r"bytes of text, and a trace may have 1,048,576")


def test_rows_beyond_the_most_are_refused_in_every_form(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "MAX_ROWS", 10)
    rows = pd.DataFrame({"step": range(11), "rank": 0})
    writers = {
        "records.csv": lambda path: rows.to_csv(path, index=False),
        "records.csv.gz": lambda path: rows.to_csv(path, index=False),
        "records.npz": lambda path: np.savez(path, step=rows["step"], rank=rows["rank"]),
        "records.parquet": rows.to_parquet,
    }
    assert writers.keys() == record_files.READERS.keys()
    for name, write in writers.items():
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        write(folder / name)
        refused(folder, "11 rows, and a trace may have 10")


def test_a_small_parquet_file_of_a_hundred_million_rows_is_refused(tmp_path):
    zeros = pa.table({"step": pa.array(np.zeros(10_000_000, dtype=np.int8))})
    with pq.ParquetWriter(tmp_path / "records.parquet", zeros.schema) as writer:
        for _ in range(10):
            writer.write_table(zeros)
    assert (tmp_path / "records.parquet").stat().st_size < 1_000_000
    refused(tmp_path, "100,000,000 rows, and a trace may have")


def test_a_file_that_is_read_a_part_at_a_time_may_not_go_on_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MAX_STREAMED_ROWS", 10)
    pd.DataFrame({"step": range(11), "rank": 0}).to_parquet(tmp_path / "records.parquet")
    with pytest.raises(SourceError, match="11 rows, and a trace may have 10"):
        job_records.table(tmp_path)


def test_one_long_text_that_every_row_repeats_is_not_unpacked(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"node": texts}), tmp_path / "records.parquet")
    assert (tmp_path / "records.parquet").stat().st_size < 2_000_000
    refused(tmp_path, "20,000,000,000 bytes, and a trace may have")


def test_columns_of_one_number_are_measured_by_what_they_unpack_to(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "MAX_UNPACKED_BYTES", 1 << 20)
    zeros = np.zeros(100_000, dtype=np.int8)
    pq.write_table(pa.table({f"c{n}": zeros for n in range(20)}), tmp_path / "records.parquet")
    assert (tmp_path / "records.parquet").stat().st_size < 20_000
    refused(tmp_path, "16,000,000 bytes, and a trace may have 1,048,576")


def test_texts_are_measured_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "MAX_UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    table = pa.table({"node": [f"{'x' * 1_000_000}{n}" for n in range(8)]})
    pq.write_table(table, tmp_path / "records.parquet", use_dictionary=False, compression="zstd")
    assert (tmp_path / "records.parquet").stat().st_size < 20_000
    refused(tmp_path, "8,000,.* bytes, and a trace may have 1,048,576")


def test_values_wider_than_a_number_are_not_read(tmp_path):
    wide = {
        "step": pa.array([b"\0" * 100_000] * 2_000, pa.binary(100_000)),
        "rank": pa.array([{"a": 1}] * 2_000),
        "local_rank": pa.array(range(2_000)),
    }
    pq.write_table(pa.table(wide), tmp_path / "records.parquet", compression="zstd")
    assert (tmp_path / "records.parquet").stat().st_size < 30_000
    assert list(record_files.read(tmp_path / "records.parquet").columns) == ["local_rank"]
    assert list(parquet.ParquetTable(tmp_path / "records.parquet").columns) == ["local_rank"]


def test_texts_in_a_column_of_numbers_are_not_unpacked_a_part_at_a_time(tmp_path):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000), pa.array(["x" * 1_000_000]))
    numbers = pa.array(["7", None] * 10_000).dictionary_encode()
    columns = {"step": texts, "rank": numbers, "t_start_unix_seconds": range(20_000)}
    pq.write_table(pa.table(columns), tmp_path / "records.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (batch,) = parquet.ParquetTable(tmp_path / "records.parquet").batches(
        ["step", "rank", "t_start_unix_seconds"]
    )
    assert np.isnan(batch.table["step"]).all()
    np.testing.assert_array_equal(batch.table["rank"][:4], [7, np.nan, 7, np.nan])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_a_row_group_of_more_text_than_a_trace_is_not_read_a_part_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MAX_TEXT_BYTES", 1 << 20)
    table = pa.table({"node": [f"{'x' * 1_000_000}{n}" for n in range(2)]})
    pq.write_table(table, tmp_path / "records.parquet", use_dictionary=False, compression="zstd")
    with pytest.raises(SourceError, match="bytes of text in a row group, and a trace may have"):
        job_records.table(tmp_path)


def test_arrays_are_measured_by_what_they_unpack_to(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "MAX_UNPACKED_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "records.npz", step=np.zeros(1 << 18))
    assert (tmp_path / "records.npz").stat().st_size < 10_000
    refused(tmp_path, "bytes, and a trace may have 1,048,576")


def test_an_array_that_claims_more_than_its_file_holds_is_refused(tmp_path):
    claim = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }"
    header = b"\x93NUMPY\x01\x00" + len(claim).to_bytes(2, "little") + claim
    with zipfile.ZipFile(tmp_path / "records.npz", "w") as archive:
        archive.writestr("step.npy", header)
    refused(tmp_path, "cannot be read as step records")


def test_columns_beyond_the_most_are_refused(tmp_path):
    names = [f"c{number}" for number in range(MAX_COLUMNS + 1)]
    (tmp_path / "records.csv").write_text(",".join(names) + "\n")
    refused(tmp_path, "257 columns, and a trace may have 256")


def test_texts_of_a_parquet_file_come_back_as_texts(tmp_path):
    rows = pd.DataFrame({"node": ["a", None, "a"], "step": [1, 2, 3], "lists": [[1], [2], [3]]})
    rows.to_parquet(tmp_path / "records.parquet")
    read = record_files.read(tmp_path / "records.parquet")
    pd.testing.assert_frame_equal(read, rows[["node", "step"]])


@pytest.mark.parametrize(
    "meta", ["[" * 200_000, json.dumps({"a": "x" * 100})], ids=["nests", "swells"]
)
def test_metadata_that_nests_or_swells_is_one_sentence(tmp_path, monkeypatch, capsys, meta):
    monkeypatch.setattr(job_records, "MAX_META_BYTES", len(meta) - (meta[0] == "{"))
    (tmp_path / "records.csv").write_text(STEPS + "1,0,1,1\n")
    (tmp_path / "meta.json").write_text(meta)
    assert cli.main(["diagnose", "--trace", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "meta.json cannot be read as JSON" in printed.err


@pytest.mark.parametrize(("rows", "taken"), [(67_108_864, True), (67_108_865, False)])
def test_64_mebi_records_are_taken(tmp_path, monkeypatch, rows, taken):
    records = pd.DataFrame(index=range(rows))
    monkeypatch.setitem(record_files.READERS, "records.csv", lambda path: records)
    with contextlib.nullcontext() if taken else pytest.raises(record_files.TooLargeError):
        assert record_files.read(tmp_path / "records.csv") is records


@pytest.mark.parametrize(("before", "taken"), [(2_147_483_644, True), (2_147_483_645, False)])
def test_2_gib_of_text_are_taken(before, taken):
    stream = record_files._Bounded(io.BytesIO(b"step"))
    stream._given = before
    with contextlib.nullcontext() if taken else pytest.raises(record_files.TooLargeError):
        assert stream.read(10) == b"step"


@pytest.mark.parametrize(("claimed", "taken"), [(8_589_934_592, True), (8_589_934_593, False)])
def test_an_archive_may_claim_8_gib_of_columns(tmp_path, claimed, taken):
    column = io.BytesIO()
    np.save(column, np.arange(4))
    with zipfile.ZipFile(tmp_path / "records.npz", "w") as archive:
        archive.writestr("step.npy", column.getvalue())
        archive.filelist[0].file_size = claimed
    with contextlib.nullcontext() if taken else pytest.raises(record_files.TooLargeError):
        assert list(record_files.read(tmp_path / "records.npz")["step"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(("rows", "taken"), [(2_147_483_648, True), (2_147_483_649, False)])
def test_2_gibi_records_are_read_a_part_at_a_time(rows, taken):
    metadata = SimpleNamespace(num_rows=rows, num_row_groups=0)
    file = SimpleNamespace(schema_arrow=[], metadata=metadata)
    if taken:
        parquet._check(file, ())
        return
    with pytest.raises(record_files.TooLargeError, match="2,147,483,649 rows"):
        parquet._check(file, ())


def test_numbers_are_read_up_to_those_of_32_bytes():
    kinds = {"widest": pa.decimal256(76), "wider": pa.binary(33), "list": pa.list_(pa.int8())}
    assert parquet_columns.readable(pa.schema(list(kinds.items()))) == ["widest"]
