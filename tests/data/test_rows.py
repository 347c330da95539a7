"""Sample rows: what is written is read back, and a bad file is named with its row and field."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipeline.writer import write_rows
from disco_rl.core.sample import Hop, Sample
from disco_rl.data import load_rows

SAMPLES = [
    Sample(
        index=i,
        question="Who rules Vuvi?",
        answers=("Zoë Kelin", "Kelin"),
        context_id="c-1",
        n_shards=3,
        n_tokens=1400,
        hops=(Hop("Who rules Vuvi?", "Zoë Kelin", ("Kelin",), (1, 2), (10, 40)),) * i,
        data_source="disco/world",
    )
    for i in range(3)
]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    assert write_rows(tmp_path / "r.parquet", SAMPLES) == 3
    assert load_rows(tmp_path / "r.parquet") == SAMPLES


def test_a_row_without_a_field_is_named(tmp_path: Path) -> None:
    rows = [sample.to_row() for sample in SAMPLES]
    for row in rows:
        del row["extra_info"]["context_id"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    with pytest.raises(ValueError, match=r"r\.parquet, row 0:.*'context_id' is missing"):
        load_rows(tmp_path / "r.parquet")


def test_a_null_hop_is_named_by_row(tmp_path: Path) -> None:
    rows = [sample.to_row() for sample in SAMPLES]
    rows[2]["extra_info"]["hops"][1]["span"] = None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    with pytest.raises(ValueError, match=r"r\.parquet, row 2:"):
        load_rows(tmp_path / "r.parquet")


def test_missing_column_file_and_format_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["x"]}), tmp_path / "r.parquet")
    with pytest.raises(ValueError, match="column 'reward_model' is missing"):
        load_rows(tmp_path / "r.parquet")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"t\.parquet: not a readable Parquet file"):
        load_rows(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="no such file of sample rows"):
        load_rows(tmp_path / "none.parquet")
