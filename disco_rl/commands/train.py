"""Train a Driver with GRPO.

Every setting is a Hydra override of configs/train.yaml and its groups:
  disco-rl train device=cpu trainer.total_training_steps=200
  disco-rl train --print-config reward=paper
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

HELP = "train a Driver with GRPO"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="key=value on configs/train.yaml")
    parser.add_argument(
        "--print-config", action="store_true", help="print the composed config and stop"
    )
    parser.add_argument(
        "--check", action="store_true", help="print the step's size, check the reward, and stop"
    )


def run(args: argparse.Namespace) -> int:
    from disco_rl.config import compose, missing_keys, refuse_secrets, to_yaml

    config = compose(args.overrides)
    if args.print_config:
        print(to_yaml(config), end="")
        return 0
    refuse_secrets(config)
    _inputs_exist(config)
    missing = [key for key in missing_keys(config) if key.partition(".")[0] in _OURS]
    if missing:
        raise ValueError(f"set {', '.join(missing)} (configs/train.yaml)")
    wandb = wandb_environment(config, os.environ, Path.home())
    os.environ.update(wandb)
    if wandb:
        print("wandb: no key is set, so it logs offline (`wandb sync` uploads it later)")
    from disco_rl.commands.step_plan import step_plan

    for line in step_plan(config).lines():
        print(line)
    print(check_reward(config), flush=True)
    if args.check:
        return 0
    from disco_rl.run_folder import begin
    from disco_rl.trainer.launch import train

    folder = begin(config, os.environ)
    print(f"run: {folder} (config.yaml, metrics/, checkpoints)", flush=True)
    train(config)
    return 0


_OURS = ("disco", "driver", "episode", "judge", "worker")


def check_reward(config: "DictConfig") -> str:
    """Puts known replies to some training rows to the judge; says what came out.

    Raises `RewardCheckError` where the reward can't tell right from wrong or a known trick passes,
    unless `disco.reward_check.enforce` is false.
    """
    from disco_rl.commands.reward_check import check

    settings = config.disco.get("reward_check") or {}
    seen, _ = check(config, int(settings.get("rows", 32)))
    if not seen.problems:
        return f"reward check: {seen.summary()}"
    if settings.get("enforce", True):
        seen.require()
    told = "\n".join((*seen.lines(), *(f"not enforced: {why}" for why in seen.problems)))
    return f"reward check: FAILED\n{told}"


def paths(files: Any) -> list[str]:
    """verl takes one path or a list of them."""
    return [files] if isinstance(files, str) else [str(path) for path in files or []]


def wandb_environment(config: "DictConfig", env: Any, home: Path) -> dict[str, str]:
    """What to set so that wandb, where it is asked for without a key, logs offline."""
    loggers = config.trainer.logger
    names = [loggers] if isinstance(loggers, str) else list(loggers or [])
    if "wandb" not in names or env.get("WANDB_MODE") or env.get("WANDB_API_KEY"):
        return {}
    netrc = Path(env.get("NETRC") or home / ".netrc")
    if netrc.is_file() and "wandb" in netrc.read_text(encoding="utf-8", errors="replace"):
        return {}
    return {"WANDB_MODE": "offline"}


def _inputs_exist(config: "DictConfig") -> None:
    """Raises `ValueError` for the first input that isn't there, with the command that makes it."""
    model = config.actor_rollout_ref.model.path
    for key, path in [
        *(("data.train_files", p) for p in paths(config.data.train_files)),
        *(("data.val_files", p) for p in paths(config.data.val_files)),
        ("disco.context_store", config.disco.context_store),
    ]:
        if not path or not Path(str(path)).expanduser().exists():
            raise ValueError(
                f"{key}={path}: no such file or folder; `make data` builds the embedded world, "
                "`python -m data_pipeline --help` lists the other builders"
            )
    looks_local = str(model).startswith((".", "/", "~")) or str(model).count("/") > 1
    if looks_local and not (Path(str(model)).expanduser() / "config.json").is_file():
        raise ValueError(
            f"actor_rollout_ref.model.path={model}: no model there; `make driver` builds the "
            "embedded Driver, or give the path or hub name of another"
        )
