"""One episode: plan, look up, synthesise, review, and again until accepted or out of stages."""

import asyncio
import time

from disco_rl.core.evidence import NarrowOutput, WideOutput
from disco_rl.core.plan import Action, NarrowAction, Plan
from disco_rl.core.shards import Context
from disco_rl.core.trajectory import Stage, StopReason, Trajectory
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.driver import Driver, EpisodeStop
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import DriverModel, ModelError
from disco_rl.engine.tasks import gather, within


async def run_episode(
    question: str,
    context: Context,
    model: DriverModel,
    pool: WorkerPool,
    config: EpisodeConfig,
    name: str = "",
) -> Trajectory:
    """Runs the method of the paper's section 3 on one question.

    The deadline doesn't count the time in which no Worker could be reached. `name` tells
    trajectories apart, so that a study's faults repeat.

    Never raises but for cancellation: a failed Worker is a gap in the evidence, an unusable Driver
    reply is counted and repaired once, and everything else ends the trajectory with a StopReason.
    What was done until then (stages, calls, the last answer) is kept.
    """
    trajectory = Trajectory(question, context.id)
    began = time.perf_counter()
    work = _run_to_stop(trajectory, context, model, pool, config, name)
    try:
        await within(config.deadline_s, work, uncounted=pool.outage)
    except asyncio.TimeoutError:  # the deadline's: one from within became an ERROR there
        trajectory.stop = StopReason.DEADLINE
        trajectory.error = f"episode.deadline_s={config.deadline_s:g} passed"
    trajectory.seconds = time.perf_counter() - began
    last = trajectory.accepted
    trajectory.answer = last.answer if last else None
    return trajectory


async def _run_to_stop(
    trajectory: Trajectory,
    context: Context,
    model: DriverModel,
    pool: WorkerPool,
    config: EpisodeConfig,
    name: str,
) -> None:
    try:
        trajectory.stop = await _run(trajectory, context, model, pool, config, name)
    except EpisodeStop as stop:
        trajectory.stop, trajectory.error = stop.reason, str(stop)
    except ModelError as error:
        trajectory.stop, trajectory.error = StopReason.ERROR, f"Driver: {error}"
    except Exception as error:  # the one boundary that keeps a bug from killing a whole step
        trajectory.stop = StopReason.ERROR
        trajectory.error = f"{type(error).__name__}: {error}"


async def _run(
    trajectory: Trajectory,
    context: Context,
    model: DriverModel,
    pool: WorkerPool,
    config: EpisodeConfig,
    name: str,
) -> StopReason:
    driver = Driver(model, config, trajectory.calls)
    for index in range(config.max_stages):
        earlier = tuple(trajectory.stages)
        stage = Stage(index)
        trajectory.stages.append(stage)
        stage.plan = await driver.plan(trajectory.question, len(context.shards), earlier, stage)
        await _execute(stage.plan, stage, earlier, trajectory, context, driver, pool, name)
        stage.review = await driver.review(trajectory.question, earlier, stage)
        if stage.review.accept:
            return StopReason.ACCEPTED
    return StopReason.STAGE_LIMIT


async def _execute(
    plan: Plan,
    stage: Stage,
    earlier: tuple[Stage, ...],
    trajectory: Trajectory,
    context: Context,
    driver: Driver,
    pool: WorkerPool,
    name: str,
) -> None:
    """Runs every node as soon as its parents are done; the pool ends in the plan's order."""
    outputs: dict[str, NarrowOutput | WideOutput] = {}
    done = {node.id: asyncio.Event() for node in plan.nodes}

    async def run(node: Action) -> None:
        if isinstance(node, NarrowAction):
            outputs[node.id] = await pool.run(
                node, context, trajectory.workers, f"{name}/{stage.index}"
            )
        else:
            parents = tuple(dict.fromkeys(node.inputs))
            for parent in parents:
                await done[parent].wait()
            # The terminal action is the question itself (paper, section 3), however it was put.
            task = trajectory.question if node is plan.terminal else node.instruction
            outputs[node.id] = await driver.synthesize(
                task, [outputs[p] for p in parents], earlier, stage.index, node.id
            )
        done[node.id].set()

    try:
        await gather([run(node) for node in plan.nodes])
    finally:
        stage.pool.outputs = {n.id: outputs[n.id] for n in plan.nodes if n.id in outputs}
    answer = outputs[plan.terminal.id]
    assert isinstance(answer, WideOutput)
    stage.answer = answer.text
