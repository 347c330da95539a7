"""The best checkpoint by validation, and the end of patience."""

import os
from pathlib import Path
from typing import Any

import pytest
from omegaconf import open_dict
from verl.trainer.ppo.v1 import PPOTrainerSync

from disco_rl.export.checkpoint import find_checkpoint
from disco_rl.trainer import trainer as trainer_module
from disco_rl.trainer.best import Best
from disco_rl.trainer.settings import TrainerSettings
from tests.trainer.test_trainer_step import make_trainer


def save(run: Path, step: int) -> None:
    """A checkpoint as verl leaves it, in small."""
    actor = run / f"global_step_{step}" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    for name in ("model_world_size_1_rank_0.pt", "optim_world_size_1_rank_0.pt"):
        (actor / name).write_text(f"step {step}")
    (actor / "fsdp_config.json").write_text('{"world_size": 1}')
    for name in ("config.json", "tokenizer_config.json"):
        (actor / "huggingface" / name).write_text("{}")


def test_the_best_is_kept_apart_and_can_be_exported(tmp_path: Path) -> None:
    best = Best.load(tmp_path, "accuracy")
    (tmp_path / "config.yaml").write_text("a: 1")
    for step, value in ((10, 0.2), (20, 0.5), (30, 0.4)):
        save(tmp_path, step)
        if best.see(step, value):
            best.keep(step)
    assert (best.step, best.value) == (20, 0.5)
    found = find_checkpoint(tmp_path / "best")
    assert found.step == 20 and found.shards[0].read_text() == "step 20"
    assert not list(found.actor.glob("optim_*")) and (tmp_path / "best" / "config.yaml").is_file()
    assert len(list((tmp_path / "best").glob("global_step_*"))) == 1


def test_a_resumed_run_goes_on_from_its_validations(tmp_path: Path) -> None:
    first = Best.load(tmp_path, "accuracy")
    first.see(10, 0.5)
    first.save()
    again = Best.load(tmp_path, "accuracy", patience=2)
    assert (again.step, again.value, again.validations) == (10, 0.5, {10: 0.5})
    assert not again.see(20, 0.5) and again.exhausted(20) is None  # as good isn't better
    assert not again.see(30, 0.1)
    assert "2 validations in a row without a better accuracy than 0.5000 of step 10" in (
        again.exhausted(30) or ""
    )
    assert again.exhausted(20) is None  # resumed from before
    again.save()
    assert Best.load(tmp_path, "accuracy", patience=3).exhausted(30) is None
    assert Best.load(tmp_path, "reward", patience=1).value is None  # of another metric: anew


def held(run: Path, scores: dict[int, float]) -> None:
    """A run that validated these steps, and ended."""
    best = Best.load(run, "accuracy", patience=2)
    for step, value in scores.items():
        save(run, step)
        if best.see(step, value):
            best.keep(step)
        best.save()


def test_validations_of_another_run_in_the_same_folder_are_forgotten(tmp_path: Path) -> None:
    held(tmp_path, {10: 0.5, 20: 0.4, 30: 0.9, 40: 0.8, 50: 0.8})
    earlier = Best.load(tmp_path, "accuracy", patience=2)
    assert earlier.exhausted(50)
    earlier.resume(50)
    assert (earlier.step, earlier.value, earlier.held()) == (30, 0.9, 30)
    earlier.resume(20)  # back to a step before the best
    assert (earlier.step, earlier.value) == (10, 0.5)
    assert earlier.held() == 10  # its checkpoint was still there
    assert Best.load(tmp_path, "accuracy").validations == {10: 0.5, 20: 0.4}
    assert find_checkpoint(tmp_path / "best_set_aside_30").step == 30
    anew = Best.load(tmp_path, "accuracy", patience=1)
    anew.resume(0)
    assert (anew.step, anew.value, anew.validations, anew.held()) == (None, None, {}, None)
    assert anew.see(1, 0.1)


def test_a_kill_while_the_best_is_replaced_loses_neither(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held(tmp_path, {10: 0.5})
    save(tmp_path, 20)
    best = Best.load(tmp_path, "accuracy")
    assert best.see(20, 0.9)
    best.save()
    real = os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(source).name == ".best.partial":
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed)
        best.keep(20)
    assert find_checkpoint(tmp_path / ".best.old").step == 10
    again = Best.load(tmp_path, "accuracy")
    again.resume(20)
    assert again.held() == again.step == 20 and not (tmp_path / ".best.old").exists()


class Synced:
    def update_weights(self, step: int) -> None:
        pass


