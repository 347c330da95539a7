"""One trajectory of the method as an agent loop of verl: the rollout side of training.

verl runs every trajectory of a step as a task of one event loop per rollout process, so that
their generations meet in large batches on the server. `run` never raises: verl drops all
trajectories of a prompt when one of its sessions does.
"""

import logging
from collections.abc import Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from disco_rl.core.records import to_record
from disco_rl.core.sample import Sample
from disco_rl.core.trajectory import StopReason, Trajectory
from disco_rl.engine.episode import run_episode
from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.resources import Resources, shared
from disco_rl.trainer.reward_bridge import Score
from disco_rl.trainer.rows import to_outputs
from disco_rl.trainer.server_driver import ServerDriver

logger = logging.getLogger(__name__)

TRAIN, VALIDATION = "train", "val"


class DiscoAgentLoop(AgentLoopBase):
    """Registered by configs/agent_loop.yaml; verl makes one for every trajectory."""

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any):
        # verl's own constructor builds a Continuous Token builder, which encodes replies again:
        # we never use it, and it refuses a Qwen tokenizer without <|im_end|>.
        self.config = trainer_config.config
        self.server_manager = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """`kwargs` are the sample row's fields, verl's uid, session_id and global_steps, and
        `split`, which our trainer adds to training batches only."""
        step = int(kwargs["global_steps"])
        split = kwargs.get("split", VALIDATION)
        name = f"{kwargs['uid']}_{kwargs['session_id']}"
        try:
            resources = shared(self.config, self.tokenizer)
            sample = Sample.from_row(kwargs)
            context = resources.contexts.get(sample.context_id)
        except Exception as error:  # no episode can run: lost, counted, and said why
            logger.error("trajectory %s could not start: %s", name, error)
            facts = TrajectoryFacts.lost(f"{type(error).__name__}: {error}")
            lost = Trajectory(str(kwargs.get("uid")), "", stop=StopReason.ERROR)
            return to_outputs(lost, facts, filler=self.tokenizer.eos_token_id, version=step - 1)
        driver = ServerDriver(
            self.server_manager,
            resources.encoder,
            sampling_params,
            window=resources.episode.window,
            request_id=name,
        )
        trajectory = await run_episode(
            sample.question, context, driver, resources.pool, resources.episode
        )
        score = await resources.scorer(trajectory, sample, context.shards)
        facts = TrajectoryFacts.of(
            trajectory, score, None if trajectory.calls else "the Driver was never called"
        )
        if facts.masked:
            logger.warning("trajectory %s is masked: %s", name, facts.masked)
        _record(resources, trajectory, sample, score, facts, split, step, kwargs)
        # Step s samples from the weights of step s - 1, should the server not say which.
        return to_outputs(trajectory, facts, filler=resources.filler, version=step - 1)


def _record(
    resources: Resources,
    trajectory: Trajectory,
    sample: Sample,
    score: Score,
    facts: TrajectoryFacts,
    split: str,
    step: int,
    kwargs: Mapping[str, Any],
) -> None:
    if resources.sink is None:
        return
    reward = score.to_record() | {"total": facts.reward}
    record = to_record(
        trajectory,
        sample,
        reward,
        id=f"{kwargs['uid']}_{kwargs['session_id']}",
        split=split,
        step=step,
        session=int(kwargs["session_id"]),
        masked=facts.masked,
    )
    try:
        resources.sink.write(split, step, record)
    except OSError as error:  # a full disk shouldn't cost a step that was paid for
        logger.error("the record of %s was not written: %s", record["id"], error)
