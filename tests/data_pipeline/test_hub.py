"""Records from the hub and the data set to it, through their own clients, without a network."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.__main__ import main
from data_pipeline.steps.run import run
from disco_rl.data import load_rows
from tests.data_pipeline import small_wiki
from tests.data_pipeline.pipeline import overrides, quiet, typed


def records(n: int) -> list[dict[str, Any]]:
    return small_wiki.records(n, small_wiki.titles(9), 4)


def test_records_come_from_the_hub_client(inputs: Path, tmp_path: Path) -> None:
    """`datasets` reads a folder as it reads a repository."""
    made = records(3)
    made[1]["answerable"] = False
    (tmp_path / "mirror").mkdir()
    small_wiki.write_records(tmp_path / "mirror" / "train.jsonl", made)
    source = f"questions.in='hub:{tmp_path / 'mirror'}'"
    manifests = run(typed([*overrides(inputs, tmp_path / "out"), source]), "questions", quiet)
    counts = manifests["questions"]["counts"]
    assert counts["questions"] == 2
    assert counts["is_supporting marks the paragraphs of the hops"] == 2
    aside = json.loads((tmp_path / "out" / "set_aside.jsonl").read_text())
    assert aside["line"] == 2 and "answerable is false" in aside["reason"]


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("hub:dgslibisey/MuSiQue", ("dgslibisey/MuSiQue", "train")),
        ("hub:bdsaglam/musique:validation", ("bdsaglam/musique", "validation")),
    ],
)
def test_a_mirror_and_its_split_are_asked_for(
    source: str,
    asked: tuple[str, str],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, str]] = []

    def load(name: str, *, split: str) -> list[dict[str, Any]]:
        seen.append((name, split))
        return records(4)

    monkeypatch.setattr("datasets.load_dataset", load)
    words = [*overrides(inputs, tmp_path / "out"), f"questions.in='{source}'"]
    manifest = run(typed(words), "questions", quiet)["questions"]
    assert seen == [asked] and manifest["counts"]["questions"] == 4
    run(typed(words), "questions", quiet)
    assert len(seen) == 1  # what was read stands in questions.jsonl


def test_a_hub_that_cannot_be_reached_is_explained(
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load(name: str, *, split: str) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr("datasets.load_dataset", load)
    words = [*overrides(inputs, tmp_path / "out"), "questions.in='hub:a/b'"]
    assert main(["questions", *words]) == 2
    assert "hub:a/b can't be loaded: no route to the hub" in capsys.readouterr().err


class Hub:
    """Keeps what `HfApi` is told, and what stands in an uploaded folder; fails `n_failures` times
    first."""

    def __init__(self, n_failures: int = 0):
        self.n_failures = n_failures
        self.created: list[dict[str, Any]] = []
        self.uploaded: dict[str, set[str]] = {}

    def create_repo(self, repository: str, **how: Any) -> None:
        self.created.append({"repository": repository, **how})

    def upload_folder(self, *, repo_id: str, repo_type: str, folder_path: str) -> str:
        if self.n_failures:
            self.n_failures -= 1
            raise ConnectionError("the upload broke off")
        folder = Path(folder_path)
        files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
        self.uploaded[f"{repo_type}s/{repo_id}"] = files
        return f"the address of {repo_id}"


def test_the_data_set_is_pushed_on_request_and_again_after_a_failure(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(n_failures=1)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    out = tmp_path / "out"
    run(typed(overrides(inputs, out)), "dataset", quiet)
    assert hub.created == []  # only on request
    settings = typed(overrides(inputs, out, "dataset.push_to=me/data"))
    with pytest.raises(ConnectionError, match="broke off"):
        run(settings, "dataset", quiet)
    run(settings, "dataset", quiet)
    assert hub.created[-1] == {"repository": "me/data", "repo_type": "dataset", "exist_ok": True}
    assert hub.uploaded["datasets/me/data"] >= {
        "README.md", "train.parquet", "validation.parquet", "samples.jsonl", "dropped.jsonl",
        "report.html", "manifest.json", "contexts/data-00000-of-00001.arrow",
    }  # fmt: skip


def test_the_card_says_which_files_are_the_rows(built: Path, tmp_path: Path) -> None:
    """As the hub's client reads a repository: rows by split, not the store or the lists."""
    from datasets import load_dataset

    rows = load_dataset(str(built / "dataset"), cache_dir=str(tmp_path))
    assert set(rows) == {"train", "validation"}
    for split in rows:
        expected = [s.to_row() for s in load_rows(built / "dataset" / f"{split}.parquet")]
        assert [row["extra_info"]["question"] for row in rows[split]] == [
            row["extra_info"]["question"] for row in expected
        ]
