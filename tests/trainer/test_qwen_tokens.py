"""Qwen3's own tokenizer and template through the loop: exact ids, thinking on and off, by stages.

A model with random weights writes no plan, so in the first test its replies are written for it and
it only says how likely they were; in the last one it writes what it will, under verl.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verl.workers.rollout.replica import TokenOutput

from disco_rl.trainer import resources as resources_module
from disco_rl.trainer.parity import template_problems
from disco_rl.trainer.rows import check_row
from disco_rl.trainer.server_driver import ChatEncoder
from tests.trainer.qwen import write_qwen
from tests.trainer.rollout_fakes import ACCEPT, PLAN, REJECT, FakeServer, make_loop, row_kwargs

ROOT = Path(__file__).resolve().parents[2]
THOUGHT = "<think>\nTessa or Oum? Let me look — “both”.\n</think>\n\n"
TWO_STAGES = ["no plan yet", PLAN, "Oum", REJECT, PLAN, "Tessa", ACCEPT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def log_probs(model: Any, prompt: list[int], reply: list[int]) -> list[float]:
    """Of the reply's tokens, by one pass over prompt and reply, as the trainer makes it."""
    ids = torch.tensor([[*prompt, *reply]])
    with torch.inference_mode():
        hidden = model.model(ids).last_hidden_state[0, len(prompt) - 1 : -1]
        rows = torch.log_softmax(model.lm_head(hidden).float(), -1)
    return rows.gather(-1, torch.tensor(reply)[:, None])[:, 0].tolist()


class Writes(FakeServer):
    """The replies in turn, in the tokenizer's ids, with the model's own log-probabilities."""

    def __init__(self, tokenizer: Any, model: Any, replies: list[str]):
        super().__init__(tokenizer, replies)
        self.model = model

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: Mapping[str, Any]
    ) -> TokenOutput:
        text = self.replies[len(self.calls)]
        assert isinstance(text, str)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        ids = [*ids, self.tokenizer.eos_token_id]
        scored = log_probs(self.model, list(prompt_ids), ids)
        self.calls.append({"prompt_ids": list(prompt_ids), "output_ids": ids, "logprobs": scored})
        return TokenOutput(
            token_ids=ids, log_probs=scored, stop_reason="completed", extra_fields={}
        )


@pytest.mark.parametrize("thinking", [True, False])
def test_ids_are_exact_in_every_call_of_every_stage(
    thinking: bool, tokenizer: Any, model: Any, folder: Path
) -> None:
    kwargs = {"enable_thinking": thinking}
    assert template_problems(str(folder), kwargs) == []
    replies = [(THOUGHT if thinking else "") + reply for reply in TWO_STAGES]
    server = Writes(tokenizer, model, replies)
    loop = make_loop(server, window=4000)
    _, resources = resources_module._BUILT[id(loop.config)]
    shown: list[tuple[list[dict[str, str]], list[int]]] = []

    class Watched(ChatEncoder):
        def encode(self, messages: Any) -> list[int]:
            ids = super().encode(messages)
            shown.append(([dict(message) for message in messages], ids))
            return ids

    watched = replace(resources, encoder=Watched(tokenizer, kwargs))
    resources_module._BUILT[id(loop.config)] = (loop.config, watched)
    outputs = asyncio.run(loop.run({"temperature": 1.0}, **row_kwargs()))

    facts = outputs[-1].extra_fields["reward_extra_info"]["disco"]
    assert facts["stages"] == 2 and facts["stop"] == "accepted" and facts["accuracy"] == 1.0
    assert len(outputs) == len(server.calls) == len(replies)
    asked = {tuple(ids): messages for messages, ids in shown}
    opening = "<|im_start|>assistant\n" + ("" if thinking else "<think>\n\n</think>\n\n")
    for output, call, reply in zip(outputs, server.calls, replies, strict=True):
        # What was sampled is what is trained on, and says what was written.
        assert output.response_ids == call["output_ids"] and output.prompt_ids == call["prompt_ids"]
        assert tokenizer.decode(output.response_ids) == reply + "<|im_end|>"
        # The prompt is the template's text, to the token, and ends where the reply begins.
        messages = asked[tuple(output.prompt_ids)]
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **kwargs
        )
        assert tokenizer.decode(output.prompt_ids) == text and text.endswith(opening)
        assert tokenizer.encode(text, add_special_tokens=False) == output.prompt_ids
        row = output.as_dict()
        row = {name: np.asarray(row[name]) for name in ("prompts", "responses")} | {
            "input_ids": np.concatenate([row["prompts"], row["responses"]]),
            "loss_mask": np.asarray(row["response_mask"]),
            "rollout_log_probs": np.asarray(row["rollout_log_probs"], dtype=np.float32),
            "digest": output.extra_fields["digest"],
        }
        check_row("row", row, masked=False)
        again = log_probs(model, output.prompt_ids, output.response_ids)
        assert again == pytest.approx(list(output.response_logprobs), abs=1e-5)
    # Thinking is sampled and trained on, and stands in no later prompt.
    later = [tokenizer.decode(output.prompt_ids) for output in outputs[1:]]
    assert any("Oum" in text for text in later)
    assert not any("Let me look" in text for text in later[1:])


PROGRAM = """
import sys
from disco_rl.config import compose
from disco_rl.trainer.launch import train
from tests.trainer.e2e_world import write
from pathlib import Path
train(compose([*write(Path(sys.argv[1])), *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("thinking", [True, False])
def test_a_step_under_verl(thinking: bool, folder: Path, tmp_path: Path) -> None:
    """Rollout server, rows, trainer, whose own check of digests ends the run where one differs."""
    overrides = [
        f"actor_rollout_ref.model.path={folder}",
        f"data.apply_chat_template_kwargs.enable_thinking={thinking}",
        "data.train_batch_size=2",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024",
        "data.val_max_samples=2",
        "trainer.total_training_steps=1",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
    ]
    log = tmp_path / "metrics.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "world"), *overrides],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VERL_FILE_LOGGER_PATH": str(log)},
        capture_output=True,
        text=True,
        timeout=1700,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (line,) = log.read_text().splitlines()
    metrics = json.loads(line)["data"]
    assert metrics["disco/optimizer_steps"] == 1 and metrics["disco/rows"] > 4
    assert metrics["disco/logprob_diff_max"] < 1e-4
    assert metrics["disco/train/masked_count"] == 2  # by the world's own design