def train(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: list[float | None],
    lost: dict[int, float] | None = None,
    **watch: Any,
) -> Any:
    """verl's loop in small, in its order: step, save, sync, validate; `scores` one a step, and the
    share of the validation that was `lost` in some."""
    trainer = make_trainer(run)
    with open_dict(trainer.config):
        trainer.config.trainer.save_freq, trainer.config.trainer.test_freq = 4, 1
        trainer.config.trainer.val_before_train = False
        trainer.config.disco.watch = {"keep_best": "accuracy", **watch}
    trainer.settings = TrainerSettings.from_config(trainer.config)
    trainer._begin_watch()
    trainer.global_steps, trainer.total_training_steps = 0, len(scores)
    trainer.checkpoint_manager, trainer.timing_raw = Synced(), {}

    def fit(self: Any, manager: object) -> None:
        self.global_steps += 1
        while self.global_steps <= self.total_training_steps:
            self.on_step_begin()
            if self.global_steps % self.config.trainer.save_freq == 0:
                self._save_checkpoint()
            self.on_step_end()
            score = scores[self.global_steps - 1]
            made = {} if score is None else {"disco/val/accuracy": score}
            made["disco/val/drop_rate"] = (lost or {}).get(self.global_steps, 0.0)
            monkeypatch.setattr(trainer_module, "summarise", lambda *_, made=made: made)
            self._val_metrics_update([], [], {}, [])
            self.on_validate_end()
            self.global_steps += 1

    monkeypatch.setattr(PPOTrainerSync, "fit", fit)
    monkeypatch.setattr(
        PPOTrainerSync, "_save_checkpoint", lambda self: save(run, self.global_steps)
    )
    monkeypatch.setattr(PPOTrainerSync, "_val_metrics_update", lambda *_, **__: {})
    monkeypatch.setattr(PPOTrainerSync, "_shutdown_dump_executor", lambda self: None)
    trainer.fit(None)
    return trainer


def test_the_trainer_keeps_the_best_of_the_steps_it_validates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    train(tmp_path, monkeypatch, [0.1, 0.4, None, 0.3])
    assert find_checkpoint(tmp_path / "best").step == 2
    # Every validated step is saved, and saved once.
    assert len(list(tmp_path.glob("global_step_*"))) == 4


def test_a_validation_that_lost_too_much_is_not_the_best(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path, monkeypatch, [0.4, 1.0, 0.5], lost={2: 0.9, 3: 0.1})
    assert find_checkpoint(tmp_path / "best").step == 3
    assert Best.load(tmp_path, "accuracy").validations == {1: 0.4, 3: 0.5}
    assert "not compared with the best: disco/val/accuracy=1.0, 0.90 lost" in caplog.text


def test_the_trainer_stops_when_patience_ends_and_stays_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = train(tmp_path, monkeypatch, [0.1, 0.4, 0.3, 0.2, 0.9, 0.9], patience=2)
    assert trainer.global_steps == 5  # the fifth was not begun
    assert "stopped early after step 4: 2 validations" in capsys.readouterr().out
    trainer.global_steps = 4  # as resumed
    trainer.fit(None)
    assert "stopped early: 2 validations" in capsys.readouterr().out
    assert not (tmp_path / "global_step_5").exists()


def test_a_run_begun_anew_is_not_compared_with_the_last_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held(tmp_path, {7: 0.9, 8: 0.8, 9: 0.8})
    train(tmp_path, monkeypatch, [0.1, 0.4, 0.3], patience=2)
    assert find_checkpoint(tmp_path / "best").step == 2
    assert Best.load(tmp_path, "accuracy").validations == {1: 0.1, 2: 0.4, 3: 0.3}


def test_the_best_of_the_loaded_step_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trainer = train(tmp_path, monkeypatch, [])
    save(tmp_path, 3)
    trainer.global_steps = 3  # as resumed, with val_before_train
    made = {"disco/val/accuracy": 0.4, "disco/val/drop_rate": 0.0}
    monkeypatch.setattr(trainer_module, "summarise", lambda *_: made)
    trainer._val_metrics_update([], [], {}, [])
    trainer.on_validate_end()
    assert find_checkpoint(tmp_path / "best").step == 3


def test_without_checkpoints_there_is_no_best(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, watch={"keep_best": "accuracy"})
    assert trainer._best is None  # save_freq isn't set


def test_a_full_disk_does_not_cost_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Best, step: int) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Best, "keep", full)
    train(tmp_path, monkeypatch, [0.1])
    assert "the best checkpoint was not kept" in caplog.text
