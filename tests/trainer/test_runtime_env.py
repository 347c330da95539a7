"""What goes to the nodes of a Ray that a run joins: the plugin, and no secret. Where it resumes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from disco_rl.config import compose
from disco_rl.trainer import launch

SECRETS = {
    "WANDB_API_KEY": "wandb-4711",
    "HF_TOKEN": "hf-4711",
    "OPENAI_API_KEY": "openai-4711",
    "JUDGE_KEY": "judge-4711",
    "WORKER_KEY": "worker-4711",
    "AWS_SECRET_ACCESS_KEY": "aws-4711",
}
JOIN = "+ray_kwargs.ray_init.address=auto"
PLUGIN = ("VERL_PLATFORM", "VERL_USE_EXTERNAL_MODULES", "PYTHONPATH")


class Started(Exception):
    """Ray would start here."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What Ray is started with; nothing starts."""
    import ray
    import verl.trainer.main_ppo  # noqa: F401  (before the environment names our plugin)

    found: dict[str, Any] = {}

    def init(**options: Any) -> None:
        found.update(options)
        raise Started

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    before = dict(launch.os.environ)
    launch.os.environ.update(SECRETS)
    yield found
    launch.os.environ.clear()
    launch.os.environ.update(before)


def start(*overrides: str) -> None:
    with pytest.raises(Started):
        launch.train(compose(overrides))


def variables(asked: dict[str, Any]) -> dict[str, str]:
    text = json.dumps(asked, default=str)
    assert not any(name in text or value in text for name, value in SECRETS.items())
    return dict(asked["runtime_env"]["env_vars"])


def test_a_joined_ray_gets_the_plugin_and_no_secret(asked: dict[str, Any], tmp_path: Path) -> None:
    start("experiment=qwen3_8b", "rehearsal=cpu", JOIN, f"trainer.default_local_dir={tmp_path}")
    env = variables(asked)
    assert asked["address"] == "auto" and "num_cpus" not in asked and "_temp_dir" not in asked
    assert {name: env[name] for name in PLUGIN[:2]} == {
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": launch.CPU_PLUGIN,
    }
    assert str(Path(launch.__file__).parents[2]) in env["PYTHONPATH"].split(":")
    assert "NCCL_DEBUG" in env  # verl's own


def test_on_gpus_verls_own_environment_goes_along(asked: dict[str, Any], tmp_path: Path) -> None:
    """No plugin is needed there: our classes are named in the config, which verl sends."""
    given = ["worker.url=http://w:1/v1", "judge.url=http://j:1/v1", "judge.api_key_env=JUDGE_KEY"]
    start("experiment=qwen3_8b", *given, JOIN, f"trainer.default_local_dir={tmp_path}")
    env = variables(asked)
    assert asked["address"] == "auto" and not set(PLUGIN) & set(env)


def test_a_ray_of_its_own_inherits_instead(asked: dict[str, Any], tmp_path: Path) -> None:
    start(f"trainer.default_local_dir={tmp_path}", "mode=separate_async", "data.train_batch_size=8")
    assert "runtime_env" not in asked
    assert asked["num_gpus"] == 2  # one process trains and one samples
    assert launch.os.environ["VERL_PLATFORM"] == "cpu"
    text = json.dumps(asked, default=str)
    assert not any(value in text for value in SECRETS.values())


def test_a_tracker_that_a_kill_left_empty_is_written_again(tmp_path: Path) -> None:
    """verl opens it, which empties it, and then writes; it is the last that it writes."""
    config = compose([f"trainer.default_local_dir={tmp_path}"])
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    assert launch.checkpointed_step(config) == 0
    tracker.write_text("")
    assert launch.checkpointed_step(config) == 0 and not tracker.exists()
    for step in (2, 9, 10):
        (tmp_path / f"global_step_{step}").mkdir()
    tracker.write_text("")
    assert launch.checkpointed_step(config) == 10
    assert tracker.read_text() == "10"  # for verl, which reads it too
    tracker.write_text("9")  # what it says holds: 10 was being saved
    assert launch.checkpointed_step(config) == 9
