"""The command: same seed, same bytes; a rerun does nothing; mistakes are explained."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_pipeline.__main__ import main
from data_pipeline.build_world import build_world
from data_pipeline.world import WorldConfig, make_world
from disco_rl.data import ContextStore, load_rows

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["n_train=24", "n_validation=8", "n_test=8"]
COUNTS = {"train": 24, "validation": 8, "test": 8}


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_same_seed_same_bytes_in_two_processes(tmp_path: Path) -> None:
    for name, hash_seed in (("a", "1"), ("b", "2")):
        command = [sys.executable, "-m", "data_pipeline", "world", f"out={tmp_path / name}", *SMALL]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # no bar where there is no terminal
    first = hashes(tmp_path / "a")
    assert first == hashes(tmp_path / "b")
    assert set(first) == {
        "manifest.json",
        "train.parquet",
        "validation.parquet",
        "test.parquet",
        "contexts/data-00000-of-00001.arrow",
        "contexts/dataset_info.json",
        "contexts/manifest.json",
        "contexts/state.json",
    }
    recorded = json.loads((tmp_path / "a" / "manifest.json").read_text())["sha256"]
    assert recorded == {name: value for name, value in first.items() if name != "manifest.json"}


def test_the_files_hold_the_world_that_python_makes(tmp_path: Path) -> None:
    config = WorldConfig()
    build_world(tmp_path / "w", seed=3, n_questions=COUNTS, config=config, tokenizer="words")
    store = ContextStore(tmp_path / "w" / "contexts", tokenizer="words", shard_size=512)
    for split, n in COUNTS.items():
        world = make_world(3, split, n, config)
        assert load_rows(tmp_path / "w" / f"{split}.parquet") == world.samples
        for region in world.regions:
            stored = store.get(region.context.id)
            assert stored.text() == region.context.text
            assert stored.shards == region.context.shards


def test_a_rerun_does_nothing_and_other_settings_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "w"
    assert main(["world", f"out={out}", *SMALL]) == 0
    assert "built" in capsys.readouterr().out
    times = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    assert main(["world", f"out={out}", *SMALL]) == 0
    assert "complete already, nothing to do" in capsys.readouterr().out
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == times
    assert main(["world", f"out={out}", "seed=2", *SMALL]) == 2
    assert "seed: 1 there, 2 asked for" in capsys.readouterr().err
    (out / "manifest.json").unlink()
    assert main(["world", f"out={out}", *SMALL]) == 2
    assert "no complete build; remove it" in capsys.readouterr().err


def test_a_build_that_dies_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("data_pipeline.output.write_json", full)
    with pytest.raises(OSError, match="disk full"):
        build_world(
            tmp_path / "w", seed=1, n_questions=COUNTS, config=WorldConfig(), tokenizer="words"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["wold"], "no step 'wold'; there are: world, musique"),
        (["world"], "give a value for: out="),
        (["world", "out=x", "sed=1"], "did you mean 'seed'?"),
        (["world", "out=x", "n_train=many"], "n_train must be a whole number of at least 0"),
        (["world", "out=x", "lengths=2048"], "lengths must be pairs"),
        (["world", "out=x", "lengths=[[10,1]]"], "lengths must be at least 900 tokens"),
        (["world", "out=x", "tokenizer=./none/here"], "tokenizer='./none/here' can't be loaded"),
        (["musique", "out=x"], "give a value for: in="),
        (["musique", "in=nothing.json", "out=x"], "nothing.json: no such file"),
    ],
)
def test_mistakes_are_explained(
    argv: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_settings_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from data_pipeline.__main__ import main; main(sys.argv[1:]); "
        "heavy = {'hydra', 'omegaconf', 'datasets', 'pyarrow', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    for argv, setting in (
        (["--help"], "musique"),
        (["world", "--help"], "n_train"),
        (["musique", "--help"], "n_validation"),
    ):
        command = [sys.executable, "-c", code, *argv]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "usage: python -m data_pipeline" in done.stdout and setting in done.stdout


def test_a_tokenizer_counts_its_tokens(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = WorldConfig(lengths={1500: 1}, shard_size=100)
    counts = {"train": 2, "validation": 0, "test": 0}
    build_world(tmp_path / "w", seed=1, n_questions=counts, config=config, tokenizer=str(tmp_path))
    store = ContextStore(tmp_path / "w" / "contexts", tokenizer=str(tmp_path), shard_size=100)
    (context,) = (store.get(id) for id in store.ids())
    for shard in context.shards:
        assert shard.n_tokens == len(context.read(shard.index).split()) <= 100


def test_reading_needs_neither_datasets_nor_torch() -> None:
    code = (
        "import sys, disco_rl.data; heavy = {'torch', 'datasets', 'pyarrow', 'verl', 'ray', "
        "'transformers', 'data_pipeline'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
