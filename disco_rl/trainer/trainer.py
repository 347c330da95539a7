"""verl's v1 trainers with credit by trajectory, one update a step, and our metrics.

What differs from verl's, and nowhere else:
- masked trajectories are in no group statistic and no loss, and are counted;
- advantages are scaled so that trajectories (or calls, or tokens) weigh the same;
- a step makes `disco.updates_per_step` optimizer updates whatever its number of rows, and rows are
  padded to the data-parallel size only (verl pads to, and splits by, ppo_mini_batch_size * n);
- every row is checked against what was sampled before it is trained on;
- a non-finite loss or gradient stops the run with the step saved (verl skips it and goes on);
- a finished run says so instead of training nothing in silence;
- alerts watch the metrics, the best checkpoint by validation is kept, and a run may stop early.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from disco_rl.trainer.batch_rows import BatchRows, required_multiple, save_failed
from disco_rl.trainer.best import Best
from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.metrics import summarise
from disco_rl.trainer.records_sink import RecordsSink
from disco_rl.trainer.replay import DiscoReplayBuffer, DiscoReplayBufferAsync
from disco_rl.trainer.resources import check_config
from disco_rl.trainer.rows import RowError
from disco_rl.trainer.settings import TrainerSettings
from disco_rl.trainer.step_credit import assign
from disco_rl.trainer.watch import Watch

logger = logging.getLogger(__name__)


class StepFailed(RuntimeError):
    """A step that must not be trained on; says where it was saved."""


class _StopEarly(Exception):
    """Leaves verl's training loop, which knows no other way out."""


