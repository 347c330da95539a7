"""The export is the trained actor, whole, or nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from disco_rl import cli
from disco_rl.export.checkpoint import CheckpointError, find_checkpoint, merge
from disco_rl.export.export import ExportError, export
from disco_rl.export.settings import read_settings
from tests.export.build import write_checkpoint
from tests.trainer.tiny import make_model, make_tokenizer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "run")
    return tmp_path / "run"


def test_the_folder_loads_and_is_the_actor(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "driver"
    done = export(run, out)
    assert (done.step, done.difference) == (3, 0.0)
    loaded = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    trained = make_model(make_tokenizer(), seed=3)
    for name, weight in trained.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name]), name
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert "im_start" in tokenizer.apply_chat_template(
        [{"role": "user", "content": "the river"}], tokenize=False
    )
    config = json.loads((out / "generation_config.json").read_text())
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert {p.suffix for p in out.iterdir() if p.stat().st_size > 100_000} == {".safetensors"}
    assert not list(out.parent.glob(".driver*"))  # no work folder is left


def test_shards_alone_suffice_and_bf16_is_within_its_tolerance(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run", own_weights=False)
    done = export(tmp_path / "run" / "global_step_3", tmp_path / "out", dtype="bf16")
    assert 0 < done.difference < 0.02 * max(1.0, done.largest_logit)
    weights = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert weights.dtype == torch.bfloat16


@pytest.mark.parametrize("where", ["", "global_step_3", "global_step_3/actor"])
def test_run_step_and_actor_folders_are_found(run: Path, where: str) -> None:
    found = find_checkpoint(run / where)
    assert (found.step, found.run) == (3, run.resolve())


def test_the_newest_whole_step_is_taken(run: Path) -> None:
    write_checkpoint(run, step=5)
    assert find_checkpoint(run).step == 5
    (run / "latest_checkpointed_iteration.txt").write_text("3")  # 5 was being saved when it died
    assert find_checkpoint(run).step == 3


@pytest.mark.parametrize(
    "gone",
    [
        "fsdp_config.json",
        "model_world_size_1_rank_0.pt",
        "huggingface/config.json",
        "huggingface/tokenizer_config.json",
    ],
)
def test_a_partial_checkpoint_is_refused_by_name(run: Path, tmp_path: Path, gone: str) -> None:
    (run / "global_step_3" / "actor" / gone).unlink()
    with pytest.raises(CheckpointError, match=gone):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_ranks_are_named(run: Path) -> None:
    (run / "global_step_3" / "actor" / "fsdp_config.json").write_text('{"world_size": 4}')
    with pytest.raises(CheckpointError, match="model_world_size_4_rank_0.pt.*rank_3.pt"):
        find_checkpoint(run)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(CheckpointError, match="it holds model.safetensors"):
        find_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        find_checkpoint(tmp_path / "none")


def test_a_cut_off_shard_is_refused(run: Path, tmp_path: Path) -> None:
    shard = run / "global_step_3" / "actor" / "model_world_size_1_rank_0.pt"
    shard.write_bytes(shard.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="rank_0.pt: can't be read"):
        export(run, tmp_path / "out")


def test_weights_of_another_model_are_refused(run: Path, tmp_path: Path) -> None:
    shard = run / "global_step_3" / "actor" / "model_world_size_1_rank_0.pt"
    torch.save({"other.weight": torch.zeros(1)}, shard)
    with pytest.raises(CheckpointError, match="other.weight"):
        export(run, tmp_path / "out")
    torch.save(make_model(make_tokenizer(), hidden=32).state_dict(), shard)
    with pytest.raises(CheckpointError, match="don't fit"):
        export(run, tmp_path / "out")


def test_a_mix_of_two_saves_is_refused(run: Path, tmp_path: Path) -> None:
    other = make_model(make_tokenizer(), seed=9)
    other.save_pretrained(run / "global_step_3" / "actor" / "huggingface")
    with pytest.raises(CheckpointError, match="mixes two saves"):
        export(run, tmp_path / "out")


def test_over_the_tolerance_nothing_is_written(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="differ from the trained actor's"):
        export(run, tmp_path / "out", dtype="bf16", tolerance=1e-9)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_folder_with_something_in_it_is_kept(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(ExportError, match="--force"):
        export(run, out)
    assert (out / "mine.txt").read_text() == "keep"
    with pytest.raises(ExportError, match="part of the run"):
        export(run, run, force=True)
    with pytest.raises(CheckpointError):
        export(tmp_path / "none", out, force=True)
    assert (out / "mine.txt").exists()  # a refused export replaces nothing
    export(run, out, force=True)
    assert not (out / "mine.txt").exists() and (out / "config.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "run"]


def test_the_card_and_settings_record_the_run(run: Path, tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "actor_rollout_ref": {
            "model": {"path": "data/driver"},
            "rollout": {"n": 8, "val_kwargs": {"do_sample": False}},
        },
        "driver": {"prompts": "brief", "window": 2048},
        "worker": {"kind": "retriever", "top_k": 3, "api_key": "sk-1"},
    }
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "metrics").mkdir()
    lines = [
        {
            "step": step,
            "data": {"reward": step / 10, "val": 0.5} if step == 2 else {"reward": step / 10},
        }
        for step in range(1, 6)
    ]
    (run / "metrics" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    export(run, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- step 3" in card and "`actor_rollout_ref.rollout.n` | `8`" in card
    assert "| `reward` | 0.3 | 3 |" in card and "| `val` | 0.5 | 2 |" in card  # not step 4's or 5's
    assert "sk-1" not in card
    settings = read_settings(tmp_path / "out")
    assert settings["driver"] == {
        "prompts": "brief",
        "window": 2048,
        "sampling": {"temperature": 0.0},
    }


def test_lora_factors_are_merged(run: Path) -> None:
    found = find_checkpoint(run)
    base = make_model(make_tokenizer(), seed=3).state_dict()
    name = "model.layers.0.self_attn.q_proj"
    a, b = torch.randn(2, 64), torch.randn(64, 2)
    state = {f"base_model.model.{key}": value for key, value in base.items()}
    weight = state.pop(f"base_model.model.{name}.weight")
    state[f"base_model.model.{name}.base_layer.weight"] = weight
    state[f"base_model.model.{name}.lora_A.default.weight"] = a
    state[f"base_model.model.{name}.lora_B.default.weight"] = b
    torch.save(state, found.shards[0])
    with pytest.raises(CheckpointError, match="lora_train_meta.json is missing"):
        merge(found)
    (found.actor / "lora_train_meta.json").write_text('{"r": 2, "lora_alpha": 8}')
    merged = merge(found)
    assert merged.keys() == base.keys()
    assert torch.allclose(merged[f"{name}.weight"], weight + 4.0 * b @ a)


def test_shards_of_two_ranks_join_to_the_whole(run: Path, tmp_path: Path) -> None:
    actor = run / "global_step_3" / "actor"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.export.sharded", str(actor), str(rank), "2"],
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=300) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
    (actor / "fsdp_config.json").write_text('{"world_size": 2}')
    merged = merge(find_checkpoint(run))
    whole = make_model(make_tokenizer(), seed=3).state_dict()
    assert merged.keys() == whole.keys()
    assert all(torch.equal(merged[name], whole[name]) for name in whole)
    assert export(run, tmp_path / "out").difference == 0.0


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(run), str(tmp_path / "out")]) == 0
    assert "logit check: largest difference 0" in capsys.readouterr().out
    assert cli.main(["export", str(run), str(tmp_path / "out")]) == 2
    assert "--force" in capsys.readouterr().err
