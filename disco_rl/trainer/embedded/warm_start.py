"""Supervised training of a small Qwen3 on demonstrations: prompt ids in, reply ids learned."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from disco_rl.trainer.embedded.muon import Muon


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One Driver call to imitate: the chat messages of its prompt, and the reply."""

    messages: tuple[dict[str, str], ...]
    reply: str


@dataclass(frozen=True)
class ModelSize:
    """Shape of the embedded Driver (about 1M parameters by default)."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    intermediate: int = 384


@dataclass(frozen=True)
class WarmStart:
    """Schedule: linear warm-up, then cosine to a tenth. `batch` is in demonstrations."""

    steps: int = 700
    batch: int = 32
    lr: float = 2e-3
    warmup: int = 40
    weight_decay: float = 0.01
    prompt_loss: float = 0.2  # weight of a prompt token beside a reply token's 1
    copy_steps: int = 100  # first, on random strings that repeat: see `_copy_loss`
    copy_lr: float = 2e-3
    rehearse_every: int = 5  # steps between further strings of that kind
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
    """Trains in place, first copying, then the examples; returns the steps done on examples."""
    generator = torch.Generator().manual_seed(schedule.seed)
    optimizer = Muon(model.named_parameters(), schedule.lr, weight_decay=schedule.weight_decay)
    batches = _batches(examples, schedule)
    began = time.monotonic()
    model.train()
    for step in range(-schedule.copy_steps, schedule.steps):
        if time.monotonic() - began > schedule.seconds:
            return max(step, 0)
        copying = step < 0
        optimizer.lr = (
            schedule.copy_lr * min(1.0, (step + schedule.copy_steps + 1) / 30)
            if copying
            else schedule.lr * _rate(step, schedule)
        )
        if copying:
            loss = shown = _copy_loss(model, generator)
        else:
            loss, shown = _losses(model, next(batches), schedule.prompt_loss)
            if step % schedule.rehearse_every == 0:
                loss = loss + _copy_loss(model, generator)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not copying:
            on_step(step + 1, shown.item())
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


def _copy_loss(model: Qwen3ForCausalLM, generator: torch.Generator) -> torch.Tensor:
    """Cross-entropy on the second half of random strings that stand twice.

    A small Qwen3 needs some 400 steps of demonstrations before it begins to copy names that it
    has never seen; 100 steps of this (half a minute) give it that, and a step now and then
    keeps it.
    """
    length, gap, batch = 20, 4, 48
    low, high = model.config.vocab_size // 4, model.config.vocab_size
    text = torch.randint(low, high, (batch, length), generator=generator)
    between = torch.randint(low, high, (batch, gap), generator=generator)
    ids = torch.cat([text, between, text], dim=1)
    logits = model(input_ids=ids, use_cache=False).logits[:, length + gap : -1]
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, length + gap + 1 :].flatten()
    )


def _losses(
    model: Qwen3ForCausalLM, batch: Sequence[tuple[list[int], list[int]]], prompt_weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted loss to descend, and the mean loss of reply tokens alone to show."""
    length = max(len(p) + len(r) for p, r in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    weights = torch.zeros(len(batch), length)
    for row, (prompt, reply) in enumerate(batch):
        n = len(prompt) + len(reply)
        ids[row, :n] = torch.tensor(prompt + reply)
        weights[row, : len(prompt)] = prompt_weight
        weights[row, len(prompt) : n] = 1.0
    # Padding stands behind, where causal attention doesn't look, so no mask is needed.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    learned = weights[:, 1:] > 0  # other positions need no logits
    weight = weights[:, 1:][learned]
    losses = torch.nn.functional.cross_entropy(
        model.lm_head(hidden[:, :-1][learned]), ids[:, 1:][learned], reduction="none"
    )
    return (losses * weight).sum() / weight.sum(), losses.detach()[weight == 1.0].mean()
