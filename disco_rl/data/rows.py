"""Reads sample rows from the Parquet file that verl reads too."""

from pathlib import Path

from disco_rl.core.sample import Sample


def load_rows(path: str | Path) -> list[Sample]:
    """The samples of a Parquet file, in file order.

    Raises `ValueError` naming the file, and the row and field where one is missing or malformed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file of sample rows; build it with "
            "`python -m data_pipeline world out=FOLDER`, or correct the path"
        )
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error}); build it anew") from error
    for name in ("reward_model", "extra_info"):
        if name not in table.column_names:
            raise ValueError(
                f"{path}: column {name!r} is missing (there are {table.column_names}); "
                "build the rows with data_pipeline"
            )
    samples = []
    for number, row in enumerate(table.to_pylist()):
        try:
            samples.append(Sample.from_row(row))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from error
    return samples
