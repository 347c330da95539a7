"""Runs and scores one episode a sample, many at once, and keeps every record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disco_rl.core.sample import Sample
from disco_rl.core.shards import Context
from disco_rl.core.trajectory import Trajectory
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import DriverModel
from disco_rl.engine.tasks import gather
from disco_rl.rewards import Judge, RewardParts, score


@dataclass(frozen=True, slots=True)
class Scored:
    """One sample's trajectory and reward parts."""

    sample: Sample
    trajectory: Trajectory
    parts: RewardParts


async def evaluate(
    samples: Sequence[Sample],
    context: Callable[[str], Context],
    driver: DriverModel,
    pool: WorkerPool,
    episode: EpisodeConfig,
    judge: Judge,
    on_done: Callable[[], object] = lambda: None,
) -> list[Scored]:
    """Scored trajectories in the order of the samples.

    All episodes run at once; the Driver's server and the Worker pool bound what is computed
    together. A failed episode is kept, with its failure in the parts.
    """

    async def one(sample: Sample) -> Scored:
        shards = context(sample.context_id)
        async with pool.admit(shards):
            trajectory = await run_episode(
                sample.question, shards, driver, pool, episode, str(sample.index)
            )
        parts = await score(trajectory, sample, judge)
        on_done()
        return Scored(sample, trajectory, parts)

    return await gather([one(sample) for sample in samples])
