"""Supervised training of a small Qwen3 on demonstrations: prompt ids in, reply ids learned."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One Driver call to imitate: the chat messages of its prompt, and the reply."""

    messages: tuple[dict[str, str], ...]
    reply: str


@dataclass(frozen=True)
class ModelSize:
    """Shape of the embedded Driver (about 2M parameters by default)."""

    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 3
    intermediate: int = 512


@dataclass(frozen=True)
class WarmStart:
    """Schedule: linear warm-up, then cosine to a tenth. `batch` is in demonstrations."""

    steps: int = 700
    batch: int = 32
    lr: float = 2e-3
    warmup: int = 40
    weight_decay: float = 0.01
    seed: int = 0
    seconds: float = math.inf  # stop early after this wall time (the recipe's control uses it)


def build_model(size: ModelSize, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen3ForCausalLM:
    """A freshly initialised fp32 Qwen3 for `tokenizer`; the same seed gives the same weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.hidden // size.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def encode(
    demonstration: Demonstration, tokenizer: PreTrainedTokenizerBase, template: dict[str, object]
) -> tuple[list[int], list[int]]:
    """Prompt ids (as the Driver will see them) and reply ids, the end token included."""
    prompt = tokenizer.apply_chat_template(
        list(demonstration.messages),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **template,
    )
    reply = tokenizer.encode(demonstration.reply, add_special_tokens=False)
    return list(prompt), [*reply, tokenizer.eos_token_id]


def train(
    model: Qwen3ForCausalLM,
    examples: Sequence[tuple[list[int], list[int]]],
    schedule: WarmStart,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> int:
    """Trains in place with cross-entropy on reply tokens; returns the optimizer steps done."""
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": schedule.weight_decay}, {"params": plain, "weight_decay": 0}],
        lr=schedule.lr,
        betas=(0.9, 0.98),
    )
    batches = _batches(examples, schedule)
    began = time.monotonic()
    model.train()
    for step in range(schedule.steps):
        if time.monotonic() - began > schedule.seconds:
            return step
        for group in optimizer.param_groups:
            group["lr"] = schedule.lr * _rate(step, schedule)
        loss = _loss(model, next(batches))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        on_step(step + 1, loss.item())
    return schedule.steps


def _rate(step: int, schedule: WarmStart) -> float:
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    share = (step - schedule.warmup) / max(1, schedule.steps - schedule.warmup)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share))


def _batches(
    examples: Sequence[tuple[list[int], list[int]]], schedule: WarmStart
) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Endless shuffled batches of like lengths, so that little padding is computed."""
    rng = random.Random(schedule.seed)
    order = list(range(len(examples)))
    while True:
        rng.shuffle(order)
        for start in range(0, len(order), schedule.batch * 16):
            chunk = sorted(
                order[start : start + schedule.batch * 16],
                key=lambda i: len(examples[i][0]) + len(examples[i][1]),
            )
            groups = [chunk[i : i + schedule.batch] for i in range(0, len(chunk), schedule.batch)]
            rng.shuffle(groups)
            for group in groups:
                yield [examples[i] for i in group]


def _loss(model: Qwen3ForCausalLM, batch: Sequence[tuple[list[int], list[int]]]) -> torch.Tensor:
    length = max(len(p) + len(r) for p, r in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    labels = torch.full((len(batch), length), -100, dtype=torch.long)
    mask = torch.zeros(len(batch), length, dtype=torch.long)
    for row, (prompt, reply) in enumerate(batch):
        n = len(prompt) + len(reply)
        ids[row, :n] = torch.tensor(prompt + reply)
        labels[row, len(prompt) : n] = torch.tensor(reply)
        mask[row, :n] = 1
    hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    wanted = labels[:, 1:] != -100  # only positions that predict a reply token need logits
    logits = model.lm_head(hidden[:, :-1][wanted])
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:][wanted])
