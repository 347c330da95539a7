"""Keys that would train something else than asked for are refused by name; records on disk."""

import json
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from omegaconf import OmegaConf

from disco_rl.trainer.credit import Weighting
from disco_rl.trainer.records_sink import RecordsSink
from disco_rl.trainer.reward_bridge import Scorer
from disco_rl.trainer.settings import TrainerSettings
from tests.trainer.rollout_fakes import make_config


def test_defaults() -> None:
    settings = TrainerSettings.from_config(make_config())
    assert settings.weighting is Weighting.TRAJECTORY and settings.updates_per_step == 1
    assert settings.records_dir is None and not settings.shuffle_rewards


def test_patience_without_checkpoints_is_refused() -> None:
    config = make_config(watch={"keep_best": "accuracy", "patience": 2})
    with pytest.raises(ValueError, match="patience=2 needs checkpoints.*set it above 0"):
        TrainerSettings.from_config(config)
    OmegaConf.update(config, "trainer.save_freq", 5, force_add=True)
    assert TrainerSettings.from_config(config).watch.patience == 2


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("disco.context_store", None, "disco.context_store is not set"),
        ("disco.segment_weighting", "row", "choose one of .'trajectory', 'call', 'token'"),
        ("disco.updates_per_step", 0, "disco.updates_per_step must be at least 1"),
        ("algorithm.adv_estimator", "gae", "algorithm.adv_estimator=gae"),
        ("algorithm.use_kl_in_reward", True, "use_kl_in_reward=True"),
        ("actor_rollout_ref.rollout.calculate_log_probs", False, "calculate_log_probs=False"),
        ("driver.window", 4000, "driver.window=4000 is over the rollout server's 2000"),
    ],
)
def test_refused_by_name(key: str, value: Any, message: str) -> None:
    config = make_config()
    OmegaConf.update(config, key, value)
    with pytest.raises(ValueError, match=message):
        TrainerSettings.from_config(config)


def test_unknown_judge_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"oracle.*match"):
        Scorer.from_config({"name": "oracle"}, {})
    with pytest.raises(ValueError, match="gate_floor"):
        Scorer.from_config({"name": "match"}, {"accuracy": 1})


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_record_waits_for_another_nodes(tmp_path: Path) -> None:
    """Nodes are processes here: what keeps their records apart on NFS is a lock."""
    sink = RecordsSink(tmp_path)
    path = sink.path("train", 1)
    path.parent.mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline() == b"locked\n"
    writing = Thread(target=sink.write, args=("train", 1, {"step": 1}))
    writing.start()
    writing.join(0.5)
    assert writing.is_alive() and not path.read_text()
    other.communicate()
    writing.join(60)
    assert json.loads(path.read_text()) == {"step": 1}


def test_a_disk_without_locks_takes_records_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    RecordsSink(tmp_path).write("train", 1, {"step": 1})
    assert json.loads(RecordsSink(tmp_path).path("train", 1).read_text()) == {"step": 1}


def test_records_of_steps_that_run_again_are_set_aside(tmp_path: Path) -> None:
    sink = RecordsSink(tmp_path)
    for step in (1, 2, 3):
        sink.write("train", step, {"step": step, "text": "línea\n"})
    moved = sink.set_aside("train", after=1)
    assert [path.name for path in moved] == ["000002.jsonl.old", "000003.jsonl.old"]
    sink.write("train", 2, {"step": 2, "again": True})
    assert json.loads(sink.path("train", 2).read_text()) == {"step": 2, "again": True}
    assert json.loads(sink.path("train", 1).read_text())["text"] == "línea\n"
