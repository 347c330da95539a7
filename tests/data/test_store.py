"""The context store: shards read by themselves, exactly, and errors that say what to do."""

import json
import pickle
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.tokens import count_words
from data_pipeline.writer import write_store
from disco_rl.core.shards import Shard, TextContext
from disco_rl.data import ContextStore, StoreError, StoreInfo
from disco_rl.data.store import ARROW_FILE, INFO_FILE, MANIFEST_FILE

INFO = StoreInfo("words", 16)
TEXT = "Zoë wrote naïve letters. 京都の塔は高い。 Ĵoš kept 🦉 owls! " * 40


def store_of(folder: Path, *texts: str, info: StoreInfo = INFO) -> ContextStore:
    contexts = [
        TextContext.cut(f"c-{i}", text, count_words, info.shard_size)
        for i, text in enumerate(texts)
    ]
    write_store(folder, ((c.id, c.text, c.shards) for c in contexts), info)
    return ContextStore(folder)


def test_every_shard_reads_as_its_span_of_the_text(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", "First context.", TEXT, "Last one. With two sentences.")
    context = store.get("c-1")
    assert len(context.shards) > 20
    for shard in context.shards:
        assert context.read(shard.index) == TEXT[shard.start : shard.end]
    assert context.text() == TEXT
    assert context.id == "c-1"
    assert store.ids() == ["c-0", "c-1", "c-2"]
    assert store.info == INFO


@settings(deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_any_text_comes_back(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    store = store_of(tmp_path_factory.mktemp("any") / "s", *texts)
    for i, text in enumerate(texts):
        context = store.get(f"c-{i}")
        assert "".join(context.read(shard.index) for shard in context.shards) == text
        assert context.text() == text


def test_reading_a_shard_copies_that_shard_only(tmp_path: Path) -> None:
    text = "Plain words stand here in a row. " * 200_000  # 6.6 MB
    context = TextContext.cut("big", text, count_words, 4096)
    write_store(tmp_path / "s", [("big", text, context.shards)], StoreInfo("words", 4096))
    stored = ContextStore(tmp_path / "s").get("big")
    longest = max(shard.end - shard.start for shard in stored.shards)
    arrow_before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        read = stored.read(100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == context.read(100)
    assert peak < 4 * longest  # the bytes, the string, and change
    assert pa.total_allocated_bytes() - arrow_before < longest


def test_opening_and_getting_leave_the_text_on_disk(tmp_path: Path) -> None:
    text = "Plain words stand here in a row. " * 200_000
    context = TextContext.cut("big", text, count_words, 4096)
    write_store(tmp_path / "s", [("big", text, context.shards)], StoreInfo("words", 4096))
    arrow_before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        stored = ContextStore(tmp_path / "s").get("big")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(stored.shards) == len(context.shards)
    assert peak < len(text) / 4
    assert pa.total_allocated_bytes() - arrow_before < len(text) / 4


def test_a_shard_that_is_not_there_is_an_index_error(tmp_path: Path) -> None:
    context = store_of(tmp_path / "s", TEXT).get("c-0")
    for index in (-1, len(context.shards)):
        with pytest.raises(IndexError, match=rf"'c-0' has {len(context.shards)} shards"):
            context.read(index)


def test_datasets_opens_the_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    store_of(tmp_path / "s", "One sentence.", TEXT)
    loaded = datasets.load_from_disk(str(tmp_path / "s"))
    assert loaded[1]["text"] == TEXT
    assert set(loaded.column_names) == {"context_id", "text", "shards"}
    assert json.loads(loaded.info.description)["tokenizer"] == "words"


def test_many_batches_and_a_pickled_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_pipeline.writer._BATCH_BYTES", 50)
    texts = [f"Text number {i} is about ünique words." for i in range(20)]
    store = store_of(tmp_path / "s", *texts)
    again = pickle.loads(pickle.dumps(store))
    assert [again.get(f"c-{i}").text() for i in range(20)] == texts
    assert len(again) == 20 and "c-7" in again and "x" not in again


def test_unknown_id_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no context 'c-11'.*nearest id is 'c-1'"):
        store_of(tmp_path / "s", "A.", "B.", "D.").get("c-11")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"tokenizer": "qwen"}, "tokenizer is 'words', but 'qwen' was asked for"),
        ({"shard_size": 4096}, "shard_size is 16, but 4096 was asked for"),
    ],
)
def test_other_settings_are_refused_on_opening(tmp_path: Path, wanted: dict, message: str) -> None:
    store_of(tmp_path / "s", "A.")
    ContextStore(tmp_path / "s", tokenizer="words", shard_size=16)
    with pytest.raises(StoreError, match=message):
        ContextStore(tmp_path / "s", **wanted)


def test_a_missing_folder_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: no such context store; build it with"):
        ContextStore(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (MANIFEST_FILE, "manifest.json is missing"),
        (INFO_FILE, r"dataset_info.json: tokenizer and shard size can't be read"),
        (ARROW_FILE, r"data-00000-of-00001.arrow: not readable as Arrow"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, file: str, message: str) -> None:
    store_of(tmp_path / "s", "A.")
    (tmp_path / "s" / file).unlink()
    with pytest.raises(StoreError, match=message):
        ContextStore(tmp_path / "s")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    store_of(tmp_path / "s", TEXT)
    file = tmp_path / "s" / ARROW_FILE
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(StoreError, match="not readable as Arrow"):
        ContextStore(tmp_path / "s")


def test_a_foreign_table_names_the_missing_column(tmp_path: Path) -> None:
    store_of(tmp_path / "s", "A.")
    table = pa.table({"context_id": ["c-0"], "shards": [[]]})
    file = str(tmp_path / "s" / ARROW_FILE)
    with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(StoreError, match="column 'text' is missing"):
        ContextStore(tmp_path / "s")


def test_shards_that_do_not_rebuild_the_text_are_refused(tmp_path: Path) -> None:
    for shards in ([Shard(0, 0, 2, 1)], [Shard(0, 1, 4, 1)], []):
        with pytest.raises(ValueError, match="shard"):
            write_store(tmp_path / "s", [("c", "Four", shards)], INFO)
    assert list(tmp_path.iterdir()) == []  # nothing half-written stays behind


def test_a_duplicate_id_is_refused_and_a_full_folder_kept(tmp_path: Path) -> None:
    item = ("c", "Four", [Shard(0, 0, 4, 1)])
    with pytest.raises(ValueError, match="two contexts have the id 'c'"):
        write_store(tmp_path / "s", [item, item], INFO)
    write_store(tmp_path / "s", [item], INFO)
    with pytest.raises(ValueError, match="exists already"):
        write_store(tmp_path / "s", [item], INFO)
    assert ContextStore(tmp_path / "s").get("c").read(0) == "Four"
