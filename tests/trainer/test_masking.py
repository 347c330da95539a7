"""Every way in which a row can stop being what was sampled is refused before it is trained on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from disco_rl.core.trajectory import Generation
from disco_rl.trainer import server_driver
from disco_rl.trainer.rows import RowError, check_row
from tests.trainer.rollout_fakes import GOOD, FakeServer, byte_tokenizer, make_loop, row_kwargs

SAMPLING = {"temperature": 1.0, "logprobs": True}
Row = dict[str, Any]


def to_row(output: Any) -> Row:
    """The fields that verl stores for an output (`AgentLoopWorkerTQ._agent_loop_postprocess`)."""
    stored = output.as_dict()
    return {
        "prompts": stored["prompts"].numpy(),
        "responses": stored["responses"].numpy(),
        "input_ids": np.concatenate([stored["prompts"], stored["responses"]]),
        "loss_mask": stored["response_mask"].numpy(),
        "rollout_log_probs": stored["rollout_log_probs"].numpy(),
        "old_log_probs": stored["rollout_log_probs"].numpy(),
        "digest": stored["extra_fields"]["digest"],
    }


async def sampled_rows(server: FakeServer | None = None) -> list[Row]:
    loop = make_loop(server or FakeServer(byte_tokenizer(), GOOD))
    return [to_row(output) for output in await loop.run(SAMPLING, **row_kwargs())]


async def test_sampled_rows_pass() -> None:
    for row in await sampled_rows():
        check_row("u0_0_0", row, masked=False)


async def test_masked_row_passes_as_masked_only() -> None:
    (row,) = await sampled_rows(FakeServer(byte_tokenizer(), [RuntimeError("down")]))
    check_row("u0_0_0", row, masked=True)
    with pytest.raises(RowError, match="not masked"):
        check_row("u0_0_0", row, masked=False)


def encode_again(row: Row) -> Row:
    tokenizer = byte_tokenizer()
    text = tokenizer.decode(row["responses"][:-1])
    ids = [*tokenizer.encode(text, add_special_tokens=False), int(row["responses"][-1])]
    return resized(row, np.array(ids))


def resized(row: Row, reply: np.ndarray) -> Row:
    """Another reply, everything else made to fit it, so that only the digest can tell."""
    size = len(reply)
    return row | {
        "responses": reply,
        "input_ids": np.concatenate([row["prompts"], reply]),
        "loss_mask": np.ones(size, dtype=np.int64),
        "rollout_log_probs": np.resize(row["rollout_log_probs"], size),
        "old_log_probs": np.resize(row["old_log_probs"], size),
    }


def one_token_changed(row: Row) -> Row:
    reply = row["responses"].copy()
    reply[0] += 1
    return resized(row, reply)


def stop_token_lost(row: Row) -> Row:
    return resized(row, row["responses"][:-1])


def prompt_cut_left(row: Row) -> Row:
    prompt = row["prompts"][1:]
    return row | {"prompts": prompt, "input_ids": np.concatenate([prompt, row["responses"]])}


def border_moved(row: Row) -> Row:
    """The first sampled token counted to the prompt: the sequence is the same, the mask isn't."""
    moved = resized(row, row["responses"][1:])
    prompt = np.concatenate([row["prompts"], row["responses"][:1]])
    return moved | {"prompts": prompt, "input_ids": row["input_ids"]}


def mask_shifted(row: Row) -> Row:
    mask = np.roll(np.concatenate([row["loss_mask"], [0]]), 1)[:-1]
    return row | {"loss_mask": mask}


def mask_longer(row: Row) -> Row:
    return row | {"loss_mask": np.ones(len(row["responses"]) + 1, dtype=np.int64)}


def logprobs_shifted(row: Row) -> Row:
    return row | {"rollout_log_probs": np.roll(row["rollout_log_probs"], 1)}


def logprob_missing(row: Row) -> Row:
    return row | {"rollout_log_probs": row["rollout_log_probs"][:-1]}


def logprob_not_finite(row: Row) -> Row:
    logprobs = row["rollout_log_probs"].copy()
    logprobs[2] = np.nan
    return row | {"rollout_log_probs": logprobs}


def old_logprobs_shorter(row: Row) -> Row:
    return row | {"old_log_probs": row["old_log_probs"][1:]}


def inputs_out_of_order(row: Row) -> Row:
    return row | {"input_ids": np.concatenate([row["responses"], row["prompts"]])}


MUTATIONS: list[Callable[[Row], Row]] = [
    encode_again,
    one_token_changed,
    stop_token_lost,
    prompt_cut_left,
    border_moved,
    mask_shifted,
    mask_longer,
    logprobs_shifted,
    logprob_missing,
    logprob_not_finite,
    old_logprobs_shorter,
    inputs_out_of_order,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
async def test_every_mutation_is_refused(mutate: Callable[[Row], Row]) -> None:
    for row in await sampled_rows():
        with pytest.raises(RowError, match="row u0_0_1"):
            check_row("u0_0_1", mutate(row), masked=False)


async def test_a_driver_that_encodes_replies_again_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug itself, put into the rollout: ids made from the text instead of kept."""
    real = server_driver.ServerDriver._read

    def encode(self: Any, prompt_ids: list[int], output: Any, cap: int) -> Generation:
        reply = real(self, prompt_ids, output, cap)
        tokenizer = self._encoder._tokenizer
        ids = tokenizer.encode(reply.text, add_special_tokens=False)
        logprobs = (*reply.logprobs[: len(ids)], -1.0)
        fields = {name: getattr(reply, name) for name in reply.__slots__}
        ids = (*ids, tokenizer.eos_token_id)
        return Generation(**fields | {"output_ids": ids, "logprobs": logprobs})

    monkeypatch.setattr(server_driver.ServerDriver, "_read", encode)
    for row in await sampled_rows():
        with pytest.raises(RowError, match="not those that were sampled"):
            check_row("u0_0_0", row, masked=False)
