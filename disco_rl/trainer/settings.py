"""Our keys of the run's config, checked once, before anything expensive starts."""

from dataclasses import dataclass, field
from typing import Any

from disco_rl.trainer.credit import Weighting
from disco_rl.trainer.watch import WatchSettings


@dataclass(frozen=True)
class TrainerSettings:
    """Group `disco` of the config; each field is documented where it is set, in configs/.

    context_store: folder of the contexts that the rows name
    records_dir: where trajectory records go, or None
    weighting: what weighs the same in the policy loss (`segment_weighting`)
    updates_per_step: optimizer updates a step; exact weighting needs 1
    shuffle_rewards: the control that must not learn
    seed: of the shuffling
    max_refills: flat groups replaced in one step at most (with algorithm.filter_groups.enable)
    max_dead_steps: steps in a row without a usable trajectory after which the run stops
    watch: alerts, canaries, the best checkpoint and early stop
    """

    context_store: str
    records_dir: str | None = None
    weighting: Weighting = Weighting.TRAJECTORY
    updates_per_step: int = 1
    shuffle_rewards: bool = False
    seed: int = 0
    max_refills: int = 256
    max_dead_steps: int = 3
    watch: WatchSettings = field(default_factory=WatchSettings)

    @classmethod
    def from_config(cls, config: Any) -> "TrainerSettings":
        """Raises `ValueError` naming the key that is missing, malformed or contradicts verl's."""
        disco = config.get("disco")
        if not disco or not disco.get("context_store"):
            raise ValueError("disco.context_store is not set; give the folder of the contexts")
        try:
            weighting = Weighting(disco.get("segment_weighting", cls.weighting))
        except ValueError:
            raise ValueError(
                f"disco.segment_weighting={disco.segment_weighting!r}; "
                f"choose one of {[w.value for w in Weighting]}"
            ) from None
        settings = cls(
            context_store=str(disco.context_store),
            records_dir=str(disco.records_dir) if disco.get("records_dir") else None,
            weighting=weighting,
            updates_per_step=int(disco.get("updates_per_step", cls.updates_per_step)),
            shuffle_rewards=bool(disco.get("shuffle_rewards", cls.shuffle_rewards)),
            seed=int(disco.get("seed", cls.seed)),
            max_refills=int(disco.get("max_refills", cls.max_refills)),
            max_dead_steps=int(disco.get("max_dead_steps", cls.max_dead_steps)),
            watch=WatchSettings.from_config(disco.get("watch")),
        )
        for name in ("updates_per_step", "max_dead_steps"):
            if getattr(settings, name) < 1:
                raise ValueError(f"disco.{name} must be at least 1")
        _check_verl(config)
        trainer = config.trainer
        if (
            settings.watch.patience is not None
            and trainer.get("save_freq", -1) <= 0
            and not trainer.get("val_only", False)
        ):
            raise ValueError(
                f"disco.watch.patience={settings.watch.patience} needs checkpoints, and "
                f"trainer.save_freq={trainer.get('save_freq', -1)} makes none; set it above 0, or "
                "disco.watch.patience to null"
            )
        return settings


def _check_verl(config: Any) -> None:
    """verl's keys that would silently train something else than what was asked for."""
    rollout = config.actor_rollout_ref.rollout
    wrong = {
        "algorithm.adv_estimator": (config.algorithm.adv_estimator, "grpo"),
        "algorithm.use_kl_in_reward": (
            config.algorithm.use_kl_in_reward,
            False,
        ),  # a KL in the reward would be lost: use actor.use_kl_loss
        "actor_rollout_ref.rollout.calculate_log_probs": (rollout.calculate_log_probs, True),
        "distillation.enabled": ((config.get("distillation") or {}).get("enabled", False), False),
    }
    for key, (given, needed) in wrong.items():
        if given != needed:
            raise ValueError(f"{key}={given} doesn't work with our trainer; set it to {needed}")
    correction = config.algorithm.get("rollout_correction")
    if correction and correction.get("bypass_mode", False):
        raise ValueError(
            "algorithm.rollout_correction.bypass_mode=true leaves out the trainer's own "
            "log-probabilities, so token parity can't be checked; set it to false"
        )
    room = rollout.get("max_model_len") or rollout.prompt_length + rollout.response_length
    window = config.driver.window
    if window > room:
        raise ValueError(
            f"driver.window={window} is over the rollout server's {room} tokens; raise "
            "actor_rollout_ref.rollout.max_model_len or lower driver.window"
        )
