"""bench_step's agent loops, imported by verl's rollout process: both sides sample exactly
`rollout.response_length` tokens a call, and are rewarded for even token ids, so that the
advantages are not all zero. Everything else is ours and verl's own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from _bench_world import script
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from disco_rl.core.sample import Sample
from disco_rl.core.shards import Shard
from disco_rl.core.trajectory import Generation, Trajectory
from disco_rl.engine.protocols import Message
from disco_rl.trainer import agent_loop, resources
from disco_rl.trainer.agent_loop import DiscoAgentLoop
from disco_rl.trainer.reward_bridge import Score, Scorer
from disco_rl.trainer.server_driver import ServerDriver


def even_share(ids: Sequence[int]) -> float:
    return sum(token % 2 == 0 for token in ids) / len(ids)


class ScriptedDriver(ServerDriver):
    """Samples the reply, decodes it, and reads the script's next text in its place."""

    stages = 1
    _at = 0

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        reply = await super().generate(messages, max_tokens=max_tokens, schema=schema)
        text = script(self.stages)[self._at]
        self._at += 1
        return replace(reply, text=text, finish="stop")


class EvenScorer(Scorer):
    """Scores as in training, then gives another reward."""

    async def __call__(
        self, trajectory: Trajectory, sample: Sample, shards: Sequence[Shard] | None = None
    ) -> Score:
        score = await super().__call__(trajectory, sample, shards)
        if score.masked:
            return score
        ids = [i for c in trajectory.calls for i in c.generation.output_ids]
        return replace(score, reward=even_share(ids))


# This process serves one benchmark run only.
agent_loop.ServerDriver = ScriptedDriver  # type: ignore[misc]
resources.Scorer = EvenScorer  # type: ignore[misc]


class DiscoBench(DiscoAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[Any]:
        ScriptedDriver.stages = self.config.driver.max_stages
        return await super().run({**sampling_params, "ignore_eos": True}, **kwargs)


class StockBench(SingleTurnAgentLoop):
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        fixed = {"ignore_eos": True, "max_tokens": self.response_length}
        output = await super().run({**sampling_params, **fixed}, **kwargs)
        # Brought along, as ours is: verl's reward process would cost the stock side more.
        output.reward_score = even_share(output.response_ids)
        return output
