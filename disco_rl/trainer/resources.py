"""What all trajectories of one rollout process share: contexts, Workers, judge, tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.pool import WorkerPool
from disco_rl.prompts import load_prompts
from disco_rl.trainer.records_sink import RecordsSink
from disco_rl.trainer.reward_bridge import Scorer
from disco_rl.trainer.server_driver import ChatEncoder
from disco_rl.trainer.settings import TrainerSettings


@dataclass(frozen=True)
class Resources:
    """Built once per process, so that caches, memos and bounds hold for all its trajectories."""

    contexts: Any  # ContextStore: get(context_id) -> Context
    pool: WorkerPool
    scorer: Scorer
    encoder: ChatEncoder
    episode: EpisodeConfig
    sink: RecordsSink | None
    filler: int  # a token id for rows that are in no loss

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> "Resources":
        """From the composed config. Raises `ValueError` or `OSError` naming what is missing."""
        from disco_rl.data.store import ContextStore
        from disco_rl.engine.workers import build_pool

        settings = TrainerSettings.from_config(config)
        driver = _plain(config.driver)
        prompts = load_prompts(driver.pop("prompts", "full"))
        processes = int(config.actor_rollout_ref.rollout.agent.num_workers)
        kwargs = config.data.get("apply_chat_template_kwargs") or {}
        return cls(
            contexts=ContextStore(settings.context_store),
            pool=build_pool(
                _plain(config.worker),
                faults=_plain(config.get("faults") or {}),
                processes=processes,
            ),
            scorer=_scorer(config, processes),
            encoder=ChatEncoder(tokenizer, kwargs),
            episode=EpisodeConfig(prompts, **driver, **_plain(config.episode)),
            sink=RecordsSink(settings.records_dir) if settings.records_dir else None,
            filler=tokenizer.eos_token_id,
        )


_BUILT: dict[int, tuple[Any, Resources]] = {}


def shared(config: Any, tokenizer: Any) -> Resources:
    """The process's resources for `config`, built on first use."""
    built = _BUILT.get(id(config))
    if built is None:  # the config is kept with them, so that its id isn't given to another
        built = _BUILT[id(config)] = (config, Resources.build(config, tokenizer))
    return built[1]


def _scorer(config: Any, processes: int = 1) -> Scorer:
    watch = config.disco.get("watch") or {}
    return Scorer.from_config(
        _plain(config.judge), _plain(config.disco.reward), _plain(watch), processes=processes
    )


def _plain(node: Any) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    return dict(plain)


def check_config(config: Any) -> None:
    """What can be known without a tokenizer, before Ray's processes start and would hide it.

    Raises `ValueError` or `OSError` naming the key.
    """
    settings = TrainerSettings.from_config(config)
    if not Path(settings.context_store).is_dir():
        raise ValueError(
            f"disco.context_store={settings.context_store} is no folder; build the data first"
        )
    _scorer(config)
    driver = _plain(config.driver)
    EpisodeConfig(load_prompts(driver.pop("prompts", "full")), **driver, **_plain(config.episode))