class DiscoSteps(PPOTrainer):
    """Ours, over any of verl's trainers: named first among the bases of a class."""

    verl_mode: str  # verl's own name of the trainer: it chooses replay buffer and settings by it

    def __init__(self, config: DictConfig):
        self.settings = TrainerSettings.from_config(config)
        check_config(config)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.verl_mode
        super().__init__(config)
        self._trained_rows = 0
        self._dead_steps = 0
        self._alive = False
        self._logprob_diff_max = 0.0
        self._begin_watch()

    def _begin_watch(self) -> None:
        watch, trainer = self.settings.watch, self.config.trainer
        judge = self.config.get("judge")
        plain: Any = OmegaConf.to_container(judge, resolve=True) if judge else None
        self._watch = Watch(watch, plain)
        run = Path(str(trainer.default_local_dir))
        trains = trainer.get("save_freq", -1) > 0 and not trainer.get("val_only", False)
        keeps = trains and bool(watch.keep_best)
        self._best = Best.load(run, str(watch.keep_best), watch.patience) if keeps else None
        self._saved_step = self._better_step = -1

    # ---- the run ----

    def fit(self, agent_loop_manager: Any) -> None:
        """Trains to the last step. Returns at once, and says so, where that is done already.

        Raises `StepFailed`, or `RuntimeError` where the loop ended without training.
        """
        loaded, last = self.global_steps, self.total_training_steps
        only_validate = self.config.trainer.get("val_only", False)
        if self._best:
            self._keep(lambda best: best.resume(loaded))
        if loaded >= last and not only_validate:
            print(f"already finished: step {loaded} of {last}, nothing to train")
            return
        if self._best and not only_validate and (why := self._best.exhausted(loaded)):
            print(f"stopped early: {why}; nothing to train")
            return
        self._set_aside_records(loaded)
        try:
            super().fit(agent_loop_manager)
        except _StopEarly as stop:
            self._shutdown_dump_executor()
            print(f"stopped early after step {self.global_steps - 1}: {stop}")
            return
        if not only_validate and self.global_steps <= last:
            raise RuntimeError(
                f"training ended at step {self.global_steps - 1} of {last}; "
                "raise trainer.total_epochs or lower trainer.total_training_steps"
            )

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if not self.steps_per_epoch:
            raise ValueError(
                f"{len(self.train_dataset)} training rows are under data.train_batch_size="
                f"{self.config.data.train_batch_size}; lower it or give more rows"
            )
        possible = self.steps_per_epoch * self.config.trainer.total_epochs
        if self.total_training_steps > possible:
            raise ValueError(
                f"trainer.total_training_steps={self.total_training_steps} is over "
                f"{self.config.trainer.total_epochs} epochs of {self.steps_per_epoch} steps; "
                "raise trainer.total_epochs"
            )

    def _set_aside_records(self, loaded: int) -> None:
        if self.settings.records_dir:
            sink = RecordsSink(self.settings.records_dir)
            validates = self.config.trainer.get("val_before_train", True)
            moved = sink.set_aside("train", loaded)
            moved += sink.set_aside("val", loaded - 1 if validates else loaded)
            if moved:
                logger.info("records of steps that will run again were set aside: %s", moved)

    # ---- rollout ----

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        batch = super()._next_train_batch(num_prompts)
        tu.assign_non_tensor_data(batch, "split", "train")  # verl doesn't tell the agent loop
        return batch

    def _build_replay_buffer(self) -> Any:
        sampler = self.config.trainer.v1.sampler
        custom = sampler.get("custom_sampler")
        if custom is not None and custom.get("path"):
            return super()._build_replay_buffer()
        metric = self._resolve_filter_groups_metric()
        refill_failed = bool(sampler.get("sync_refill_failed_groups", False))
        data = self.config.data
        one_by_one = metric is not None or refill_failed
        kind = DiscoReplayBuffer if self.verl_mode == "sync" else DiscoReplayBufferAsync
        buffer = kind(
            trainer_mode=self.verl_mode,
            trainer_config=self.config.trainer.v1.get(self.verl_mode, {}),
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            refill_fn=self._add_prompts_to_generate,
            filter_groups_metric=metric,
            train_batch_size=data.train_batch_size,
            gen_batch_size=1 if one_by_one else data.get("gen_batch_size") or data.train_batch_size,
            max_inflight_gen_batches=self.config.algorithm.filter_groups.get(
                "max_inflight_gen_batches", 1
            )
            if metric is not None
            else 1,
            sync_refill_failed_groups=refill_failed,
        )
        buffer.max_refills = self.settings.max_refills
        return buffer

    # ---- credit and update ----

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        return required_multiple(self.config, dp_size, self.settings.updates_per_step)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        rows = BatchRows.fetch(batch)
        try:
            rows.check()
        except RowError as error:
            raise self._failed(batch, str(error)) from error
        facts = rows.facts()
        expected = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        metrics.update(summarise(list(facts.values()), "train", expected))
        metrics.update(self._watch.step(self.global_steps, metrics))
        self._watch_failures(facts)
        if any(not fact.masked for fact in facts.values()):
            batch = super()._compute_advantage(batch, metrics)  # rollout correction, and its mask
            correction = self.config.algorithm.get("rollout_correction")
            if correction and correction.get("rollout_rs"):  # it has rejected tokens
                rows = rows.with_mask(batch)
        settings = self.settings
        credit = assign(
            rows.rows(),
            facts,
            weighting=settings.weighting,
            loss_agg_mode=self.config.actor_rollout_ref.actor.loss_agg_mode,
            normalise=self.config.algorithm.get("norm_adv_by_std_in_grpo", True),
            shuffle_seed=settings.seed + self.global_steps if settings.shuffle_rewards else None,
        )
        self._trained_rows = credit.trained_rows
        metrics.update(credit.metrics)
        diff = rows.logprob_diff_max()
        self._logprob_diff_max = max(self._logprob_diff_max, diff)
        metrics["disco/logprob_diff_max"] = diff
        metrics["disco/logprob_diff_max_run"] = self._logprob_diff_max
        advantages = rows.spread(credit.advantages)
        return tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(
                {"advantages": advantages, "returns": advantages.clone()}, batch_size=len(batch)
            ),
        )

    def _watch_failures(self, facts: dict[str, TrajectoryFacts]) -> None:
        """A step where everything failed isn't trained on, and soon isn't waited for either."""
        reasons = Counter(fact.masked for fact in facts.values() if fact.masked)
        if sum(reasons.values()) < len(facts):
            self._dead_steps, self._alive = 0, True
            return
        self._dead_steps += 1
        limit = self.settings.max_dead_steps if self._alive else 1
        if self._dead_steps >= limit:
            raise StepFailed(
                f"step {self.global_steps}: all {len(facts)} trajectories failed"
                f" ({self._dead_steps} steps in a row); most often: {reasons.most_common(3)}"
            )
        logger.error("step %d: all trajectories failed: %s", self.global_steps, reasons)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        metrics["disco/update_skipped"] = float(not self._trained_rows)
        if not self._trained_rows:
            metrics["disco/optimizer_steps"] = 0.0
            return batch
        actor = self.config.actor_rollout_ref.actor
        updates = self.settings.updates_per_step
        batch.extra_info.update(
            {
                "calculate_entropy": actor.calculate_entropy or actor.entropy_coeff != 0.0,
                "distillation_use_topk": False,
                "distillation_only": False,
                # The sequences that a sequence-mean divides by: those in the loss, no padding.
                "global_batch_size": self._trained_rows / updates,
                "mini_batch_size": len(batch) // updates,
                "epochs": actor.ppo_epochs,
                "seed": actor.data_loader_seed,
                "dataloader_kwargs": {"shuffle": actor.shuffle},
                "temperature": self.config.actor_rollout_ref.rollout.temperature,
            }
        )
        output = self.actor_rollout_wg.update_actor(batch)
        reports = rename_dict(output["metrics"], "actor/")
        losses, norms = list(reports["actor/loss"]), list(reports["actor/grad_norm"])
        if not all(math.isfinite(value) for value in (*losses, *norms)):
            raise self._failed(
                batch,
                f"loss {losses}, gradient norm {norms}; verl makes no update from a gradient that "
                f"isn't finite, so the last good weights are in the last checkpoint",
            )
        metrics["disco/optimizer_steps"] = float(len(norms))  # one norm an update
        reports["perf/mfu/actor"] = reports.pop("actor/mfu")
        metrics.update(reduce_metrics(reports))
        return batch

    def _failed(self, batch: KVBatchMeta, reason: str) -> StepFailed:
        path = save_failed(self.config.trainer.default_local_dir, self.global_steps, batch)
        return StepFailed(f"step {self.global_steps}: {reason}; the step's rows are in {path}")

    # ---- validation ----

    def on_step_begin(self) -> None:
        super().on_step_begin()
        if self._best and (why := self._best.exhausted(self.global_steps - 1)):
            raise _StopEarly(why)

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self._saved_step = self.global_steps

    def on_step_end(self) -> None:
        # What is validated next is saved first, while the rollout servers sleep, so that the best
        # can be copied.
        every, step = self.config.trainer.test_freq, self.global_steps
        due = every > 0 and (step % every == 0 or step >= self.total_training_steps)
        if self._best and due and self._saved_step != step:
            self._save_checkpoint()
        super().on_step_end()

    def on_validate_end(self) -> None:
        super().on_validate_end()
        if self._best is None:
            return
        step = self.global_steps

        def note(best: Best) -> None:
            best.save()
            # Of a loaded step it's there too, unless it was loaded from another folder.
            if self._better_step == step and best.saved(step):
                print(f"best {best.metric} so far, {best.value:.4f}: {best.keep(step)}")

        self._keep(note)

    def _keep(self, act: Callable[[Best], None]) -> None:
        assert self._best is not None
        try:
            act(self._best)
        except OSError as error:  # a full disk shouldn't cost the run
            logger.error("the best checkpoint was not kept: %s", error)

    def _val_metrics_update(
        self,
        data_sources: list,
        sample_uids: list,
        reward_extra_infos_dict: dict,
        sample_turns: list,
        expected_acc_counts: dict | None = None,
    ) -> dict[str, float]:
        ours = reward_extra_infos_dict.pop("disco", [])
        metrics = super()._val_metrics_update(
            data_sources,
            sample_uids,
            reward_extra_infos_dict,
            sample_turns,
            expected_acc_counts=expected_acc_counts,
        )
        facts = [TrajectoryFacts.from_dict(fact) for fact in ours if fact is not None]
        expected = sum(expected_acc_counts.values()) if expected_acc_counts else None
        ours_too = summarise(facts, "val", expected)
        if self._best:
            name = f"disco/val/{self._best.metric}"
            value, lost = ours_too.get(name), ours_too.get("disco/val/drop_rate", 0.0)
            if value is None or lost > self.settings.watch.masked_share:
                logger.error("not compared with the best: %s=%s, %.2f lost", name, value, lost)
            elif self._best.see(self.global_steps, value):
                self._better_step = self.global_steps
        return metrics | ours_too


@register_trainer("disco")
class DiscoTrainer(DiscoSteps, PPOTrainerSync):
    """`mode=sync`."""

    verl_mode = "sync"
