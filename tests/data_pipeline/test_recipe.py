"""recipes/data: the check finds what is wrong, the bench runs, README says what was measured."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipeline.tokens import count_words, counter
from tests.clients import llama
from tests.data_pipeline.pipeline import ROOT
from tests.scripts import load

RECIPE = ROOT / "recipes" / "data"
sys.path.insert(0, str(RECIPE))
from full_run import ASSUMED, estimate  # noqa: E402
from readme_tables import TABLES, with_tables  # noqa: E402
from rows_check import Wrong, check  # noqa: E402

LENGTHS = (2048, 4096)


def records(inputs: Path, folder: Path) -> Path:
    lines = (inputs / "musique.jsonl").read_text().splitlines()[:12]
    (folder / "records.json").write_text(f"[{','.join(lines)}]")
    return folder / "records.json"


def test_the_check_passes_what_was_built(built: Path, inputs: Path, tmp_path: Path) -> None:
    found = check(built / "dataset", records(inputs, tmp_path), count_words, LENGTHS)
    assert found["rows"] == sum(found["rows by length"].values()) > 6
    assert found["hops whose evidence stands in the final text"] == 2 * found["rows"]


def moved(row: dict[str, Any]) -> None:
    row["extra_info"]["hops"][0]["span"] = row["extra_info"]["hops"][1]["span"]


def elsewhere(row: dict[str, Any]) -> None:
    row["extra_info"]["hops"][1]["shard_ids"] = [0, 1, 2]


def longer(row: dict[str, Any]) -> None:
    row["extra_info"]["n_tokens"] += 1


def another(row: dict[str, Any]) -> None:
    row["prompt"][0]["content"] = "Why?"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (moved, "not of its paragraph"),
        (elsewhere, "shards of hop"),
        (longer, "n_tokens"),
        (another, "prompt"),
    ],
)
def test_the_check_finds_what_is_wrong(
    change: Any, what: str, built: Path, inputs: Path, tmp_path: Path
) -> None:
    shutil.copytree(built / "dataset", tmp_path / "dataset")
    file = tmp_path / "dataset" / "train.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows[-1])
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    with pytest.raises(Wrong, match=what):
        check(tmp_path / "dataset", records(inputs, tmp_path), count_words, LENGTHS)


def test_the_tokenizer_read_from_a_model_file_is_the_models(tmp_path: Path) -> None:
    server = llama.start(64)
    bench = load("bench_data")
    assert bench.smollm2_tokenizer(tmp_path) is not None
    texts = ["Ray Charles, born in 1930.", "  é 🙂 don't\n\n x=10", "A" * 30, "<|im_start|>"]
    ask = llama.ServerTokenizer(server.listening_address)
    for text, n in zip(texts, counter(str(tmp_path))(texts), strict=True):
        body = {"content": text, "add_special": False, "parse_special": True}
        assert n == len(ask._post("/tokenize", body)["tokens"]), text


def bench(what: str, folder: Path, *flags: str) -> dict[str, Any]:
    words = [sys.executable, str(ROOT / "scripts" / "bench_data.py"), what, "--folder", str(folder)]
    done = subprocess.run([*words, *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_the_bench_of_contexts(tmp_path: Path) -> None:
    flags = ("--pages", "2000", "--samples", "3", "--length", "16384", "--shard-size", "512")
    found = bench("contexts", tmp_path, *flags)
    assert (found["pages"], found["samples"]) == (2000, 3)
    assert found["length off by at most"] <= 0.01 and found["encode seconds"] > 0
    assert sum(found["evidence by fifths of the context"]) == 6
    assert len(found["peak memory MB by quarters of the samples"]) == 4


def test_the_bench_of_titles(tmp_path: Path) -> None:
    made = bench("titles", tmp_path, "--titles", "3000")
    assert (made["titles"], made["pages"]) == (3000, 150)
    found = bench("lookup", tmp_path, "--titles", "3000", "--lookups", "500")
    assert 0 < found["warm"]["p50 µs"] <= found["warm"]["p99 µs"]


def test_the_estimate_adds_up() -> None:
    n = ASSUMED["questions"]
    results = {
        "real": {
            "questions": 100,
            "planned": 80,
            "dropped by filters of words": 8,
            "bytes a token": 4.0,
            "seconds": {"mentions": 10.0},
            "store": {"tokens": 1000, "processor seconds": 1.0, "bytes a token": 2.0},
        },
        "contexts": {
            "tokens": 1000,
            "seconds": {"plans": 0.1, "filters": 0.2, "dataset": 0.3},
        },
        "llm": {
            "filters": {
                "calls a sample": {"closed_book": 2.0, "contradiction": 6.0},
                "tokens a sample": 1000.0,
            },
            "mentions": {
                "all": {"a question": 20.0, "tokens a call": 300.0},
                "supporting": {"a question": 2.0, "tokens a call": 300.0},
            },
        },
    }
    found = estimate(results, [(1000, 1.0), (3000, 1.0)])
    assert found["tokens of a sample, on average"] == 2000
    assert found["left by the filters of words"] == round(0.9 * n)
    hours = found["hours of one core"]
    assert hours["mentions, offline"] == round(n * 0.1 / 3600, 2)
    assert hours["plans"] == round(n * 2000 * 1e-4 / 3600, 2)
    assert hours["data set"] == round(ASSUMED["samples"] * 2000 * 3e-4 / 3600, 2)
    assert found["gigabytes"]["data set"] == round(ASSUMED["samples"] * 2000 * 4 / 1e9, 1)
    assert found["LLM calls, at most"]["contradiction"] == round(0.9 * n * 6)
    assert found["LLM calls, at most, together"] == round(20 * n + 0.9 * n * 8)
    assert found["LLM input tokens"] == round(20 * n * 300 + 0.9 * n * 1000)


def test_readme_says_what_the_results_say() -> None:
    results = json.loads((RECIPE / "results.json").read_text(encoding="utf-8"))
    text = (RECIPE / "README.md").read_text(encoding="utf-8")
    assert with_tables(text, results) == text
    assert with_tables(text, {}).count("| not run |") == len(TABLES)
    made_up = {"titles": 3000, "pages": 150, "file MB": 1, "built in s": 2.5}
    more = {"built in s of processor": 2.0, "peak memory MB": 123_456}
    told = with_tables(text, results | {"titles": made_up | more})
    assert "| 123,456 MB |" in told and "| 3,000 / 150 |" in told
    for part in results.values():
        assert part["commit"] and part["versions"]["python"] and part["seed"] == 1
