"""The agent loop of the outage test: a random model's trajectories, judged over a socket.

A model with random weights never answers, so each trajectory is given an answer that says whether
its token ids sum to an even number, which differs within a group; and at which step it is.
"""

from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from disco_rl.core.sample import Sample
from disco_rl.core.trajectory import Trajectory
from disco_rl.trainer import resources as resources_module
from disco_rl.trainer.agent_loop import DiscoAgentLoop
from disco_rl.trainer.resources import shared
from disco_rl.trainer.reward_bridge import Score, Scorer

STEP: ContextVar[int] = ContextVar("step")


class AnsweringScorer(Scorer):
    async def __call__(self, trajectory: Trajectory, sample: Sample, shards: Any = None) -> Score:
        total = sum(i for call in trajectory.calls for i in call.generation.output_ids)
        trajectory.answer = f"{'even' if total % 2 == 0 else 'odd'} {total} at step {STEP.get()}"
        return await super().__call__(trajectory, sample, shards)


class JudgedLoop(DiscoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[Any]:
        resources = shared(self.config, self.tokenizer)
        if not isinstance(resources.scorer, AnsweringScorer):
            scorer = AnsweringScorer(**vars(resources.scorer))
            made = (self.config, replace(resources, scorer=scorer))
            resources_module._BUILT[id(self.config)] = made
        STEP.set(int(kwargs["global_steps"]))
        return await super().run(sampling_params, **kwargs)
