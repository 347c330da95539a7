"""Weights measured as gradients: our credit through verl's own PPO loss into a tiny model.

The model has parameters of its own for every trajectory, so that the gradient of each says how
hard that trajectory pulls. All sample the same token, so equal weights give equal gradients.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig
from verl.workers.config.optimizer import FSDPOptimizerConfig
from verl.workers.utils.losses import ppo_loss

from disco_rl.trainer.credit import Weighting
from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.step_credit import Row, assign

MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"]
VOCABULARY = 5


@dataclass(frozen=True)
class Session:
    """One trajectory: its calls' token counts, its reward (None: masked)."""

    key: str
    calls: tuple[int, ...]
    reward: float | None


def gradients(
    sessions: list[Session],
    weighting: Weighting,
    mode: str,
    *,
    padding: int = 0,
    micro_batches: int = 1,
    use_kl: bool = False,
) -> dict[str, float]:
    """Norm of the loss's gradient with respect to each session's parameters, by its key."""
    facts = {
        s.key: replace(TrajectoryFacts.lost("down"), masked=None, reward=s.reward)
        if s.reward is not None
        else TrajectoryFacts.lost("down")
        for s in sessions
    }
    rows, owner, masks = [], [], []
    for number, session in enumerate(sessions):
        calls = session.calls if session.reward is not None else (1,)
        for index, size in enumerate(calls):
            masked = session.reward is None
            rows.append(Row(f"{session.key}_{index}", 0 if masked else size))
            owner.append(number)
            masks.append(torch.zeros(size) if masked else torch.ones(size))
    for index in range(padding):
        rows.append(Row(f"pad_{index}_0", 0, padding=True))
        owner.append(0)
        masks.append(torch.zeros(1))
    credit = assign(rows, facts, weighting=weighting, loss_agg_mode=mode, normalise=True)
    model = torch.zeros(len(sessions), VOCABULARY, requires_grad=True)
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=2,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode=mode,
        use_kl_loss=use_kl,
        optim=FSDPOptimizerConfig(lr=1e-6),
    )
    loss = torch.zeros(())
    for part in np.array_split(np.arange(len(rows)), micro_batches):
        loss = loss + _loss(
            part, model, owner, masks, credit.advantages, config, credit.trained_rows
        )
    loss.backward()
    assert model.grad is not None
    return {s.key: model.grad[i].norm().item() for i, s in enumerate(sessions)}


def _loss(
    part: np.ndarray,
    model: torch.Tensor,
    owner: list[int],
    masks: list[torch.Tensor],
    advantages: np.ndarray,
    config: ActorConfig,
    trained_rows: int,
) -> torch.Tensor:
    def nested(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    # verl's engine gives log-probabilities of prompt (one token) and reply, moved left by one.
    sequences = [torch.log_softmax(model[owner[i]], -1)[0].expand(len(masks[i]) + 1) for i in part]
    detached = [sequence[1:].detach() for sequence in sequences]
    data = TensorDict(
        {
            "prompts": nested([torch.zeros(1, dtype=torch.int64) for _ in part]),
            "responses": nested([torch.zeros(len(masks[i]), dtype=torch.int64) for i in part]),
            "response_mask": nested([masks[i] for i in part]),
            "old_log_probs": nested(detached),
            "ref_log_prob": nested([old - 1.0 for old in detached]),
            "advantages": nested([masks[i] * float(advantages[i]) for i in part]),
        },
        batch_size=len(part),
    )
    tu.assign_non_tensor(
        data,
        dp_size=1,
        batch_num_tokens=int(sum(mask.sum() for mask in masks)),
        global_batch_size=NonTensorData(trained_rows / 1),
    )
    values = torch.cat(sequences)
    offsets = torch.tensor([0, *np.cumsum([len(s) for s in sequences])])
    log_probs = torch.nested.nested_tensor_from_jagged(values, offsets)
    loss, _ = ppo_loss(config, {"log_probs": log_probs}, data)
    return loss


# Two groups with the same two rewards: all advantages have the same size.
ONE_CALL = [
    Session("a_0", (4,), 0.0),
    Session("a_1", (4,), 1.0),
    Session("b_0", (4,), 0.0),
    Session("b_1", (4,), 1.0),
]
MANY_CALLS = [
    Session("a_0", (4,), 0.0),
    Session("a_1", (4, 4, 4), 1.0),
    Session("b_0", (2, 9), 0.0),
    Session("b_1", (7, 1, 1, 3, 5), 1.0),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("padding", "micro_batches"), [(0, 1), (5, 1), (0, 3), (5, 4)])
def test_trajectory_weight_does_not_depend_on_its_calls(
    mode: str, padding: int, micro_batches: int
) -> None:
    pulls = gradients(
        MANY_CALLS, Weighting.TRAJECTORY, mode, padding=padding, micro_batches=micro_batches
    )
    assert min(pulls.values()) > 0
    np.testing.assert_allclose(list(pulls.values()), next(iter(pulls.values())), rtol=1e-5)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_the_size_of_the_step_is_that_of_one_call_each(mode: str) -> None:
    """More calls don't make a larger update: the learning rate means the same."""
    many = gradients(MANY_CALLS, Weighting.TRAJECTORY, mode, padding=3)
    one = gradients(ONE_CALL, Weighting.TRAJECTORY, mode)
    np.testing.assert_allclose(list(many.values()), list(one.values()), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_call_weight(mode: str) -> None:
    pulls = gradients(MANY_CALLS, Weighting.CALL, mode, padding=2, micro_batches=2)
    calls = np.array([len(session.calls) for session in MANY_CALLS])
    per_call = np.array(list(pulls.values())) / calls
    np.testing.assert_allclose(per_call, per_call[0], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_token_weight(mode: str) -> None:
    pulls = gradients(MANY_CALLS, Weighting.TOKEN, mode, padding=2, micro_batches=2)
    tokens = np.array([sum(session.calls) for session in MANY_CALLS])
    per_token = np.array(list(pulls.values())) / tokens
    np.testing.assert_allclose(per_token, per_token[0], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weighting", list(Weighting))
@pytest.mark.parametrize("use_kl", [False, True])
def test_masked_trajectory_has_no_gradient_and_moves_no_other(
    mode: str, weighting: Weighting, use_kl: bool
) -> None:
    lost = Session("a_2", (6, 6), None)
    pulls = gradients([*MANY_CALLS, lost], weighting, mode, padding=1, use_kl=use_kl)
    assert pulls.pop("a_2") == 0.0
    without = gradients(MANY_CALLS, weighting, mode, use_kl=use_kl)
    for key, pull in without.items():
        assert pulls[key] == pytest.approx(pull, rel=1e-5)


def test_without_our_scale_three_calls_pull_three_times() -> None:
    """verl's behaviour, which the default removes: shows that these gradients can tell."""
    pulls = gradients(
        [Session("a_0", (4,), 0.0), Session("a_1", (4, 4, 4), 1.0)], Weighting.TOKEN, "token-mean"
    )
    assert pulls["a_1"] / pulls["a_0"] == pytest.approx(3.0)
