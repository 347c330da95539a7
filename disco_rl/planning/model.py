"""A decoder's size, from its architecture."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

# Names of a Hugging Face config.json, in the order that they are looked for.
_HUGGING_FACE = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads", "num_attention_heads"),
    "head_dim": ("head_dim",),
    "intermediate": ("moe_intermediate_size", "intermediate_size"),
    "vocab": ("vocab_size",),
    "tied": ("tie_word_embeddings",),
    "experts": ("num_experts",),
    "active_experts": ("num_experts_per_tok",),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder with grouped-query attention and gated MLPs (Qwen3, Llama, Ministral).

    Norms and biases, under a ten-thousandth of the whole, are left out.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    experts: int = 0
    active_experts: int = 0

    @property
    def parameters(self) -> int:
        return self._count(self.experts or 1)

    @property
    def active(self) -> int:
        """Parameters that a token passes through."""
        return self._count(self.active_experts or 1)

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV cache a token, in bf16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    def flops(self, passes: int, position: float) -> float:
        """Operations a token at a mean `position`, for `passes` forward passes' worth of them.

        A backward pass is two. Two a parameter, and attention's two products over what stands
        before the token.
        """
        attention = 4 * self.layers * self.heads * self.head_dim * position
        return passes * (2 * self.active + attention)

    def _count(self, experts: int) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate * experts + self.hidden * self.experts
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * (attention + mlp) + embeddings


def architecture(name: str, known: Mapping[str, Mapping[str, Any]]) -> Architecture:
    """Of a hub name in `known` (plan.models), or of a model folder.

    Raises `ValueError` naming the key to set where it is neither.
    """
    if name in known:
        names = {field.name for field in fields(Architecture)}
        if wrong := set(known[name]) - names:
            raise ValueError(f"plan.models.{name} has unknown keys {sorted(wrong)}")
        return Architecture(**{str(key): value for key, value in known[name].items()})
    config = Path(name).expanduser() / "config.json"
    if not config.is_file():
        raise ValueError(
            f"the size of {name} isn't known: no {config} and no plan.models entry; "
            f"known: {sorted(known)}"
        )
    given = json.loads(config.read_text(encoding="utf-8"))
    found = {
        ours: next(given[name] for name in theirs if name in given)
        for ours, theirs in _HUGGING_FACE.items()
        if any(name in given for name in theirs)
    }
    found.setdefault("head_dim", given["hidden_size"] // given["num_attention_heads"])
    return Architecture(**found)
