"""A trajectory as verl's rows, one a Driver call, and the invariants that every row must keep."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from disco_rl.core.trajectory import Trajectory
from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.server_driver import digest


class RowError(RuntimeError):
    """A row that isn't what was sampled; names the row and what differs."""


def to_outputs(
    trajectory: Trajectory, facts: TrajectoryFacts, *, filler: int, version: int
) -> list[Any]:
    """`AgentLoopOutput`s of a trajectory: one a Driver call with exactly the sampled ids.

    A masked trajectory, or one without a call, is a single row of one `filler` token that is in
    no loss: verl needs a row from every session. `version` is the weights' version, for rows
    whose server didn't say. The facts ride on the last row, as verl expects of a reward.
    """
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    def output(
        prompt: Sequence[int],
        reply: Sequence[int],
        logprobs: Sequence[float],
        mask: int,
        **extra: Any,
    ) -> Any:
        return AgentLoopOutput(
            prompt_ids=list(prompt),
            response_ids=list(reply),
            response_mask=[mask] * len(reply),
            response_logprobs=list(logprobs),
            num_turns=max(facts.calls, 1),
            metrics=AgentLoopMetrics(),
            extra_fields={"min_global_steps": version, "max_global_steps": version, **extra},
        )

    if facts.masked or not trajectory.calls:
        ids, zero = [filler], [0.0]
        outputs = [output(ids, ids, zero, 0, digest=digest(ids, ids, zero))]
    else:
        outputs = []
        for call in trajectory.calls:
            reply = call.generation
            server = reply.extra["server"]
            known = {
                name: server[name]
                for name in ("min_global_steps", "max_global_steps")
                if server.get(name) is not None
            }
            outputs.append(
                output(
                    reply.prompt_ids,
                    reply.output_ids,
                    reply.logprobs,
                    1,
                    digest=reply.extra["digest"],
                    **known,
                )
            )
    last = outputs[-1]
    last.reward_score = facts.reward or 0.0
    # verl averages every number here over its validation samples and filters groups by it.
    last.extra_fields["reward_extra_info"] = {"acc": facts.accuracy, "disco": facts.to_dict()}
    return outputs


def check_row(key: str, row: Mapping[str, Any], *, masked: bool) -> None:
    """Raises `RowError` unless the row is exactly what was sampled.

    `row` holds 1-D sequences `prompts`, `responses`, `input_ids`, `loss_mask`,
    `rollout_log_probs`, `old_log_probs` (optional), and the rollout's `digest`.
    """
    prompt, reply = np.asarray(row["prompts"]), np.asarray(row["responses"])
    mask = np.asarray(row["loss_mask"])
    logprobs = np.asarray(row["rollout_log_probs"], dtype=np.float32)
    sizes = {"loss_mask": len(mask), "rollout_log_probs": len(logprobs)}
    if row.get("old_log_probs") is not None:
        sizes["old_log_probs"] = len(row["old_log_probs"])
    for name, size in sizes.items():
        if size != len(reply):
            raise RowError(f"row {key}: {name} has {size} entries for {len(reply)} sampled tokens")
    if not len(prompt) or not len(reply):
        raise RowError(f"row {key}: {len(prompt)} prompt and {len(reply)} sampled tokens")
    if not np.array_equal(np.asarray(row["input_ids"]), np.concatenate([prompt, reply])):
        raise RowError(f"row {key}: input_ids are not prompt and reply joined")
    if not np.all(mask == (0 if masked else 1)):
        raise RowError(
            f"row {key}: {int(mask.sum())} of {len(mask)} sampled tokens are in the loss, "
            f"though the trajectory is {'masked' if masked else 'not masked'}"
        )
    if not np.all(np.isfinite(logprobs)):
        raise RowError(f"row {key}: a sampled token has a log-probability that isn't finite")
    if digest(prompt, reply, logprobs) != row["digest"]:
        raise RowError(f"row {key}: its ids or log-probabilities are not those that were sampled")
