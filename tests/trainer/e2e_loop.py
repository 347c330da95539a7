"""The agent loop of the end-to-end test, scored so that a random model's trajectories differ.

A model with random weights never writes a plan, so every real reward would be the same; this one
counts even token ids. Session 1 of every training prompt fails, as if the judge were away.
"""

from dataclasses import replace
from typing import Any

from disco_rl.core.sample import Sample
from disco_rl.core.trajectory import Trajectory
from disco_rl.rewards import RewardParts, Value
from disco_rl.trainer import resources as resources_module
from disco_rl.trainer.agent_loop import DiscoAgentLoop
from disco_rl.trainer.resources import shared
from disco_rl.trainer.reward_bridge import Score


async def even_ids(trajectory: Trajectory, sample: Sample, shards: object) -> Score:
    ids = [token for call in trajectory.calls for token in call.generation.output_ids]
    share = sum(token % 2 == 0 for token in ids) / len(ids)
    return Score(RewardParts(Value(share), Value(share), Value(0.0)), share, None)


async def judge_away(trajectory: Trajectory, sample: Sample, shards: object) -> Score:
    return Score(RewardParts.failed("the judge is away"), None, "the judge is away")


class EvenLoop(DiscoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[Any]:
        resources = shared(self.config, self.tokenizer)
        fails = kwargs.get("split") == "train" and int(kwargs["session_id"]) == 1
        scorer = judge_away if fails else even_ids
        config = self.config
        # run() looks its resources up before it first waits, so this holds for this trajectory.
        resources_module._BUILT[id(config)] = (config, replace(resources, scorer=scorer))  # type: ignore[arg-type]
        return await super().run(sampling_params, **kwargs)
