"""A model, a tokenizer and rows small enough to train in a test; also used by the step bench."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pandas as pd
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END, PAD, BOM = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = tuple(
    re.findall(
        r"\w+",
        "the river town of old stone bridge was built by a quiet mason in spring and painted red "
        "where does who wrote when first book letter music north south winter harbour garden",
    )
)

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return float(sum(c in ground_truth for c in solution_str)) / max(1, len(solution_str))
"""


def sentences(count: int, words: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=words)) for _ in range(count)]


def make_tokenizer(vocab: int = 512) -> PreTrainedTokenizerFast:
    """A byte-level BPE with a chat template and an end token."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = ByteLevel()
    core.train_from_iterator(
        sentences(400, 12),
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=[PAD, BOM, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int | None = None,
    window: int = 2048,
    seed: int = 0,
) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, in fp32."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab or len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        max_position_embeddings=window,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def write_model(folder: Path, **shape: int) -> Path:
    """Write model and tokenizer to `folder`, as a Hugging Face folder."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, **shape)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_rows(path: Path, count: int = 16, words: int = 8, seed: int = 0) -> Path:
    """Rows with verl's columns; the reward counts letters of `ground_truth`."""
    rows = [
        {
            "data_source": "tiny",
            "prompt": [{"role": "user", "content": text}],
            "ability": "letters",
            "reward_model": {"style": "rule", "ground_truth": "aeiou"},
            "extra_info": {"index": i},
        }
        for i, text in enumerate(sentences(count, words, seed))
    ]
    pd.DataFrame(rows).to_parquet(path)
    return path


def write_world(folder: Path, **shape: int) -> list[str]:
    """Model, rows and reward in `folder`; returns the overrides that train on them."""
    folder.mkdir(parents=True, exist_ok=True)
    model = write_model(folder / "model", **shape)
    rows = write_rows(folder / "rows.parquet")
    reward = folder / "reward.py"
    reward.write_text(REWARD)
    return [
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={rows}",
        f"data.val_files={rows}",
        "data.max_prompt_length=128",
        "data.max_response_length=16",
        "data.train_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        f"reward.custom_reward_function.path={reward}",
        "reward.num_workers=1",
        "trainer.v1.trainer_mode=sync",  # verl's own trainer and loop
        "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
    ]
