"""Every shipped config composes, in every choice of every group."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from disco_rl.config import compose, configs_dir
from disco_rl.engine.config import EpisodeConfig
from disco_rl.prompts import load_prompts
from disco_rl.rewards import PRESETS, build_judge, weights_from
from disco_rl.trainer.watch import WatchSettings

CONFIGS = configs_dir()
FILES = sorted(CONFIGS.rglob("*.yaml"))

# What a choice leaves open for the user to say.
_JUDGE = ["judge.url=http://127.0.0.1:8000/v1", "judge.model=some"]
NEEDS = {"judge=llm": _JUDGE} | {
    f"experiment={path.stem}": _JUDGE[:1] for path in (CONFIGS / "experiment").glob("*.yaml")
}


def mounted(name: str) -> list[str]:
    """Groups that a primary config mounts."""
    entries = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["defaults"]
    keys = [next(iter(e)) for e in entries if isinstance(e, dict)]
    return [k.removeprefix("override ").strip("/ ").partition("@")[0] for k in keys]


def choices(name: str) -> list[str]:
    return [
        f"{group}={path.stem}"
        for group in mounted(name)
        if (CONFIGS / group).is_dir()
        for path in sorted((CONFIGS / group).glob("*.yaml"))
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_every_file_is_yaml_with_known_users(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8")) is not None
    group = path.parent.relative_to(CONFIGS).as_posix()
    if group not in (".", "data_pipeline"):
        users = [name for name in ("train", "ask", "eval") if group in mounted(name)]
        assert users, f"no primary config mounts the group {group!r}"


@pytest.mark.parametrize("choice", ["", *choices("train")])
def test_train_composes_with_every_choice(choice: str) -> None:
    config = compose([choice, *NEEDS.get(choice, [])] if choice else [])
    resolved = _resolved(config)
    assert resolved["algorithm"]["adv_estimator"] == "grpo"
    weights_from(resolved["disco"]["reward"])
    build_judge(resolved["judge"])
    episode(resolved)


@pytest.mark.parametrize("choice", ["", *choices("ask")])
def test_ask_composes_with_every_choice(choice: str) -> None:
    resolved = _resolved(compose([choice] if choice else [], name="ask"))
    driver = episode(resolved)
    assert driver.window == 24_576 and driver.max_stages == 10  # the paper's


@pytest.mark.parametrize("choice", ["", *choices("eval")])
def test_eval_composes_with_every_choice(choice: str) -> None:
    given = [choice] if choice else []
    config = compose([*given, "benchmark.source=x.json"], name="eval")
    if choice == "worker=chat":
        config.worker.url, config.worker.model = "http://127.0.0.1:1/v1", "m"
    if choice == "judge=llm":
        config.judge.url, config.judge.model = "http://127.0.0.1:1/v1", "m"
    resolved = _resolved(config)
    assert resolved["models"]["worker"]["url"] is None  # the driver's, until it is set
    build_judge(resolved["judge"])


def test_reward_configs_are_the_presets() -> None:
    files = {path.stem: path for path in (CONFIGS / "reward").glob("*.yaml")}
    assert set(files) == set(PRESETS)
    for name, path in files.items():
        config = yaml.safe_load(path.read_text())
        assert config["preset"] == name and weights_from(config) == PRESETS[name]


def test_a_run_keeps_its_judges_verdicts_and_an_evaluation_need_not() -> None:
    config = compose(["judge=llm", *_JUDGE, "trainer.default_local_dir=runs/a"])
    assert _resolved(config)["judge"]["cache_dir"] == "runs/a/judge"
    assert compose(["judge=llm", *_JUDGE, "disco.judge_cache=null"]).judge.cache_dir is None
    for name in ("train", "eval"):
        given = compose(["judge=llm", *_JUDGE, "judge.cache_dir=/x"], name=name)
        assert given.judge.cache_dir == "/x"
    assert compose(["judge=llm", *_JUDGE], name="eval").judge.cache_dir is None


def test_a_second_judge_is_one_override() -> None:
    judge = "{name: llm, url: 'http://127.0.0.1:8000/v1', model: other}"
    config = compose([f"disco.watch.second_judge={judge}", "disco.watch.patience=3"])
    watch = OmegaConf.to_container(config.disco.watch, resolve=True)
    assert WatchSettings.from_config(watch).patience == 3  # type: ignore[arg-type]
    build_judge(watch["second_judge"])  # type: ignore[index,call-overload]


def test_the_paper_is_the_default_method() -> None:
    """Section 4: G = 8, at most 10 stages, a window of 24K and replies of 16K."""
    config = compose(["device=gpu"])
    assert config.actor_rollout_ref.rollout.n == 8
    assert config.actor_rollout_ref.rollout.calculate_log_probs is True


def episode(config: dict[str, Any]) -> EpisodeConfig:
    known = EpisodeConfig.__dataclass_fields__
    driver = {k: v for k, v in config["driver"].items() if k in known and k != "prompts"}
    return EpisodeConfig(load_prompts(config["driver"]["prompts"]), **driver, **config["episode"])


def _resolved(config: DictConfig) -> dict[str, Any]:
    """Plain containers; raises where an interpolation points nowhere."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]
